"""Finished runs of one task side by side: a table of numbers, and a figure of how each got there."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.errors import ConfigError, RunError
from clearhead.files import write_errors
from clearhead.run import Run
from clearhead.tasks import run_config
from clearhead.tasks.base.network import load_network

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = (".svg", ".png", ".pdf")
# Okabe and Ito's colours, which stay apart for colour-blind eyes; yellow, too faint on white, is left out.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
LOWER_IS_BETTER = ("perplexity", "bits per character")
NOT_SCORES = ("step", "part", "loss", "sample")


@dataclass(frozen=True)
class Point:
    """A loss, when it was measured."""

    step: int
    minutes: float | None  # of training; none where the run has kept no times
    loss: float


@dataclass(frozen=True)
class Record:
    """What a run has left to compare."""

    name: str
    task: str
    parameters: int
    smoothing: float  # of the labels, which raises the training loss
    train: tuple[Point, ...]
    validation: tuple[Point, ...]
    scores: dict[str, float]

    @property
    def last(self) -> Point:
        """The last evaluation: that of the model as it is."""
        return self.validation[-1]

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "run": self.name,
            "task": self.task,
            "parameters": self.parameters,
            "steps": self.last.step,
            "minutes": self.last.minutes,
            "loss": self.last.loss,
            "scores": self.scores,
        }


def compare(paths: Sequence[str | Path]) -> list[Record]:
    """Read the runs; they must be of one task."""
    names = [Path(path).name for path in paths]
    unique = len(set(names)) == len(names)
    records = [read_record(Path(path), name if unique else str(path)) for path, name in zip(paths, names, strict=True)]
    first = records[0]
    for other in records[1:]:
        if other.task != first.task:
            raise RunError(
                f"runs of different tasks cannot be compared: "
                f"{first.name} is for {first.task}, {other.name} for {other.task}"
            )
    return records


def score_names(records: Sequence[Record]) -> list[str]:
    """All scores that any of the runs has, in order."""
    return list(dict.fromkeys(name for record in records for name in record.scores))


def read_record(path: Path, name: str) -> Record:
    """What a finished run has left."""
    run = Run.open(path)
    config = run_config(run)
    network, _ = load_network(run, config)
    lines = list(_lines(path / "metrics.jsonl"))
    measured = [line for line in lines if line["part"] == "validation"]
    if not measured:
        raise RunError(f"{path} has no evaluation in its metrics.jsonl")
    seconds = {line["step"]: line["seconds"] for line in _lines(path / "times.jsonl")}
    return Record(
        name=name,
        task=config.task,
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        smoothing=config.train.label_smoothing,
        train=_points([line for line in lines if line["part"] == "train"], seconds),
        validation=_points(measured, seconds),
        scores={key: value for key, value in measured[-1].items() if key not in NOT_SCORES},
    )


def _points(lines: Sequence[dict[str, Any]], seconds: dict[int, float]) -> tuple[Point, ...]:
    def minutes(step: int) -> float | None:
        return seconds[step] / 60 if step in seconds else None

    return tuple(Point(line["step"], minutes(line["step"]), line["loss"]) for line in lines)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a file that may not be there; one that a kill has torn is passed over."""
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


# --- the figure ---


def check_figure(path: Path) -> None:
    """Refuse a place or a kind of file before any work is done."""
    if path.suffix.lower() not in KINDS:
        raise ConfigError(f"cannot write {path}: a figure ends in {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    if not path.parent.is_dir():
        raise ConfigError(f"cannot write {path}: there is no folder {path.parent}")


def save_figure(records: Sequence[Record], path: Path) -> None:
    """Write the figure as SVG, PNG or PDF; text stays text, and the same runs give the same file."""
    from matplotlib import rc_context

    check_figure(path)
    settings: dict[Any, Any] = {
        "font.size": 15,
        "svg.fonttype": "none",
        "pdf.fonttype": 42,
        "svg.hashsalt": "clearhead",
    }
    undated: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    with rc_context(settings), write_errors(path):
        figure = draw(records)
        figure.savefig(path, dpi=150, metadata=undated.get(path.suffix.lower()))


def draw(records: Sequence[Record]) -> Figure:
    """Losses against steps and against time, and bars of the main score, on the size of a slide."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.33, 6), layout="constrained")
    steps, time, bars = figure.subplots(1, 3, width_ratios=(5, 5, 4))
    _draw_losses(steps, records, "steps")
    _draw_losses(time, records, "minutes")
    _draw_scores(bars, records)
    steps.set_ylabel("loss (nats)")
    steps.sharey(time)
    _draw_legend(figure, records)
    return figure


def _draw_losses(axes: Axes, records: Sequence[Record], against: str) -> None:
    """A pale line for training, a strong one with dots for validation."""
    unit = _time_unit(records) if against == "minutes" else ("steps", 1.0)

    def places(points: Sequence[Point]) -> list[float]:
        times = [math.nan if point.minutes is None else point.minutes * unit[1] for point in points]
        return [point.step for point in points] if against == "steps" else times  # nothing is drawn at nan

    for number, record in enumerate(records):
        colour = COLOURS[number % len(COLOURS)]
        training, validation = ([point.loss for point in part] for part in (record.train, record.validation))
        axes.plot(places(record.train), _smooth(training), color=colour, alpha=0.45, lw=1.5)
        axes.plot(places(record.validation), validation, color=colour, lw=2.5, marker="o", ms=6)
    axes.set_xlabel(unit[0] if against == "steps" else f"{unit[0]} of training")
    _tidy(axes)


def _time_unit(records: Sequence[Record]) -> tuple[str, float]:
    """Minutes, or what is read more easily, and how many of it a minute has."""
    longest = max((record.last.minutes or 0) for record in records)
    return ("seconds", 60.0) if longest < 2 else ("hours", 1 / 60) if longest > 180 else ("minutes", 1.0)


def _smooth(losses: Sequence[float]) -> list[float]:
    """The mean of each loss with some on both sides, the more the longer the run: single batches jump about."""
    some = len(losses) // 40
    return [sum(part) / len(part) for part in (losses[max(0, i - some) : i + some + 1] for i in range(len(losses)))]


def _draw_scores(axes: Axes, records: Sequence[Record]) -> None:
    """The first score of the task, a bar for each run under its name; lying, so that long names fit."""
    names = score_names(records)
    name = names[0] if names else "validation loss"
    values = [record.scores.get(name, math.nan) if names else record.last.loss for record in records]
    drawn = [value if math.isfinite(value) else 0.0 for value in values]
    colours = [COLOURS[number % len(COLOURS)] for number in range(len(records))]
    bars = axes.barh(range(len(records)), drawn, color=colours, height=0.4)
    for number, record in enumerate(records):
        axes.text(0, number - 0.25, f" {record.name}", va="bottom", clip_on=False)
    axes.bar_label(bars, labels=[f"{value:.4g}" for value in values], padding=4)
    room = max(0, 4 - len(records)) / 2  # two bars need not fill the height
    axes.set(yticks=[], ylim=(len(records) - 0.6 + room, -0.7 - room))
    axes.margins(x=0.35)
    axes.set_xlabel(f"{name} (lower is better)" if not names or name in LOWER_IS_BETTER else name)
    _tidy(axes)


def _draw_legend(figure: Figure, records: Sequence[Record]) -> None:
    from matplotlib.lines import Line2D

    smoothed = any(record.smoothing for record in records)
    keys = [
        Line2D([], [], color=COLOURS[number % len(COLOURS)], lw=6, label=record.name)
        for number, record in enumerate(records)
    ]
    training = "training, with label smoothing" if smoothed else "training"
    keys.append(Line2D([], [], color="0.35", alpha=0.45, lw=1.5, label=training))
    keys.append(Line2D([], [], color="0.35", lw=2.5, marker="o", ms=6, label="validation"))
    figure.legend(handles=keys, loc="outside upper center", ncols=min(len(keys), 4), frameon=False)


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)

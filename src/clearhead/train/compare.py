"""Finished runs of one task side by side: a table of numbers, and a figure of their losses and scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.errors import ConfigError, RunError
from clearhead.files import read_lines
from clearhead.run import Run
from clearhead.tasks import run_config
from clearhead.tasks.base.network import load_network, parameter_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".svg", ".png", ".pdf")
LOWER_IS_BETTER = ("perplexity", "bits per character")
NOT_SCORES = ("step", "part", "loss", "sample", "confusion")


@dataclass(frozen=True)
class Point:
    """A loss, and when it was measured."""

    step: int
    minutes: float | None  # of training; None if the run has no times.jsonl
    loss: float


@dataclass(frozen=True)
class Record:
    """What a finished run has to compare."""

    name: str
    task: str
    parameters: int
    smoothing: float  # label smoothing, which raises the training loss
    train: tuple[Point, ...]
    validation: tuple[Point, ...]
    scores: dict[str, float]

    @property
    def last(self) -> Point:
        """The last evaluation, that of the saved weights."""
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
    """The records of finished runs, which must be of one task."""
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
    """The names of all scores that any of the runs has, in order."""
    return list(dict.fromkeys(name for record in records for name in record.scores))


def read_record(path: Path, name: str) -> Record:
    """Read the record of a finished run."""
    run = Run.open(path)
    config = run_config(run)
    network, _ = load_network(run, config)
    lines = [line for line in read_lines(run.file("metrics.jsonl")) if _has_numbers(line, "step", "loss")]
    evaluations = [line for line in lines if line.get("part") == "validation"]
    if not evaluations:
        raise RunError(f"{path} has no evaluation in its metrics.jsonl")
    times = (line for line in read_lines(run.file("times.jsonl")) if _has_numbers(line, "step", "seconds"))
    seconds = {line["step"]: line["seconds"] for line in times}
    return Record(
        name=name,
        task=config.task,
        parameters=parameter_count(network),
        smoothing=config.train.label_smoothing,
        train=_points([line for line in lines if line.get("part") == "train"], seconds),
        validation=_points(evaluations, seconds),
        scores={key: value for key, value in evaluations[-1].items() if key not in NOT_SCORES},
    )


def _has_numbers(line: dict[str, Any], *names: str) -> bool:
    """Whether a line has what we need of it: anybody can have written the file."""
    return all(isinstance(line.get(name), int | float) for name in names)


def _points(lines: Sequence[dict[str, Any]], seconds: dict[int, float]) -> tuple[Point, ...]:
    def minutes(step: int) -> float | None:
        return seconds[step] / 60 if step in seconds else None

    return tuple(Point(line["step"], minutes(line["step"]), line["loss"]) for line in lines)


# --- the figure ---


def check_figure(path: Path) -> None:
    """Refuse a file format or folder that cannot be written, before any work is done."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"cannot write {path}: a figure ends in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    if not path.parent.is_dir():
        raise ConfigError(f"cannot write {path}: there is no folder {path.parent}")


def save_figure(records: Sequence[Record], path: Path) -> None:
    """Draw losses against steps and against time, and bars of the main score, on the size of a slide."""
    from clearhead.look.render.figure import COLOURS, Figure, new_figure

    check_figure(path)
    colours = [COLOURS[number % len(COLOURS)] for number in range(len(records))]
    with new_figure(width=13.33, height=6) as page:
        steps, time, bars = page.subplots(1, 3, width_ratios=(5, 5, 4))
        _draw_losses(steps, records, colours)
        _draw_losses(time, records, colours, _time_unit(records))
        _draw_scores(bars, records, colours)
        for axes in (steps, time, bars):
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(alpha=0.25)
            axes.set_axisbelow(True)
        steps.set_ylabel("loss (nats)")
        steps.sharey(time)
        keys = _legend(records, colours)
        page.legend(handles=keys, loc="outside upper center", ncols=min(len(keys), 4), frameon=False)
    Figure(page).save(path, dpi=150)


def _time_unit(records: Sequence[Record]) -> tuple[str, float]:
    """A readable unit of time, and how many of it a minute has."""
    longest = max((record.last.minutes or 0) for record in records)
    return ("seconds", 60.0) if longest < 2 else ("hours", 1 / 60) if longest > 180 else ("minutes", 1.0)


def _draw_losses(
    axes: Axes, records: Sequence[Record], colours: Sequence[str], time_unit: tuple[str, float] | None = None
) -> None:
    """A pale line for training, a strong one with dots for validation; against steps if no unit of time is given."""

    def x(points: Sequence[Point]) -> list[float]:
        if time_unit is None:
            return [point.step for point in points]
        return [math.nan if point.minutes is None else point.minutes * time_unit[1] for point in points]

    for record, colour in zip(records, colours, strict=True):
        training, validation = ([point.loss for point in part] for part in (record.train, record.validation))
        axes.plot(x(record.train), _smooth(training), color=colour, alpha=0.45, lw=1.5)
        axes.plot(x(record.validation), validation, color=colour, lw=2.5, marker="o", ms=6)
    axes.set_xlabel("steps" if time_unit is None else f"{time_unit[0]} of training")


def _smooth(losses: Sequence[float]) -> list[float]:
    """Centred moving average over 1/20 of the run: the losses of single batches are noisy."""
    half = len(losses) // 40
    windows = (losses[max(0, i - half) : i + half + 1] for i in range(len(losses)))
    return [sum(window) / len(window) for window in windows]


def _draw_scores(axes: Axes, records: Sequence[Record], colours: Sequence[str]) -> None:
    """Horizontal bars of the task's first score, each under the name of its run, so that long names fit."""
    names = score_names(records)
    name = names[0] if names else "validation loss"
    values = [record.scores.get(name, math.nan) if names else record.last.loss for record in records]
    lengths = [value if math.isfinite(value) else 0.0 for value in values]
    bars = axes.barh(range(len(records)), lengths, color=list(colours), height=0.4)
    for number, record in enumerate(records):
        axes.text(0, number - 0.25, f" {record.name}", va="bottom", clip_on=False)
    axes.bar_label(bars, labels=[f"{value:.4g}" for value in values], padding=4)
    room = max(0, 4 - len(records)) / 2  # two bars need not fill the height
    axes.set(yticks=[], ylim=(len(records) - 0.6 + room, -0.7 - room))
    axes.margins(x=0.35)
    axes.set_xlabel(f"{name} (lower is better)" if not names or name in LOWER_IS_BETTER else name)


def _legend(records: Sequence[Record], colours: Sequence[str]) -> list[Any]:
    from matplotlib.lines import Line2D

    smoothed = any(record.smoothing for record in records)
    training = "training, with label smoothing" if smoothed else "training"
    return [
        *(Line2D([], [], color=c, lw=6, label=record.name) for record, c in zip(records, colours, strict=True)),
        Line2D([], [], color="0.35", alpha=0.45, lw=1.5, label=training),
        Line2D([], [], color="0.35", lw=2.5, marker="o", ms=6, label="validation"),
    ]

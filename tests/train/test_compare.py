"""Runs side by side: the numbers are those of the runs, and the figure is labelled."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from clearhead.errors import ConfigError, RunError
from clearhead.run import Run
from clearhead.tasks import default_config, override_config, run_config
from clearhead.train.compare import Point, Record, _smooth, compare, save_figure
from clearhead.train.start import run_training

PAIRS = "".join(f"{a} {b}\t{b} {a}\n" for a in "abcdefgh" for b in "ijklmnop")
TEXT = "to be or not to be that is the question\n" * 30
SMALL = ["model.dim=16", "model.heads=2", "model.layers=1", "data.batch_tokens=200", "tokenizer.kind=char"]


def trained(task: str, out: Path, *more: str) -> Path:
    data = out.parent / f"{task}.data"
    data.write_text(PAIRS if task == "translate" else TEXT, encoding="utf-8")
    kind = {"translate": "pairs", "lm": "text"}[task]
    words = [f"data.path={data}", f"data.kind={kind}", *SMALL, "train.max_steps=6", "train.evaluate_every=3", *more]
    run_training(override_config(default_config(task, "tiny"), words), out, "test")
    return out


def record(name: str, *scores: float, **more: object) -> Record:
    points = tuple(Point(step, step / 10, 3 / step) for step in range(1, 10))
    values = {"task": "translate", "parameters": 7, "smoothing": 0.0, "train": points, "validation": points[2::3]}
    return Record(name=name, scores=dict.fromkeys(["BLEU"], *scores) if scores else {}, **{**values, **more})


def test_the_numbers_are_those_of_the_runs(tmp_path: Path) -> None:
    runs = [trained("translate", tmp_path / "one"), trained("translate", tmp_path / "two", "model.layers=2")]
    one, two = compare(runs)
    wanted = json.loads((runs[0] / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    assert (one.name, one.task, one.last.step, one.last.loss) == ("one", "translate", 6, wanted["loss"])
    assert one.scores == {name: wanted[name] for name in ("BLEU", "chrF2", "exact match")}
    assert f"| parameters | {one.parameters:,} |" in (runs[0] / "card.md").read_text(encoding="utf-8")
    assert two.parameters > one.parameters
    assert [point.step for point in one.train] == [1, 2, 3, 4, 5, 6]
    minutes = [point.minutes or 0 for point in one.train]
    assert minutes == sorted(minutes)
    assert minutes[0] > 0
    assert one.last.minutes == minutes[-1]


def test_a_repeated_step_counts_once_and_an_incomplete_line_is_ignored(tmp_path: Path) -> None:
    run = trained("lm", tmp_path / "run")
    with (run / "times.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 6, "seconds": 120.0}\n{"step": 7, "sec')
    assert compare([run])[0].last.minutes == 2.0
    (run / "times.jsonl").unlink()
    assert compare([run])[0].last.minutes is None
    save_figure(compare([run]), tmp_path / "a.svg")


def test_runs_of_different_tasks_and_unfinished_ones_are_refused(tmp_path: Path) -> None:
    runs = [trained("translate", tmp_path / "one"), trained("lm", tmp_path / "two")]
    with pytest.raises(RunError, match="different tasks cannot be compared: one is for translate, two for lm"):
        compare(runs)
    begun = Run.create(tmp_path / "begun", run_config(Run.open(runs[0])))
    with pytest.raises(RunError, match="has no model yet"):
        compare([begun.path])


def test_the_figure_keeps_text_as_text_and_is_reproducible(tmp_path: Path) -> None:
    records = [record("small", 20.0, smoothing=0.1), record("a much longer name", 31.4159)]
    for name in ("a.svg", "b.svg"):
        save_figure(records, tmp_path / name)
    svg = (tmp_path / "a.svg").read_text(encoding="utf-8")
    words = " ".join(re.findall(r"<text[^>]*>(.*?)</text>", svg, flags=re.DOTALL))
    for word in ("small", "a much longer name", "31.42", "BLEU", "steps", "seconds of training", "loss (nats)"):
        assert word in words
    assert "training, with label smoothing" in words
    assert "lower is better" not in words
    assert svg == (tmp_path / "b.svg").read_text(encoding="utf-8")


def test_smoothing_does_not_shift_a_line() -> None:
    line = [float(step) for step in range(100)]
    assert _smooth(line)[10:90] == line[10:90]
    assert _smooth([3.0, 1.0]) == [3.0, 1.0]


@pytest.mark.parametrize(("kind", "first"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_other_kinds_of_files(kind: str, first: bytes, tmp_path: Path) -> None:
    save_figure([record("a", 1.0), record("b")], tmp_path / f"a.{kind}")
    assert (tmp_path / f"a.{kind}").read_bytes().startswith(first)


def test_infinite_and_missing_scores(tmp_path: Path) -> None:
    save_figure([record("a", float("inf")), record("b", 2.0)], tmp_path / "a.svg")
    assert ">inf<" in (tmp_path / "a.svg").read_text(encoding="utf-8")
    save_figure([record("a")], tmp_path / "b.svg")
    assert "validation loss (lower is better)" in (tmp_path / "b.svg").read_text(encoding="utf-8")


def test_a_figure_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a\.gif: a figure ends in \.svg, \.png or \.pdf"):
        save_figure([record("a")], tmp_path / "a.gif")
    with pytest.raises(ConfigError, match="there is no folder"):
        save_figure([record("a")], tmp_path / "no" / "a.svg")

"""`clearhead.train` and `clearhead.evaluate`: every kind of data, from a path or from Python objects."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import clearhead
from clearhead.errors import ConfigError, DataError
from clearhead.run import Run
from clearhead.tasks import run_config
from clearhead.train import evaluate as evaluation
from clearhead.train.loop import Callbacks
from clearhead.train.start import resume

TINY = {"model.dim": 16, "model.heads": 2, "model.layers": 1, "train.max_steps": 3, "progress": False}


def grey(number: int) -> Any:
    return np.full((9, 13, 3), 5 * number, np.uint8)


DATA: dict[str, Any] = {
    "translate": [(f"a {i} b", f"b {i} a") for i in range(29)],
    "lm": [f"line {i} of a long text" for i in range(67)],
    "classify": [(f"{'good' if i % 2 else 'bad'} film {i}", "pos" if i % 2 else "neg") for i in range(41)],
    "tag": [(["a", f"dog{i}"], ["D", "N"]) for i in range(29)],
    "vision": [(grey(i), "dark" if i < 20 else "light") for i in range(41)],
    "caption": [(grey(i), ["a dark thing", "night"] if i < 20 else "a light thing") for i in range(41)],
}


@pytest.mark.parametrize("task", DATA)
def test_every_task_trains_on_python_objects(task: str, tmp_path: Path) -> None:
    model = clearhead.train(task, data=iter(DATA[task]), out=tmp_path / "run", **TINY)
    assert model.task == task
    first = DATA[task][0]
    assert (
        model.answer(first if isinstance(first, str) else " ".join(first[0]) if task == "tag" else first[0]) is not None
    )
    assert clearhead.evaluate(tmp_path / "run").loss > 0
    assert resume(tmp_path / "run").loss > 0


def test_parts_may_be_given(tmp_path: Path) -> None:
    parts = {"train": DATA["translate"], "validation": [("a 3 b", "b 3 a")], "test": ["ignored"]}
    clearhead.train("translate", data=parts, out=tmp_path / "run", **TINY)
    assert clearhead.evaluate(tmp_path / "run").scores[-1].signature == "n:1"


def test_a_data_frame_and_a_dataset_are_tables(tmp_path: Path) -> None:
    rows = [{"id": i, "review": text, "label": label} for i, (text, label) in enumerate(DATA["classify"])]

    class Frame(list[Any]):
        columns = ("id", "review", "label")

        def to_dict(self, orient: str) -> list[dict[str, Any]]:
            assert orient == "records"
            return list(self)

    class HubDataset(list[Any]):
        features = {"label": SimpleNamespace(int2str=lambda number: ("neg", "pos")[number]), "review": None}

    numbered = [{**row, "label": int(row["label"] == "pos")} for row in rows]
    for name, table in (("frame", Frame(rows)), ("hub", HubDataset(numbered))):
        model = clearhead.train("classify", data=table, out=tmp_path / name, **TINY)
        assert model.meta.labels == ("neg", "pos")


def test_settings_have_short_names(tmp_path: Path) -> None:
    config = {"dim": 8, "heads": 1, "layers": 1, "max_steps": 1, "betas": (0.9, 0.95), "max_minutes": None}
    clearhead.train("translate", data=DATA["translate"], out=tmp_path / "run", progress=False, **config)
    found = run_config(Run.open(tmp_path / "run"))
    assert (found.model.dim, found.train.betas, found.train.max_minutes) == (8, (0.9, 0.95), None)


def test_callbacks_are_called_and_progress_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps: list[int] = []
    told = Callbacks(on_step=lambda step, _: steps.append(step.step))
    clearhead.train("lm", data=DATA["lm"], out=tmp_path / "run", callbacks=told, **{**TINY, "progress": True})
    assert steps == [1, 2, 3]
    printed = capsys.readouterr().err
    assert "chosen for " in printed
    assert "step 3: validation loss" in printed


MISTAKES = {
    "numbers": ([1, 2], r"item 1 is 1; \(source, target\) is expected"),
    "three": ([("a", "b"), ("a", "b", "c")], r"item 2 is \('a', 'b', 'c'\); \(source, target\) is expected"),
    "nothing": ([("a", None)], r"item 1 is \('a', None\); \(source, target\) is expected"),
    "a number": (7, "int is not a list, an iterator, a DataFrame or a dataset of examples"),
    "no training part": ({"dev": []}, "a dict of parts needs one called train; it has dev"),
    "a missing file": ("no.tsv", "no.tsv: does not exist"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_data_is_one_sentence_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    data, sentence = MISTAKES[name]
    with pytest.raises(DataError, match=sentence):
        clearhead.train("translate", data=data, out=tmp_path / "runs" / "new", progress=False)
    assert not list(tmp_path.iterdir())


def test_a_mistake_in_the_settings_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown setting lern: "):
        clearhead.train("lm", data="builtin", out=tmp_path / "run", lern=3)
    with pytest.raises(ConfigError, match=r"ambiguous setting kind: is the name of tokenizer\.kind and data\.kind"):
        clearhead.train("lm", data="builtin", out=tmp_path / "run", kind="char")


def test_python_data_is_evaluated_like_a_file(tmp_path: Path) -> None:
    rows = [(f"{'good' if i % 2 else 'bad'} film {i}", "pos" if i % 2 else "neg") for i in range(41)]
    clearhead.train("classify", data=rows, out=tmp_path / "run", **TINY)
    table = tmp_path / "rows.csv"
    table.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows), encoding="utf-8")
    expected = clearhead.evaluate(tmp_path / "run", table)
    dicts = ({"text": text, "label": label} for text, label in rows)
    for data in (rows, dicts, {"train": rows[:30], "validation": rows[30:]}):
        found = clearhead.evaluate(tmp_path / "run", data)
        assert found.scores == expected.scores
        assert found.loss == pytest.approx(expected.loss, abs=1e-6)


def test_an_evaluation_says_which_side_is_which(tmp_path: Path) -> None:
    pairs = [(f"a {i} b", f"b {i} a") for i in range(41)]
    clearhead.train("translate", data=pairs, out=tmp_path / "run", **TINY)
    for side, language in enumerate(("en", "de")):
        (tmp_path / f"c.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs[:3]), encoding="utf-8")
    notes: list[str] = []
    evaluation.evaluate(tmp_path / "run", f"{tmp_path / 'c.en'},{tmp_path / 'c.de'}", notes.append)
    assert notes[0].endswith(": the source is c.en, the target c.de")

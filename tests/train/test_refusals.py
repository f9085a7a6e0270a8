"""What cannot work is refused before anything is trained, and little data is said to be little."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import clearhead
from clearhead.errors import ConfigError, DataError
from clearhead.run import Run
from clearhead.tasks import TASKS, default_config, override_config, run_config
from clearhead.train import board
from clearhead.train.loop import Callbacks
from clearhead.train.start import plan_run, run_training

TINY = {"model.dim": 16, "model.heads": 2, "model.layers": 1, "train.max_steps": 1}


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(board, "find_spec", lambda _name: None)


def labelled(count: int) -> list[tuple[str, str]]:
    return [(f"{'good' if i % 2 else 'bad'} film {i}", "pos" if i % 2 else "neg") for i in range(count)]


@pytest.mark.parametrize(("count", "what"), [(1, "1 example,"), (3, "3 examples,")])
def test_fewer_examples_than_can_be_learned_from_are_refused(count: int, what: str) -> None:
    with pytest.raises(DataError, match=f"has {what} and a training needs at least 4; hundreds are a start$"):
        clearhead.train("translate", data=[(f"a {i}", f"b {i}") for i in range(count)], out="run", progress=False)
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("task", "wrong", "sentence"),
    [
        ("classify", "acuracy", r"did you mean accuracy\?"),
        ("translate", "chrF", r"did you mean chrF2\?"),
        ("lm", "BLEU", "choose from: bits per character, loss, perplexity"),
    ],
)
def test_a_score_that_the_task_does_not_have_is_refused_before_the_data_is_read(
    task: str, wrong: str, sentence: str
) -> None:
    words = ["data.path=missing.tsv", f"train.metric={wrong}"]
    with pytest.raises(ConfigError, match=rf"^unknown train\.metric={wrong}; {sentence}$"):
        plan_run(task, default_config(task), words)
    with pytest.raises(ConfigError, match=rf"^unknown train\.metric={wrong}; {sentence}$"):
        run_training(override_config(default_config(task), words), Path("run"), "test")
    assert not Path("run").exists()


def test_the_scores_of_every_task_are_those_it_names() -> None:
    data: dict[str, Any] = {
        "translate": [(f"a {i} b", f"b {i} a") for i in range(29)],
        "lm": [f"line {i} of a long text" for i in range(67)],
        "masked_lm": [f"line {i} of a long text" for i in range(67)],
        "classify": labelled(29),
        "tag": [(["a", f"dog{i}"], ["D", "N"]) for i in range(29)],
    }
    for task, examples in data.items():
        clearhead.train(task, data=examples, out=task, progress=False, **TINY)
        scores = {score.name for score in clearhead.evaluate(task).scores}
        assert scores == set(TASKS[task].score_names)
        assert TASKS[task].metric in {"loss", *scores}


def test_little_data_holds_out_more_and_says_how_little_it_is() -> None:
    notes: list[str] = []
    told = Callbacks(on_note=notes.append)
    clearhead.train("classify", data=labelled(60), out="few", callbacks=told, progress=False, **TINY)
    assert run_config(Run(Path("few"))).data.validation == 0.2
    held_out = int(clearhead.evaluate("few").scores[0].signature.removeprefix("n:"))
    assert 7 <= held_out < 20
    assert (
        f"{held_out} of 60 examples are held out for validation, so one of them is {1 / held_out:.0%} of a score"
    ) in notes


def test_what_is_enough_or_chosen_stays_as_it_is() -> None:
    notes: list[str] = []
    told = Callbacks(on_note=notes.append)
    clearhead.train("classify", data=labelled(450), out="enough", callbacks=told, progress=False, **TINY)
    assert run_config(Run(Path("enough"))).data.validation is None
    clearhead.train(
        "classify", data=labelled(60), out="own", callbacks=told, progress=False, **TINY, **{"data.validation": 0.5}
    )
    assert run_config(Run(Path("own"))).data.validation == 0.5
    assert not any("of a score" in note for note in notes)


def notes_of(task: str, data: Any, **settings: Any) -> list[str]:
    """What a training says."""
    found: list[str] = []
    clearhead.train(
        task, data=data, out="run", callbacks=Callbacks(on_note=found.append), progress=False, **TINY, **settings
    )
    return found


def test_a_column_of_numbers_is_no_label() -> None:
    rows = [(f"film {i}", f"{i / 97:.4f}") for i in range(97)]
    with pytest.raises(DataError, match=r"has \d+ different labels in \d+ examples, too many .* data\.target=…$"):
        clearhead.train("classify", data=rows, out="run", progress=False, **TINY)
    assert not Path("run").exists()


def test_a_label_that_is_nearly_always_right_is_said() -> None:
    rows = [(f"film {i}", "neg" if i % 30 == 0 else "pos") for i in range(601)]
    notes = notes_of("classify", {"train": rows, "validation": [(f"{text} more", label) for text, label in rows[:41]]})
    assert "pos is 95.1% of the validation part: an accuracy of 95.1% is that of always saying so" in notes


def test_pairs_with_an_empty_side_are_left_out_and_counted() -> None:
    pairs = [(f"a {i}", "" if i % 7 == 0 else f"b {i}") for i in range(43)]
    assert "7 pairs without a text on one side are left out" in notes_of("translate", pairs)


def test_missing_values_of_a_data_frame_are_left_out_and_counted() -> None:
    pandas = pytest.importorskip("pandas")
    texts = [None if i % 11 == 0 else f"film {i}" for i in range(43)]
    labels = [float("nan") if i % 13 == 5 else "ab"[i % 2] for i in range(43)]
    notes = notes_of("classify", pandas.DataFrame({"text": texts, "label": labels}))
    assert "7 examples without a text or without a label are left out" in notes
    assert clearhead.load("run").meta.labels == ("a", "b")


def test_a_text_shorter_than_a_window_names_the_data_and_the_setting() -> None:
    Path("short.txt").write_text("a few words\n", encoding="utf-8")
    with pytest.raises(
        DataError, match=r"short\.txt: has \d+ tokens to train on, .* or shorten the window \(model\.length\)$"
    ):
        clearhead.train("lm", data="short.txt", out="run", progress=False, **TINY)
    assert not Path("run").exists()


def test_a_language_without_spaces_is_scored_by_its_characters() -> None:
    pairs = [(f"a cat {i}", f"猫が好きです{i}") for i in range(43)]
    clearhead.train("translate", data=pairs, out="run", progress=False, **TINY)
    signatures = {score.name: score.signature for score in clearhead.evaluate("run").scores}
    assert "tok:char" in signatures["BLEU"]

"""From data to a model and its scores, as a user types it; and every mistake in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

import clearhead
from clearhead.cli.main import _run
from clearhead.train import board

Say = Callable[..., Any]
SMALL = ["model.dim=16", "model.heads=2", "model.layers=1", "data.batch_tokens=300", "train.max_steps=4"]
TRANSLATE = [*SMALL, "tokenizer.kind=char", "data.validation=0.1"]


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(board, "find_spec", lambda _name: None)
    pairs = "".join(f"{a} {b}\t{b} {a}\n" for a in "abcdefgh" for b in "ijklmnop")
    (tmp_path / "pairs.tsv").write_text(pairs, encoding="utf-8")
    rows = "".join(f"{a} {b} day,{'good' if a < 'd' else 'bad'}\n" for a in "abcdefgh" for b in "ijklmnop")
    (tmp_path / "days.csv").write_text("text,label\n" + rows, encoding="utf-8")


def trained(say: Say, out: str = "run", *more: str) -> Any:
    return say("train", "translate", "--data", "pairs.tsv", "--out", out, *TRANSLATE, *more, "--json")


def files() -> list[str]:
    return sorted(str(path) for path in Path().rglob("*"))


def test_train_eval_and_translate(say: Say) -> None:
    made = trained(say)
    assert made["run"] == "run"
    assert {"config.yaml", "tokenizer.json", "model.safetensors", "metrics.jsonl", "times.jsonl", "card.md"} <= {
        path.name for path in Path("run").iterdir()
    }
    found = say("eval", "run", "--json")
    assert found["loss"] == pytest.approx(made["loss"], rel=1e-5)
    assert [score["name"] for score in found["scores"]] == ["BLEU", "chrF2", "exact match"]
    assert "nrefs:1" in found["scores"][0]["signature"]
    whole = say("eval", "run", "--data", "pairs.tsv")
    assert whole.startswith("run on all of pairs.tsv\n\nloss  ")
    assert "n:64" in whole
    (answer,) = say("translate", "run", "a i", "--json")
    assert answer["text"] == "a i"


def test_train_says_what_it_found_and_where(say: Say) -> None:
    said = say("train", "translate", "--data", "pairs.tsv", "--out", "run", *TRANSLATE)
    assert said.startswith("loss  ")
    assert "The model is in run; its card is run/card.md." in said


def test_lines_of_standard_input_are_translated(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(say)
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"a i\n\r\nb k")))
    assert say("translate", "run") == "".join(say("translate", "run", line) for line in ("a i", "", "b k"))


def test_several_translations_come_with_their_scores(say: Say) -> None:
    trained(say)
    lines = say("translate", "run", "a i", "--n-best", "3").splitlines()
    scores = [float(line.split("\t")[0]) for line in lines]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    (answer,) = say("translate", "run", "a i", "--n-best", "3", "--json")
    found = [answer, *answer["others"]]
    assert [f"{each['score']:.4f}\t{each['translation']}" for each in found] == lines
    assert say("translate", "run", "a i", "--temperature", "2", "--seed", "3") == say(
        "translate", "run", "a i", "--temperature", "2", "--seed", "3"
    )


def test_a_finished_run_is_resumed_to_the_same_scores(say: Say) -> None:
    made = trained(say)
    assert say("resume", "run", "--json") == made


def test_a_classifier_shows_its_classes_and_confusions(say: Say) -> None:
    words = [*SMALL, "tokenizer.kind=char", "data.validation=0.2"]
    say("train", "classify", "--data", "days.csv", "--out", "run", *words, "--json")
    found = say("eval", "run", "--data", "days.csv", "--json")
    assert [(one["label"], one["examples"]) for one in found["classes"]] == [("bad", 40), ("good", 24)]
    assert [sum(row) for row in found["confusion"]["counts"]] == [40, 24]
    said = say("eval", "run")
    assert f"the validation part of {Path('days.csv').absolute()}" in said
    assert all(word in said for word in ("precision", "recall", "right label ↓, taken for →", "good"))


def test_many_classes_show_the_largest_confusions(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    from clearhead.cli import eval as verb

    monkeypatch.setattr(verb, "MATRIX_LABELS", 1)
    words = [*SMALL, "tokenizer.kind=char", "data.validation=0.2", "model.wide=0"]
    say("train", "classify", "--data", "days.csv", "--out", "run", *words, "--json")
    said = say("eval", "run", "--data", "days.csv")
    assert "most frequent mistakes" in said
    assert "right label ↓" not in said


def test_runs_are_compared(say: Say) -> None:
    trained(say, "one")
    trained(say, "two", "model.layers=2")
    one, two = say("compare", "one", "two", "--out", "figure.svg", "--json")
    assert (one["run"], one["steps"], two["parameters"] > one["parameters"]) == ("one", 4, True)
    assert Path("figure.svg").read_text(encoding="utf-8").count("<text") > 10
    said = say("compare", "one", "two", "--out", "figure.png")
    assert "The figure is in figure.png." in said
    assert all(word in said for word in ("parameters", "minutes", "BLEU", "two"))


def test_a_dry_run_prints_an_estimate_and_writes_nothing(say: Say) -> None:
    before = files()
    found = say("train", "translate", "--data", "pairs.tsv", *TRANSLATE, "--dry-run", "--json")
    assert found["total_parameters"] == sum(found["parameters"].values())
    assert set(found["memory"]) == {"weights", "gradients", "optimizer", "activations", "average"}
    assert (found["steps"], found["minutes"] > 0) == (4, True)
    said = say("train", "translate", "--data", "pairs.tsv", *TRANSLATE, "--dry-run")
    assert all(word in said for word in ("parameters", "activations", "tokens per step", "evaluations"))
    assert files() == before


def test_events_for_tensorboard(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    trained(say, "without")
    assert not Path("without/events").exists()
    monkeypatch.setattr(board, "find_spec", lambda _name: object())
    trained(say, "with")
    events = accumulator.EventAccumulator("with/events").Reload()
    assert [event.step for event in events.Scalars("loss/train")] == [1, 2, 3, 4]
    assert {"loss/validation", "rate", "score/BLEU"} <= set(events.Tags()["scalars"])


MISTAKES = {
    "a task with a typo": (["train", "translat"], "unknown task translat; did you mean translate?"),
    "a setting with a typo": (["train", "lm", "model.dimm=3"], "unknown setting model.dimm; did you mean model.dim?"),
    "a missing recipe": (["train", "no.yaml"], "cannot read no.yaml: No such file or directory"),
    "missing data": (["train", "translate", "--data", "no.tsv"], "no.tsv: does not exist"),
    "missing data, dry": (["train", "translate", "--data", "no.tsv", "--dry-run"], "no.tsv: does not exist"),
    "missing data, named place": (["train", "lm", "--data", "no.txt", "--out", "a/b"], "no.txt: does not exist"),
    "an empty file": (["train", "translate", "--data", "empty.tsv"], "empty.tsv: is empty"),
    "data of another kind": (["train", "translate", "--data", "days.csv"], "days.csv: looks like labelled"),
    "no run to resume": (["resume", "no"], "no is not a run directory: it has no config.yaml"),
    "no run to score": (["eval", "no"], "no such run directory or model: no;"),
    "no run to compare": (["compare", "no", "no"], "no such run directory or model: no;"),
    "nothing to compare": (["compare"], "missing argument 'runs'"),
    "a figure of no kind": (["compare", "no", "--out", "a.doc"], "cannot write a.doc: a figure ends in .svg, .png or"),
    "a figure in no folder": (["compare", "no", "--out", "x/a.svg"], "cannot write x/a.svg: there is no folder x"),
    "no model": (["translate", "no", "text"], "no such run directory or model: no; `clearhead models` lists"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_sentence_and_nothing_is_written(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, sentence = MISTAKES[name]
    Path("empty.tsv").touch()
    before = files()
    assert _run(words, debug=False) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith(f"clearhead: {sentence}")
    assert files() == before


WRONG_SETTINGS = {
    ("--temperature", "0.7", "--beams", "4"): "--temperature=0.7 is for sampling and --beams=4 for beam search; choose",
    ("--n-best", "3", "--beams", "2"): "--n-best=3 needs at least as many beams, and --beams=2",
    ("--beams", "-1"): "--beams=-1 must be 1 or more",
    ("--beams", "4", "--groups", "3"): "--beams=4 is not divisible by --groups=3",
    ("--diversity", "0.5"): "--diversity=0.5 needs more than one group, and --groups=1",
    ("--no-repeat", "-2"): "--no-repeat=-2 must be 0 or more",
    ("--banned-tokens", "99999"): "--banned-tokens: there is no token 99999 in the vocabulary of",
    ("--banned-tokens", "5", "--prefix-tokens", "5"): "token 5 is in both --prefix-tokens and --banned-tokens",
    ("--temperature", "-1"): "--temperature=-1.0 must be 0 or more",
    ("--top-p", "0"): "--top-p=0.0 must be above 0 and at most 1",
}


def test_impossible_settings_are_one_sentence(say: Say, capsys: pytest.CaptureFixture[str]) -> None:
    trained(say)
    for words, sentence in WRONG_SETTINGS.items():
        capsys.readouterr()
        assert _run(["translate", "run", "a i", *words], debug=False) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith(f"clearhead: {sentence}")


def test_input_that_is_not_text_is_refused_by_its_line(
    say: Say, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(say)
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"a i\n\xff\xfe\n")))
    assert _run(["translate", "run"], debug=False) == 2
    assert capsys.readouterr().err == "clearhead: standard input, line 2: is not UTF-8 text\n"


def test_runs_of_different_tasks_and_labels_never_seen(say: Say, capsys: pytest.CaptureFixture[str]) -> None:
    trained(say, "one")
    words = [*SMALL, "tokenizer.kind=char", "data.validation=0.2"]
    say("train", "classify", "--data", "days.csv", "--out", "two", *words, "--json")
    Path("other.csv").write_text("text,label\na day,odd\nb day,good\n", encoding="utf-8")
    capsys.readouterr()
    assert _run(["compare", "one", "two"], debug=False) == 2
    sentence = "clearhead: runs of different tasks cannot be compared: one is for translate, two for classify\n"
    assert capsys.readouterr().err == sentence
    assert _run(["eval", "two", "--data", "other.csv"], debug=False) == 2
    said = "other.csv: the text is column text, the label column label\n"
    assert capsys.readouterr().err == said + "clearhead: other.csv: has labels that the model never saw: odd\n"


def test_help_needs_neither_torch_nor_matplotlib_nor_tensorboard() -> None:
    show = "print([name for name in ('torch', 'matplotlib', 'tensorboard') if name in sys.modules])"
    code = f"import sys; from clearhead.cli.main import _run; _run(['--help'], False); {show}"
    environment = os.environ | {"PYTHONPATH": str(Path(clearhead.__file__).parents[1])}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "compare" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"

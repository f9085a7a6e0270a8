"""A finished model is scored again: as at the end of its training, or on other data."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from clearhead.data import builtin
from clearhead.errors import DataError, RunError
from clearhead.files import read_tensors
from clearhead.tasks import default_config, override_config
from clearhead.train.compare import read_record
from clearhead.train.evaluate import Confusion, evaluate
from clearhead.train.start import run_training

SMALL = ["model.dim=16", "model.heads=2", "model.layers=1", "data.batch_tokens=600", "train.max_steps=3"]
RUNS = {
    "translate": ["tokenizer.size=300"],
    "lm": ["tokenizer.kind=char", "model.length=32"],
    "classify": ["tokenizer.size=300"],
    "tag": [],
    "vision": ["model.patch=7"],
    "caption": [],
}


@pytest.fixture(autouse=True)
def few_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = builtin.examples
    monkeypatch.setattr(builtin, "examples", lambda kind: whole(kind)[:: 301 if kind == "text" else 97])


def trained(task: str, out: Path, *more: str) -> Path:
    words = [*SMALL, *RUNS[task], *more]
    run_training(override_config(default_config(task, "tiny"), words), out, "test")
    return out


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Each is trained once, by the first test that asks for it."""
    folder = tmp_path_factory.mktemp("runs")
    return cache(lambda task: trained(task, folder / task))


def last_measured(run: Path) -> dict[str, float]:
    return json.loads((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])


@pytest.mark.parametrize("task", RUNS)
def test_it_finds_again_what_the_training_found(task: str, runs: Callable[[str], Path]) -> None:
    run = runs(task)
    before = sorted(run.rglob("*"))
    found, wanted = evaluate(run), last_measured(run)
    assert found.loss == pytest.approx(wanted["loss"], rel=1e-5)
    assert {score.name: score.value for score in found.scores} == pytest.approx(
        {score.name: wanted[score.name] for score in found.scores}, rel=1e-5
    )
    assert sorted(run.rglob("*")) == before
    assert (found.confusion is not None) == (task in ("classify", "tag", "vision"))


def test_a_training_writes_the_norms_and_the_confusion_matrix_as_they_grow(tmp_path: Path) -> None:
    more = ["train.max_steps=10", "train.evaluate_every=3", "train.average=0", "train.patience=none"]
    run = trained("classify", tmp_path / "run", *more)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    steps = [line for line in lines if line["part"] == "train"]
    assert [line["step"] for line in steps if line["gradient_norm"] > 0] == list(range(1, 11))
    assert [line["step"] for line in steps if "weight_norm" in line] == [10]
    weights = read_tensors(run / "model.safetensors")[0].values()
    assert steps[-1]["weight_norm"] == pytest.approx(sum(float(each.square().sum()) for each in weights) ** 0.5)
    evaluations = [line for line in lines if line["part"] == "validation"]
    assert [line["step"] for line in evaluations] == [3, 6, 9, 10]
    for line in evaluations:
        assert line["confusion"]["labels"] == ["negative", "positive"]
        (kept, taken), (missed, found) = line["confusion"]["counts"]
        assert (kept + found) / (kept + taken + missed + found) == pytest.approx(line["accuracy"])
    assert "confusion" not in read_record(run, "run").scores


@pytest.mark.parametrize("task", RUNS)
def test_other_data_is_used_whole(task: str, runs: Callable[[str], Path]) -> None:
    run = runs(task)
    part, everything = evaluate(run), evaluate(run, "builtin")
    assert everything.loss != part.loss
    if task in ("classify", "vision"):
        assert everything.confusion is not None
        kind = {"classify": "labelled", "vision": "images"}[task]
        assert sum(map(sum, everything.confusion.counts)) == len(builtin.examples(kind))


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    rows = "".join(f"a good {word},x\na bad {word},y\n" for word in ("day", "night", "week", "year", "hour"))
    (tmp_path / "own.csv").write_text("text,label\n" + rows, encoding="utf-8")
    words = [f"data.path={tmp_path / 'own.csv'}", "tokenizer.size=60", "data.validation=0.4"]
    return trained("classify", tmp_path / "run", *words)


def test_a_folder_s_parts_are_joined_and_a_label_may_be_missing(classifier: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "train.csv").write_text("text,label\na day,y\nbad,y\nbad day,y\n", encoding="utf-8")
    (other / "dev.csv").write_text("text,label\nsome bad day,y\n", encoding="utf-8")
    found = evaluate(classifier, str(other))
    assert found.confusion is not None
    assert found.confusion.labels == ("x", "y")
    assert [sum(row) for row in found.confusion.counts] == [0, 4]


def test_a_label_that_the_model_never_saw_is_named(classifier: Path, tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("text,label\na good day,x\na night,z\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"b\.csv: has labels that the model never saw: z"):
        evaluate(classifier, str(tmp_path / "b.csv"))


def test_data_of_another_kind_and_a_run_without_a_model_are_refused(classifier: Path, tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("some running text\n" * 20, encoding="utf-8")
    with pytest.raises(DataError, match=r"looks like text .*, and classify needs labelled"):
        evaluate(classifier, str(tmp_path / "p.txt"))
    (classifier / "model.safetensors").unlink()
    with pytest.raises(RunError, match="has no model yet; finish it with `clearhead resume"):
        evaluate(classifier)


def test_more_is_scored_than_at_each_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from clearhead.tasks.translate import Translate

    monkeypatch.setattr(Translate, "max_scored", 2)
    run = trained("translate", tmp_path / "run")
    count = len(builtin.examples("pairs"))
    assert {score.signature for score in evaluate(run, "builtin").scores if score.name == "exact match"} == {
        f"n:{count}"
    }


def test_confusions_by_hand() -> None:
    confusion = Confusion(("a", "b", "c"), ((3, 1, 0), (2, 2, 0), (0, 0, 0)))
    first, _, never = confusion.classes()
    assert first == {"label": "a", "examples": 4, "precision": 0.6, "recall": 0.75, "F1": pytest.approx(2 / 3)}
    assert never == {"label": "c", "examples": 0, "precision": 0.0, "recall": 0.0, "F1": 0.0}
    assert confusion.largest() == [("b", "a", 2), ("a", "b", 1)]
    assert confusion.largest(1) == [("b", "a", 2)]

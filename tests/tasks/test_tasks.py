"""Every task learns from its built-in data, leaves a whole run directory, and its model can be loaded and used."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import clearhead
from clearhead.cli.main import _run
from clearhead.data import builtin
from clearhead.errors import ConfigError, DataError, RunError
from clearhead.tasks import default_config, override_config
from clearhead.train.start import run_training

Runs = Callable[[str], Path]
SMALL = ["model.dim=32", "model.heads=2", "model.layers=1", "train.evaluate_every=100", "train.learning_rate=0.003"]
RUNS: dict[str, tuple[str, list[str]]] = {
    "translate": ("translate", [*SMALL, "tokenizer.size=400"]),
    "translate rnn": ("translate", [*SMALL, "model.architecture=rnn", "tokenizer.size=400"]),
    "lm": ("lm", [*SMALL, "tokenizer.kind=char", "model.length=32"]),
    "lm rnn": ("lm", [*SMALL, "tokenizer.kind=char", "model.length=32", "model.architecture=rnn"]),
    "lm masked": ("lm", [*SMALL, "tokenizer.kind=char", "model.length=32", "model.objective=masked"]),
    "classify": ("classify", SMALL),
    "tag": ("tag", SMALL),
    "vision": ("vision", [*SMALL, "model.patch=7"]),
    "vision, moved": ("vision", [*SMALL, "model.patch=7", "data.augment=0.5"]),
    "classify, hidden": ("classify", [*SMALL, "data.augment=0.2"]),
    "caption": ("caption", SMALL),
    "caption sequence": ("caption", [*SMALL, "model.architecture=sequence"]),
    "translate, reading its own words": ("translate", [*SMALL, "tokenizer.size=400", "train.sampling=0.5"]),
    "lm, reading its own words": ("lm", [*SMALL, "tokenizer.kind=char", "model.length=32", "train.sampling=0.5"]),
    "caption, reading its own words": ("caption", [*SMALL, "train.sampling=0.5"]),
    "caption rnn": ("caption", [*SMALL, "model.architecture=rnn"]),
}


@pytest.fixture(autouse=True)
def few_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = builtin.examples
    monkeypatch.setattr(builtin, "examples", lambda kind: whole(kind)[:: 37 if kind == "text" else 19])


def trained(name: str, tmp_path: Path, *more: str) -> Path:
    task, settings = RUNS[name]
    words = ["data.batch_tokens=1000", "train.max_steps=25", *settings, *more]
    run_training(override_config(default_config(task, "tiny"), words), tmp_path / "run", "test")
    return tmp_path / "run"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Each is trained once, by the first test that asks for it."""
    folder = tmp_path_factory.mktemp("runs")
    return cache(lambda name: trained(name, folder / name))


@pytest.mark.parametrize("name", RUNS)
def test_a_task_learns_and_leaves_a_whole_run(name: str, runs: Runs) -> None:
    run = runs(name)
    losses = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    train = [line["loss"] for line in losses if line["part"] == "train"]
    assert len(train) == 25
    assert np.mean(train[-5:]) < 0.97 * np.mean(train[:3])
    assert losses[-1]["part"] == "validation"
    assert {"config.yaml", "model.safetensors", "metrics.jsonl", "card.md", "checkpoints"} <= set(names(run))
    assert clearhead.load(run).config.task == ("masked_lm" if name == "lm masked" else RUNS[name][0])


def names(run: Path) -> list[str]:
    return [path.name for path in run.iterdir()]


def use(name: str, runs: Runs) -> Any:
    return clearhead.load(runs(name))


def test_a_translator_translates_one_or_many(runs: Runs) -> None:
    model = use("translate", runs)
    one, many = model.translate("we are eating bread"), model.translate(["we are eating bread", "she reads", ""])
    assert isinstance(one, str)
    assert many[0] == one
    assert len(many) == 3
    assert many[2] == ""
    assert model.translate([]) == []
    with pytest.raises(RunError, match=r"cannot generate: it is a translator \(clearhead translate "):
        model.generate("x")


@pytest.mark.parametrize("name", ["lm", "lm rnn"])
def test_a_language_model_writes_the_same_streamed_and_whole(name: str, runs: Runs) -> None:
    model = use(name, runs)
    whole = model.generate("The ", max_tokens=20, seed=3)
    assert whole.startswith("The ")
    assert "The " + "".join(model.generate("The ", max_tokens=20, seed=3, stream=True)) == whole
    searched = model.generate("The ", max_tokens=7, temperature=0, beam_width=3)
    assert searched == "The " + "".join(model.generate("The ", max_tokens=7, temperature=0, beam_width=3, stream=True))
    assert len(model.tokenizer.encode(searched)) > len(model.tokenizer.encode("The "))


def test_a_classifier_gives_a_label_and_probabilities(runs: Runs) -> None:
    found = use("classify", runs).classify(["a warm, funny film", "dull"])
    assert [each.label in each.probabilities for each in found] == [True, True]
    assert sum(found[0].probabilities.values()) == pytest.approx(1, abs=1e-5)


def test_images_are_classified_and_described(runs: Runs) -> None:
    picture = builtin.examples("images")[0].image
    found = use("vision", runs).classify(picture)
    assert max(found.probabilities, key=found.probabilities.__getitem__) == found.label
    assert isinstance(use("caption", runs).caption(builtin.examples("captions")[0].image), str)


def test_words_are_tagged_one_text_or_many(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    model = use("tag", runs)
    found = model.tag("the dog barks")
    assert [word for word, _ in found] == ["the", "dog", "barks"]
    assert model.tag(["the dog barks", "", "a cat"]) == [found, [], model.tag("a cat")]
    capsys.readouterr()
    assert _run(["tag", str(model.folder), "the dog barks"], debug=True) == 0
    assert capsys.readouterr().out == "".join(f"{word}\t{tag}\n" for word, tag in found)


def test_data_of_the_wrong_kind_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("label,text\n" + "pos,good film\nneg,bad film\n" * 30, encoding="utf-8")
    config = override_config(default_config("translate"), [f"data.path={tmp_path / 'a.csv'}"])
    with pytest.raises(DataError, match=r"looks like labelled .*, and translate needs pairs"):
        run_training(config, tmp_path / "run", "test")


def test_labels_that_training_never_saw_are_refused(tmp_path: Path) -> None:
    for part, rows in {"train": "a good day\tx\na bad day\ty\n" * 9, "dev": "some day\tz\n"}.items():
        (tmp_path / f"{part}.tsv").write_text("text\tlabel\n" + rows, encoding="utf-8")
    config = override_config(
        default_config("classify"), [f"data.path={tmp_path}", "data.kind=labelled", "tokenizer.size=60"]
    )
    with pytest.raises(DataError, match="validation has labels that training has not: z; add examples of them"):
        run_training(config, tmp_path / "run", "test")


def test_what_does_not_write_cannot_read_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.sampling=.*: classify does not generate text"):
        trained("classify", tmp_path, "train.sampling=0.5")


def test_recomputing_changes_memory_and_nothing_else(tmp_path: Path) -> None:
    kept = clearhead.load(trained("translate", tmp_path / "kept", "model.dropout=0.3")).network.state_dict()
    again = trained("translate", tmp_path / "again", "model.dropout=0.3", "train.recompute=true")
    for name, tensor in clearhead.load(again).network.state_dict().items():
        torch.testing.assert_close(tensor, kept[name], rtol=0, atol=0)


def test_a_model_that_is_not_there_is_named() -> None:
    with pytest.raises(RunError, match="no such run directory or model: no/such/run; `clearhead models`"):
        clearhead.load("no/such/run")

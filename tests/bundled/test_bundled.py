"""Models that come with the package: found by name, described by their own files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import clearhead
from clearhead import run as runs
from clearhead.config import dump
from clearhead.errors import RunError
from clearhead.tasks import default_config

CARD = """# en-es

English to Spanish, short sentences.

| | |
| --- | --- |
| parameters | 1,234,567 |
| licence | CC BY 2.0 FR, Tatoeba |

## Scores

| score | value |
| --- | --- |
| parameters | 3 |
"""
METRICS = [
    {"step": 5, "part": "validation", "loss": 2.5, "BLEU": 7.0, "sample": "a"},
    {"step": 9, "part": "validation", "loss": 1.5, "BLEU": 31.5, "exact match": 0.25, "sample": 'says "validation"'},
    {"step": 10, "part": "train", "loss": 1.25, "rate": 1.0, "tokens": 3},
]


def write_run(path: Path, task: str = "translate", card: str = CARD) -> Path:
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(dump(default_config(task)), encoding="utf-8")
    (path / "card.md").write_text(card, encoding="utf-8")
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in METRICS), encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that comes with two models, and an empty place to work in."""
    monkeypatch.setattr(runs, "BUNDLED", tmp_path / "package")
    write_run(tmp_path / "package" / "en-es")
    write_run(tmp_path / "package" / "digits", "vision", "# digits\n")
    (tmp_path / "package" / "__pycache__").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "package"


def test_a_model_says_itself_what_it_is(folder: Path) -> None:
    digits, translator = [runs.describe(runs.BUNDLED / name) for name in runs.bundled_names()]
    size = sum(path.stat().st_size for path in (folder / "en-es").iterdir())
    assert translator == runs.Description(
        "en-es",
        "translate",
        "English to Spanish, short sentences.",
        1234567,
        size,
        "CC BY 2.0 FR, Tatoeba",
        1.5,
        {"BLEU": 31.5, "exact match": 0.25},
        'says "validation"',
    )
    assert (digits.name, digits.task, digits.title, digits.parameters, digits.licence) == (
        "digits",
        "vision",
        "",
        None,
        "",
    )


def test_a_run_without_measurements_has_no_scores(folder: Path) -> None:
    (folder / "digits" / "metrics.jsonl").unlink()
    found = runs.describe(folder / "digits")
    assert (found.loss, found.scores) == (None, {})


def test_a_name_is_found_and_a_directory_comes_before_it(folder: Path) -> None:
    assert runs.find("en-es") == folder / "en-es"
    Path("digits").touch()
    assert runs.find("digits") == folder / "digits"
    Path("en-es").mkdir()
    assert runs.find("en-es") == Path("en-es")
    assert runs.find(folder) == folder


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ("en-ess", "no such run directory or model: en-ess; did you mean en-es? `clearhead models` lists"),
        ("runs/min", "no such run directory or model: runs/min; did you mean runs/mine? `clearhead models` lists"),
        ("qqq", "no such run directory or model: qqq; `clearhead models` lists those that come with the package"),
        ("letter", "letter is neither a run directory nor a file of a model that `clearhead import` reads"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_is_not_there_is_said_in_one_sentence(asked: str, sentence: str) -> None:
    write_run(Path("runs/mine"))
    Path("letter").touch()
    with pytest.raises(RunError) as caught:
        clearhead.load(asked)
    assert str(caught.value).startswith(sentence)


def test_a_missing_card_is_named(folder: Path) -> None:
    (folder / "digits" / "card.md").unlink()
    with pytest.raises(RunError, match=r"digits has no card\.md: a training writes it when it is finished"):
        [runs.describe(runs.BUNDLED / name) for name in runs.bundled_names()]


@pytest.mark.parametrize("name", runs.bundled_names())
def test_what_comes_with_the_package_is_whole_and_small(name: str) -> None:
    path = runs.find(name)
    found = runs.describe(path)
    assert found.title
    assert found.licence
    assert found.parameters
    assert found.scores
    assert found.size < 8_000_000
    assert not {"checkpoints", "times.jsonl", "events"} & {each.name for each in path.iterdir()}
    model = clearhead.load(name)
    assert sum(each.numel() for each in model.network.parameters()) == found.parameters

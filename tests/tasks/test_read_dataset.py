"""What a task reads: data of its own kind, and as text whatever there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from clearhead.data.examples import AnyDataset
from clearhead.errors import DataError
from clearhead.tasks import default_config, override_config
from clearhead.tasks.base.task import Workspace, read_dataset

TABLE = "text,label\ngood film,1\nbad film,0\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder has a table and a text, and $CLEARHEAD_DATA a known dataset."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))
    Path("reviews.csv").write_text(TABLE, encoding="utf-8")
    Path("book.txt").write_text("A book,\nand no table.\n", encoding="utf-8")
    Path("data/tatoeba").mkdir(parents=True)
    Path("data/tatoeba/en-es.tsv.gz").write_text("a dog\tun perro\na cat\tun gato\n", encoding="utf-8")


def found(task: str, kind: str, path: str, *words: str, whole: bool = False) -> AnyDataset:
    config = override_config(default_config(task), [f"data.path={path}", "data.validation=0", *words])
    dataset = read_dataset(config, kind, Workspace(Path(), whole=whole))
    assert config.data.path == dataset.origin == path
    return dataset


@pytest.mark.parametrize(
    ("path", "words", "text"),
    [
        ("reviews.csv", [], "good film\nbad film\n"),
        ("reviews.csv", ["data.kind=text"], TABLE),
        ("book.txt", [], "A book,\nand no table.\n"),
        ("book.txt+reviews.csv", [], "A book,\nand no table.\ngood film\nbad film\n"),
        ("tatoeba-en-es", [], "a dog\tun perro\na cat\tun gato\n"),
    ],
)
def test_a_language_model_reads_texts_of_labelled_examples_and_all_else_as_it_is(
    path: str, words: list[str], text: str
) -> None:
    assert "".join(found("lm", "text", path, *words).train) == text


def test_a_task_reads_a_dataset_by_its_name() -> None:
    pairs = found("translate", "pairs", "tatoeba-en-es").train
    assert [(pair.source, pair.target) for pair in pairs] == [("a dog", "un perro"), ("a cat", "un gato")]
    everything = found("translate", "pairs", "tatoeba-en-es", whole=True)
    assert len(everything.train) == len(everything.validation) == 2


def test_another_kind_is_refused_under_the_name_that_the_user_typed() -> None:
    with pytest.raises(DataError, match=r"^tatoeba-en-es: looks like pairs \(.*\), and classify needs labelled; if it"):
        found("classify", "labelled", "tatoeba-en-es")


def test_each_of_several_sources_is_of_the_right_kind() -> None:
    with pytest.raises(DataError, match=r"^book\.txt: looks like text .*, and classify needs labelled"):
        found("classify", "labelled", "reviews.csv+book.txt")

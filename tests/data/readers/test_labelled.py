from __future__ import annotations

from pathlib import Path

import pytest

from clearhead.data import read
from clearhead.data.examples import Labelled
from clearhead.errors import DataError

from ..helpers import put, real


def labelled(path: Path, **options) -> list[Labelled]:
    return sorted(read(path, kind="labelled", validation=0, **options).train, key=lambda example: example.line)


ROWS = [("a fine film", "pos"), ("a dull film", "neg"), ("what fun", "pos"), ("no, no", "neg")]


def joined(mark: str, *, label_first: bool = False, header: str = "") -> str:
    rows = [(label, text) if label_first else (text, label) for text, label in ROWS]
    quoted = [[f'"{cell}"' if mark in cell else cell for cell in row] for row in rows]
    return header + "".join(mark.join(row) + "\n" for row in quoted)


@pytest.mark.parametrize(
    ("name", "content", "first"),
    [
        ("a.csv", joined(","), 1),
        ("a.csv", joined(",", label_first=True), 1),
        ("a.csv", joined(",", header="review,sentiment\n"), 2),
        ("a.tsv", joined("\t", label_first=True, header="label\tcontent\n"), 2),
        ("a.tsv", joined("\t", header="text\ttarget\n"), 2),
        ("a.tsv", joined("\t", header="whatever\tclass\n"), 2),
        ("a.txt", joined("\t", label_first=True), 1),
        ("a.txt", "".join(f"{label} {text}\n" for text, label in ROWS), 1),
        ("a.txt", "".join(f"__label__{label} {text}\n" for text, label in ROWS), 1),
        ("a.jsonl", "".join(f'{{"id": 7, "y": "{label}", "text": "{text}"}}\n' for text, label in ROWS), 1),
    ],
)
def test_forms_and_orders(tmp_path: Path, name: str, content: str, first: int) -> None:
    found = labelled(put(tmp_path / name, content))
    assert found == [Labelled(text, label, line) for line, (text, label) in enumerate(ROWS, start=first)]


def test_a_header_above_numbers_needs_no_known_word(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", "words,stars\nfine,5\nbad,1\ngood,5\nugh,1\n")
    assert labelled(path)[0] == Labelled("fine", "5", 2)


def test_fine_labels_stay_whole(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt", "DESC:manner How does it work ?\nENTY:cremat What films ?\n")
    assert [example.label for example in labelled(path)] == ["DESC:manner", "ENTY:cremat"]


def test_columns_can_be_forced(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", "id,title,body,topic,label\n1,t,b c,x,0\n2,u,d e,y,1\n3,v,f g,x,1\n4,w,h i,y,0\n")
    assert labelled(path)[0] == Labelled("b c", "0", 2)  # of two columns named like texts, the longer one
    assert read(path).columns == "the text is column body, the label column label (not read: id, title, topic)"
    assert labelled(path, source="title")[0] == Labelled("t", "0", 2)
    assert labelled(path, source="body", target="topic")[0] == Labelled("b c", "x", 2)
    assert labelled(path, source="3", target="4")[0] == Labelled("b c", "x", 2)


def test_a_validation_file_may_name_its_columns_otherwise(tmp_path: Path) -> None:
    put(tmp_path / "train.tsv", "label\tsentence\n0\ta b\n1\tc d\n0\te f\n1\tg h\n")
    put(tmp_path / "dev.tsv", "label\tcontent\n1\tx y\n")
    assert list(read(tmp_path).validation) == [Labelled("x y", "1", 2)]
    assert list(read(tmp_path, source="sentence").validation) == [Labelled("x y", "1", 2)]


def test_a_small_validation_file_without_a_header_has_the_columns_of_the_training_file(tmp_path: Path) -> None:
    put(tmp_path / "train.tsv", joined("\t", label_first=True))
    put(tmp_path / "valid.tsv", "pos\tsplendid\n")
    assert list(read(tmp_path).validation) == [Labelled("splendid", "pos", 1)]


@pytest.mark.parametrize(
    ("name", "content", "options", "sentence"),
    [
        ("a.csv", "label,text\n", {}, "holds a header and no rows"),
        ("a.csv", "label,text\n0,a\n", {"source": "txet"}, r"has no column txet; did you mean text\?"),
        ("a.csv", "label,text\n0,a\n", {"source": "label", "target": "label"}, "text and label in one column, label"),
        ("a.tsv", "a b\tc d\ne f\tg h\n", {}, "has no column that looks like labels"),
        ("a.tsv", "0\ta\n1\tb\tc\n", {}, "line 2: has 3 columns where the rows before it have 2"),
        ("a.txt", "0 fine\n1\n", {}, "line 2: has one word where a label and a text are expected"),
        ("a.txt", "", {}, "is empty"),
        ("a.txt", " \n\n", {}, "is empty"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path: Path, name: str, content: str, options, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        labelled(put(tmp_path / name, content), **options)


def test_sst2_has_its_own_validation_part() -> None:
    dataset = read(real("sst2"))
    assert (dataset.kind, len(dataset.train), len(dataset.validation)) == ("labelled", 67_349, 872)
    assert {example.label for example in dataset.train} == {"0", "1"}


def test_trec_is_latin_1() -> None:
    with pytest.raises(DataError, match=r"line 66: is not utf-8 text.*data\.encoding=latin-1"):
        read(real("trec"))
    dataset = read(real("trec"), encoding="latin-1")
    assert (dataset.kind, len(dataset.train) + len(dataset.validation)) == ("labelled", 5_452)
    assert len({example.label for example in dataset.train}) == 6

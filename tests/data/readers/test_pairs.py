from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from clearhead.data import read
from clearhead.data.examples import Pair
from clearhead.errors import ConfigError, DataError

from ..helpers import put, real


def pairs(path: Path | str, **options) -> list[Pair]:
    return sorted(read(path, kind="pairs", validation=0, **options).train, key=lambda pair: pair.line)


CONTENTS = {
    "a.tsv": "a dog\tun perro\na cat\tun gato\n",
    "a.txt": "a dog\tun perro\r\na cat\tun gato",
    "a.csv": '"a dog","un perro"\na cat,un gato\n',
    "semicolons.csv": "a dog;un perro\na cat;un gato\n",
    "a.jsonl": '{"en": "a dog", "es": "un perro"}\n{"es": "un gato", "en": "a cat"}\n',
    "sides.jsonl": '{"target": "un perro", "source": "a dog"}\n{"source": "a cat", "target": "un gato"}\n',
    "wrapped.jsonl": '{"translation": {"en":"a dog","es":"un perro"}}\n{"translation":{"en":"a cat","es":"un gato"}}\n',
    "manythings.tsv": "a dog\tun perro\tCC-BY 2.0 (France) #1\na cat\tun gato\tCC-BY 2.0 (France) #2\n",
}


@pytest.mark.parametrize("name", CONTENTS)
def test_forms_without_a_header(tmp_path: Path, name: str) -> None:
    assert pairs(put(tmp_path / name, CONTENTS[name])) == [Pair("a dog", "un perro", 1), Pair("a cat", "un gato", 2)]


@pytest.mark.parametrize("header", ["en,es", "source,target", "src,tgt", "English,Spanish", "EN,ES"])
def test_headers_are_recognised(tmp_path: Path, header: str) -> None:
    assert pairs(put(tmp_path / "a.csv", f"{header}\na dog,un perro\n")) == [Pair("a dog", "un perro", 2)]


def test_the_target_may_come_first_when_the_header_says_so(tmp_path: Path) -> None:
    assert pairs(put(tmp_path / "a.csv", "target,source\nun perro,a dog\n")) == [Pair("a dog", "un perro", 2)]


WIDE = "id,en,es,fr\n1,a dog,un perro,un chien\n2,a cat,un gato,un chat\n"


@pytest.mark.parametrize(("source", "target"), [("en", "fr"), ("EN", "4"), ("2", "fr")])
def test_columns_are_chosen_by_name_or_number(tmp_path: Path, source: str, target: str) -> None:
    found = pairs(put(tmp_path / "a.csv", WIDE), source=source, target=target)
    assert found == [Pair("a dog", "un chien", 2), Pair("a cat", "un chat", 3)]


def test_unknown_names_are_taken_from_the_header_the_user_knows(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", "question,reply\nwho?,me\n")
    assert pairs(path, source="reply", target="question") == [Pair("me", "who?", 2)]


def test_one_side_is_enough_where_there_are_two(tmp_path: Path) -> None:
    assert pairs(put(tmp_path / "a.csv", "en,es\na,b\n"), source="es") == [Pair("b", "a", 2)]
    assert pairs(put(tmp_path / "en-es.tsv", "a\tb\n"), target="en") == [Pair("b", "a", 1)]


def test_a_quoted_cell_may_run_over_lines(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", 'en,es\n"one\ntwo","says ""uno"", dos"\nthree,tres\n')
    assert pairs(path) == [Pair("one\ntwo", 'says "uno", dos', 2), Pair("three", "tres", 4)]


def test_tsv_has_no_quoting(tmp_path: Path) -> None:
    assert pairs(put(tmp_path / "a.tsv", '"Go!" he said\t"¡Vete!"\n')) == [Pair('"Go!" he said', '"¡Vete!"', 1)]


@pytest.mark.parametrize(
    ("name", "content", "options", "sentence"),
    [
        ("a.tsv", "a\tb\nc\td\te\tf\n", {}, r"a\.tsv, line 2: has 4 columns where the rows before it have 2"),
        ("a.tsv", "a\tb\nc\n", {}, r"line 2: has 1 column where the rows before it have 2"),
        ("a.tsv", "a\tb\tCC-BY\nc\td\n", {}, "line 2: has 2 columns where the rows before it have 3"),
        ("a.tsv", "a b\tb\tc d\nd\te\tf\n", {}, "has the columns 1, 2, 3; choose with --source and --target"),
        ("a.csv", WIDE, {}, "has the columns id, en, es, fr; choose with --source and --target"),
        ("a.csv", WIDE, {"source": "en"}, "choose with --source and --target"),
        ("a.csv", WIDE, {"source": "it", "target": "es"}, r"a\.csv: has no column it; choose from: en, es, fr, id"),
        ("a.tsv", "a\tb\n", {"source": "en", "target": "2"}, "no header and no column en; choose from 1 to 2"),
        ("a.tsv", "a\tb\n", {"source": "0", "target": "2"}, "no column 0"),
        ("a.csv", "en,es\n", {}, "holds a header and no rows"),
        ("a.csv", "", {}, "is empty"),
        ("a.csv", 'a,b\n"c,d\n', {}, r"line 2: is not valid CSV \(unexpected end of data\)"),
        ("a.csv", 'a,b\n"c"d,e\n', {}, "line 2: is not valid CSV"),
        ("a.jsonl", '{"en": "a", "es": "b"}\n{"en": 3}\n', {}, "line 2: has no text in column es"),
        ("a.jsonl", '{"en": "a", "es": ["b"]}\n', {}, "line 1: has no text in column es"),
        ("a.jsonl", '{"en": "a"\n', {}, "line 1: is not valid JSON"),
        ("a.jsonl", "[" * 100_000, {}, "line 1: is not valid JSON"),
        ("a.jsonl", "[1, 2]\n", {}, "line 1: is not a JSON object"),
        ("a.jsonl", '{"en": "\\ud800", "es": "b"}\n', {}, "line 1: holds half of a surrogate pair"),
        ("a.tsv", "just one\n", {}, "has one column where a pair needs two"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path: Path, name: str, content: str, options, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        pairs(put(tmp_path / name, content), **options)


def test_a_side_is_not_its_own_translation(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="source and target are the same"):
        pairs(put(tmp_path / "a.csv", "en,es\na,b\n"), source="en", target="1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for stem, count in (("train", 3), ("val", 2)):
        for language in ("de", "en", "fr"):
            text = "".join(f"{stem} {language} {number}\n" for number in range(count))
            put(tmp_path / f"{stem}.{language}.gz", gzip.compress(text.encode()))
    put(tmp_path / "README.txt", "about")
    return tmp_path


def test_aligned_files_of_a_folder(folder: Path) -> None:
    dataset = read(folder, source="en", target="de")
    assert dataset.train[2] == Pair("train en 2", "train de 2", 3)
    assert list(dataset.validation) == [Pair("val en 0", "val de 0", 1), Pair("val en 1", "val de 1", 2)]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "holds de, en, fr; choose with --source and --target"),
        ({"source": "en"}, "holds de, en, fr; choose with"),
        ({"source": "en", "target": "es"}, "holds de, en, fr, not es; "),
    ],
)
def test_more_than_two_languages_must_be_chosen_from(folder: Path, options, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        read(folder, **options)


def test_two_languages_need_no_choice(folder: Path) -> None:
    for file in folder.glob("*.fr.gz"):
        file.unlink()
    assert read(folder).train[0] == Pair("train de 0", "train en 0", 1)
    assert read(folder, target="de").train[0] == Pair("train en 0", "train de 0", 1)


def test_a_training_file_without_its_partner_is_missed(folder: Path) -> None:
    (folder / "train.de.gz").unlink()
    with pytest.raises(DataError, match="but not both en and de"):
        read(folder, source="en", target="de")


def test_two_files_given_by_name(folder: Path) -> None:
    found = pairs(f"{folder / 'val.en.gz'},{folder / 'val.fr.gz'}")
    assert found == [Pair("val en 0", "val fr 0", 1), Pair("val en 1", "val fr 1", 2)]


def test_unequal_line_counts_are_both_named(folder: Path) -> None:
    with pytest.raises(DataError, match=r"val\.en\.gz: has 2 lines and .*train\.de\.gz has 3"):
        pairs(f"{folder / 'val.en.gz'},{folder / 'train.de.gz'}")


def test_two_empty_files_are_empty(tmp_path: Path) -> None:
    one, other = put(tmp_path / "one", ""), put(tmp_path / "other", "")
    with pytest.raises(DataError, match=r"one,.*other: is empty"):
        read(f"{one},{other}")


def test_a_missing_one_of_two_files_is_named(folder: Path) -> None:
    with pytest.raises(DataError, match=r"val\.ex\.gz: does not exist; did you mean .*val\.en\.gz"):
        read(f"{folder / 'val.ex.gz'},{folder / 'val.fr.gz'}")


def test_tables_of_a_folder(tmp_path: Path) -> None:
    put(tmp_path / "train.tsv", "a dog\tun perro\na cat\tun gato\n")
    put(tmp_path / "dev.tsv", "a bird\tun pájaro\n")
    dataset = read(tmp_path)
    assert (dataset.kind, len(dataset.train)) == ("pairs", 2)
    assert list(dataset.validation) == [Pair("a bird", "un pájaro", 1)]


def test_several_tables_without_parts_are_not_guessed_at(tmp_path: Path) -> None:
    for name in ("a.tsv", "b.tsv"):
        put(tmp_path / name, "a\tb\n")
    with pytest.raises(DataError, match=r"holds several data files \(a\.tsv, b\.tsv\); give one"):
        read(tmp_path)


@pytest.mark.parametrize(("name", "count"), [("en-es", 115_782), ("en-fr", 138_852), ("en-de", 165_367)])
def test_tatoeba_is_read_to_the_last_pair(name: str, count: int) -> None:
    dataset = read(real(f"tatoeba/{name}.tsv.gz"))
    assert dataset.kind == "pairs"
    assert len(dataset.train) + len(dataset.validation) == count
    assert 900 < len(dataset.validation) < 1100  # of much data no more is held out
    assert not {pair.source for pair in dataset.train} & {pair.source for pair in dataset.validation}


def test_multi30k_has_its_own_validation_part() -> None:
    dataset = read(real("multi30k"), source="en", target="fr")
    assert (len(dataset.train), len(dataset.validation)) == (29_000, 1_014)

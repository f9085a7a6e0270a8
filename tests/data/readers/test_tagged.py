from __future__ import annotations

from pathlib import Path

import pytest

from clearhead.data import read
from clearhead.data.examples import Tagged
from clearhead.errors import ConfigError, DataError

from ..helpers import put

CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER
"""
CONLLU = (
    "# sent_id = 1\n# text = Don't go\n1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_\n1\tDo\tdo\tAUX\tVB\t_\t3\taux\t_\t_\n"
    "2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_\n2.1\tx\t_\t_\t_\t_\t_\t_\t_\t_\n3\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_\n\n"
)


def tagged(path: Path, **options) -> list[Tagged]:
    return sorted(read(path, kind="tagged", validation=0, **options).train, key=lambda example: example.line)


def test_first_column_and_last(tmp_path: Path) -> None:
    assert tagged(put(tmp_path / "a.conll", CONLL_2003)) == [
        Tagged(("EU", "rejects"), ("B-ORG", "O"), 3),
        Tagged(("Peter", "Blackburn"), ("B-PER", "I-PER"), 6),
    ]


def test_another_column_by_number(tmp_path: Path) -> None:
    assert tagged(put(tmp_path / "a.conll", CONLL_2003), target="2")[0].tags == ("NNP", "VBZ")


def test_conllu_has_words_and_parts_of_speech(tmp_path: Path) -> None:
    path = put(tmp_path / "a.conllu", CONLLU)
    assert tagged(path) == [Tagged(("Do", "n't", "go"), ("AUX", "PART", "VERB"), 4)]
    assert tagged(path, source="lemma", target="xpos") == [Tagged(("do", "not", "go"), ("VB", "RB", "VB"), 4)]


def test_a_header_names_the_columns(tmp_path: Path) -> None:
    path = put(tmp_path / "a.tsv", "Token\tPOS\tNER\nEU\tNNP\tORG\n\nGo\tVB\tO\n")
    assert tagged(path, target="POS") == [Tagged(("EU",), ("NNP",), 2), Tagged(("Go",), ("VB",), 4)]


def test_a_number_sign_may_be_a_word(tmp_path: Path) -> None:
    path = put(tmp_path / "a.conll", "# a comment here\n#\tB\n#tag\tI\n\nso\tO\n")
    assert tagged(path)[0] == Tagged(("#", "#tag"), ("B", "I"), 2)


def test_words_may_hold_blanks_between_tabs(tmp_path: Path) -> None:
    assert tagged(put(tmp_path / "a.conll", "New York\tLOC\nis\tO\n")) == [Tagged(("New York", "is"), ("LOC", "O"), 1)]


@pytest.mark.parametrize(
    ("content", "options", "sentence"),
    [
        ("EU B-ORG\nrejects X O\n", {}, r"a\.conll, line 2: has 3 columns where the rows before it have 2"),
        ("EU B-ORG\n\nrejects\n", {}, "line 3: has 1 column"),
        ("EU\nrejects\n", {}, "has one column where a word and its tag are expected"),
        ("EU ORG\n", {"target": "3"}, "has no column 3; choose from: 1, 2"),
        ("token tag\n", {}, "holds a header and no rows"),
        ("\n\n", {}, "is empty"),
        (CONLLU, {"target": "upso"}, r"has no column upso; did you mean upos\?"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path: Path, content: str, options, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        tagged(put(tmp_path / "a.conll", content), **options)


def test_the_word_is_not_its_own_tag(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the same column"):
        tagged(put(tmp_path / "a.conll", "EU ORG\n"), target="1")


def test_parts_of_a_folder(tmp_path: Path) -> None:
    put(tmp_path / "train.conll", CONLL_2003)
    put(tmp_path / "dev.conll", "Go VB B-VP O\n")
    dataset = read(tmp_path)
    assert (dataset.kind, len(dataset.train)) == ("tagged", 2)
    assert list(dataset.validation) == [Tagged(("Go",), ("O",), 1)]

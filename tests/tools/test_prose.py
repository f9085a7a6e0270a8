"""The running text: enough of it, all of it different, and its quotations and brackets in order."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from builtin_data.prose import KINDS, texts
from builtin_data.prose.templates import capitals, sections
from clearhead.data import builtin


@pytest.fixture(scope="module")
def documents() -> tuple[str, ...]:
    return builtin.examples("text")


def test_there_is_enough_and_it_is_always_the_same(documents: tuple[str, ...]) -> None:
    assert 300_000 < sum(map(len, documents)) < 600_000
    assert len(set(documents)) == len(documents)
    assert texts() == documents


def test_no_template_shows_through(documents: tuple[str, ...]) -> None:
    for document in documents:
        assert not re.search(r"[<>|{}]|  | ,| \.| / ", document), document


def test_quotations_are_closed_in_their_paragraph(documents: tuple[str, ...]) -> None:
    quoting = 0
    for document in documents:
        for paragraph in document.split("\n\n"):
            assert paragraph.count('"') % 2 == 0, paragraph
            quoting += '"' in paragraph
    assert quoting > 1_000


@pytest.mark.parametrize(("opening", "closing"), ["()", "[]"])
def test_brackets_are_closed_on_their_line(documents: tuple[str, ...], opening: str, closing: str) -> None:
    lines = [line for document in documents for line in document.split("\n")]
    assert all(line.count(opening) == line.count(closing) for line in lines)
    assert sum(opening in line for line in lines) > 300


def test_marks_do_not_meet(documents: tuple[str, ...]) -> None:
    for document in documents:
        assert not re.search(r'[?!.,],"|[?!],|,\.|\.\.(?!\.)"[a-z]', document), document


def test_sentences_begin_with_a_capital(documents: tuple[str, ...]) -> None:
    for document in documents:
        for paragraph in document.split("\n\n"):
            assert not paragraph[0].islower(), paragraph
            assert not re.search(r"(?<!\.\.)[.] [a-z]", paragraph), paragraph


def test_articles_fit_the_word_that_follows(documents: tuple[str, ...]) -> None:
    for document in documents:
        assert not re.search(r"\ba (?=[aeio])(?!one\b|once\b)", document), document
        assert not re.search(r"\ban [^aeiouh]", document), document


def test_every_kind_of_text_is_there(documents: tuple[str, ...]) -> None:
    assert sum(document.split("\n")[0].isupper() for document in documents) > 150
    assert sum(bool(re.search(r"^[A-Z]+: ", document, re.MULTILINE)) for document in documents) > 80
    assert sum(bool(re.search(r"^1\. ", document, re.MULTILINE)) for document in documents) > 20
    assert sum(document.startswith("[") for document in documents) > 80
    assert sum("\nYours" in document or "\nWith love" in document for document in documents) > 50
    assert len(set(KINDS)) == 12


def test_words_vary(documents: tuple[str, ...]) -> None:
    words = Counter(word.lower() for document in documents for word in re.findall(r"[A-Za-z]+", document))
    assert len(words) > 1_500
    sentences = Counter(re.split(r"(?<=[.!?]) ", " ".join(documents)))
    assert max(sentences.values()) / len(sentences) < 0.02


def test_every_template_has_as_many_openings_as_closings() -> None:
    for name in ("tales", "letters", "scenes", "verses", "sketches"):
        for steps in sections(name).values():
            for template in (template for step in steps for template in step):
                assert template.count("<") == template.count(">"), template
                assert template.count("{") == template.count("}"), template


def test_capitals_leave_what_follows_a_quoted_question() -> None:
    assert capitals('"why?" he asked. he left.') == '"Why?" he asked. He left.'
    assert capitals('it rained. "go," she said.') == 'It rained. "Go," she said.'

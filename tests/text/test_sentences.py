"""Long texts are cut into parts that fit, and nothing but blanks is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clearhead.text.sentences import split_sentences

TEXTS = st.text(alphabet="ab .,!?。 \n'”—é😀", max_size=97)


def words(text: str) -> int:
    return len(text.split())


@given(TEXTS, st.integers(1, 13))
def test_every_part_fits_and_nothing_is_lost(text: str, longest: int) -> None:
    parts = split_sentences(text, longest, longest, len)
    assert all(part == part.strip() and 0 < len(part) <= longest for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())


@given(TEXTS)
def test_a_text_that_fits_is_one_part(text: str) -> None:
    assert split_sentences(text, 97, 97, len) == ([text.strip()] if text.strip() else [])


def test_the_ends_of_sentences_come_first() -> None:
    text = 'It rains, he said. "Does it?" she asked. Yes, it does! 2.5 l fell.'
    assert split_sentences(text, 7, 7, words) == [
        'It rains, he said. "Does it?"',
        "she asked. Yes, it does!",
        "2.5 l fell.",
    ]
    assert split_sentences(text, 4, 4, words) == [
        "It rains, he said.",
        '"Does it?" she asked.',
        "Yes, it does!",
        "2.5 l fell.",
    ]


def test_then_clauses_then_words_then_characters() -> None:
    assert split_sentences("one two, three four five; six", 3, 3, words) == ["one two,", "three four five;", "six"]
    assert split_sentences("one two three four five", 2, 2, words) == ["one two", "three four", "five"]
    assert split_sentences("abcdefghijk", 3, 3, len) == ["ab", "cde", "fgh", "ijk"]
    assert split_sentences("我们。在吃面包。", 4, 4, len) == ["我们。", "在吃", "面包。"]


def test_one_character_that_is_more_than_fits_stays() -> None:
    assert split_sentences("é", 1, 1, lambda text: len(text.encode())) == ["é"]


def test_a_sentence_may_be_longer_than_usual() -> None:
    text = "One two three four five. Six. Seven eight."
    assert split_sentences(text, 3, 5, words) == ["One two three four five.", "Six. Seven eight."]
    assert split_sentences(text, 3, 4, words) == ["One two three four", "five.", "Six. Seven eight."]
    assert split_sentences(text, 97, 97, words) == [text]

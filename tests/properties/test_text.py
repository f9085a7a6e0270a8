"""What holds for any text, not only for the ones we thought of."""

from __future__ import annotations

from functools import cache
from typing import get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clearhead.config import TokenizerKind
from clearhead.text import SPECIALS, Tokenizer, split_chunks

KINDS: tuple[TokenizerKind, ...] = get_args(TokenizerKind)
CORPUS = [
    "the quick brown fox jumps over the lazy dog, and then [PAD] [STOP] [UNK]!",
    "[PAD][PAD][PAD] [STOP][STOP] [START] [CLASS] [MASK] ##[PAD] ▁[STOP] Ġ[START]",
    "El niño no come pan. 12,5 % (¿no?)",
    "don't\nstop\n",
] * 5
ALPHABET = sorted(set("".join(CORPUS)) - {"▁"})

# Any Unicode but half characters; often special tokens, spaces, emoji, right-to-left and zero-width characters.
fragments = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.sampled_from(
        [
            *SPECIALS,
            "[PA",
            "D]",
            "[",
            "##",
            "▁",
            "\ue000",
            " ",
            "  ",
            "\n",
            "\r\n",
            "\t",
            "\x00",
            "👩‍👩‍👧",
            "שלום",
            "\u200b",
            "\u202e",
            "é",
        ]
    ),
)
texts = st.lists(fragments, max_size=8).map("".join)


@cache
def tokenizer(kind: TokenizerKind) -> Tokenizer:
    return Tokenizer.train(kind, CORPUS, size=500)


@given(texts)
@example("  leading, trailing and   inner spaces  ")
@example("".join(SPECIALS))
@settings(deadline=None, max_examples=300)
def test_bytes_give_any_text_back(text: str) -> None:
    t = tokenizer("bytes")
    assert t.decode(t.encode(text)) == text
    assert t.unknown not in t.encode(text)


@pytest.mark.parametrize("kind", KINDS)
@given(text=texts)
@example(text=" ".join(SPECIALS))
@example(text="".join(SPECIALS))
@settings(deadline=None, max_examples=200)
def test_no_text_becomes_a_special_token(kind: TokenizerKind, text: str) -> None:
    assert {0, 2, 3, 4, 5}.isdisjoint(tokenizer(kind).encode(text))


@given(st.text(ALPHABET))
@settings(deadline=None)
def test_characters_give_known_text_back(text: str) -> None:
    t = tokenizer("char")
    assert t.decode(t.encode(text)) == text
    assert len(t.encode(text)) == len(text)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@given(words=st.lists(st.text([c for c in ALPHABET if c != " "], min_size=1)))
@settings(deadline=None)
def test_known_text_with_single_spaces_comes_back(kind: TokenizerKind, words: list[str]) -> None:
    t = tokenizer(kind)
    assert t.decode(t.encode(" ".join(words))) == " ".join(words)


@pytest.mark.parametrize("kind", ["char", "bpe", "unigram"])
@given(text=st.text(ALPHABET, min_size=1))
@settings(deadline=None)
def test_a_new_character_is_unknown_and_nothing_else_is(kind: TokenizerKind, text: str) -> None:
    t = tokenizer(kind)
    assert t.unknown not in t.encode(text)
    assert t.unknown in t.encode(text + "☃")


@pytest.mark.parametrize("kind", KINDS)
@given(rows=st.lists(texts, max_size=5))
@settings(deadline=None, max_examples=50)
def test_a_text_is_encoded_alike_alone_and_among_others(kind: TokenizerKind, rows: list[str]) -> None:
    t = tokenizer(kind)
    assert t.encode_batch(rows) == [t.encode(row) for row in rows]


@pytest.mark.parametrize("kind", KINDS)
@given(corpus=st.lists(st.text("ab [PAD]", min_size=1), min_size=1, max_size=5))
@settings(deadline=None, max_examples=25)
def test_training_on_special_words_teaches_none(kind: TokenizerKind, corpus: list[str]) -> None:
    t = Tokenizer.train(kind, [*corpus, "[PAD][PAD][PAD] [PAD]"], size=300)
    assert t.pad not in t.encode("[PAD]")
    assert pieces_of(t) == pieces_of(Tokenizer.train(kind, [*corpus, "[PAD][PAD][PAD] [PAD]"], size=300))


def pieces_of(t: Tokenizer) -> list[str]:
    return [t.token(index) for index in range(len(t))]


@given(texts)
@settings(deadline=None)
def test_pieces_join_to_the_text(text: str) -> None:
    assert "".join(split_chunks(text * 100)) == text * 100

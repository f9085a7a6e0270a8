from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.dataset import find_reader
from clearhead.data.examples import Captioned, Labelled, Pair, Parts, Picture, Tagged, folded, split_by_hash
from clearhead.data.files import sort_into_parts

from .helpers import put

SHARES = st.floats(0, 0.95)
TEXTS = st.lists(st.text(max_size=8), max_size=60)
READERS = {Pair: "pairs", Labelled: "labelled", Tagged: "tagged", Picture: "images", Captioned: "captions"}


def identity(example: Pair | Labelled | Tagged | Picture | Captioned) -> bytes:
    return find_reader(READERS[type(example)]).identity(example)


@given(texts=TEXTS, share=SHARES)
def test_every_example_is_on_exactly_one_side_in_its_order(texts: list[str], share: float) -> None:
    rows = list(enumerate(texts))
    train, held_out = split_by_hash(rows, share, lambda row: folded(row[1]))
    assert sorted(train + held_out) == rows
    assert train == sorted(train)
    assert held_out == sorted(held_out)


@given(texts=TEXTS, share=SHARES)
def test_duplicates_never_straddle(texts: list[str], share: float) -> None:
    variants = [variant for text in texts for variant in (text, f" {text}\t", unicodedata.normalize("NFD", text))]
    train, held_out = split_by_hash(variants, share, folded)
    assert not {folded(text) for text in train} & {folded(text) for text in held_out}


@given(texts=TEXTS, more=TEXTS, share=st.floats(0.05, 0.95))
def test_a_growing_file_moves_no_example(texts: list[str], more: list[str], share: float) -> None:
    sides = []
    for examples in (texts, texts + more):
        train, held_out = split_by_hash(examples, share, folded)
        sides.append(dict.fromkeys(map(folded, train), "train") | dict.fromkeys(map(folded, held_out), "held out"))
    few = sum(side == "train" for side in sides[0].values()) < 2 or sum(s == "held out" for s in sides[0].values()) < 2
    assert few or all(sides[1][key] == side for key, side in sides[0].items())


@given(texts=st.lists(st.text(max_size=8), min_size=1, max_size=9), share=st.floats(0.0001, 0.9999))
def test_both_sides_have_one_where_two_are_different(texts: list[str], share: float) -> None:
    train, held_out = split_by_hash(texts, share, folded)
    assert train
    assert bool(held_out) == (len(set(map(folded, texts))) > 1)


def test_a_share_of_zero_holds_nothing_out() -> None:
    assert split_by_hash(["a", "b"], 0, folded) == (["a", "b"], [])


def test_the_share_is_about_right_and_the_same_on_every_machine() -> None:
    _, held_out = split_by_hash([str(number) for number in range(10_000)], 0.05, folded)
    assert 450 < len(held_out) < 550
    assert held_out[:5] == ["29", "72", "90", "99", "115"]


def test_examples_with_the_same_input_have_the_same_identity(tmp_path: Path) -> None:
    assert identity(Pair("Café  noir ", "x")) == identity(Pair("cafe\u0301 NOIR", "y", 3))
    assert identity(Labelled("a b", "1")) == identity(Tagged(("A", "b"), ("X", "Y")))
    assert identity(Pair("us", "")) != identity(Pair("them", ""))
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    assert identity(Picture(pixels, "a")) == identity(Captioned(pixels.copy(), ("b",)))
    assert identity(Picture(pixels, "a")) != identity(Picture(pixels.reshape(1, 4, 3), "a"))
    one, two, other = (put(tmp_path / name, name[0]) for name in ("a1", "a2", "b"))
    assert identity(Picture(one, "")) == identity(Picture(two, ""))
    assert identity(Picture(one, "")) != identity(Picture(other, ""))


def test_parts_are_recognised_by_their_names() -> None:
    train, valid, test, book = (Path(name) for name in ("train.tsv", "valid.tsv", "test.tsv", "emma.txt"))
    assert sort_into_parts([test, train, valid]) == Parts([train], [valid])
    assert sort_into_parts([test, train]) == Parts([train], [test])
    assert sort_into_parts([train]) == Parts([train], None)
    assert sort_into_parts([book, test]) == Parts([book, test], None)

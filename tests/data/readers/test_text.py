from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data import read
from clearhead.errors import DataError

from ..helpers import put, real


def text(path: Path, **options):
    return read(path, kind="text", **options)


@given(words=st.lists(st.sampled_from(["one ", "two\n", "x", "\n\n", "é"]), min_size=1), share=st.floats(0, 0.9))
def test_the_two_parts_are_the_text(tmp_path_factory, words: list[str], share: float) -> None:
    whole = "begin " + "".join(words)
    dataset = text(put(tmp_path_factory.getbasetemp() / "parts.txt", whole), validation=share)
    assert "".join(dataset.train) + "".join(dataset.validation) == whole


def test_the_last_share_is_held_out_from_a_line_on(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt", "".join(f"line number {number}\n" for number in range(1000)))
    dataset = text(path, validation=0.1)
    train, held_out = "".join(dataset.train), "".join(dataset.validation)
    assert train.endswith("\n")
    assert held_out.startswith("line number")
    assert 0.09 < len(held_out) / len(train + held_out) < 0.11
    assert dataset.train.characters == len(train)
    assert dataset.validation.characters == len(held_out)


def test_a_text_can_be_read_again_and_again(tmp_path: Path) -> None:
    dataset = text(put(tmp_path / "a.txt", "to be or not to be\n" * 50))
    assert list(dataset.train) == list(dataset.train)
    assert list(dataset.validation) == list(dataset.validation)


def test_a_large_text_comes_in_blocks_and_is_never_held(tmp_path: Path) -> None:
    line = b"the quick brown fox jumps over the lazy dog\n"
    path = put(tmp_path / "a.txt.gz", gzip.compress(line * 1_000_000, compresslevel=1))
    dataset = text(path)
    tracemalloc.start()
    try:
        sizes = [len(block) for part in (dataset.train, dataset.validation) for block in part]
        assert tracemalloc.get_traced_memory()[1] < 12_000_000
    finally:
        tracemalloc.stop()
    assert sum(sizes) == len(line) * 1_000_000
    assert max(sizes) < 1_200_000


def test_a_folder_of_books_keeps_their_words_apart(tmp_path: Path) -> None:
    for name, words in (
        ("b.txt", "second"),
        ("a.txt", "first"),
        ("README", "no"),
        ("README.txt", "no"),
        ("c.md", "no"),
    ):
        put(tmp_path / name, words)
    dataset = text(tmp_path, validation=0)
    assert "".join(dataset.train) == "first\nsecond"
    assert list(dataset.validation) == []


def test_a_folder_with_parts_is_taken_as_it_is(tmp_path: Path) -> None:
    for name in ("train.txt", "valid.txt", "test.txt"):
        put(tmp_path / name, f"all of {name}")
    dataset = text(tmp_path)
    assert (list(dataset.train), list(dataset.validation)) == (["all of train.txt"], ["all of valid.txt"])


def test_one_line_of_ten_megabytes_is_a_text_when_the_user_says_so(tmp_path: Path) -> None:
    path = put(tmp_path / "text8", "anarchism originated as a term " * 330_000)
    with pytest.raises(DataError, match=r"line 1: is 10\.2 MB long.*--kind text"):
        read(path)
    blocks = list(text(path, validation=0).train)
    assert sum(map(len, blocks)) == 330_000 * 31
    assert all(block.endswith(" ") for block in blocks)


@pytest.mark.parametrize("content", ["", " \n\n"])
def test_a_text_without_words_is_empty(tmp_path: Path, content: str) -> None:
    with pytest.raises(DataError, match=r"a\.txt: is empty"):
        text(put(tmp_path / "a.txt", content))


def test_a_folder_without_texts(tmp_path: Path) -> None:
    put(tmp_path / "a.pdf", "x")
    with pytest.raises(DataError, match=r"holds no \.txt file"):
        text(tmp_path)


def test_tinyshakespeare() -> None:
    dataset = read(real("tinyshakespeare"))
    assert dataset.kind == "text"
    assert dataset.train.characters + dataset.validation.characters == 1_115_394


def test_wikitext_keeps_its_own_parts() -> None:
    dataset = read(real("wikitext2"))
    counts = [sum(block.count("\n") for block in part) for part in (dataset.train, dataset.validation)]
    assert counts == [36_718, 3_760]

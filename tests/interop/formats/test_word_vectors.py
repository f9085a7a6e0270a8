from __future__ import annotations

import json
import struct
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.optional import optional

from clearhead.errors import RunError
from clearhead.interop.checkpoint import format_of, read_checkpoint
from clearhead.models.word2vec import neighbours
from clearhead.text.schemes import SPECIALS

gensim = optional("gensim", reason="gensim is the reference for word vectors")
DATA = Path(str(find_spec("gensim").origin)).parent / "test" / "test_data"  # type: ignore[union-attr]
SIZE, DIM = 23, 7


@pytest.fixture
def vectors() -> Any:
    table = gensim.models.KeyedVectors(DIM)
    words = ["the", ",", "naïve", "北京", *(f"word{index}" for index in range(SIZE - 4))]
    table.add_vectors(words, np.random.default_rng(5).normal(size=(SIZE, DIM)).astype(np.float32))
    return table


def table_of(path: Path) -> tuple[list[str], np.ndarray]:
    """The words and vectors of a file, without the special tokens."""
    found = read_checkpoint(path)
    assert found.config["model_type"] == "word_vectors"
    assert found.tokenizer is not None
    vocabulary = json.loads(found.tokenizer.json)["model"]["vocab"]
    words = sorted(vocabulary, key=vocabulary.__getitem__)
    table = found.tensors["vectors"].numpy()
    assert tuple(words[: len(SPECIALS)]) == SPECIALS
    assert not table[: len(SPECIALS)].any()
    return words[len(SPECIALS) :], table[len(SPECIALS) :]


def same(path: Path, wanted: Any, near: float = 0.0) -> None:
    words, table = table_of(path)
    assert words == list(wanted.index_to_key)
    np.testing.assert_allclose(table, wanted.vectors, rtol=0, atol=near)
    for word in words[:3]:
        ours = neighbours(table, words, word, 5)
        theirs = wanted.most_similar(word, topn=5)
        assert [each for each, _ in ours] == [each for each, _ in theirs]
        np.testing.assert_allclose([value for _, value in ours], [value for _, value in theirs], atol=1e-6)


@pytest.mark.parametrize("binary", [False, True])
def test_word2vec(tmp_path: Path, vectors: Any, binary: bool) -> None:
    vectors.save_word2vec_format(str(tmp_path / "v"), binary=binary)
    assert format_of(tmp_path / "v") == "word_vectors"
    same(tmp_path / "v", vectors, near=1e-6)


def test_glove_has_no_header_and_words_may_hold_spaces(tmp_path: Path, vectors: Any) -> None:
    vectors.save_word2vec_format(str(tmp_path / "v"), write_header=False)
    same(tmp_path / "v", vectors, near=1e-6)
    lines = (tmp_path / "v").read_text(encoding="utf-8").splitlines()
    (tmp_path / "w").write_text("\n".join([*lines, ". . " + lines[0]]), encoding="utf-8")
    assert table_of(tmp_path / "w")[0][-1] == ". . the"


def test_wink_json(tmp_path: Path, vectors: Any) -> None:
    rows = {word: [*map(float, vectors[word]), 1.0, row] for row, word in enumerate(vectors.index_to_key)}
    head = {"precision": 8, "l2NormIndex": DIM, "wordIndex": DIM + 1, "size": SIZE, "dimensions": DIM}
    (tmp_path / "v.json").write_text(json.dumps({**head, "words": list(rows), "vectors": rows}), encoding="utf-8")
    same(tmp_path / "v.json", vectors)


@pytest.mark.parametrize("name", ["lee_fasttext_new.bin", "crime-and-punishment.bin"])
def test_fasttext_with_its_ngrams(name: str) -> None:
    if not (DATA / name).is_file():
        pytest.skip(f"this gensim does not carry {name}")
    wanted = gensim.models.fasttext.load_facebook_vectors(str(DATA / name))
    words, table = table_of(DATA / name)
    assert words == list(wanted.index_to_key)
    rows = [row for row, word in enumerate(words) if word != "</s>"]  # fastText gives it no n-grams, gensim does
    np.testing.assert_allclose(table[rows], wanted.vectors[rows], atol=1e-6)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # gensim leaves its file open
def test_fasttext_vec_and_glove_files_of_gensim() -> None:
    for name, header in (("lee_fasttext.vec", True), ("test_glove.txt", False)):
        same(
            DATA / name,
            gensim.models.KeyedVectors.load_word2vec_format(str(DATA / name), no_header=not header),
            near=1e-6,
        )


def test_the_first_of_two_equal_words_counts(tmp_path: Path) -> None:
    (tmp_path / "v").write_text("3 2\na 1 2\nb 3 4\na 5 6\n", encoding="utf-8")
    words, table = table_of(tmp_path / "v")
    assert words == ["a", "b"]
    np.testing.assert_array_equal(table, [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"99999999999 300\na 1 2\n", "do not fit"),
        (b"3 2\na 1 2\nb 3 4\n", "2 of 3 words"),
        (b"2 2\na 1 2\nb 3 x\n", "line 3: expected a word and 2 numbers"),
        (b"2 2\na 1 2\nb 3 nan\n", "'b' has numbers that are not finite"),
        (b"9 2\na \x00\x00\x80\x3f\x00\x00\x00\x40b \x00\x00", "do not fit"),
        (b"2 2\na \x00\x00\x80\x3f\x00\x00\x00\x40bbbbbbbbbbbbbbbb", "1 of 2 words"),
        (struct.pack("<2i", 793712314, 9), "version 9"),
        (struct.pack("<2i12id3i2q", 793712314, 12, *[5] * 12, 0.1, 2**30, 2**30, 0, 1, -1), "do not fit"),
        (struct.pack("<2i5i", 793712314, 12, *[5] * 5), "damaged or cut off"),
        (b'{"l2NormIndex": 2, "dimensions": 2, "words": ["a"], "vectors": {}}', "not wink's word vectors"),
    ],
)
def test_damaged_files(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "v").write_bytes(content)
    with pytest.raises(RunError, match=message):
        read_checkpoint(tmp_path / "v")

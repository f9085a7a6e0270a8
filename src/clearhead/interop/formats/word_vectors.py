"""Word vectors: word2vec (text and binary), GloVe, fastText (.vec and .bin), and wink's JSON.

    word2vec, .vec   a line with the number of words and of dimensions, then a word and its numbers on each line
    word2vec binary  the same line, then each word, a space and float32 numbers
    GloVe            no first line
    fastText .bin    words, and vectors for hashed n-grams of letters: a word's vector is the mean of its own and theirs

The result is a table (V, D) whose first rows are zeros, for the special tokens that every vocabulary of ours begins
with. Of a word that occurs twice the first vector counts, as in gensim.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import models

from clearhead.errors import RunError
from clearhead.interop.checkpoint import FORMATS, Checkpoint, Format, TokenizerFiles
from clearhead.interop.formats.base.lazy import LazyTensors
from clearhead.text.schemes import JOIN_WORDS, PLAIN_WORDS, SPECIALS, UNKNOWN, Corpus, assembled

Table = tuple[list[str], NDArray[np.float32]]  # V words, (V, D)

FASTTEXT_MAGIC, FASTTEXT_VERSIONS = 793712314, (11, 12)
SUPERVISED = 3  # fastText's number of a classifier
HEAD = 1 << 16  # bytes that are looked at to recognise a file: no line of numbers is longer
MAX_WORD = 4096  # bytes


@FORMATS.register("word_vectors")
class WordVectors(Format):
    """A table of words and their vectors."""

    def can_read(self, path: Path) -> bool:
        return path.is_file() and _reader(path) is not None

    def read(self, path: Path) -> Checkpoint:
        reader = _reader(path)
        if reader is None:
            raise RunError(f"{path} is not a file of word vectors")
        words, vectors = _distinct(*reader(path))
        if not np.isfinite(vectors).all():
            raise RunError(
                f"{path} is damaged: the vector of {words[int((~np.isfinite(vectors)).any(1).argmax())]!r}"
                " has numbers that are not finite"
            )
        lowercase = all(word == word.lower() for word in words)
        table = torch.from_numpy(np.concatenate([np.zeros((len(SPECIALS), vectors.shape[1]), np.float32), vectors]))
        config = {
            "model_type": "word_vectors",
            "architectures": ["WordVectors"],
            "vocab_size": len(table),
            "hidden_size": vectors.shape[1],
            "lowercase": lowercase,
        }
        tokenizer = _tokenizer(words, lowercase)
        return Checkpoint(path, config, LazyTensors({"vectors": lambda: table}), tokenizer, {}, "float32")


def _reader(path: Path) -> Callable[[Path], Table] | None:
    """How a file is to be read, by its first bytes."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    if len(head) >= 8 and struct.unpack_from("<i", head)[0] == FASTTEXT_MAGIC:
        return read_fasttext
    if head.startswith(b"{") and b'"l2NormIndex"' in head and b'"dimensions"' in head:
        return read_wink
    first, _, rest = head.partition(b"\n")
    if (sizes := _sizes(first)) is not None:
        line = rest.partition(b"\n")[0]
        return read_text if _numbers_after_word(line) == sizes[1] else read_binary if sizes[1] > 0 else None
    columns = _numbers_after_word(first)
    return (
        partial(read_text, header=False)
        if columns > 1 and _numbers_after_word(rest.partition(b"\n")[0]) == columns
        else None
    )


def _sizes(line: bytes) -> tuple[int, int] | None:
    """The number of words and of dimensions of a first line."""
    parts = line.split()
    if len(parts) != 2 or not all(part.isdigit() and len(part) < 12 for part in parts):
        return None
    return int(parts[0]), int(parts[1])


def _numbers_after_word(line: bytes) -> int:
    """How many numbers follow the word of a line; 0 if something else does."""
    fields = line.rstrip().split(b" ")[1:]
    try:
        [float(field) for field in fields]
    except ValueError:
        return 0
    return len(fields)


def _check(path: Path, count: int, dim: int, least: int) -> None:
    """Refuse sizes for which the file is too small: each word takes at least so many bytes."""
    have = path.stat().st_size
    if count < 1 or dim < 1 or count * least > have:
        raise RunError(f"{path} is damaged or cut off: {count:,} vectors of {dim:,} numbers do not fit {have:,} bytes")


def _distinct(words: list[str], vectors: NDArray[np.float32]) -> Table:
    """Each word once, and none that spells a special token."""
    rows = {word: row for row, word in reversed(list(enumerate(words)))}
    keep = sorted(row for word, row in rows.items() if word and word not in SPECIALS)
    return ([words[row] for row in keep], vectors[keep]) if len(keep) < len(words) else (words, vectors)


def _tokenizer(words: list[str], lowercase: bool) -> TokenizerFiles:
    """Our own scheme `word`, with these words."""
    corpus = Corpus((), lowercase=lowercase)
    vocabulary = {word: index for index, word in enumerate([*SPECIALS, *words])}
    library = assembled(models.WordLevel(vocabulary, unk_token=UNKNOWN), corpus, PLAIN_WORDS, JOIN_WORDS)
    library.add_special_tokens([*SPECIALS])
    return TokenizerFiles(library.to_str(), {"unk_token": UNKNOWN}, add_bos=False, add_eos=False, chat_template=None)


# --- the formats ---


def read_text(path: Path, header: bool = True) -> Table:
    """word2vec's and GloVe's text; the last columns are the numbers, so that a word may hold spaces."""
    with path.open("rb") as file:
        sizes = _sizes(file.readline(HEAD)) if header else None
        start = file.tell()
        dim = sizes[1] if sizes else _numbers_after_word(file.readline(HEAD))
        file.seek(start)
        if sizes:
            _check(path, *sizes, least=2 * sizes[1])
        words: list[str] = []
        rows: list[NDArray[np.float32]] = []
        for number, line in enumerate(_lines(file), start=2 if header else 1):
            parts = line.rstrip().rsplit(b" ", dim)
            try:
                rows.append(np.array(parts[1:], np.float32))
            except ValueError:
                raise RunError(f"{path}, line {number}: expected a word and {dim} numbers") from None
            if len(parts) != dim + 1:
                raise RunError(f"{path}, line {number}: expected a word and {dim} numbers")
            words.append(parts[0].decode(errors="replace"))
            if sizes and len(words) == sizes[0]:
                break
    if not words or (sizes and len(words) != sizes[0]):
        raise RunError(f"{path} is damaged or cut off: it has {len(words):,} of {sizes[0] if sizes else 1:,} words")
    return words, np.stack(rows)


def _lines(file: BufferedReader) -> Iterator[bytes]:
    return (line for line in iter(partial(file.readline, 1 << 20), b"") if line.strip())


def read_binary(path: Path) -> Table:
    """word2vec's binary: each word ends with a space; some programs write a line end after the numbers."""
    with path.open("rb") as file:
        sizes = _sizes(file.readline(HEAD))
        if sizes is None:
            raise RunError(f"{path} is not a binary file of word2vec")
        count, dim = sizes
        _check(path, count, dim, least=4 * dim + 2)
        content = file.read()
    vectors, words, place = np.empty((count, dim), np.float32), [], 0
    for row in range(count):
        end = content.find(b" ", place, place + MAX_WORD)
        numbers = content[end + 1 : end + 1 + 4 * dim]
        if end < 0 or len(numbers) < 4 * dim:
            raise RunError(f"{path} is damaged or cut off: it has {row:,} of {count:,} words")
        words.append(content[place:end].lstrip(b"\n").decode(errors="replace"))
        vectors[row] = np.frombuffer(numbers, "<f4")
        place = end + 1 + 4 * dim
    return words, vectors


def read_wink(path: Path) -> Table:
    """GloVe as JSON: the vectors by word, each followed by its length and number."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        words, dim, vectors = values["words"], int(values["dimensions"]), values["vectors"]
        return list(words), np.array([vectors[word][:dim] for word in words], np.float32).reshape(len(words), dim)
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise RunError(f"{path} is damaged: it is not wink's word vectors ({type(problem).__name__})") from None


# --- fastText ---


def read_fasttext(path: Path) -> Table:
    """A model of fastText with its n-grams."""
    with path.open("rb") as file:
        try:
            return _read_fasttext(path, file)
        except struct.error:
            raise RunError(f"{path} is damaged or cut off") from None


def _read_fasttext(path: Path, file: BufferedReader) -> Table:
    _, version = _unpack(file, "<2i")
    if version not in FASTTEXT_VERSIONS:
        raise RunError(f"{path} has fastText's version {version}; Clearhead reads 11 and 12")
    dim, *_, kind, bucket, minn, maxn, _update = _unpack(file, "<12i")
    _unpack(file, "<d")
    if version == FASTTEXT_VERSIONS[0] and kind == SUPERVISED:
        maxn = 0  # classifiers had no n-grams of letters then
    size, words_count, _labels = _unpack(file, "<3i")
    _tokens, pruned = _unpack(file, "<2q")
    _check(path, size, dim, least=10)
    entries = [_entry(path, file) for _ in range(size)]
    if pruned > 0:
        raise RunError(f"{path} is a pruned (compressed) model of fastText, which Clearhead does not read")
    (quantised,) = _unpack(file, "<?")
    rows, columns = _unpack(file, "<2q")
    if quantised:
        raise RunError(f"{path} is a quantised model of fastText (.ftz), which Clearhead does not read")
    if columns != dim or rows < words_count or rows * columns * 4 > path.stat().st_size - file.tell():
        raise RunError(f"{path} is damaged or cut off: its table of {rows:,} × {columns:,} numbers does not fit")
    matrix = np.fromfile(file, "<f4", rows * columns).reshape(rows, columns)
    words = [word for word, kind in entries if kind == 0]
    buckets = bucket if maxn > 0 else 0
    vectors = np.stack(
        [_subword_mean(matrix, row, word, len(words), buckets, minn, maxn) for row, word in enumerate(words)]
    )
    return words, vectors


def _unpack(file: BufferedReader, form: str) -> tuple[Any, ...]:
    return struct.unpack(form, file.read(struct.calcsize(form)))


def _entry(path: Path, file: BufferedReader) -> tuple[str, int]:
    """A word and its kind: 0 for words, 1 for labels."""
    letters = bytearray()
    while (letter := file.read(1)) != b"\0":
        if not letter or len(letters) > MAX_WORD:
            raise RunError(f"{path} is damaged or cut off: a word does not end")
        letters += letter
    _count, kind = _unpack(file, "<qb")
    return letters.decode(errors="replace"), kind


def _subword_mean(
    matrix: NDArray[np.float32], row: int, word: str, words: int, buckets: int, minn: int, maxn: int
) -> NDArray[np.float32]:
    """The mean of a word's own row and of those of its n-grams."""
    if not buckets or word == "</s>":
        own: NDArray[np.float32] = matrix[row]
        return own
    grams = [words + fasttext_hash(gram) % buckets for gram in ngrams(f"<{word}>", minn, maxn)]
    mean: NDArray[np.float32] = matrix[[row, *grams]].mean(0, dtype=np.float32)
    return mean


def ngrams(word: str, shortest: int, longest: int) -> Iterator[bytes]:
    """The n-grams of letters of a word between < and >; one letter at the edge is none by itself."""
    for start in range(len(word)):
        for size in range(shortest, min(longest, len(word) - start) + 1):
            if size > 1 or 0 < start < len(word) - 1:
                yield word[start : start + size].encode()


def fasttext_hash(gram: bytes) -> int:
    """FNV-1a of 32 bits, with bytes as signed numbers."""
    value = 2166136261
    for byte in gram:
        value = ((value ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * 16777619) & 0xFFFFFFFF
    return value

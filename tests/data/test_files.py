from __future__ import annotations

import gzip
import lzma
import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data import files
from clearhead.data.files import Preview, blocks, existing, lines, part_name
from clearhead.data.source import ReadOptions
from clearhead.errors import ConfigError, DataError

from .helpers import put

TEXT = "one\ntwo\nthree"


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress], ids=["plain", "gzip", "xz"])
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.xz"])
def test_compression_is_known_by_the_bytes_whatever_the_name(tmp_path: Path, name: str, pack) -> None:
    path = put(tmp_path / name, pack(TEXT.encode()))
    assert list(lines(path)) == [(1, "one"), (2, "two"), (3, "three")]
    assert "".join(blocks(path)) == TEXT


def test_line_endings_and_byte_order_mark_are_dropped(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt", b"\xef\xbb\xbfone\r\ntwo \r\n\r\nfour\x0bfour\xe2\x80\xa8four")
    assert list(lines(path)) == [(1, "one"), (2, "two "), (3, ""), (4, "four\x0bfour\u2028four")]
    assert "".join(blocks(path)) == "one\ntwo \n\nfour\x0bfour\u2028four"


@given(text=st.text(alphabet="aé\n\r 語😀", max_size=60), size=st.integers(1, 9))
def test_blocks_lose_nothing_wherever_the_pieces_end(tmp_path_factory, text: str, size: int) -> None:
    path = put(tmp_path_factory.getbasetemp() / "blocks.txt", text)
    pieces = list(blocks(path, size=size))
    assert "".join(pieces) == text.replace("\r\n", "\n")
    assert all(pieces)


def test_blocks_end_after_a_line_else_after_a_blank(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt", "one two\nthree four five\n")
    assert list(blocks(path, size=10)) == ["one two\n", "three four ", "five\n"]


@pytest.mark.parametrize("read", [lines, blocks])
def test_wrong_encoding_names_the_line_and_a_way_out(tmp_path: Path, read) -> None:
    path = put(tmp_path / "a.txt", "one\ntwo\nça\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"a\.txt, line 3: is not utf-8 text \(byte 0xE7\).*data\.encoding=latin-1"):
        list(read(path))
    assert "ça" in str(list(read(path, "latin-1")))


def test_wrong_encoding_is_placed_behind_many_pieces(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt", b"line\n" * 99 + b"caf\xe9 society\n")
    with pytest.raises(DataError, match="line 100: is not utf-8"):
        list(blocks(path, size=7))


def test_a_character_cut_off_at_the_end_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 2: is not utf-8"):
        list(blocks(put(tmp_path / "a.txt", "one\ncafé".encode()[:-1])))


@pytest.mark.parametrize("read", [lines, blocks])
@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (bytes(range(256)), "is a binary file"),
        (b"text\n" * 1000 + b"\0", "line 1001: is a binary file"),
        (b"PK\x03\x04rest", "is a zip archive; unpack it first"),
        ("utf".encode("utf-16"), "is UTF-16 text; save it as UTF-8 first"),
        (b"name".ljust(257, b"\0") + b"ustar", "is a tar archive; unpack it first"),
        (gzip.compress(os.urandom(5000))[:3000], "ends in the middle"),
        (lzma.compress(TEXT.encode() * 999)[:-9], "ends in the middle"),
        (gzip.compress(TEXT.encode())[:-8] + b"12345678", "is damaged"),
    ],
    ids=["bytes", "late", "zip", "utf16", "tar", "gzip", "xz", "checksum"],
)
def test_what_is_no_text_is_named(tmp_path: Path, read, content: bytes, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        list(read(put(tmp_path / "a.txt", content)))


def test_a_long_line_is_refused_with_its_size_and_never_held(tmp_path: Path) -> None:
    path = put(tmp_path / "a.tsv.gz", gzip.compress(b"short\n" + b"x" * 30_000_000, compresslevel=1))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"line 2: is 30\.0 MB long, .* --kind text"):
            list(lines(path))
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


def test_the_longest_line_allowed_is_read(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt", b"x" * (files.MAX_LINE - 1) + b"\nend")
    assert [len(line) for _, line in lines(path)] == [files.MAX_LINE - 1, 3]


def test_head_has_a_budget(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt", "12345\n" * 100)
    assert len(Preview(path).head(count=7)) == 7
    assert len(Preview(path).head(budget=20)) == 5


def test_a_missing_path_names_the_nearest(tmp_path: Path) -> None:
    put(tmp_path / "pairs.tsv", "a\tb\n")
    with pytest.raises(DataError, match=r"pears\.tsv: does not exist; did you mean .*/pairs\.tsv\?"):
        existing(tmp_path / "pears.tsv")
    with pytest.raises(DataError, match=r"does not exist$"):
        existing(tmp_path / "unlike")
    with pytest.raises(DataError, match=r"neither does the folder .*nowhere"):
        existing(tmp_path / "nowhere" / "a.tsv")


def test_what_is_neither_file_nor_folder_is_refused() -> None:
    with pytest.raises(DataError, match="/dev/null: is neither a file nor a folder"):
        existing("/dev/null")


def test_a_folder_is_not_opened_as_a_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: is a directory"):
        list(lines(tmp_path))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252", "ascii"])
def test_encodings_that_end_lines_as_ascii_does(encoding: str) -> None:
    assert ReadOptions(encoding).encoding == encoding


@pytest.mark.parametrize(
    ("encoding", "sentence"),
    [
        ("utf8000", "unknown encoding utf8000; try utf-8"),
        ("hex", "unknown encoding hex"),
        ("utf-16", "convert the file"),
    ],
)
def test_other_encodings_are_refused(encoding: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        ReadOptions(encoding)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("train.tsv.gz", "train"),
        ("sst2-train.csv", "train"),
        ("wiki.valid.raw", "validation"),
        ("dev.txt", "validation"),
        ("train.de-en.de", "train"),
        ("t10k-images-idx3-ubyte.gz", "test"),
        ("training-day-review.txt", "train"),
        ("emma.txt", ""),
        ("contest.txt", ""),
    ],
)
def test_names_of_parts(name: str, part: str) -> None:
    assert part_name(Path(name)) == part


# Previews


@pytest.mark.parametrize("room", [0, 3, 10_000])
def test_a_preview_yields_every_line_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    monkeypatch.setattr(files, "PREVIEW", room)
    path = put(tmp_path / "a.txt", "".join(f"line {number}\n" for number in range(20)))
    preview = Preview(path)
    assert preview.head(count=3) == list(lines(path))[:3]
    assert list(preview) == list(preview) == list(lines(path))
    assert preview.head(count=7) == list(lines(path))[:7]
    preview.close()
    assert list(preview) == list(lines(path))


def test_a_preview_opens_its_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "a.txt", "".join(f"line {number}\n" for number in range(2_000)))
    opened = []
    monkeypatch.setattr(files, "lines", lambda *words: opened.append(words) or lines(*words))
    preview = Preview(path)
    assert not preview.has_text()
    assert len(preview.head()) == 1_000
    assert preview.has_text()
    assert len(list(preview)) == len(list(preview)) == 2_000
    assert len(opened) == 1


def test_an_error_in_a_preview_comes_again(tmp_path: Path) -> None:
    preview = Preview(put(tmp_path / "a.txt", b"fine\nbroken \xff\n"))
    for _ in range(2):
        with pytest.raises(DataError, match="line 2: is not utf-8 text"):
            list(preview)
    assert preview.head(count=1) == [(1, "fine")]

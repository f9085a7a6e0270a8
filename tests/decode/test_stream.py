"""Text from tokens: never a half character, never a part of a stop string, and in the end all of it."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest

from clearhead.decode import TextStream, text_pieces
from clearhead.decode.stream import first_stop
from clearhead.errors import ConfigError

TEXT = "naïve “quotes” 👩‍👩‍👧 שלום, end\n\nnext"


def read(ids: list[int]) -> str:
    """Each id is a byte."""
    return bytes(ids).decode("utf-8", errors="replace")


def fallback(ids: list[int]) -> str:
    """As tokenizers with single bytes for rare characters do: unfinished bytes are as many unreadable characters."""
    try:
        return bytes(ids).decode("utf-8")
    except UnicodeDecodeError:
        return "�" * len(ids)


@pytest.mark.parametrize("decode", [read, fallback])
def test_characters_come_whole(decode) -> None:
    found = list(text_pieces(TEXT.encode(), decode))
    assert found == list(TEXT)


def test_invalid_bytes_become_replacement_characters() -> None:
    data = b"a\xff\xfe\xfd\xfc\xfbb\xe2\x82"
    found = list(text_pieces(data, read))
    assert "".join(found) == data.decode("utf-8", errors="replace")
    stream = TextStream(read)
    given = [stream.add(byte) for byte in b"\xff" * 9]
    assert "".join(given) == "�" * 6  # no more than three can still become something


def test_the_prompt_is_context_but_not_returned() -> None:
    words = ["the", "cat", "sat"]

    def spaced(ids: list[int]) -> str:
        return " ".join(words[i] for i in ids)

    assert list(text_pieces([1, 2], spaced, before=[0])) == [" cat", " sat"]
    assert list(text_pieces([0, 1], spaced)) == ["the", " cat"]


@pytest.mark.parametrize("decode", [read, fallback])
def test_a_character_may_begin_in_the_prompt_and_never_end(decode) -> None:
    assert "".join(text_pieces("€!".encode()[1:], decode, before="€".encode()[:1])) == "€!"
    assert re.fullmatch("é�+", "".join(text_pieces("é€".encode()[:-1], decode)))


@pytest.mark.parametrize("stop", ["end", "\n\n", "👧", "n", TEXT, "ext"])
def test_a_stop_string_ends_the_text_before_it(stop: str) -> None:
    asked: list[int] = []

    def tokens() -> Iterator[int]:
        for byte in TEXT.encode():
            asked.append(byte)
            yield byte

    assert "".join(text_pieces(tokens(), read, stops=[stop])) == TEXT[: TEXT.index(stop)]
    assert bytes(asked).decode() == TEXT[: TEXT.index(stop) + len(stop)]  # nothing is written for nobody


def test_text_that_only_begins_like_a_stop_string_is_held_back() -> None:
    assert list(text_pieces(b"aab aabc.", read, stops=["aabcd", "bx"])) == ["aab ", "aabc."]
    assert list(text_pieces(b"aaa", read, stops=["aab"])) == ["a", "aa"]


def test_the_stop_string_that_is_complete_first_counts() -> None:
    assert "".join(text_pieces(b"xabcx", read, stops=["abc", "b"])) == "xa"
    assert "".join(text_pieces(b"xabcx", read, stops=["bc", "abc"])) == "x"
    assert first_stop("xabcx", ["abc", "b"]) == 2
    assert first_stop("x", ["y"]) is None


@pytest.mark.parametrize("seed", range(40))
def test_the_text_does_not_depend_on_where_the_tokens_are_cut(seed: int) -> None:
    chance = random.Random(seed)
    data = "".join(chance.choice("abcé€👧") for _ in range(300)).encode()
    parts: list[bytes] = []
    while (place := sum(map(len, parts))) < len(data):
        parts.append(data[place : place + chance.randint(1, 5)])
    stops = ["".join(chance.choice("abcé€👧") for _ in range(chance.randint(2, 5))) for _ in range(3)]

    def decode(ids: list[int]) -> str:
        return b"".join(parts[i] for i in ids).decode("utf-8", errors="replace")

    text = data.decode()
    assert "".join(text_pieces(range(len(parts)), decode)) == text
    end = first_stop(text, stops)
    assert "".join(text_pieces(range(len(parts)), decode, stops=stops)) == text[:end]


def test_a_long_text_costs_no_more_for_each_token() -> None:
    longest = 0

    def decode(ids: list[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return read(ids)

    data = TEXT.encode() * 20
    assert "".join(text_pieces(data, decode)) == TEXT * 20
    assert longest <= 70


def test_nothing_follows_a_stop_string() -> None:
    stream = TextStream(read, stops=["b"])
    assert [stream.add(byte) for byte in b"abab"] == ["a", "", "", ""]
    assert stream.ended
    assert stream.end() == ""


def test_no_tokens_give_no_text() -> None:
    assert list(text_pieces([], read)) == []
    assert list(text_pieces([], read, before=[65])) == []


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^a stop string is empty; leave it out to generate to the end$"):
        TextStream(read, stops=["x", ""])

from __future__ import annotations

from collections import Counter
from string import ascii_lowercase

from clearhead.data import read
from clearhead.data.invented import LETTERS, LINES, WORDS, WRITTEN, invented


def test_every_line_has_its_own_words_and_repeats_them() -> None:
    lines = list(invented())
    assert lines == list(invented())
    assert len(lines) == len(set(lines)) == LINES
    for line in lines:
        words = line.split(" ")
        assert len(words) == WRITTEN
        assert len(set(words)) <= WORDS
        assert set("".join(words)) <= set(ascii_lowercase)
        assert all(LETTERS[0] <= len(word) <= LETTERS[1] for word in words)


def test_a_word_of_one_line_says_nothing_about_the_others() -> None:
    lines_with = Counter(word for line in invented() for word in set(line.split(" ")) if len(word) >= 5)
    assert lines_with.most_common(1)[0][1] <= 3  # of 15,000


def test_it_is_read_by_its_name(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path))
    monkeypatch.delenv("CLEARHEAD_DATA", raising=False)
    found = read("invented", validation=0.02)
    text = "".join(found.train) + "".join(found.validation)
    assert (found.kind, found.origin) == ("text", "invented")
    assert text.split("\n")[:LINES] == list(invented())

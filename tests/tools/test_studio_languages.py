"""Every language of the Studio has every sentence that it can show, and none besides."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from studio_languages import PAGE, every_sentence, in_javascript, read

CODES = ["de", "es", "fr", "pt"]
PLACEHOLDER = re.compile(r"\{\w+\}")
SAME = re.compile(r"[^a-z]*|.*[A-Z]{2}.*|.{0,20}")  # may be the same in both languages: formulas, names, short words


def test_the_page_offers_the_languages_that_there_are() -> None:
    source = (PAGE / "i18n.js").read_text(encoding="utf-8")
    offered = re.search(r"LANGUAGES = \{([^}]*)\}", source)
    assert offered is not None
    assert re.findall(r"(\w\w): ", offered[1]) == ["en", *CODES]
    assert sorted(file.stem for file in PAGE.glob("*.json")) == CODES


@pytest.mark.parametrize("code", CODES)
def test_a_language_is_complete_and_keeps_every_placeholder(code: str) -> None:
    wanted, known = every_sentence(), read(code)
    assert [sentence for sentence in wanted if sentence not in known] == [], "python tools/studio_languages.py"
    assert [sentence for sentence in known if sentence not in wanted] == []
    for sentence, given in known.items():
        forms = list(given.values()) if isinstance(given, dict) else [given]
        if isinstance(given, dict):
            assert {"one", "other"} <= given.keys() <= {"one", "many", "other"}, sentence
        for text in forms:
            assert text.strip(), sentence
            assert Counter(PLACEHOLDER.findall(text)) == Counter(PLACEHOLDER.findall(sentence)), sentence
            assert text.endswith(" ") == sentence.endswith(" "), sentence


@pytest.mark.parametrize("code", CODES)
def test_sentences_are_translated(code: str) -> None:
    same = [sentence for sentence, text in read(code).items() if text == sentence and not SAME.fullmatch(sentence)]
    assert same == []


def test_plurals_are_those_that_the_page_asks_for() -> None:
    sources = (
        file.read_text(encoding="utf-8") for file in (*PAGE.glob("*.js"), *PAGE.parents[1].glob("look/render/js/*.js"))
    )
    plurals = {sentence for source in sources for sentence in in_javascript(source, "plural")}
    for code in CODES:
        assert {sentence for sentence, text in read(code).items() if isinstance(text, dict)} == plurals


def test_sentences_in_parts_and_plurals_are_found() -> None:
    source = """t("one " + "two"), tParts("{a} \\u00b7"), plural("{n} x", "{n} xs", n), at("no"), t(name)"""
    assert list(in_javascript(source)) == ["one two", "{a} ·", "{n} xs"]
    assert list(in_javascript(source, "plural")) == ["{n} xs"]

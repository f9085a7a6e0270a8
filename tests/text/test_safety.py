"""A tokenizer.json from a stranger neither takes forever nor all memory."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from clearhead.errors import TextError
from clearhead.text import Tokenizer
from clearhead.text.safety import is_fast

WORD = r"'s|'t|'re|'ve|'m|'ll|'d"
ENDS = r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
FAST = {
    "gpt2": rf"{WORD}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+",
    "gpt4": rf"(?i:{WORD})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{ENDS}",
    "gpt4o": rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{M}}]*[\p{{Ll}}\p{{M}}]+(?i:{WORD})?|{ENDS}",
    "deepseek": r"[!#$\[\]{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+",
    "bloom": r" ?[^(\s|[.,!?…。，、।۔،])]+",
    "digits": r"\p{N}{1,3}(?=(?:\p{N}{3})*\b)",
    "our words": r"\d+(?:[.,:]\d+)+|\w+(?:[-'’]\w+)*|[^\w\s]",
    "our pieces": r"▁?(?:\w+(?:['’]\w+)*|[^\w▁]+)|▁",
    "our joins": r"(?<=[(\[{¿¡«‹„‚‘]) ",
}
SLOW = (
    *(r"(a+)+b", r"(a|a)*b", r"a*a*b", r"(a?){30}a{30}", r"(.*)\1", r"(?<x>a*)\k<x>", r"(a*)*$", r"(?:a+){2,9}b"),
    *(r"((a+)+b)*", r"(a{1,9}){1,9}b", r"(\w+\s?)*$", r".*.*=.*", "a" * 3000, "(" * 30 + "a" + ")" * 30),
    *(r"(?~ab)", r"(a", r"[a", r"a)"),  # what cannot be judged
)


@pytest.mark.parametrize("pattern", FAST.values(), ids=FAST)
def test_patterns_of_well_known_tokenizers_are_fast(pattern: str) -> None:
    assert is_fast(pattern)


@pytest.mark.parametrize("pattern", SLOW, ids=lambda pattern: pattern[:20])
def test_patterns_that_could_take_forever_are_refused(pattern: str) -> None:
    assert not is_fast(pattern)


@pytest.fixture
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Tokenizer.train("word", ["we eat bread"], size=50)._library.to_str())
    return found


def load(document: Any, folder: Path) -> Tokenizer:
    (folder / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    return Tokenizer.load(folder / "tokenizer.json")


def test_a_slow_pattern_is_refused_wherever_it_stands(document: dict[str, Any], tmp_path: Path) -> None:
    slow = {"type": "Split", "pattern": {"Regex": "(a+)+b"}, "behavior": "Isolated", "invert": False}
    document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, slow]}
    with pytest.raises(TextError, match=r"tokenizer\.json: the pattern '\(a\+\)\+b' could take forever on some text"):
        load(document, tmp_path)


def test_an_id_far_beyond_the_others_is_refused_at_once(document: dict[str, Any], tmp_path: Path) -> None:
    document["model"]["vocab"]["bread"] = 2**31
    began = time.process_time()
    with pytest.raises(TextError, match=r"it has 9 tokens, one of them with the id 2147483648"):
        load(document, tmp_path)
    assert time.process_time() - began < 5  # the library would count to it for a minute


def test_replacements_that_multiply_a_text_are_refused(document: dict[str, Any], tmp_path: Path) -> None:
    twice = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    document["normalizer"] = {"type": "Sequence", "normalizers": [twice] * 40}
    with pytest.raises(TextError, match="its replacements make a text more than 64 times as long"):
        load(document, tmp_path)


def test_padding_of_a_strange_tokenizer_is_not_used(document: dict[str, Any], tmp_path: Path) -> None:
    document["padding"] = {
        **{"strategy": {"Fixed": 10**6}, "direction": "Right", "pad_to_multiple_of": None},
        **{"pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"},
    }
    document["truncation"] = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}
    assert len(load(document, tmp_path).encode("we eat bread")) == 3


@pytest.mark.parametrize("text", ["[]", "3", "{}", "null", '{"model": 3}', '{"model": {"vocab": 3}}', '{"a":' * 10**5])
def test_what_is_no_tokenizer_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text, encoding="utf-8")
    with pytest.raises(TextError, match=r"tokenizer\.json is not a tokenizer\.json: [^\n]+$"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_a_vocabulary_without_its_unknown_token_is_one_sentence(tmp_path: Path) -> None:
    document = json.loads(Tokenizer.train("char", ["we eat bread"], size=50)._library.to_str())
    document["model"]["vocab"] = {}
    tokenizer = load(document, tmp_path)
    with pytest.raises(TextError, match=r"cannot encode this text: Unk token `\[UNK\]` not found"):
        tokenizer.encode("bread")

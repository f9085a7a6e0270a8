"""Many texts, long ones and odd ones: the same translations as one by one, in order."""

from __future__ import annotations

import itertools

import pytest
import torch

from clearhead import config
from clearhead.decode import Settings
from clearhead.engines.engine import Engines
from clearhead.models.build import Sizes, build
from clearhead.text import Tokenizer
from clearhead.translator import Translator

LINES = ["a b c", "", "b", "c c a b a", "   ", "a", "b a c a", "a a a a a a a"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train("word", ["a b c ."], size=17)


@pytest.fixture(scope="module")
def network(tokenizer: Tokenizer) -> torch.nn.Module:
    torch.manual_seed(3)
    sizes = Sizes(vocabulary=len(tokenizer), pad=tokenizer.pad)
    settings = ["model.dim=12", "model.heads=3", "model.layers=1", "model.dropout=0"]
    return build(config.override(config.defaults("translate"), settings), sizes).double().eval()


def make(network: torch.nn.Module, tokenizer: Tokenizer, longest: int = 97, **settings: object) -> Translator:
    return Translator(Engines(network), tokenizer, longest, longest, Settings.create(**settings))


@pytest.mark.parametrize("settings", [{}, {"beam_width": 3, "n_best": 2}])
def test_a_stream_is_each_text_alone(network: torch.nn.Module, tokenizer: Tokenizer, settings: dict[str, int]) -> None:
    several = make(network, tokenizer, **settings)
    found = list(several.stream(iter(LINES), largest=3))
    assert len(found) == len(LINES)
    for line, candidates in zip(LINES, found, strict=True):
        [alone] = several.window([line])
        assert [each.text for each in candidates] == [each.text for each in alone]
    assert any(each[0].text for each in found)


def test_nothing_is_read_that_is_not_needed_yet(network: torch.nn.Module, tokenizer: Tokenizer) -> None:
    endless = (LINES[0] for _ in itertools.count())
    assert len(list(itertools.islice(make(network, tokenizer).stream(endless), 5))) == 5


def test_whoever_types_is_answered_after_every_line(network: torch.nn.Module, tokenizer: Tokenizer) -> None:
    typed: list[str] = []
    lines = (typed.append(line) or line for line in LINES)  # type: ignore[func-returns-value]
    for number, _ in enumerate(make(network, tokenizer).stream(lines, largest=1), start=1):
        assert typed == LINES[:number]


def test_nothing_said_is_nothing_translated(network: torch.nn.Module, tokenizer: Tokenizer) -> None:
    assert [[each.text for each in found] for found in make(network, tokenizer).window(["", " \t "])] == [[""], [""]]


def test_a_long_text_is_translated_in_parts(network: torch.nn.Module, tokenizer: Tokenizer) -> None:
    notes: list[str] = []
    short = make(network, tokenizer, longest=4)
    short.on_note = notes.append
    [[whole]] = short.window(["a b . c b . a"], first=7)
    [[first], [second]] = short.window(["a b .", "c b . a"])
    assert whole.text == f"{first.text} {second.text}"
    assert notes == ["text 7 is longer than what the model learned from: translated in 2 parts"]


def test_a_text_of_unknown_words_stays_as_it_is(network: torch.nn.Module, tokenizer: Tokenizer) -> None:
    notes: list[str] = []
    careful = make(network, tokenizer)
    careful.on_note = notes.append
    [[stays], _] = careful.window([" ζ ω\n", "a"])
    assert stays.text == "ζ ω"
    assert notes == ["text 1 has nothing that the model knows: it stays as it is"]

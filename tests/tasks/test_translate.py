"""Many texts, long ones and odd ones: the same translations as one by one, in order."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch

from clearhead.decode import Settings
from clearhead.run import ModelMeta, Run, Sizes
from clearhead.tasks import default_config, override_config
from clearhead.tasks.base.network import build_network, save_weights
from clearhead.tasks.translate import Translator
from clearhead.text import Tokenizer

LINES = ["a b c", "", "b", "c c a b a", "   ", "a", "b a c a", "a a a a a a a"]


MakeTranslator = Callable[[int], Translator]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> MakeTranslator:
    """A translator of random weights that was trained on sources of some length."""

    def translator(longest: int = 97) -> Translator:
        path = tmp_path_factory.mktemp("run")
        settings = ["model.dim=12", "model.heads=3", "model.layers=1", "model.dropout=0"]
        config = override_config(default_config("translate"), [*settings, f"data.max_length={longest + 1}"])
        run = Run.create(path / "small", config)
        tokenizer = Tokenizer.train("word", ["a b c ."], size=17)
        tokenizer.save(run.path / "tokenizer.json")
        sizes = Sizes(vocabulary=len(tokenizer), pad=tokenizer.pad)
        torch.manual_seed(3)
        weights = build_network(config, sizes).state_dict()
        save_weights(run, config, weights, ModelMeta(sizes, p99_source_length=longest))
        return Translator.load(run.path)

    return translator


@pytest.mark.parametrize("settings", [{}, {"beam_width": 3, "n_best": 2}])
def test_a_stream_is_each_text_alone(make: MakeTranslator, settings: dict[str, int]) -> None:
    translator, chosen = make(97), Settings.create(**settings)
    found = list(translator.stream_candidates(iter(LINES), chosen, max_window=3))
    assert len(found) == len(LINES)
    for line, candidates in zip(LINES, found, strict=True):
        [alone] = translator.candidates([line], chosen)
        assert [each.text for each in candidates] == [each.text for each in alone]
    assert any(each[0].text for each in found)


def test_a_sampled_stream_is_the_sampled_list_wherever_its_windows_end(make: MakeTranslator) -> None:
    translator = make(4)  # some lines are cut into parts
    lines = [*LINES, "a b . c b . a", "b c", "c b . a b . c c", "a"] * 3
    chosen = Settings(temperature=1.0, seed=7)
    listed = [[each.text for each in found] for found in translator.candidates(lines, chosen)]
    for window in (1, 3, 2048):
        stream = translator.stream_candidates(iter(lines), chosen, max_window=window)
        assert [[each.text for each in found] for found in stream] == listed
    assert len({tuple(texts) for texts in listed[::12]}) > 1  # the same line is sampled anew


def test_nothing_is_read_that_is_not_needed_yet(make: MakeTranslator) -> None:
    endless = (LINES[0] for _ in itertools.count())
    assert len(list(itertools.islice(make(97).stream_candidates(endless), 5))) == 5


def test_whoever_types_is_answered_after_every_line(make: MakeTranslator) -> None:
    typed: list[str] = []
    lines = (typed.append(line) or line for line in LINES)  # type: ignore[func-returns-value]
    for number, _ in enumerate(make(97).stream_candidates(lines, max_window=1), start=1):
        assert typed == LINES[:number]


def test_nothing_said_is_nothing_translated(make: MakeTranslator) -> None:
    assert [[each.text for each in found] for found in make(97).candidates(["", " \t "])] == [[""], [""]]


def test_a_long_text_is_translated_in_parts(make: MakeTranslator) -> None:
    notes: list[str] = []
    short, greedy = make(4), Settings()
    [[whole]] = short.candidates(["a b . c b . a"], greedy, notes.append, first=7)
    [[first], [second]] = short.candidates(["a b .", "c b . a"], greedy)
    assert whole.text == f"{first.text} {second.text}"
    assert notes == ["text 7 is longer than what the model learned from: translated in 2 parts"]


def test_a_text_of_unknown_words_stays_as_it_is(make: MakeTranslator) -> None:
    notes: list[str] = []
    [[stays], _] = make(97).candidates([" ζ ω\n", "a"], Settings(), notes.append)
    assert stays.text == "ζ ω"
    assert notes == ["text 1 has nothing that the model knows: it stays as it is"]

"""Native searches equal the token loop, and decline what they do not support."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engines.small import PARTS, POSITIONS, VOCABULARY, make, native_of, sources

from clearhead.decode import Hypothesis, Prompts, Settings, beam_search, generate, stream_tokens
from clearhead.engines.native.engine import NativeEngine
from clearhead.engines.native.library import load_library

pytestmark = pytest.mark.skipif(load_library() is None, reason="no native library: python tools/build_native.py")

STOPS = st.sampled_from([None, 2, 7])


def by_definition(model: NativeEngine, state: object, prompts: Prompts, chosen: Settings) -> list[list[Hypothesis]]:
    """The same native steps, with the search of decode/ around them."""
    if chosen.beam_width > 1:
        return beam_search(model, state, prompts, chosen)
    rows: list[list[int]] = [[] for _ in prompts.ids]
    for step in stream_tokens(model, state, prompts, chosen):
        for token in step:
            rows[token.row.index].append(token.id)
    return [[Hypothesis(row)] for row in rows]


def same(found: Sequence[Sequence[Hypothesis]], expected: Sequence[Sequence[Hypothesis]], scored: bool) -> None:
    for one, other in zip(found, expected, strict=True):
        assert [each.ids for each in one] == [each.ids for each in other]
        if scored:
            assert [each.score for each in one] == pytest.approx([each.score for each in other], rel=1e-12)
            for a, b in zip(one, other, strict=True):
                assert a.logprobs == pytest.approx(b.logprobs, rel=1e-12)
                assert a.finished == b.finished


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), beams=st.sampled_from([1, 2, 3, 5]), rows=st.integers(1, 5), stop=STOPS, seed=st.integers(0, 99))
def test_native_search_of_a_translator_equals_the_token_loop(
    data: st.DataObject, beams: int, rows: int, stop: int | None, seed: int
) -> None:
    model = native_of(make("translate", seed=seed))
    limits = data.draw(st.lists(st.integers(1, 13), min_size=rows, max_size=rows))
    penalty, n_best = data.draw(st.sampled_from([0.0, 0.6, 1.0])), data.draw(st.integers(1, beams))
    chosen = Settings(beam_width=beams, n_best=n_best, length_penalty=penalty)
    prompts = Prompts([[1]] * rows, stop, limits)
    expected = by_definition(model, model.start(sources(rows)), prompts, chosen)
    same(generate(model, model.start(sources(rows)), prompts, chosen), expected, scored=beams > 1)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(vocabulary=st.sampled_from([3, 5, 37]), beams=st.sampled_from([1, 2, 7]), prompt=st.integers(1, 11), stop=STOPS)
def test_native_search_of_a_language_model_equals_the_token_loop(
    vocabulary: int, beams: int, prompt: int, stop: int | None
) -> None:
    model = native_of(make("lm", "model.positions=rotary", vocabulary=vocabulary, seed=prompt))
    prompts = Prompts([[(row + 3 * i) % vocabulary for i in range(prompt)] for row in range(3)], stop)
    chosen = Settings(beam_width=beams, n_best=beams, max_tokens=9)
    expected = by_definition(model, model.start(), prompts, chosen)
    same(generate(model, model.start(), prompts, chosen), expected, scored=beams > 1)


def test_a_greedy_text_has_scores_with_return_logprobs() -> None:
    network = make("translate")
    model, prompts = native_of(network), Prompts([[1]] * 3, 2)
    chosen = Settings(max_tokens=13, return_logprobs=True)
    found, expected = (generate(each, each.start(sources(3)), prompts, chosen) for each in (model, network))  # type: ignore[operator, arg-type]
    for (one,), (other,) in zip(found, expected, strict=True):
        assert one.ids == other.ids
        assert one.score == pytest.approx(other.score, abs=1e-4)
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_do_not_change_a_search(threads: int) -> None:
    network, chosen = make("translate"), Settings(beam_width=3, n_best=3, max_tokens=13)
    answers = []
    for number in (1, threads):
        model = native_of(network)
        model.threads.choices = [number]
        answers.append(generate(model, model.start(sources(5)), Prompts([[1]] * 5, 2), chosen))
    assert answers[0] == answers[1]


def test_a_long_prompt_is_read_in_parts() -> None:
    model = native_of(make("lm", "model.positions=alibi"))
    prompts = Prompts([[(7 * i + row) % VOCABULARY for i in range(1031)] for row in range(2)])
    chosen = Settings(beam_width=2, max_tokens=5)
    same(
        generate(model, model.start(), prompts, chosen),
        by_definition(model, model.start(), prompts, chosen),
        scored=True,
    )


@pytest.mark.parametrize(
    ("chosen", "plain"),
    [
        (Settings(beam_width=4, n_best=2, length_penalty=0.3, max_tokens=7, return_logprobs=True, seed=3), True),
        (Settings(), True),
        (Settings(temperature=0.7), False),
        (Settings(banned_tokens=(5,)), False),
        (Settings(prefix_tokens=(5,)), False),
        (Settings(no_repeat_ngram=2), False),
        (Settings(repetition_penalty=1.2), False),
        (Settings(beam_width=4, beam_groups=2), False),
        (Settings(beam_width=4, coverage_penalty=0.1), False),
    ],
)
def test_only_plain_settings_are_searched_natively(chosen: Settings, plain: bool) -> None:
    model = native_of(make("translate"))
    assert model.can_search(model.start(sources(2)), Prompts([[1]] * 2, 2), chosen) == plain


def test_unequal_prompts_and_windows_use_the_token_loop() -> None:
    model = native_of(make("lm", "model.positions=rotary"))
    assert not model.can_search(model.start(), Prompts([[1], [1, 2]]), Settings())
    assert not model.can_search(model.start(), Prompts([]), Settings())
    assert not model.can_search(model.start(), Prompts([[1]], max_tokens=[0]), Settings())
    assert not model.can_search(model.start(window=5), Prompts([[1]]), Settings())
    _, begun = model.step(torch.tensor([[1]]), model.start())
    assert not model.can_search(begun, Prompts([[1]]), Settings())


def test_a_text_longer_than_the_learned_positions_is_an_error() -> None:
    model = native_of(make("lm", "model.positions=learned"))
    with pytest.raises(ValueError, match="longer than the learned table of 64 positions"):
        generate(model, model.start(), Prompts([[1]]), Settings(max_tokens=70))


@pytest.mark.parametrize("parts", PARTS, ids=" ".join)
@pytest.mark.parametrize("positions", POSITIONS)
@torch.inference_mode()
def test_an_encoded_source_equals_that_of_the_network(positions: str, parts: Sequence[str]) -> None:
    network = make("translate", f"model.positions={positions}", *parts)
    model = native_of(network)
    if model.reader is None:
        assert "model.window=3" in parts
        return
    found, expected = model.reader.read(sources(4)), model._read(sources(4))
    assert found is not None
    assert torch.equal(found.lengths, expected.lengths)
    for row, length in enumerate(found.lengths.tolist()):
        own, theirs = found.lists[row, :length].long(), expected.lists[row, :length].long()
        for a, b in ((found.keys, expected.keys), (found.values, expected.values)):
            torch.testing.assert_close(a[:, own], b[:, theirs], rtol=2e-4, atol=2e-4)


@torch.inference_mode()
def test_padding_between_tokens_uses_the_network() -> None:
    model = native_of(make("translate"))
    source = torch.tensor([[5, 0, 7, 2], [5, 6, 7, 2]])
    assert model.reader is not None
    assert model.reader.read(source) is None
    assert model.start(source).source.lengths.tolist() == [3, 4]  # type: ignore[union-attr]


@torch.inference_mode()
def test_reordered_rows_use_the_token_loop() -> None:
    model, chosen = native_of(make("translate")), Settings(beam_width=2, max_tokens=9)
    straight = generate(model, model.start(sources(3)), Prompts([[1]] * 3, 2), chosen)
    moved = model.reorder(model.start(sources(3)), torch.tensor([2, 0, 2, 1]))
    assert not model.can_search(moved, Prompts([[1]] * 4, 2), chosen)
    found = generate(model, moved, Prompts([[1]] * 4, 2), chosen)
    assert [row[0].ids for row in found] == [straight[i][0].ids for i in (2, 0, 2, 1)]
    assert not model.can_search(model.start(sources(3)), Prompts([[1]] * 2, 2), chosen)


def test_a_longer_position_table_keeps_the_shorter_one_alive() -> None:
    vectors = native_of(make("translate", "model.positions=sinusoidal")).vectors
    assert vectors.reach(5)
    before = vectors.structure()
    assert vectors.reach(500)
    assert any(each.numel() and each.data_ptr() == before.positions for each in vectors._older)


def test_a_position_table_never_becomes_shorter() -> None:
    """Many threads at once: a table that another thread made longer must not be replaced by a shorter one."""
    vectors = native_of(make("translate", "model.positions=sinusoidal")).vectors

    def reached(end: int) -> bool:
        return vectors.reach(end) and vectors.positions.size(1) >= end

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(reached, [*range(1, 400)] * 3))

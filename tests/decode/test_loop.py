"""The token loop: greedy and sampled rows, whole and streamed, joining and leaving."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from clearhead.decode import (
    Prompts,
    Row,
    Settings,
    SpecialTokens,
    Steps,
    Token,
    TokenLoop,
    batch_steps,
    finish,
    generate,
    generate_batch,
    stream_tokens,
)
from clearhead.decode.logits import row_generator, sample
from clearhead.errors import ConfigError

from .tables import STOP, Table, repeats, table

ROWS = [[2], [3, 4, 1], [4, 2], [1, 1, 1, 1, 1], [3]]


def written_by(
    model: Table, rows: list[list[int]], limits: list[int] | None = None, **settings: Any
) -> list[list[int]]:
    found = generate(model, model.start(len(rows)), Prompts(rows, STOP, limits), Settings(**settings))
    assert all(len(hypotheses) == 1 for hypotheses in found)
    return [hypotheses[0].ids for hypotheses in found]


def greedily(model: Table, prompt: list[int], longest: int) -> list[int]:
    """The slow definition."""
    ids: list[int] = []
    while len(ids) < longest:
        token = int(model.following((*prompt, *ids)).argmax())
        if token == STOP:
            break
        ids.append(token)
    return ids


@pytest.mark.parametrize("seed", range(6))
def test_greedy_takes_the_most_likely_token(seed: int) -> None:
    model = table(seed)
    assert written_by(model, ROWS, max_tokens=19) == [greedily(model, row, 19) for row in ROWS]


def test_each_row_has_its_own_limit() -> None:
    model, limits = table(5), [3, 0, 9, 1, 4]
    wanted = [greedily(model, row, limit) for row, limit in zip(ROWS, limits, strict=True)]
    assert written_by(model, ROWS, limits) == wanted
    assert written_by(model, ROWS, [0] * 5) == [[]] * 5


def test_no_row_is_moved_while_none_ends() -> None:
    model = table()
    generate(model, model.start(5), Prompts(ROWS), Settings(max_tokens=1))
    before = model.moves
    generate(model, model.start(2), Prompts([[2], [3]]), Settings(max_tokens=9))
    assert (before, model.moves) == (3, 3)  # prompts of four lengths end at different times; equal ones together


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.8, "seed": 3}, {"repetition_penalty": 1.8}])
def test_scores_are_those_of_the_model(settings: dict[str, Any]) -> None:
    model, penalty = table(), 0.6
    chosen = Settings(max_tokens=7, return_logprobs=True, length_penalty=penalty, **settings)
    for row, (found,) in zip(ROWS, generate(model, model.start(5), Prompts(ROWS, STOP), chosen), strict=True):
        ids = (*found.ids, STOP) if found.finished else tuple(found.ids)
        assert found.logprobs == pytest.approx(model.gains(tuple(row), ids), abs=1e-12)
        likelihood = sum(found.logprobs) / len(ids) ** penalty
        if settings.get("repetition_penalty"):
            assert found.score <= likelihood
        else:
            assert found.score == pytest.approx(likelihood, abs=1e-12)


def test_scores_need_return_logprobs() -> None:
    model = table()
    ((found,),) = generate(model, model.start(1), Prompts([[2]], STOP), Settings(max_tokens=4))
    assert math.isnan(found.score)
    assert found.logprobs == ()


@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 1.3, "seed": 5}, {"prefix_tokens": (3, 2), "return_logprobs": True}]
)
def test_streamed_is_whole(settings: dict[str, Any]) -> None:
    model, chosen = table(4), Settings(max_tokens=9, **settings)
    streamed: list[list[Any]] = [[] for _ in ROWS]
    for step in stream_tokens(model, model.start(5), Prompts(ROWS, STOP), chosen):
        assert step
        assert len({token.row.index for token in step}) == len(step)
        for token in step:
            streamed[token.row.index].append(token)
    whole = generate(model, model.start(5), Prompts(ROWS, STOP), chosen)
    assert [[token.id for token in row] for row in streamed] == [found.ids for (found,) in whole]
    if chosen.return_logprobs:
        for row, (found,) in zip(streamed, whole, strict=True):
            assert tuple(token.logprob for token in row) == found.logprobs[: len(found.ids)]


def test_a_stream_gives_a_token_before_the_next_is_computed() -> None:
    model = table()
    stream = stream_tokens(model, model.start(1), Prompts([[2]]), Settings(max_tokens=10**6))
    assert [len(next(stream)) for _ in range(3)] == [1, 1, 1]


def test_a_search_cannot_be_streamed() -> None:
    model = table()
    with pytest.raises(ConfigError, match=r"^beam_width=3 is decided at the end; only beam_width=1 can be streamed$"):
        next(stream_tokens(model, model.start(1), Prompts([[2]]), Settings(beam_width=3)))


def test_a_prompt_without_tokens_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^a prompt has no token; begin it with the start token$"):
        written_by(table(), [[2], []])


@pytest.mark.parametrize("beams", [1, 2])
def test_a_token_that_does_not_exist_is_refused(beams: int) -> None:
    with pytest.raises(ConfigError, match=r"^banned_tokens: there is no token 5 in the vocabulary of 5 tokens$"):
        written_by(table(), [[2]], beam_width=beams, banned_tokens=(5,))


@pytest.mark.parametrize("settings", [{}, {"beam_width": 3}, {"temperature": 1.0, "seed": 2}])
def test_processors_hold_for_every_search(settings: dict[str, Any]) -> None:
    model = table(2)
    found = written_by(model, ROWS, max_tokens=19, no_repeat_ngram=2, banned_tokens=(4,), **settings)
    for prompt, ids in zip(ROWS, found, strict=True):
        whole = (*prompt, *ids)
        assert 4 not in ids
        assert not any(repeats(whole[:end], 2) for end in range(len(prompt) + 1, len(whole) + 1))
    for ids in written_by(model, ROWS, max_tokens=7, prefix_tokens=(3, 2, 1), **settings):
        assert ids[:3] == [3, 2, 1]
    for ids in written_by(model, ROWS, prefix_tokens=(3, STOP), **settings):
        assert ids == [3]


def test_a_stop_in_a_prompt_is_read_like_any_token() -> None:
    model = table(4)
    rows = [[2], [3, STOP, STOP, 1]]
    assert written_by(model, rows, max_tokens=9) == [greedily(model, row, 9) for row in rows]
    searched = [written_by(model, [row], max_tokens=9, beam_width=2)[0] for row in rows]
    assert written_by(model, rows, max_tokens=9, beam_width=2) == searched


def test_samples_follow_the_distribution() -> None:
    model, count = table(), 4000
    found = generate(model, model.start(count), Prompts([[2]] * count), Settings(max_tokens=1, temperature=1.0, seed=1))
    counted = torch.bincount(torch.tensor([hypotheses[0].ids[0] for hypotheses in found]), minlength=5) / count
    assert_close(counted.double(), model.following((2,)).exp(), atol=0.03, rtol=0)


def test_a_sample_is_the_token_where_the_random_number_falls() -> None:
    logits = torch.tensor([[0.0, 0.2, 0.5, 0.0, 0.3, 0.0]], dtype=torch.float64).log()
    shares = [0.0, 0.19, 0.21, 0.69, 0.71, 1 - 2**-53]
    assert sample(logits.expand(6, -1), shares).tolist() == [1, 1, 2, 2, 4, 4]


def test_rows_have_independent_random_numbers() -> None:
    first = {(seed, row): row_generator(seed, row).random() for seed in range(13) for row in range(13)}
    assert len(set(first.values())) == 169
    assert row_generator(7, 3).random() == first[7, 3]
    assert row_generator(None, 0).random() != row_generator(None, 0).random()


def test_the_smallest_temperature_is_greedy() -> None:
    model = table(4)
    assert written_by(model, ROWS, max_tokens=9, temperature=1e-300) == written_by(model, ROWS, max_tokens=9)


@pytest.mark.parametrize("settings", [{"top_k": 3}, {"top_p": 0.7}, {"min_p": 0.2}, {}])
def test_a_sampled_row_is_the_same_in_any_batch(settings: dict[str, Any]) -> None:
    model, chosen = table(4), Settings(max_tokens=12, temperature=1.1, seed=11, **settings)
    together = generate(model, model.start(5), Prompts(ROWS, STOP), chosen)
    for number, row in enumerate(ROWS):
        (alone,) = generate(model, model.start(1), Prompts([row], STOP, row_seeds=[number]), chosen)
        assert alone[0].ids == together[number][0].ids


def test_the_same_seed_gives_the_same_text() -> None:
    def drawn(rows: list[list[int]], seed: int, **settings: Any) -> list[list[int]]:
        return written_by(table(4), rows, max_tokens=9, temperature=1.0, seed=seed, **settings)

    assert drawn(ROWS, 5) == drawn(ROWS, 5)
    assert drawn(ROWS, 5) != drawn(ROWS, 6)
    assert drawn(ROWS, 5, top_k=1) == written_by(table(4), ROWS, max_tokens=9)
    assert len({tuple(ids) for ids in drawn([[2]] * 40, 5)}) > 10


def test_no_prompts_give_nothing() -> None:
    assert written_by(table(), []) == []


# --- rows that join and leave ---


def finished(loop: TokenLoop) -> None:
    while loop.active:
        loop.step()


def alone(row: Row) -> Row:
    model, copy = table(4), Row(row.prompt, row.settings, row.stop, row.max_tokens, row.row_seed)
    loop = TokenLoop(model)
    loop.add([copy], model.start(1))
    finished(loop)
    return copy


MIXED = [
    Row([2], Settings(max_tokens=9), STOP),
    Row([3, 4, 1], Settings(max_tokens=12, temperature=1.1, seed=1), STOP),
    Row([4, 2], Settings(max_tokens=7, temperature=1.1, seed=1, top_k=3), STOP, row_seed=5),
    Row([1, 1, 1], Settings(max_tokens=20, repetition_penalty=1.6, return_logprobs=True), STOP),
    Row([3], Settings(max_tokens=20, no_repeat_ngram=2), 3),
    Row([2, 2], Settings(max_tokens=8, banned_tokens=(1,), prefix_tokens=(4, 4)), None, max_tokens=5),
]


def copies() -> list[Row]:
    return [Row(row.prompt, row.settings, row.stop, row.max_tokens, row.row_seed) for row in MIXED]


def assert_as_alone(rows: list[Row]) -> None:
    for row in rows:
        expected = alone(row)
        assert (row.ids, row.end) == (expected.ids, expected.end)
        assert row.hypotheses[0].logprobs == pytest.approx(expected.hypotheses[0].logprobs, abs=1e-12)


def test_rows_with_different_settings_share_a_state() -> None:
    model, rows = table(4), copies()
    loop = TokenLoop(model)
    loop.add(rows, model.start(len(rows)))
    assert len(loop.groups) == 1
    finished(loop)
    assert_as_alone(rows)


def test_rows_may_join_at_any_time() -> None:
    model, rows = table(4), copies()
    loop = TokenLoop(model)
    for row in rows:
        loop.add([row], model.start(1))
        loop.step()
        loop.step()
    finished(loop)
    assert_as_alone(rows)


def test_a_row_that_is_cancelled_leaves_and_the_others_go_on() -> None:
    model, rows = table(4), copies()
    loop = TokenLoop(model)
    loop.add(rows, model.start(len(rows)))
    rows[1].cancel()
    loop.step()
    assert rows[1] not in loop.rows
    assert rows[0] in loop.rows
    finished(loop)
    assert rows[1].end is None
    assert_as_alone([row for row in rows if row is not rows[1]])


@pytest.mark.parametrize("beam_width", [1, 3])
def test_a_search_that_is_cancelled_leaves_the_others_alone(beam_width: int) -> None:
    model, how = table(4), Settings(max_tokens=9, beam_width=beam_width)
    rows = [Row(prompt, how, STOP) for prompt in ROWS]
    loop = TokenLoop(model)
    loop.add(rows, model.start(len(rows)))
    loop.step()
    rows[0].cancel()
    loop.step()
    rows[2].cancel()
    finished(loop)
    for row in (rows[1], rows[3], rows[4]):
        assert row.hypotheses == alone(row).hypotheses


def test_callbacks_get_tokens_logits_and_the_end() -> None:
    model = table(4)
    tokens: list[Token] = []
    ends: list[Row] = []
    prompt_logits: list[tuple[int, torch.Tensor]] = []
    row = Row(
        [3, 4, 1],
        Settings(max_tokens=9, repetition_penalty=1.6, return_logprobs=True),
        STOP,
        keep_logits=True,
        on_prompt=lambda logits, start: prompt_logits.append((start, logits)),
        on_token=tokens.append,
        on_end=ends.append,
    )
    loop = TokenLoop(model)
    loop.add([row], model.start(1))
    finished(loop)
    assert ends == [row]
    assert [token.id for token in tokens if token.id != STOP] == row.generated
    assert [token.end for token in tokens[:-1]] == [None] * (len(tokens) - 1)
    assert tokens[-1].end == row.end
    assert row.end == ("stop" if tokens[-1].id == STOP else "length")
    for place, token in enumerate(tokens):
        following = model.following(tuple(row.ids[: 3 + place]))
        assert token.logits is not None
        assert_close(token.logits.log_softmax(-1), following)
        assert token.logprob == pytest.approx(float(following[token.id]), abs=1e-12)
    [(start, logits)] = prompt_logits
    assert start == 0
    expected = torch.stack([model.following((3, 4, 1)[:end]) for end in (1, 2, 3)]).float()
    assert_close(logits.log_softmax(-1), expected)


def test_a_row_without_room_still_reads_its_prompt_for_its_callback() -> None:
    model = table(4)
    read: list[int] = []
    row = Row([3, 4, 1], Settings(max_tokens=0), on_prompt=lambda logits, _start: read.append(len(logits)))
    loop = TokenLoop(model)
    loop.add([row, Row([2], Settings(max_tokens=0))], model.start(2))
    finished(loop)
    assert (read, row.end, row.generated) == ([3], "length", [])


class Failing(Table):
    def step(self, ids: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if 3 in ids:
            raise MemoryError("no room")
        return super().step(ids, state)


def test_a_group_that_fails_does_not_fail_the_others() -> None:
    model = Failing(table(4).logits)
    failed: list[Row] = []
    bad = Row([3], Settings(max_tokens=3), on_error=lambda row, _problem: failed.append(row))
    good = Row([2], Settings(max_tokens=3, banned_tokens=(3,)), on_error=lambda row, _problem: failed.append(row))
    loop = TokenLoop(model)
    for row in (bad, good):
        loop.add([row], model.start(1))
    finished(loop)
    assert failed == [bad]
    assert good.end == "length"
    loop.add([Row([3])], model.start(1))
    with pytest.raises(MemoryError, match="no room"):
        loop.step()
    assert not loop.active


def test_rows_of_one_search_must_have_the_same_settings() -> None:
    model, search = table(), Settings(beam_width=2)
    loop = TokenLoop(model)
    for other in (Settings(), Settings(beam_width=3)):
        with pytest.raises(ConfigError, match=r"^rows that share a beam search must have the same settings"):
            loop.add([Row([2], search), Row([2], other)], model.start(2))


# --- steps ---


def test_long_prompts_are_read_in_parts_between_the_steps_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearhead.decode.loop.PART", 7)
    monkeypatch.setattr("clearhead.decode.stepper.PART", 5)
    model, read = table(4), list[int]()
    step = model.step

    def count(ids: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        read.append(ids.numel())
        return step(ids, state)

    monkeypatch.setattr(model, "step", count)
    prompts = [[2], *([3, 4, 1, 2, 3, 4, 2, 1, 3, 2, 4, 1, 1, 2, 3] for _ in range(4))]
    rows = [Row(prompt, Settings(max_tokens=11, banned_tokens=(STOP,))) for prompt in prompts]
    loop = TokenLoop(model)
    for row in rows:
        loop.add([row], model.start(1))
    steps = []
    while loop.active:
        read.clear()
        loop.step()
        steps.append(list(read))
    assert steps[0] == [1, 5, 5]  # whoever generates goes on; of the prompts two parts, and no more
    assert [sum(each > 1 for each in one) for one in steps[:6]] == [2] * 6
    assert all(row.generated == greedy_without_stop(model, row.prompt, 11) for row in rows)


def greedy_without_stop(model: Table, prompt: Any, longest: int) -> list[int]:
    ids: list[int] = []
    while len(ids) < longest:
        ids.append(1 + int(model.following((*prompt, *ids))[1:].argmax()))
    return ids


class Sources(Table):
    """A table that reads a source, of which only the number of rows counts."""

    def start(self, source: Any) -> torch.Tensor:
        return torch.ones(len(source), 1, dtype=torch.long)

    def parameters(self) -> Any:
        return iter([torch.nn.Parameter(torch.zeros(1))])


def counted(steps: Steps[Any], log: list[None]) -> Steps[Any]:
    """The same steps, each written down."""
    try:
        while True:
            log.append(next(steps))
            yield
    except StopIteration as end:
        return end.value


@pytest.mark.parametrize(("work", "fewest"), [(None, 1), (40, 3), (1, 5)])
def test_a_batch_pauses_between_its_steps_and_gives_the_same_texts(work: int | None, fewest: int) -> None:
    model, log = Sources(table(6).logits), list[None]()
    special, settings = SpecialTokens(0, 2, STOP), Settings(beam_width=2, max_tokens=9)
    sources = [[3] * length for length in (1, 7, 2, 5, 3)]
    whole = generate_batch(model, sources, special, settings)
    found = finish(counted(batch_steps(model, sources, special, settings, work=work), log))
    assert [[each.ids for each in one] for one in found] == [[each.ids for each in one] for one in whole]
    assert len(log) >= fewest


def test_a_computation_that_is_dropped_makes_no_further_step() -> None:
    model = Sources(table(6).logits)
    steps = batch_steps(model, [[3] * 9] * 5, SpecialTokens(0, 2, STOP), Settings(max_tokens=9), work=1)
    next(steps)
    before = model.moves
    steps.close()
    with pytest.raises(StopIteration):
        next(steps)
    assert model.moves == before

"""What every way of writing promises for every model that writes: no shortcut changes what is written.

Cached = uncached, batched = one by one, beam 1 = greedy, streamed = whole, compacted = never compacted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clearhead.config import TokenizerKind
from clearhead.decode import Hypothesis, Prompts, Settings, beam_search, generate, stream_tokens, text_pieces
from clearhead.nn import POSITIONS
from clearhead.run import Sizes
from clearhead.tasks import TASKS
from clearhead.tasks.base.network import build_network
from clearhead.text import Tokenizer

V, STOP = 13, 1
SIZES = Sizes(vocabulary=V, channels=3, height=4, width=6, pad=0)
SMALL: dict[str, Any] = {"dim": 22, "heads": 11, "layers": 2, "inner": 17, "dropout": 0.0, "max_length": 29}
SHARP = 9.0  # as if trained: what an untrained model says is almost the same for every token


@dataclass(frozen=True)
class System:
    """A model by its task and what of its configuration is not the default."""

    task: str
    setting: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        return ",".join([self.task, *(f"{key}={value}" for key, value in self.setting)])

    @cache  # noqa: B019 - the cases are constants of this module
    def built(self, seed: int) -> Any:
        torch.default_generator.manual_seed(seed)
        patch = {"patch": 2} if self.task == "caption" else {}
        config = TASKS[self.task].config_type().model_validate({"model": {**SMALL, **patch, **dict(self.setting)}})
        return build_network(config, SIZES).double().eval()


def system(task: str, **setting: Any) -> System:
    return System(task, tuple(setting.items()))


SYSTEMS = [
    *(system(task, positions=name) for task in ("lm", "translate") for name in POSITIONS.builtin()),
    *(system(task, window=3) for task in ("lm", "translate")),
    *(system("translate", architecture="rnn", context=name) for name in ("last", "sum", "attention")),
    *(system("lm", architecture="rnn", cell=cell) for cell in ("gru", "lstm")),
    *(system("caption", architecture=name) for name in ("cross", "sequence", "rnn")),
]
every_system = pytest.mark.parametrize("which", SYSTEMS, ids=str)


@dataclass(frozen=True)
class Case:
    """A model, what it reads, and the prompts it goes on from."""

    model: Any
    sources: list[Tensor] | None  # of each row, (S,) or (C, height, width); none where only prompts are read
    prompts: list[list[int]]

    @property
    def rows(self) -> list[int]:
        return list(range(len(self.prompts)))

    def read(self, rows: list[int]) -> tuple[Tensor, ...]:
        """The sources of some rows in one batch, padded with 0."""
        if self.sources is None:
            return ()
        return (torch.nn.utils.rnn.pad_sequence([self.sources[row] for row in rows], batch_first=True),)

    def generate(
        self, how: Settings, rows: list[int] | None = None, model: Sharp | None = None
    ) -> list[list[Hypothesis]]:
        rows = self.rows if rows is None else rows
        model = Sharp(self.model) if model is None else model
        return generate(model, model.start(*self.read(rows)), self.batch(rows), how)

    def batch(self, rows: list[int]) -> Prompts:
        return Prompts([self.prompts[row] for row in rows], STOP, row_seeds=rows)


@st.composite
def cases(draw: st.DrawFn, which: System) -> Case:
    rows = draw(st.integers(1, 4))
    tokens = st.integers(2, V - 1)
    longest = 6 if which.task == "lm" else 3
    prompts = [draw(st.lists(tokens, min_size=1, max_size=longest)) for _ in range(rows)]
    sources = None
    if which.task == "translate":
        sources = [torch.tensor(draw(st.lists(tokens, min_size=1, max_size=7))) for _ in range(rows)]
    if which.task == "caption":
        generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
        sources = list(torch.randn(rows, 3, 4, 6, generator=generator, dtype=torch.float64))
    return Case(which.built(draw(st.integers(0, 2))), sources, prompts)


RULES = st.fixed_dictionaries(
    {
        "max_tokens": st.integers(1, 8),
        "no_repeat_ngram": st.sampled_from([0, 0, 2]),
        "repetition_penalty": st.sampled_from([1.0, 1.0, 1.4]),
        "banned_tokens": st.sampled_from([(), (7, 3)]),
        "prefix_tokens": st.sampled_from([(), (), (5,), (2, 12)]),
        "length_penalty": st.sampled_from([0.0, 0.7, 1.0]),
        "return_logprobs": st.just(True),
    }
)
DRAWING = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.7, 1.5]),
        "top_k": st.sampled_from([None, 5]),
        "top_p": st.sampled_from([1.0, 0.8]),
        "min_p": st.sampled_from([0.0, 0.05]),
        "seed": st.integers(0, 99),
    }
)
SEARCHING = st.sampled_from(
    [
        {"beam_width": 2},
        {"beam_width": 3, "n_best": 3},
        {"beam_width": 4, "n_best": 2, "beam_groups": 2, "diversity_penalty": 0.5},
    ]
)
one_by_one = st.builds(lambda rules, how: Settings(**rules, **how), RULES, DRAWING)
any_way = st.builds(lambda rules, how: Settings(**rules, **how), RULES, st.one_of(DRAWING, SEARCHING))


class Sharp:
    """A model that is surer of itself."""

    def __init__(self, model: Any):
        self.model = model

    def start(self, *sources: Tensor) -> Any:
        with torch.inference_mode():
            return self.model.start(*sources)

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        logits, state = self.model.step(ids, state)
        return SHARP * logits, state

    def reorder(self, state: Any, rows: Tensor) -> Any:
        return self.model.reorder(state, rows)


class Uncached(Sharp):
    """Reads everything again at every step; its state is all that was read, and what it was read about."""

    def start(self, *sources: Tensor) -> Any:
        return sources, None

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        sources, before = state
        whole = ids if before is None else torch.cat((before, ids), dim=1)
        return SHARP * self.model(*sources, whole)[:, -ids.size(1) :], (sources, whole)

    def reorder(self, state: Any, rows: Tensor) -> Any:
        sources, before = state
        return tuple(source[rows] for source in sources), None if before is None else before[rows]


class Standing(Sharp):
    """Never moves a row: those that have ended go on reading, and nobody listens. For rows that only leave."""

    def start(self, *sources: Tensor) -> Any:
        return super().start(*sources), None, 0

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        inner, rows, count = state
        if rows is None:
            rows, count = torch.arange(len(ids)), len(ids)
        every = torch.full((count, ids.size(1)), 2)
        every[rows] = ids
        logits, inner = super().step(every, inner)
        return logits[rows], (inner, rows, count)

    def reorder(self, state: Any, rows: Tensor) -> Any:
        inner, before, count = state
        return inner, before[rows], count


def assert_same(found: list[list[Hypothesis]], wanted: list[list[Hypothesis]]) -> None:
    assert [[each.ids for each in row] for row in found] == [[each.ids for each in row] for row in wanted]
    for each, other in zip(chain(*found), chain(*wanted), strict=True):
        assert each.score == pytest.approx(other.score, abs=1e-9)
        assert each.logprobs == pytest.approx(other.logprobs, abs=1e-9)


@every_system
@settings(max_examples=6)
@given(data=st.data(), how=any_way)
def test_cached_is_uncached(which: System, data: st.DataObject, how: Settings) -> None:
    case = data.draw(cases(which))
    assert_same(case.generate(how), case.generate(how, model=Uncached(case.model)))


@every_system
@settings(max_examples=6)
@given(data=st.data(), how=any_way)
def test_batched_is_one_by_one(which: System, data: st.DataObject, how: Settings) -> None:
    case = data.draw(cases(which))
    assert_same(case.generate(how), [case.generate(how, [row])[0] for row in case.rows])


@every_system
@settings(max_examples=6)
@given(data=st.data(), rules=RULES)
def test_one_beam_is_greedy(which: System, data: st.DataObject, rules: dict[str, Any]) -> None:
    case, how = data.draw(cases(which)), Settings(**rules)
    model, batch = Sharp(case.model), case.batch(case.rows)
    assert_same(beam_search(model, model.start(*case.read(case.rows)), batch, how), case.generate(how))


@every_system
@settings(max_examples=6)
@given(data=st.data(), how=one_by_one)
def test_streamed_is_whole(which: System, data: st.DataObject, how: Settings) -> None:
    case = data.draw(cases(which))
    model, streamed = Sharp(case.model), [[] for _ in case.rows]
    for step in stream_tokens(model, model.start(*case.read(case.rows)), case.batch(case.rows), how):
        for token in step:
            streamed[token.row.index].append(token.id)
    assert streamed == [found.ids for (found,) in case.generate(how)]


@every_system
@settings(max_examples=6)
@given(data=st.data(), how=one_by_one)
def test_compacted_is_never_compacted(which: System, data: st.DataObject, how: Settings) -> None:
    case = data.draw(cases(which))
    assert_same(case.generate(how), case.generate(how, model=Standing(case.model)))


def test_texts_end_and_rows_leave_in_these_tests() -> None:
    case = Case(system("lm", positions="rotary").built(0), None, [[token] for token in range(2, V)])
    lengths = {len(found.ids) for (found,) in case.generate(Settings(max_tokens=8, temperature=1.5, seed=1))}
    assert len(lengths) > 3


TEXTS = ["the quick brown fox, and (then) 12,5 % [STOP]!", "El niño no come pan. ¿No?", "don't\nstop 👩‍👩‍👧 שלום"] * 5


@cache
def tokenizer(kind: TokenizerKind) -> Tokenizer:
    return Tokenizer.train(kind, TEXTS, size=400)


@pytest.mark.parametrize("kind", get_args(TokenizerKind))
@given(data=st.data())
def test_streamed_text_is_the_whole_text(kind: TokenizerKind, data: st.DataObject) -> None:
    vocabulary = tokenizer(kind)
    ids = data.draw(st.lists(st.integers(0, len(vocabulary) - 1), min_size=1, max_size=150))
    assert "".join(text_pieces(ids, vocabulary.decode)) == vocabulary.decode(ids)
    prompt, text = vocabulary.encode("the fox"), vocabulary.decode(ids)
    whole = vocabulary.decode(prompt + ids)[len(vocabulary.decode(prompt)) :]
    assert "".join(text_pieces(ids, vocabulary.decode, before=prompt)) == whole
    if stop := text[len(text) // 2 : len(text) // 2 + 3]:
        assert "".join(text_pieces(ids, vocabulary.decode, stops=[stop])) == text[: text.index(stop)]

"""Small models of every kind that native code supports, with random weights in every part."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from clearhead.decode import Settings, SpecialTokens, generate_batch
from clearhead.engines.native.engine import NativeEngine
from clearhead.engines.native.library import load_library
from clearhead.run import Sizes
from clearhead.tasks import default_config, override_config
from clearhead.tasks.base.network import build_network

VOCABULARY = 37
POSITIONS = ("none", "sinusoidal", "learned", "rotary", "alibi", "t5")
PARTS: tuple[tuple[str, ...], ...] = (
    (),
    ("model.norm=rms", "model.placement=before", "model.bias=false"),
    ("model.placement=around", "model.feed_forward=swiglu"),
    ("model.feed_forward=gelu", "model.kv_heads=1", "model.key_dim=6", "model.value_dim=10"),
    ("model.window=3", "model.score=dot", "model.tied=false", "model.placement=output"),
)
SMALL = ("model.dim=12", "model.heads=3", "model.layers=2", "model.inner=29", "model.max_length=64")


def make(task: str, *parts: str, seed: int = 5, vocabulary: int = VOCABULARY) -> nn.Module:
    """A model whose biases and gains are not 0 and 1."""
    torch.manual_seed(seed)
    network = build_network(
        override_config(default_config(task), [*SMALL, *parts]), Sizes(vocabulary=vocabulary)
    ).eval()
    for weight in network.parameters():
        nn.init.normal_(weight, std=0.4)
    return network


def native_of(network: nn.Module, int8: bool = False, cache_type: str | None = None) -> NativeEngine:
    """The same as native code."""
    library = load_library()
    assert library is not None
    return NativeEngine(network, library, int8=int8, cache_type=cache_type)  # type: ignore[arg-type]


def sources(rows: int) -> torch.Tensor:
    """(rows, 11), each shorter than the one before."""
    ids = torch.randint(5, VOCABULARY, (rows, 11), generator=torch.Generator().manual_seed(rows))
    for row in range(rows):
        ids[row, 11 - 2 * row :] = 0 if row else ids[row, 11:]
    return ids


@torch.inference_mode()
def assert_same_steps(network: Any, fast: Any, task: str, near: float) -> None:
    """The logits of some steps, through changes of rows that share sentences evenly, unevenly, and not at all."""
    given = [sources(3)] if task == "translate" else []
    slow_state, fast_state = network.start(*given), fast.start(*given)
    draw, rows = torch.Generator().manual_seed(7), 3
    spread = ((5, [0, 0, 1, 1, 2, 2]), (1, [1, 0, 3, 3, 4, 5]), (1, [2, 0, 0, 1, 2]))
    for tokens, order in (*spread, (17, [4, 1]), (3, [0, 0, 1]), (1, [2]), (1, [0])):
        ids = torch.randint(VOCABULARY, (rows, tokens), generator=draw)
        expected, slow_state = network.step(ids, slow_state)
        found, fast_state = fast.step(ids, fast_state)
        torch.testing.assert_close(found, expected, rtol=near, atol=near)
        moved = torch.tensor(order)
        slow_state, fast_state = network.reorder(slow_state, moved), fast.reorder(fast_state, moved)
        rows = len(order)


def assert_same_texts(network: Any, fast: Any, beams: int, rows: int, near: float, threads: int = 1) -> None:
    """All hypotheses of a search, and their scores."""
    chosen = Settings(beam_width=beams, n_best=beams, max_tokens=13, return_logprobs=True)
    asked = [[int(x) for x in row if x] for row in sources(rows)]
    slow = generate_batch(network, asked, SpecialTokens(0, 1, 2), chosen)
    for one, other in zip(slow, generate_batch(fast, asked, SpecialTokens(0, 1, 2), chosen, 2, threads), strict=True):
        assert [each.ids for each in one] == [each.ids for each in other]
        assert [each.score for each in one] == pytest.approx([each.score for each in other], abs=near)


@torch.inference_mode()
def assert_same_through_a_window(network: Any, fast: Any, near: float) -> Any:
    """60 steps with a window of 5; the state of the fast one."""
    slow_state, fast_state = network.start(window=5), fast.start(window=5)
    for place in range(60):
        ids = torch.tensor([[(7 * place) % VOCABULARY], [(5 * place) % VOCABULARY]])
        expected, slow_state = network.step(ids, slow_state)
        found, fast_state = fast.step(ids, fast_state)
        torch.testing.assert_close(found, expected, rtol=near, atol=near)
    assert fast_state.length == 60
    return fast_state

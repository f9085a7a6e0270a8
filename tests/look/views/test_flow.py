from __future__ import annotations

import sys
from itertools import product

import pytest
import torch
from tests.optional import optional
from torch import Tensor

from clearhead.errors import ConfigError, ShapeError
from clearhead.look.views.flow import flow
from clearhead.look.views.rollout import layer_mixtures, rollout

optional("scipy", reason="attention flow is found by SciPy")

LAYERS, H, T = 2, 3, 3


def some_weights() -> list[Tensor]:
    torch.manual_seed(5)
    return [(2 * torch.randn(H, T, T, dtype=torch.float64)).softmax(-1) for _ in range(LAYERS)]


def narrowest_cut(pipes: list[Tensor], row: int, column: int) -> float:
    """What every flow must pass: the least that can be cut to part source and sink, tried for all 2^n partings."""
    junctions = [(layer, token) for layer in range(LAYERS + 1) for token in range(T)]
    source, sink = (LAYERS, row), (0, column)
    free = [each for each in junctions if each not in (source, sink)]
    best = float("inf")
    for sides in product((True, False), repeat=len(free)):
        with_source = {source} | {each for each, side in zip(free, sides, strict=True) if side}
        cut = sum(
            float(pipes[layer][i, j])
            for layer, i, j in product(range(LAYERS), range(T), range(T))
            if (layer + 1, i) in with_source and (layer, j) not in with_source
        )
        best = min(best, cut)
    return best


def test_the_flow_is_the_narrowest_cut() -> None:
    weights = some_weights()
    pipes = layer_mixtures(weights, "max", 0.4)
    cuts = [[narrowest_cut(pipes, row, column) for column in range(T)] for row in range(T)]
    found = flow(weights, "max", 0.4)
    torch.testing.assert_close(found, torch.tensor(cuts, dtype=torch.float64), atol=1e-7, rtol=0)


def test_one_layer_flows_as_it_rolls_out_and_more_layers_never_less() -> None:
    weights = some_weights()
    torch.testing.assert_close(flow(weights[:1]), rollout(weights[:1]), atol=1e-8, rtol=0)
    assert (flow(weights) >= rollout(weights) - 1e-8).all()


def test_some_rows_are_those_of_all() -> None:
    weights = some_weights()
    torch.testing.assert_close(flow(weights, tokens=[2, 0]), flow(weights)[[2, 0]])


def test_what_cannot_flow_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = some_weights()
    with pytest.raises(ShapeError, match=r"there is no token 3; the tokens are 0 to 2"):
        flow(weights, tokens=[3])
    with pytest.raises(ShapeError, match=r"weights of shape \(1, 3, 3, 3\) are a batch; compute one example at a time"):
        flow([each[None] for each in weights])
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    with pytest.raises(ConfigError, match=r"attention flow needs SciPy: pip install 'clearhead\[look\]'"):
        flow(weights)

"""Small models of every kind that native code has, with weights that leave no part without effect."""

from __future__ import annotations

import torch
from torch import nn

from clearhead import config
from clearhead.engines.compiled import Compiled
from clearhead.engines.compiler import native
from clearhead.models.build import Sizes, build

VOCABULARY = 37
POSITIONS = ("none", "sinusoidal", "learned", "rotary", "alibi", "t5")
PARTS: tuple[tuple[str, ...], ...] = (
    (),
    ("model.norm=rms", "model.placement=before", "model.bias=false"),
    ("model.placement=around", "model.feed_forward=swiglu"),
    ("model.feed_forward=gelu", "model.kv_heads=1", "model.key_dim=6", "model.value_dim=10"),
    ("model.window=3", "model.score=dot", "model.tied=false"),
)
SMALL = ("model.dim=12", "model.heads=3", "model.layers=2", "model.inner=29", "model.max_length=64")


def make(task: str, *parts: str, seed: int = 5, vocabulary: int = VOCABULARY) -> nn.Module:
    """A model whose biases and gains are not 0 and 1."""
    torch.manual_seed(seed)
    network = build(config.override(config.defaults(task), [*SMALL, *parts]), Sizes(vocabulary=vocabulary)).eval()
    for weight in network.parameters():
        nn.init.normal_(weight, std=0.4)
    return network


def native_of(network: nn.Module, int8: bool = False) -> Compiled:
    """The same as native code."""
    library = native()
    assert library is not None
    return Compiled(network, library, int8=int8)  # type: ignore[arg-type]


def sources(rows: int) -> torch.Tensor:
    """(rows, 11), each shorter than the one before."""
    ids = torch.randint(5, VOCABULARY, (rows, 11), generator=torch.Generator().manual_seed(rows))
    for row in range(rows):
        ids[row, 11 - 2 * row :] = 0 if row else ids[row, 11:]
    return ids

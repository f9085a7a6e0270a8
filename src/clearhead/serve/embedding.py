"""A text as one vector: the mean of what a model makes of its tokens.

T tokens, D width
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from clearhead.api import Model
from clearhead.models.rnn_seq2seq import RnnSeq2Seq


def memory(network: Any, ids: Tensor) -> Tensor:
    """What a translator looks at while it writes: (1, T) -> (1, T, D)."""
    states: Tensor = network.read(ids).states if isinstance(network, RnnSeq2Seq) else network.encode(ids)[0]
    return states


# The vectors (1, T, D) of ids (1, T), by the task that a network was trained for.
READERS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "words": lambda network, ids: network.vectors[ids],
    "lm": lambda network, ids: network.read(ids),
    "translate": memory,
    "classify": lambda network, ids: network.encoder(ids),
    "tag": lambda network, ids: network.encoder(ids),
}


@torch.inference_mode()
def embed(model: Model, ids: Sequence[int]) -> list[float]:
    """(D,), the mean over all tokens; a text without any has the vector of the start token."""
    read = READERS[model.config.task]
    vectors = read(model.network, torch.tensor([list(ids) or [model.tokenizer.start]]))
    found: list[float] = vectors[0].mean(0).tolist()
    return found

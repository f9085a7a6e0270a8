"""What a network makes of its input before it answers: a vector for each token, word or patch.

B batch, T tokens, D width
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from clearhead.models.rnn_seq2seq import RnnSeq2Seq


def _memory(network: Any, ids: Tensor) -> Tensor:
    """What a translator looks at while it writes."""
    states: Tensor = network.read(ids).states if isinstance(network, RnnSeq2Seq) else network.encode(ids)[0]
    return states


# The vectors (B, T, D) of ids (B, T), or of images (B, C, height, width), by the task a network was trained for.
READERS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "words": lambda network, ids: network.vectors[ids],
    "lm": lambda network, ids: network.read(ids),
    "translate": _memory,
    "classify": lambda network, ids: network.encoder(ids),
    "tag": lambda network, ids: network.encoder(ids),
    "vision": lambda network, images: network.encoder(images),
}

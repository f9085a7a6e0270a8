"""What a network makes of its input before it answers: a vector for each token, word or patch.

B batch, T tokens, D width, N items
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
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

TOGETHER = 64  # parts of one shape that are read at once


def mean_vectors(read: Callable[[Tensor], Tensor], items: Sequence[Sequence[Tensor]]) -> Tensor:
    """(N, D): of each item the mean of all vectors of its parts, which are batches of one; none is padded."""
    alike: defaultdict[torch.Size, list[tuple[int, Tensor]]] = defaultdict(list)
    for number, parts in enumerate(items):
        for part in parts:
            alike[part.shape].append((number, part))
    sums: list[Any] = [0] * len(items)  # each becomes (D,)
    counts = [0] * len(items)
    for same in alike.values():
        for first in range(0, len(same), TOGETHER):
            numbers, parts = zip(*same[first : first + TOGETHER], strict=True)
            for number, vectors in zip(numbers, read(torch.cat(parts)), strict=True):  # each (T, D)
                sums[number] = sums[number] + vectors.sum(0)
                counts[number] += len(vectors)
    return torch.stack([total / count for total, count in zip(sums, counts, strict=True)])

"""What a network makes of its input before it answers: a vector for each token, word or patch.

B batch, T tokens, D width, N items
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from clearhead.models.rnn import RnnSeq2Seq


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


def mean_vectors(read: Callable[[Tensor], Tensor], items: Iterable[Sequence[Tensor]]) -> Tensor:
    """(N, D): of each item the mean of all vectors of its parts, which are batches of one; none is padded.

    Items are taken as they come, and no more than `TOGETHER` parts of each shape are held.
    """
    waiting: defaultdict[torch.Size, list[tuple[int, Tensor]]] = defaultdict(list)
    sums: list[Any] = []  # each becomes (D,)
    counts: list[int] = []

    def read_together(same: list[tuple[int, Tensor]]) -> None:
        numbers, parts = zip(*same, strict=True)
        for number, vectors in zip(numbers, read(torch.cat(parts)), strict=True):  # each (T, D)
            sums[number] = sums[number] + vectors.sum(0)
            counts[number] += len(vectors)
        same.clear()

    for number, parts in enumerate(items):
        sums.append(0)
        counts.append(0)
        for part in parts:
            same = waiting[part.shape]
            same.append((number, part))
            if len(same) == TOGETHER:
                read_together(same)
    for same in filter(None, waiting.values()):
        read_together(same)
    return (
        torch.stack([total / count for total, count in zip(sums, counts, strict=True)]) if sums else torch.empty(0, 0)
    )

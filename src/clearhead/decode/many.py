"""Many sources at once: similar lengths are read together, and what is written comes back in order.

B rows, S source tokens
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from clearhead.decode.hypothesis import Hypothesis
from clearhead.decode.plan import Prompts
from clearhead.decode.settings import Settings
from clearhead.decode.writing import write

ROWS = 64  # sources read together

Given = TypeVar("Given")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Special:
    """The tokens that have a meaning of their own."""

    pad: int
    start: int
    stop: int


def write_all(
    model: Any,
    sources: Sequence[Sequence[int]],
    special: Special,
    settings: Settings,
    rows: int = ROWS,
    streams: int = 1,
) -> list[list[Hypothesis]]:
    """The hypotheses of each source, the best first; a text is at most as long as `limit` says.

    With several streams as many chunks are written side by side, which pays where a step leaves Python alone.
    """
    device = next(model.parameters()).device

    def written(chunk: Sequence[int]) -> list[list[Hypothesis]]:
        longest = [limit(sources[i], settings) for i in chunk]
        prompts = Prompts([[special.start]] * len(chunk), special.stop, longest, numbers=chunk, device=device)
        with torch.inference_mode():
            state = model.start(_padded([sources[i] for i in chunk], special).to(device))
        return write(model, state, prompts, settings)

    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    chunks = [order[first : first + rows] for first in range(0, len(order), rows)]
    chunks.reverse()  # the longest first: what is left at the end is short
    parts = _side_by_side(written, chunks, streams if len(chunks) > 1 else 1)
    found = dict(zip(chain.from_iterable(chunks), chain.from_iterable(parts), strict=True))
    return [found[i] for i in range(len(sources))]


def _side_by_side(work: Callable[[Given], Found], items: Sequence[Given], streams: int) -> list[Found]:
    """The work on each item, in order."""
    return [work(item) for item in items] if streams <= 1 else list(_pool(streams).map(work, items))


@cache
def _pool(streams: int) -> ThreadPoolExecutor:
    """Always the same threads: each new one would take memory of its own, which the C library keeps."""
    return ThreadPoolExecutor(streams, thread_name_prefix="clearhead-stream")


def limit(source: Sequence[int], settings: Settings) -> int:
    """Tokens that may be written about a source: twice as many as it has and some, and what the settings allow."""
    return min(settings.longest, 2 * len(source) + 12)


def _padded(sources: Sequence[Sequence[int]], special: Special) -> Tensor:
    """(B, S), each with its stop."""
    return pad_sequence([torch.tensor([*ids, special.stop]) for ids in sources], True, special.pad)

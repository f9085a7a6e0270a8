"""Many sources at once: sources of similar length are read together, and the results come back in order.

B rows, S source tokens
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from clearhead.decode.loop import generate
from clearhead.decode.rows import Hypothesis, Prompts
from clearhead.decode.settings import Settings
from clearhead.decode.stepper import Stepper

BATCH = 64  # sources read together


@dataclass(frozen=True)
class SpecialTokens:
    """The ids of padding, start and stop."""

    pad: int
    start: int
    stop: int


class SourceStepper(Stepper, Protocol):
    """A stepper that first reads a source."""

    def start(self, source: Tensor, /) -> Any:
        """Padded sources (B, S) -> the state before the first token."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]: ...


def generate_batch(
    model: SourceStepper,
    sources: Sequence[Sequence[int]],
    special: SpecialTokens,
    settings: Settings,
    rows: int = BATCH,
    threads: int = 1,
) -> list[list[Hypothesis]]:
    """The hypotheses of each source, the best first; a text is at most `source_limit` long.

    With several threads as many batches are computed side by side: worth it where a step releases Python's lock.
    """
    device = next(model.parameters()).device

    def compute(indices: Sequence[int]) -> list[list[Hypothesis]]:
        limits = [source_limit(sources[i], settings) for i in indices]
        prompts = Prompts([[special.start]] * len(indices), special.stop, limits, row_seeds=indices, device=device)
        with torch.inference_mode():
            state = model.start(_padded([sources[i] for i in indices], special).to(device))
        return generate(model, state, prompts, settings)

    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    batches = [order[first : first + rows] for first in range(0, len(order), rows)]
    batches.reverse()  # the longest first: what is left at the end is short
    parallel = threads > 1 and len(batches) > 1
    found = list(_pool(threads).map(compute, batches)) if parallel else [compute(batch) for batch in batches]
    by_source = dict(zip(chain.from_iterable(batches), chain.from_iterable(found), strict=True))
    return [by_source[i] for i in range(len(sources))]


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """One pool for the process: the C library keeps memory for every new thread."""
    return ThreadPoolExecutor(threads, thread_name_prefix="clearhead-batch")


def source_limit(source: Sequence[int], settings: Settings) -> int:
    """The maximum number of tokens generated for a source: twice its length and 12, and no more than max_tokens."""
    return min(settings.max_tokens, 2 * len(source) + 12)


def _padded(sources: Sequence[Sequence[int]], special: SpecialTokens) -> Tensor:
    """(B, S), each with its stop token."""
    return pad_sequence([torch.tensor([*ids, special.stop]) for ids in sources], True, special.pad)

"""Many sources at once: similar lengths are read together, and what is written comes back in order.

B rows, S source tokens
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from clearhead.decode.hypothesis import Hypothesis
from clearhead.decode.plan import Prompts
from clearhead.decode.settings import Settings
from clearhead.decode.writing import write

ROWS = 64  # sources read together


@dataclass(frozen=True)
class Special:
    """The tokens that have a meaning of their own."""

    pad: int
    start: int
    stop: int


def write_all(
    model: Any, sources: Sequence[Sequence[int]], special: Special, settings: Settings, rows: int = ROWS
) -> list[list[Hypothesis]]:
    """The hypotheses of each source, the best first; a text is at most twice as long as its source and some."""
    device = next(model.parameters()).device
    found: dict[int, list[Hypothesis]] = {}
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    for chunk in (order[first : first + rows] for first in range(0, len(order), rows)):
        longest = [min(settings.longest, 2 * len(sources[i]) + 12) for i in chunk]
        prompts = Prompts([[special.start]] * len(chunk), special.stop, longest, numbers=chunk, device=device)
        with torch.inference_mode():
            state = model.start(_padded([sources[i] for i in chunk], special).to(device))
        found.update(zip(chunk, write(model, state, prompts, settings), strict=True))
    return [found[i] for i in range(len(sources))]


def _padded(sources: Sequence[Sequence[int]], special: Special) -> Tensor:
    """(B, S), each with its stop."""
    return pad_sequence([torch.tensor([*ids, special.stop]) for ids in sources], True, special.pad)

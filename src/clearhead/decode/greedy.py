"""Greedy search: always the likeliest next token.

B rows, V vocabulary
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from clearhead.decode.stepper import Stepper


@torch.inference_mode()
def greedy(model: Stepper, state: Any, first: Tensor, *, stop: int, longest: int) -> list[list[int]]:
    """Continue each row from its first token, (B,), until `stop` or `longest` tokens; both ends are left out.

    A row that has stopped leaves the batch.
    """
    found: list[list[int]] = [[] for _ in first]
    ids, alive = first.unsqueeze(1), torch.arange(len(first), device=first.device)
    for _ in range(longest):
        logits, state = model.step(ids, state)
        best = logits[:, -1].argmax(-1)  # (alive,)
        going = best != stop
        for row, token in zip(alive[going].tolist(), best[going].tolist(), strict=True):
            found[row].append(token)
        if not going.all():
            keep = going.nonzero().squeeze(1)
            if not len(keep):
                break
            state, alive, best = model.reorder(state, keep), alive[keep], best[keep]
        ids = best.unsqueeze(1)
    return found

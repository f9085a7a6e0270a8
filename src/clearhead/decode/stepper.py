"""What a search needs to know of a model."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor


class Stepper(Protocol):
    """A model that writes one token after the other; what it remembers is its own affair."""

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The next tokens (B, T) -> logits (B, T, V) of what follows each, and the new state."""
        ...

    def reorder(self, state: Any, rows: Tensor) -> Any:
        """The state in which row i is what row rows[i] was."""
        ...

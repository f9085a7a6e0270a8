"""A place in an endless sequence of epochs that can be written down and gone back to.

    for batch in cursor: ...        from here to the end of this epoch; the next loop is the next epoch
    for batch in cursor.forever(): ...
    state = cursor.state()          small and JSON-able: the place of the batch that comes next
    cursor.restore(state)           goes on exactly there, or says why it cannot

Everything that is visited in epochs is a cursor: batches of examples, windows of a text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import DataError


class Cursor(ABC):
    """Walks the batches of one epoch after the other; a subclass says what they are."""

    epoch: int = 0
    position: int = 0  # of the next batch within the epoch

    def __init__(self, identity: Mapping[str, int | str]):
        """`identity` names all that the order depends on; a state from another identity is refused."""
        self._identity = dict(identity)

    @abstractmethod
    def plan(self, epoch: int) -> Sequence[NDArray[np.int64]]:
        """What each batch of this process is made of, in order: a pure function of the epoch."""

    @abstractmethod
    def read(self, batch: NDArray[np.int64]) -> NDArray[np.int64]:
        """What the caller gets for one entry of the plan."""

    @abstractmethod
    def __len__(self) -> int:
        """How many batches this process has in an epoch, whichever epoch."""

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        for batch in self.plan(self.epoch)[self.position :]:
            # The place moves on before the batch is handed out: a state saved after using it does not repeat it.
            self.position += 1
            if self.position == len(self):
                self.epoch, self.position = self.epoch + 1, 0
            yield self.read(batch)

    def forever(self) -> Iterator[NDArray[np.int64]]:
        """Epoch after epoch without end."""
        while True:
            yield from self

    def state(self) -> dict[str, int | str]:
        """The place of the next batch, the same for every rank."""
        return {**self._identity, "epoch": self.epoch, "position": self.position}

    def restore(self, state: Mapping[str, int | str]) -> None:
        """Go to a place that `state` gave."""
        for name, mine in self._identity.items():
            if state.get(name) != mine:
                raise DataError(
                    f"cannot resume: the state has {name}={state.get(name)} and this run has {name}={mine}; "
                    "go on with the same data and settings"
                )
        epoch, position = state.get("epoch"), state.get("position")
        if not isinstance(epoch, int) or not isinstance(position, int) or epoch < 0 or not 0 <= position < len(self):
            raise DataError(f"cannot resume: epoch={epoch}, position={position} is no place among {len(self)} batches")
        self.epoch, self.position = epoch, position

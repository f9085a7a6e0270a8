"""One thread for each model: what waits for it is computed together.

Whoever asks puts items into a queue and waits for their answers; the thread takes those that are alike (same key) and
computes them in one batch. While it computes, more items come in, and are the next batch: under load batches grow by
themselves, and a single request waits for nobody.

A batch in work is an iterator, and a turn is one step of each: a long text does not keep a short one waiting. An item
whose answer is cancelled is not wanted any more: it leaves the queue, or its batch at the next step.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from clearhead.serve.errors import RequestError
from clearhead.serve.limits import Limits
from clearhead.serve.metrics import Metrics


@dataclass(eq=False)
class Item:
    """One thing to compute: a text to translate, an image, a prompt to go on from."""

    key: Hashable  # items of the same key are computed together
    what: Any
    run: Callable[[list[Item]], Iterator[None]]  # computes a batch, step by step, and answers each item
    answer: Future[Any] = field(default_factory=Future)

    @property
    def wanted(self) -> bool:
        """Whether somebody still waits for the answer."""
        return not self.answer.done()

    def settle(self, answer: Any) -> None:
        """Answer it, unless nobody waits any more."""
        with suppress(InvalidStateError):
            self.answer.set_result(answer)

    def fail(self, problem: Exception) -> None:
        """Answer with an error."""
        with suppress(InvalidStateError):
            self.answer.set_exception(problem)


def at_once(compute: Callable[[list[Any]], Sequence[Any]]) -> Callable[[list[Item]], Iterator[None]]:
    """How to run a batch whose answers come all together."""

    def run(items: list[Item]) -> Iterator[None]:
        for item, answer in zip(items, compute([item.what for item in items]), strict=True):
            item.settle(answer)
        yield

    return run


@dataclass(eq=False)
class _Batch:
    """Items that are computed together."""

    items: list[Item]
    begun: float = field(default_factory=time.monotonic)
    steps: Iterator[None] = field(init=False)
    fresh: bool = True  # no step was done yet

    def __post_init__(self) -> None:
        self.steps = self.items[0].run(self.items)

    @property
    def rows(self) -> int:
        """How many are still computed."""
        return sum(item.wanted for item in self.items)


class Worker:
    """The queue of one model and the thread that works on it."""

    def __init__(self, name: str, limits: Limits, metrics: Metrics):
        self.name, self.limits, self.metrics = name, limits, metrics
        self._changed = threading.Condition()
        self._waiting: list[Item] = []
        self._running: list[_Batch] = []
        self._closing = False
        self._seconds = 1.0  # that the last batch took
        self._thread = threading.Thread(target=self._work, name=f"clearhead {name}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many items wait."""
        with self._changed:
            return sum(item.wanted for item in self._waiting)

    def submit(self, items: Sequence[Item]) -> None:
        """Put all items into the queue, or none if there is no room for all."""
        with self._changed:
            self._waiting = [item for item in self._waiting if item.wanted]
            if self._closing:
                raise RequestError(503, "stopping", "the service stops; ask again when it is back")
            if len(self._waiting) + len(items) > self.limits.queue:
                raise self._full(len(items))
            self._waiting.extend(items)
            self._changed.notify()

    def close(self) -> None:
        """Finish what is there, and stop."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _full(self, count: int) -> RequestError:
        left = max(0, self.limits.queue - len(self._waiting))
        sentence = f"{self.name} is busy: its queue has room for {left} more and the request has {count}; ask again"
        return RequestError(429, "queue_full", sentence, {"Retry-After": str(max(1, math.ceil(self._seconds)))})

    def _work(self) -> None:
        while self._wait():
            self._admit()
            self._running = [batch for batch in self._running if self._advance(batch)]

    def _wait(self) -> bool:
        """Sleep until there is something to do; false when all is done and the service stops."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._running or self._closing)
            return bool(self._waiting or self._running)

    def _admit(self) -> None:
        """Begin one more batch, of the item that has waited longest and those like it."""
        room = self.limits.rows - sum(batch.rows for batch in self._running)
        with self._changed:
            waiting = [item for item in self._waiting if item.wanted]
            taken = [item for item in waiting if item.key == waiting[0].key][: max(0, room)]
            self._waiting = [item for item in waiting if item not in taken]
        if taken:
            self.metrics.batches.labels(model=self.name).observe(len(taken))
            self._running.append(_Batch(taken))

    def _advance(self, batch: _Batch) -> bool:
        """One step of a batch; whether there are more."""
        try:
            next(batch.steps)
        except StopIteration:
            self._seconds = time.monotonic() - batch.begun
            return False
        except Exception as problem:
            self._failed(batch, problem)
            return False
        batch.fresh = False
        return True

    def _failed(self, batch: _Batch, problem: Exception) -> None:
        """One bad item shall not fail the others: if nothing was answered yet, each is tried alone."""
        wanted = [item for item in batch.items if item.wanted]
        if len(batch.items) == 1 or not batch.fresh:
            for item in wanted:
                item.fail(problem)
            return
        for item in wanted:
            item.key = ("alone", id(item))
        with self._changed:
            self._waiting[:0] = wanted

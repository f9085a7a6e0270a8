"""One thread per model, and how a coroutine waits for it.

A request puts jobs into the queue of a model and waits for their answers. The thread takes jobs that are alike (same
key) and computes them in one batch; while it computes, more jobs arrive and become the next batch. Texts to generate
are rows of the token loop (`decode.TokenLoop`): they join between two steps.

The thread works in turns. A turn makes one step of one batch, and one step of the token loop. The batch is that of the
request which has had the least of the thread's time: a new request waits for one step of a large one, not for its end.
A job whose answer is cancelled leaves the queue, or its batch at the next step; a batch that nobody waits for is
dropped. Whatever ends the waiting (an answer, a client that disconnects, the time limit) cancels what is still open.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect
from torch.overrides import TorchFunctionMode

from clearhead.decode import Row, Stepper, TokenLoop
from clearhead.serve.errors import RequestError, stopping
from clearhead.serve.metrics import Metrics
from clearhead.serve.security import Limits

T = TypeVar("T")

NOT_AGAIN = {"X-Should-Retry": "false"}  # or OpenAI's clients ask twice again for what takes too long
STEP_WORK = 8192  # what jobs of one batch may cost together: about a second


# --- the thread ---


@dataclass(eq=False)
class Share:
    """How much of a model's thread a request has had."""

    seconds: float = 0.0


@dataclass(eq=False)
class Job:
    """One thing to compute: a text to translate, an image, a prompt to continue."""

    key: Hashable  # jobs of the same key are computed together
    payload: Any
    run: Callable[[list[Job]], Iterator[None]]  # computes a batch step by step, and resolves each job
    rows: int = 0  # of the token loop that it takes
    cost: int = 0  # compared with STEP_WORK
    share: Share = field(default_factory=Share)  # that of its request
    answer: Future[Any] = field(default_factory=Future)

    @property
    def pending(self) -> bool:
        """Whether there is no answer yet, and a client still waits for it."""
        return not self.answer.done()

    def resolve(self, answer: Any) -> None:
        """Answer, unless the client has left."""
        with suppress(InvalidStateError):
            self.answer.set_result(answer)

    def fail(self, problem: Exception) -> None:
        """Answer with an error."""
        with suppress(InvalidStateError):
            self.answer.set_exception(problem)


class _ClientsGoneError(Exception):
    """Nobody waits for an answer any more."""


class _WhilePending(TorchFunctionMode):
    """Ends a computation at its next torch function once nobody waits for it: between two layers, steps or texts."""

    def __init__(self, jobs: Sequence[Job]):
        super().__init__()
        self.jobs = jobs

    def __torch_function__(
        self, func: Callable[..., Any], _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not any(job.pending for job in self.jobs):
            raise _ClientsGoneError
        return func(*args, **(kwargs or {}))


def compute_together(compute: Callable[[list[Any]], Sequence[Any]]) -> Callable[[list[Job]], Iterator[None]]:
    """The `run` of jobs whose answers are computed by one call, which is given up when nobody waits for them."""

    def run(jobs: list[Job]) -> Iterator[None]:
        with suppress(_ClientsGoneError), _WhilePending(jobs):
            for job, answer in zip(jobs, compute([job.payload for job in jobs]), strict=True):
                job.resolve(answer)
        yield

    return run


@dataclass(eq=False)
class _Batch:
    """Jobs that are computed together."""

    jobs: list[Job]
    started: bool = False  # whether a step was made

    def __post_init__(self) -> None:
        self.steps = self.jobs[0].run(self.jobs)

    @property
    def pending(self) -> bool:
        return any(job.pending for job in self.jobs)

    @property
    def seconds(self) -> float:
        """What the request has had that has had the least."""
        return min((job.share.seconds for job in self.jobs if job.pending), default=0.0)


class Worker:
    """The queue of one model, and the thread that works on it."""

    def __init__(self, name: str, limits: Limits, metrics: Metrics):
        self.name, self.limits, self.metrics = name, limits, metrics
        self._changed = threading.Condition()
        self._waiting: list[Job] = []
        self._batches: list[_Batch] = []
        self._loops: list[TokenLoop] = []
        self._closing = False
        self._began = False  # whether the last turn began a new batch
        self._seconds = 1.0  # from the start of the last job to its answer
        self._thread = threading.Thread(target=self._work, name=f"clearhead {name}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of jobs in the queue."""
        with self._changed:
            return sum(job.pending for job in self._waiting)

    @property
    def running(self) -> int:
        """The number of jobs and rows that are being computed."""
        return sum(job.pending for batch in self._batches for job in batch.jobs) + self._rows

    @property
    def ready(self) -> bool:
        """Whether new jobs are computed."""
        return self._thread.is_alive() and not self._closing

    @property
    def _rows(self) -> int:
        return sum(row.settings.beam_width for loop in self._loops for row in loop.rows if row.active)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Put all jobs of a request into the queue, or none if there is no room for all."""
        share = Share()
        for job in jobs:
            job.share = share
        with self._changed:
            self._waiting = [job for job in self._waiting if job.pending]
            if self._closing:
                raise stopping()
            if len(self._waiting) + len(jobs) > self.limits.queue:
                left = max(0, self.limits.queue - len(self._waiting))
                room = f"its queue has room for {left} more and the request has {len(jobs)}"
                wait = {"Retry-After": str(max(1, math.ceil(self._seconds)))}
                raise RequestError(429, "queue_full", f"{self.name} is busy: {room}; try again", wait)
            self._waiting.extend(jobs)
            self._changed.notify()

    def join(self, model: Stepper, rows: Sequence[Row], state: Any, read: int = 0) -> None:
        """Let rows join the token loop of a model; called by the `run` of a job, in the worker's thread.

        The state may have `read` the first tokens of every prompt.
        """
        loop = next((each for each in self._loops if each.model is model), None)
        if loop is None:
            loop = TokenLoop(model)
            self._loops.append(loop)
        loop.add(rows, state, read)

    def retry_alone(self, job: Job) -> bool:
        """Put a job that failed beside others at the front of the queue, to be computed alone; once."""
        alone = ("alone", id(job))
        if job.key == alone:
            return False
        job.key = alone
        with self._changed:
            self._waiting.insert(0, job)
        return True

    def close(self, seconds: float | None = None) -> None:
        """Finish all jobs that somebody waits for, then stop; with `seconds`, wait no longer than that."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(seconds)

    def _work(self) -> None:
        steps = self.metrics.steps.labels(model=self.name)
        while self._wait():
            batch = self._next_batch()
            if batch is not None and not self._advance(batch):
                self._batches.remove(batch)
            for loop in self._loops:
                steps.observe(len(loop.rows))
                loop.step()
            self._loops = [loop for loop in self._loops if loop.active]

    def _wait(self) -> bool:
        """Sleep until there is something to do; False when everything is done and the service stops."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._batches or self._loops or self._closing)
            return bool(self._waiting or self._batches or self._loops)

    def _next_batch(self) -> _Batch | None:
        """The batch of the request that has had the least, begun or new; every other turn is for a begun one."""
        self._batches = [batch for batch in self._batches if batch.pending]  # to drop the others is to cancel them
        begun = min(self._batches, key=lambda batch: batch.seconds, default=None)
        if begun is not None and self._began:
            self._began = False
            return begun
        room = self.limits.rows - self._rows
        with self._changed:
            self._waiting = [job for job in self._waiting if job.pending]
            first = self._first(room)
            if first is None or (begun is not None and begun.seconds <= first.share.seconds):
                return begun
            taken = self._alike(first, room)
            self._waiting = [job for job in self._waiting if job not in taken]
        self.metrics.batches.labels(model=self.name).observe(len(taken))
        started = time.monotonic()
        for job in taken:
            job.answer.add_done_callback(lambda _: self._measure(started))
        batch, self._began = _Batch(taken), True
        self._batches.append(batch)
        return batch

    def _first(self, room: int) -> Job | None:
        """The waiting job of the request that has had the least; one that needs more rows than are free waits."""
        waiting = sorted(self._waiting, key=lambda job: job.share.seconds)
        joining = next((job for job in waiting if job.rows), None)
        if joining is not None and joining.rows > room and room < self.limits.rows:
            return next((job for job in waiting if not job.rows), None)  # no other row passes it by
        return waiting[0] if waiting else None

    def _alike(self, first: Job, room: int) -> list[Job]:
        """A job and those that are computed with it, as far as there is room; requests that had less come first."""
        taken, rows, cost = [first], room - first.rows, STEP_WORK - first.cost
        alike = (job for job in self._waiting if job.key == first.key and job is not first)
        for job in sorted(alike, key=lambda job: job.share.seconds):
            if len(taken) < self.limits.rows and job.rows <= rows and job.cost <= cost:
                taken.append(job)
                rows, cost = rows - job.rows, cost - job.cost
        return taken

    def _measure(self, started: float) -> None:
        self._seconds = time.monotonic() - started

    def _advance(self, batch: _Batch) -> bool:
        """Make one step of a batch; return whether there are more."""
        started, shares = time.monotonic(), {id(job.share): job.share for job in batch.jobs}
        try:
            next(batch.steps)
        except StopIteration:
            return False
        except Exception as problem:
            self._failed(batch, problem)
            return False
        finally:
            for share in shares.values():
                share.seconds += (time.monotonic() - started) / len(shares)
        batch.started = True
        return True

    def _failed(self, batch: _Batch, problem: Exception) -> None:
        """One bad job must not fail the others: if nothing was answered yet, each is computed alone."""
        for job in reversed([job for job in batch.jobs if job.pending]):
            if len(batch.jobs) == 1 or batch.started or not self.retry_alone(job):
                job.fail(problem)


# --- waiting for it ---


def timeout_error(seconds: float) -> RequestError:
    """The answer to a request that takes too long."""
    message = f"this took longer than {seconds:g} seconds; ask for less at a time"
    return RequestError(504, "too_slow", message, NOT_AGAIN)


async def answers(request: Request, jobs: Sequence[Job], seconds: float) -> list[Any]:
    """The answers of all jobs, in order."""
    every = asyncio.gather(*(asyncio.wrap_future(job.answer) for job in jobs))
    return await while_connected(request, every, seconds)


async def while_connected(request: Request, work: Awaitable[T], seconds: float) -> T:
    """The result of some work, which is cancelled when the client disconnects or the time is over."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request))
    try:
        done, _ = await asyncio.wait({working, leaving}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if working in done:
            return working.result()
        raise ClientDisconnect if leaving in done else timeout_error(seconds)
    finally:
        leaving.cancel()
        working.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await working


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class ThreadQueue(Generic[T]):
    """A queue from any thread to one coroutine, with a deadline."""

    def __init__(self, seconds: float):
        self.seconds, self._deadline = seconds, time.monotonic() + seconds
        self._items: deque[T] = deque()
        self._loop, self._filled, self._is_waking = asyncio.get_running_loop(), asyncio.Event(), False
        self._last, self._is_collecting = asyncio.Event(), False

    def put(self, item: T) -> None:
        """May be called from any thread."""
        self._items.append(item)
        # To wake a sleeping loop is a system call: once for all that is not taken yet, and not while it collects.
        if not self._is_waking and not self._is_collecting:
            self._is_waking = True
            with suppress(RuntimeError):  # the event loop is closed: nobody reads any more
                self._loop.call_soon_threadsafe(self._filled.set)

    def put_last(self, item: T) -> None:
        """Put what ends a collection."""
        self.put(item)
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._last.set)

    async def collect(self, seconds: float) -> None:
        """Leave what comes in some seconds in the queue; not longer than until `put_last`."""
        self._is_collecting = True
        try:
            async with asyncio.timeout(seconds):
                await self._last.wait()
        except TimeoutError:
            return
        finally:
            self._is_collecting = False
            self._last.clear()

    async def get(self) -> T:
        """The next item, or 504 after the deadline."""
        await self._wait()
        self._is_waking = False
        return self._items.popleft()

    async def take(self) -> list[T]:
        """All items that have come, at least one; or 504 after the deadline."""
        await self._wait()
        self._is_waking = False
        return [self._items.popleft() for _ in range(len(self._items))]

    async def _wait(self) -> None:
        """`asyncio.wait_for` would miss a cancellation in the moment in which an item arrives."""
        if (left := self._deadline - time.monotonic()) <= 0:
            raise timeout_error(self.seconds)
        try:
            async with asyncio.timeout(left):
                while not self._items:  # what woke the loop may have been taken already
                    await self._filled.wait()
                    self._filled.clear()
                    self._is_waking = False  # also if what woke the loop was taken before: the next item wakes it again
        except TimeoutError:
            raise timeout_error(self.seconds) from None

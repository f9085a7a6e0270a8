"""One thread per model, and how a coroutine waits for it.

A request puts jobs into the queue of a model and waits for their answers. The thread takes jobs that are alike (same
key) and computes them in one batch; while it computes, more jobs arrive and become the next batch. Texts to generate
are rows of the token loop (`decode.TokenLoop`): they join between two steps.

The thread works in turns: a turn admits one batch, then makes one step of each batch and of each loop, so that a long
text does not hold up a short one. A job whose answer is cancelled leaves the queue, or its batch at the next step.
Whatever ends the waiting (an answer, a client that disconnects, the time limit) cancels what is still open.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

from clearhead.decode import Row, Stepper, TokenLoop
from clearhead.serve.errors import RequestError
from clearhead.serve.metrics import Metrics
from clearhead.serve.security import Limits

T = TypeVar("T")


# --- the thread ---


@dataclass(eq=False)
class Job:
    """One thing to compute: a text to translate, an image, a prompt to continue."""

    key: Hashable  # jobs of the same key are computed together
    payload: Any
    run: Callable[[list[Job]], Iterator[None]]  # computes a batch step by step, and resolves each job
    width: int = 1  # rows that it takes, of those that a model computes at a time
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


def compute_together(compute: Callable[[list[Any]], Sequence[Any]]) -> Callable[[list[Job]], Iterator[None]]:
    """The `run` of jobs whose answers are computed by one call."""

    def run(jobs: list[Job]) -> Iterator[None]:
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


class Worker:
    """The queue of one model, and the thread that works on it."""

    def __init__(self, name: str, limits: Limits, metrics: Metrics):
        self.name, self.limits, self.metrics = name, limits, metrics
        self._changed = threading.Condition()
        self._waiting: list[Job] = []
        self._batches: list[_Batch] = []
        self._loops: list[TokenLoop] = []
        self._closing = False
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
        """The number of rows that are being computed."""
        jobs = sum(job.width for batch in self._batches for job in batch.jobs if job.pending)
        return jobs + sum(row.settings.beam_width for loop in self._loops for row in loop.rows if row.active)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Put all jobs into the queue, or none if there is no room for all."""
        with self._changed:
            self._waiting = [job for job in self._waiting if job.pending]
            if self._closing:
                raise RequestError(503, "stopping", "the service is stopping; try again when it is back")
            if len(self._waiting) + len(jobs) > self.limits.queue:
                left = max(0, self.limits.queue - len(self._waiting))
                room = f"its queue has room for {left} more and the request has {len(jobs)}"
                wait = {"Retry-After": str(max(1, math.ceil(self._seconds)))}
                raise RequestError(429, "queue_full", f"{self.name} is busy: {room}; try again", wait)
            self._waiting.extend(jobs)
            self._changed.notify()

    def join(self, model: Stepper, rows: Sequence[Row], state: Any) -> None:
        """Let rows join the token loop of a model; called by the `run` of a job, in the worker's thread."""
        loop = next((each for each in self._loops if each.model is model), None)
        if loop is None:
            loop = TokenLoop(model)
            self._loops.append(loop)
        loop.add(rows, state)

    def retry_alone(self, job: Job) -> bool:
        """Put a job that failed beside others at the front of the queue, to be computed alone; once."""
        alone = ("alone", id(job))
        if job.key == alone:
            return False
        job.key = alone
        with self._changed:
            self._waiting.insert(0, job)
        return True

    def close(self) -> None:
        """Finish all jobs, then stop."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while self._wait():
            self._admit()
            self._batches = [batch for batch in self._batches if self._advance(batch)]
            for loop in self._loops:
                loop.step()
            self._loops = [loop for loop in self._loops if loop.active]

    def _wait(self) -> bool:
        """Sleep until there is something to do; False when everything is done and the service stops."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._batches or self._loops or self._closing)
            return bool(self._waiting or self._batches or self._loops)

    def _admit(self) -> None:
        """Start one more batch: the job that has waited longest, and those like it."""
        running = self.running
        room = self.limits.rows - running
        taken: list[Job] = []
        with self._changed:
            waiting = [job for job in self._waiting if job.pending]
            for job in waiting:
                if job.key == waiting[0].key and (job.width <= room or not (taken or running)):
                    taken.append(job)
                    room -= job.width
            self._waiting = [job for job in waiting if job not in taken]
        if taken:
            self.metrics.batches.labels(model=self.name).observe(len(taken))
            started = time.monotonic()
            for job in taken:
                job.answer.add_done_callback(lambda _: self._measure(started))
            self._batches.append(_Batch(taken))

    def _measure(self, started: float) -> None:
        self._seconds = time.monotonic() - started

    def _advance(self, batch: _Batch) -> bool:
        """Make one step of a batch; return whether there are more."""
        try:
            next(batch.steps)
        except StopIteration:
            return False
        except Exception as problem:
            self._failed(batch, problem)
            return False
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
    return RequestError(504, "too_slow", f"this took longer than {seconds:g} seconds; ask for less at a time")


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
        self._loop, self._queue = asyncio.get_running_loop(), asyncio.Queue[T]()

    def put(self, item: T) -> None:
        """May be called from any thread."""
        with suppress(RuntimeError):  # the event loop is closed: nobody reads any more
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)

    async def get(self) -> T:
        """The next item, or 504 after the deadline.

        `asyncio.wait_for` would miss a cancellation in the moment in which an item arrives.
        """
        if (left := self._deadline - time.monotonic()) <= 0:
            raise timeout_error(self.seconds)
        try:
            async with asyncio.timeout(left):
                return await self._queue.get()
        except TimeoutError:
            raise timeout_error(self.seconds) from None

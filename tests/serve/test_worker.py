"""The queue of a model: what is computed together, what is refused, and what happens to clients that leave."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from clearhead.errors import ConfigError
from clearhead.serve.errors import RequestError
from clearhead.serve.metrics import Metrics
from clearhead.serve.security import Limits
from clearhead.serve.worker import Job, Worker, compute_together

WAIT = 10.0


class Slow:
    """Computes squares, only while it may; remembers its batches."""

    def __init__(self) -> None:
        self.go, self.busy = threading.Event(), threading.Event()
        self.batches: list[list[Any]] = []

    def compute(self, numbers: list[int]) -> list[int]:
        self.batches.append(numbers)
        self.busy.set()
        assert self.go.wait(WAIT)
        return [number**2 for number in numbers]

    def jobs(self, *numbers: int, key: str = "square") -> list[Job]:
        return [Job(key, number, compute_together(self.compute)) for number in numbers]


@contextmanager
def working(**limits: Any) -> Iterator[Worker]:
    worker = Worker("squares", Limits(**limits), Metrics())
    yield worker
    worker.close()


def test_waiting_jobs_are_computed_together() -> None:
    slow = Slow()
    with working(rows=5) as worker:
        first = slow.jobs(1)
        worker.submit(first)
        assert slow.busy.wait(WAIT)
        rest = slow.jobs(*range(2, 9))
        other = slow.jobs(11, key="other")
        for job in (*rest[:3], *other, *rest[3:]):
            worker.submit([job])
        slow.go.set()
        assert [job.answer.result(WAIT) for job in (*first, *rest, *other)] == [1, 4, 9, 16, 25, 36, 49, 64, 121]
    assert slow.batches[:2] == [[1], [2, 3, 4, 5, 6]]
    assert sorted(slow.batches[2:]) == [[7, 8], [11]]


def test_a_full_queue_refuses_with_retry_after() -> None:
    slow = Slow()
    with working(queue=3) as worker:
        worker.submit(slow.jobs(1))
        assert slow.busy.wait(WAIT)
        waiting = slow.jobs(2, 3)
        worker.submit(waiting)
        sentence = "squares is busy: its queue has room for 1 more and the request has 2; try again"
        with pytest.raises(RequestError, match=sentence) as found:
            worker.submit(slow.jobs(4, 5))
        assert (found.value.status, found.value.headers) == (429, {"Retry-After": "1"})
        assert worker.waiting == 2
        slow.go.set()
    assert slow.batches == [[1], [2, 3]]


def test_a_cancelled_job_frees_its_place_at_once() -> None:
    slow = Slow()
    with working(queue=2) as worker:
        worker.submit(slow.jobs(1))
        assert slow.busy.wait(WAIT)
        gone = slow.jobs(2, 3)
        worker.submit(gone)
        for job in gone:
            job.answer.cancel()
        assert worker.waiting == 0
        worker.submit(slow.jobs(4, 5))
        slow.go.set()
    assert slow.batches == [[1], [4, 5]]


def test_the_answer_of_a_cancelled_job_is_dropped() -> None:
    slow = Slow()
    with working() as worker:
        jobs = slow.jobs(3, 5)
        worker.submit(jobs)
        assert slow.busy.wait(WAIT)
        jobs[0].answer.cancel()
        slow.go.set()
        assert jobs[1].answer.result(WAIT) == 25


def test_one_bad_job_does_not_fail_the_others() -> None:
    def compute(numbers: list[int]) -> list[float]:
        if 0 in numbers:
            raise ConfigError("there is a 0")
        return [1 / number for number in numbers]

    with working() as worker:
        jobs = [Job("invert", number, compute_together(compute)) for number in (2, 0, 4)]
        worker.submit(jobs)
        assert (jobs[0].answer.result(WAIT), jobs[2].answer.result(WAIT)) == (0.5, 0.25)
        with pytest.raises(ConfigError, match="there is a 0"):
            jobs[1].answer.result(WAIT)


def test_batches_take_turns() -> None:
    steps: list[str] = []
    begun = threading.Event()

    def count(jobs: list[Job]) -> Iterator[None]:
        for number in range(3):
            steps.append(f"{jobs[0].payload}{number}")
            begun.wait(WAIT)
            yield
        jobs[0].resolve(None)

    with working() as worker:
        jobs = [Job(name, name, count) for name in "ab"]
        worker.submit(jobs[:1])
        worker.submit(jobs[1:])
        begun.set()
        for job in jobs:
            job.answer.result(WAIT)
    assert steps.index("b0") < steps.index("a2")
    assert sorted(steps) == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_a_batch_that_fails_after_its_first_step_fails_each_of_its_jobs() -> None:
    def fail(jobs: list[Job]) -> Iterator[None]:
        yield
        raise ConfigError("too late")

    with working() as worker:
        jobs = [Job("fail", number, fail) for number in range(2)]
        worker.submit(jobs)
        for job in jobs:
            with pytest.raises(ConfigError, match="too late"):
                job.answer.result(WAIT)


def test_closing_finishes_all_jobs_and_accepts_no_new_ones() -> None:
    slow = Slow()
    worker = Worker("squares", Limits(rows=1), Metrics())
    jobs = slow.jobs(2, 3)
    worker.submit(jobs)
    closing = threading.Thread(target=worker.close)
    closing.start()
    while not worker._closing:
        time.sleep(0.01)
    with pytest.raises(RequestError, match="the service is stopping; try again when it is back"):
        worker.submit(slow.jobs(4))
    slow.go.set()
    closing.join(WAIT)
    assert [job.answer.result(0) for job in jobs] == [4, 9]

"""Waiting for a thread: every moment in which a client may leave, and the time limit."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request

from clearhead.decode import Settings
from clearhead.serve.errors import RequestError
from clearhead.serve.generation import GenerationRequest, TextChunk, generated_chunks
from clearhead.serve.worker import Job, ThreadQueue, while_connected

REQUEST = GenerationRequest((2, 3), Settings())
NEVER = 30.0  # seconds


def run(work: Callable[..., Coroutine[Any, Any, Any]], *given: Any) -> Any:
    """The result, from another thread: the browser of other tests keeps an event loop running in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(work(*given))).result()


def leaving() -> tuple[Request, asyncio.Event]:
    """A request, and the event by which its client hangs up."""
    gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    return Request({"type": "http"}, receive), gone


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("between", range(-7, 8))
def test_a_client_may_leave_in_the_moment_in_which_a_chunk_arrives(between: int) -> None:
    """So many turns of the loop before or after it."""
    sent: list[GenerationRequest] = []
    jobs: list[Job] = []

    def submit(requests: Sequence[GenerationRequest]) -> list[Job]:
        sent.extend(requests)
        jobs.append(Job("generate", requests[0], lambda _: iter(())))
        return jobs

    async def read() -> list[str]:
        return [chunk.text async for chunk in generated_chunks([REQUEST], submit, NEVER)]

    async def leave() -> None:
        request, gone = leaving()
        waiting = asyncio.ensure_future(while_connected(request, read(), NEVER))
        await turns(7)
        sent[0].send(TextChunk("a"))
        await turns(between)
        gone.set()
        await turns(-between)
        sent[0].send(TextChunk("b"))
        await turns(20)
        assert waiting.done()
        await waiting

    with pytest.raises(ClientDisconnect):
        run(leave)
    assert jobs[0].answer.cancelled()


def test_nothing_is_returned_after_the_deadline() -> None:
    """Also if there is always something more."""

    async def read(seconds: float, *items: int) -> list[int]:
        queue = ThreadQueue[int](seconds)
        for each in items:
            queue.put(each)
        await asyncio.sleep(0.02)
        return [await queue.get() for _ in range(3)]

    assert run(read, NEVER, 5, 3, 2) == [5, 3, 2]
    for items in [(), (5,), (5, 3, 2)]:
        with pytest.raises(RequestError, match=r"^this took longer than 0.01 seconds; ask for less at a time$"):
            run(read, 0.01, *items)


def test_an_item_that_is_taken_while_it_is_being_put_does_not_hide_the_next() -> None:
    """The thread that puts it may be interrupted after it is in the queue, before it wakes the loop."""
    taken = threading.Event()

    class Items(deque[str]):
        def append(self, item: str) -> None:
            super().append(item)
            if item == "first":
                assert taken.wait(NEVER)

    async def work() -> list[list[str]]:
        queue = ThreadQueue[str](3.0)
        queue._items = Items()
        loop = asyncio.get_running_loop()
        putting = loop.run_in_executor(None, queue.put, "first")
        found = [await queue.take()]
        second = asyncio.ensure_future(queue.take())
        await turns(3)  # it waits
        taken.set()
        await putting
        await asyncio.sleep(0.05)  # it was woken, and waits again
        await loop.run_in_executor(None, queue.put, "second")
        return [*found, await second]

    assert run(work) == [["first"], ["second"]]

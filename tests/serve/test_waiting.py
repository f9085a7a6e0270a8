"""Waiting for what a thread tells: every moment in which a client may leave, and the end of patience."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request

from clearhead.decode import Settings
from clearhead.serve.batching import Item
from clearhead.serve.errors import RequestError
from clearhead.serve.waiting import Told, parts, while_there
from clearhead.serve.writing import Ask, Chunk

ASK = Ask((2, 3), Settings())
NEVER = 30.0  # seconds


def run(work: Callable[..., Coroutine[Any, Any, Any]], *given: Any) -> Any:
    """Its result, in a thread of its own: the browser of other tests keeps a loop running in this one."""
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
def test_a_client_may_leave_in_the_moment_in_which_something_is_told(between: int) -> None:
    """So many turns of the loop before or after it."""
    asked: list[Ask] = []
    items: list[Item] = []

    def submit(asks: Sequence[Ask]) -> list[Item]:
        asked.extend(asks)
        items.append(Item("write", asks[0], lambda _: iter(())))
        return items

    async def read() -> list[str]:
        return [part.chunk.text async for part in parts([ASK], submit, NEVER)]

    async def leave() -> None:
        request, gone = leaving()
        waiting = asyncio.ensure_future(while_there(request, read(), NEVER))
        await turns(7)
        asked[0].tell(Chunk("a"))
        await turns(between)
        gone.set()
        await turns(-between)
        asked[0].tell(Chunk("b"))
        await turns(20)
        assert waiting.done()
        await waiting

    with pytest.raises(ClientDisconnect):
        run(leave)
    assert items[0].answer.cancelled()


def test_no_more_is_waited_for_when_the_time_is_over() -> None:
    """Also if there is always something more."""

    async def read(seconds: float, *said: int) -> list[int]:
        told = Told[int](seconds)
        for each in said:
            told.tell(each)
        await asyncio.sleep(0.02)
        return [await told.next() for _ in range(3)]

    assert run(read, NEVER, 5, 3, 2) == [5, 3, 2]
    for said in [(), (5,), (5, 3, 2)]:
        with pytest.raises(RequestError, match=r"^this took longer than 0.01 seconds; ask for less at a time$"):
            run(read, 0.01, *said)

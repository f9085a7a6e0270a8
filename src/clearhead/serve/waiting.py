"""A coroutine waits for what a model's thread computes, as long as there is a client, and not for ever.

Whatever ends the waiting (an answer, a client that goes away, the time limit) cancels what is still open, and so frees
its place in the queue or in a batch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

from clearhead.serve.batching import Item
from clearhead.serve.errors import RequestError
from clearhead.serve.writing import Ask, Chunk

T = TypeVar("T")


def too_slow(seconds: float) -> RequestError:
    """The answer to what takes too long."""
    return RequestError(504, "too_slow", f"this took longer than {seconds:g} seconds; ask for less at a time")


async def answers(request: Request, items: Sequence[Item], seconds: float) -> list[Any]:
    """The answers of all items."""
    return await while_there(request, asyncio.gather(*(asyncio.wrap_future(each.answer) for each in items)), seconds)


async def while_there(request: Request, work: Awaitable[T], seconds: float) -> T:
    """The result of some work, which is given up when the client goes away or the time is over."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
    try:
        done, _ = await asyncio.wait({working, leaving}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if working in done:
            return working.result()
        raise ClientDisconnect if leaving in done else too_slow(seconds)
    finally:
        leaving.cancel()
        working.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await working


async def _gone(request: Request) -> None:
    """Until the client has hung up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Told(Generic[T]):
    """What a model's thread tells, one thing after the other, to a coroutine that waits until the time is over."""

    def __init__(self, seconds: float):
        self.seconds, self._deadline = seconds, time.monotonic() + seconds
        self._loop, self._queue = asyncio.get_running_loop(), asyncio.Queue[T]()

    def tell(self, said: T) -> None:
        """Called by any thread."""
        with suppress(RuntimeError):  # the loop has been closed: nobody listens any more
            self._loop.call_soon_threadsafe(self._queue.put_nowait, said)

    async def next(self) -> T:
        """What was told next; `wait_for` would miss a client's leaving in the moment in which something is told."""
        if (left := self._deadline - time.monotonic()) <= 0:
            raise too_slow(self.seconds)
        try:
            async with asyncio.timeout(left):
                return await self._queue.get()
        except TimeoutError:
            raise too_slow(self.seconds) from None


@dataclass(frozen=True)
class Part:
    """A chunk of one of several texts."""

    index: int
    chunk: Chunk


async def parts(
    asks: Sequence[Ask], submit: Callable[[Sequence[Ask]], list[Item]], seconds: float
) -> AsyncIterator[Part]:
    """What is written, as it is written, of all texts until each has ended; asked for when the first is awaited."""
    told = Told[Part | int](seconds)  # a chunk, or the number of a text that has ended
    items = submit([_telling(ask, index, told.tell) for index, ask in enumerate(asks)])
    for index, item in enumerate(items):
        item.answer.add_done_callback(_ending(index, told.tell))
    open_texts = len(items)
    try:
        while open_texts:
            said = await told.next()
            if isinstance(said, Part):
                yield said
            else:
                items[said].answer.result()
                open_texts -= 1
    finally:
        for item in items:
            item.answer.cancel()


def _telling(ask: Ask, index: int, tell: Callable[[Part | int], None]) -> Ask:
    return replace(ask, tell=lambda chunk: tell(Part(index, chunk)))


def _ending(index: int, tell: Callable[[Part | int], None]) -> Callable[[object], None]:
    return lambda _: tell(index)

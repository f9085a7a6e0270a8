"""What `/v1/completions` and `/v1/chat/completions` share: what may be asked, and the answer whole or as it is written.

A stream is a series of server-sent events, `data: {…}`, and ends with `data: [DONE]`.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, Field

from clearhead.decode import Settings
from clearhead.serve.errors import RequestError, error_document, to_request_error
from clearhead.serve.prompts import check_length
from clearhead.serve.registry import Served
from clearhead.serve.schemas import ModelName, RequestBody, check_count
from clearhead.serve.waiting import Part, parts, while_there
from clearhead.serve.writing import Ask, Chunk

Stop = Annotated[str, Field(min_length=1, max_length=200)]
NotSupported = Annotated[float, Field(ge=0, le=0, description="Only 0: there is no such penalty here.")]


class StreamOptions(RequestBody):
    """What a stream tells besides the text."""

    include_usage: bool = Field(False, description="Tell the number of tokens in a last event.")


class Generation(RequestBody):
    """What may be said about any text that is to be written."""

    model: ModelName
    temperature: float = Field(1.0, ge=0, le=2, description="0 = always the likeliest token.")
    top_p: float = Field(1.0, gt=0, le=1, description="Draw from the likeliest that together have probability p.")
    n: int = Field(1, ge=1, le=16, description="Texts for each prompt.")
    stop: Stop | list[Stop] = Field([], max_length=16, description="End before the first of these.")
    seed: int | None = Field(None, ge=0, lt=2**63, description="The same seed writes the same text.")
    stream: bool = Field(False, description="Tell the text as it is written, by server-sent events.")
    stream_options: StreamOptions = StreamOptions()
    user: str | None = Field(None, description="Ignored.")
    presence_penalty: NotSupported = 0.0
    frequency_penalty: NotSupported = 0.0

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)


class Usage(BaseModel):
    """Tokens read and written."""

    prompt_tokens: int
    completion_tokens: int = 0
    total_tokens: int

    @classmethod
    def of(cls, read: int, written: int = 0) -> Usage:
        """With their sum."""
        return cls(prompt_tokens=read, completion_tokens=written, total_tokens=read + written)


@dataclass(frozen=True)
class Shape:
    """How one of the routes words its answer."""

    prefix: str
    whole: str  # what an answer is called, and a part of one
    part: str
    choice: Callable[[int, Chunk], dict[str, Any]]
    opening: Callable[[int], dict[str, Any]] | None  # what is told of a text before its first part
    delta: Callable[[int, Chunk], dict[str, Any]]


@dataclass(frozen=True)
class Wanted:
    """The prompts of a request, and how they are to be continued."""

    asked: Generation
    prompts: Sequence[tuple[int, ...]]
    longest: int
    likeliest: int | None = None
    echo: bool = False
    stops: tuple[str, ...] = ()

    def asks(self, served: Served) -> list[Ask]:
        """One for each text that is to be written; refused if they are too many or too long."""
        asked = self.asked
        check_count(len(self.prompts) * asked.n, served.limits)
        for prompt in self.prompts:
            check_length(len(prompt) + self.longest, served)
        if (total := len(self.prompts) * asked.n * self.longest) > served.limits.tokens:
            most = served.limits.tokens
            raise RequestError(400, "too_many_tokens", f"{total:,} tokens are more than the {most:,} of one request")
        settings = Settings(longest=self.longest, temperature=asked.temperature, top_p=asked.top_p, seed=asked.seed)
        start = (served.model.tokenizer.start,)
        return [
            Ask(prompt or start, settings, number, self.stops, self.likeliest, self.echo and bool(prompt))
            for prompt in self.prompts
            for number in range(asked.n)
        ]


async def respond(request: Request, served: Served, wanted: Wanted, shape: Shape) -> Response:
    """Write, and answer all at once or as it comes."""
    seconds, asks = served.limits.seconds, wanted.asks(served)
    head = {"id": f"{shape.prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": served.name}
    read = sum(len(prompt) for prompt in wanted.prompts)
    coming = parts(asks, served.write, seconds)
    if wanted.asked.stream:
        first = await while_there(request, anext(coming), seconds)
        events = _events(_and_then(first, coming), shape, head, read, wanted.asked.stream_options.include_usage)
        return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
    texts = await while_there(request, _gathered(coming, len(asks)), seconds)
    choices = [shape.choice(index, text) for index, text in enumerate(texts)]
    usage = Usage.of(read, sum(text.written for text in texts)).model_dump()
    return JSONResponse({**head, "object": shape.whole, "choices": choices, "usage": usage})


async def _gathered(coming: AsyncIterator[Part], count: int) -> list[Chunk]:
    """All parts of each text, as one."""
    said: list[list[Chunk]] = [[] for _ in range(count)]
    async for part in coming:
        said[part.index].append(part.chunk)
    return [_joined(chunks) for chunks in said]


def _joined(chunks: Sequence[Chunk]) -> Chunk:
    text = "".join(chunk.text for chunk in chunks)
    return Chunk(
        text, tuple(token for chunk in chunks for token in chunk.tokens), chunks[-1].written, chunks[-1].finish
    )


async def _and_then(first: Part, coming: AsyncIterator[Part]) -> AsyncIterator[Part]:
    yield first
    async for part in coming:
        yield part


async def _events(
    coming: AsyncIterator[Part], shape: Shape, head: dict[str, Any], read: int, with_usage: bool
) -> AsyncIterator[str]:
    """The server-sent events of all texts."""
    head, written = {**head, "object": shape.part}, dict[int, int]()
    try:
        async for part in coming:
            if part.index not in written and shape.opening is not None:
                yield _event({**head, "choices": [shape.opening(part.index)]})
            written[part.index] = part.chunk.written
            yield _event({**head, "choices": [shape.delta(part.index, part.chunk)]})
        if with_usage:
            usage = Usage.of(read, sum(written.values())).model_dump()
            yield _event({**head, "choices": [], "usage": usage})
        yield "data: [DONE]\n\n"
    except Exception as problem:
        refused = to_request_error(problem)
        yield _event(error_document(refused.status, str(refused), refused.code))


def _event(said: dict[str, Any]) -> str:
    return f"data: {json.dumps(said, ensure_ascii=False)}\n\n"

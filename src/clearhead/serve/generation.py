"""What `/v1/completions` and `/v1/chat/completions` share: the request fields, and the answer whole or as a stream.

Besides OpenAI's fields every setting of the token loop can be given. A stream is a series of server-sent events,
`data: {…}`, and ends with `data: [DONE]`; a beam search sends its text when it is decided.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, Field

from clearhead.decode import Settings
from clearhead.serve.errors import RequestError, error_document, to_request_error
from clearhead.serve.prompts import check_length
from clearhead.serve.registry import ServedModel
from clearhead.serve.schemas import ModelName, RequestBody, check_count
from clearhead.serve.text_row import GenerationRequest, TextChunk
from clearhead.serve.worker import Job, ThreadQueue, while_connected

StopString = Annotated[str, Field(min_length=1, max_length=200)]
NotSupported = Annotated[float, Field(ge=0, le=0, description="Only 0 is supported.")]


class StreamOptions(RequestBody):
    """What a stream contains besides the text."""

    include_usage: bool = Field(False, description="Send the number of tokens in a last event.")


class GenerationBody(RequestBody):
    """The fields of every request for generated text."""

    model: ModelName
    temperature: float = Field(1.0, ge=0, le=2, description="0 = greedy. With beams the default is 0.")
    top_p: float = Field(1.0, gt=0, le=1, description="Sample from the smallest set with total probability p.")
    n: int = Field(1, ge=1, le=16, description="Texts for each prompt; with beams the n best.")
    stop: StopString | list[StopString] = Field([], max_length=16, description="End before the first of these.")
    seed: int | None = Field(None, ge=0, lt=2**63, description="The same seed samples the same text.")
    stream: bool = Field(False, description="Send the text as it is generated, by server-sent events.")
    stream_options: StreamOptions = StreamOptions()
    user: str | None = Field(None, description="Ignored.")
    presence_penalty: NotSupported = 0.0
    frequency_penalty: NotSupported = 0.0

    # not in OpenAI's API
    top_k: int | None = Field(None, ge=1, lt=2**31, description="Sample from the k most likely tokens.")
    min_p: float = Field(0.0, ge=0, lt=1, description="Sample from tokens with this share of the highest probability.")
    repetition_penalty: float = Field(1.0, ge=1, le=100, description="Above 1, earlier tokens become less likely.")
    no_repeat: int = Field(0, ge=0, le=1000, description="No n-gram of this size occurs twice; 0 = off.")
    beams: int = Field(1, ge=1, le=16, description="Beam width; 1 = no beam search.")
    groups: int = Field(1, ge=1, le=16, description="Divide the beams into this many groups that should differ.")
    diversity: float = Field(0.0, ge=0, le=100, description="How much the groups should differ.")
    length_penalty: float = Field(1.0, ge=0, le=5, description="A score is log-probability over length^penalty.")

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def settings(self, max_tokens: int) -> Settings:
        """The settings of the token loop."""
        searches = self.beams > 1
        return Settings(
            max_tokens=max_tokens,
            no_repeat_ngram=self.no_repeat,
            repetition_penalty=self.repetition_penalty,
            length_penalty=self.length_penalty,
            beam_width=self.beams,
            n_best=self.n if searches else 1,
            beam_groups=self.groups,
            diversity_penalty=self.diversity,
            temperature=0.0 if searches and "temperature" not in self.model_fields_set else self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            seed=self.seed,
        )


class Usage(BaseModel):
    """Tokens read and generated."""

    prompt_tokens: int
    completion_tokens: int = 0
    total_tokens: int

    @classmethod
    def of(cls, prompt: int, generated: int = 0) -> Usage:
        """With their sum."""
        return cls(prompt_tokens=prompt, completion_tokens=generated, total_tokens=prompt + generated)


@dataclass(frozen=True)
class ResponseFormat:
    """How one of the routes words its answer."""

    id_prefix: str
    whole: str  # the "object" of an answer, and of an event of a stream
    event: str
    choice: Callable[[TextChunk], dict[str, Any]]
    opening: Callable[[int], dict[str, Any]] | None  # the event before the first chunk of a text
    delta: Callable[[TextChunk], dict[str, Any]]


@dataclass(frozen=True)
class Prompted:
    """The prompts of a request, and how to continue them."""

    body: GenerationBody
    prompts: Sequence[tuple[int, ...]]
    max_tokens: int
    top_logprobs: int | None = None
    echo: bool = False
    stops: tuple[str, ...] = ()

    def requests(self, served: ServedModel) -> list[GenerationRequest]:
        """One for each row of the token loop; refused if they are too many or too long."""
        body, limits = self.body, served.limits
        check_count(len(self.prompts) * body.n, limits)
        for prompt in self.prompts:
            check_length(len(prompt) + self.max_tokens, served)
        total = len(self.prompts) * max(body.n, body.beams) * self.max_tokens
        if total > limits.tokens:
            message = f"{total:,} tokens are more than the {limits.tokens:,} of one request"
            raise RequestError(400, "too_many_tokens", message)
        if body.beams > 1 and self.top_logprobs is not None:
            raise RequestError(
                400, "invalid_value", "logprobs: a beam search keeps no alternatives; leave out logprobs or beams"
            )
        settings, start = body.settings(self.max_tokens), (served.model.tokenizer.start,)
        rows = 1 if body.beams > 1 else body.n
        return [
            GenerationRequest(
                prompt or start,
                settings,
                row_seed,
                self.stops,
                self.top_logprobs,
                self.echo and bool(prompt),
                served.model.window(len(prompt or start) + self.max_tokens),
                index=number * body.n + row_seed,
            )
            for number, prompt in enumerate(self.prompts)
            for row_seed in range(rows)
        ]


async def respond(request: Request, served: ServedModel, prompted: Prompted, form: ResponseFormat) -> Response:
    """Generate, and answer all at once or as it comes."""
    seconds, requests = served.limits.seconds, prompted.requests(served)
    head = {"id": f"{form.id_prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": served.name}
    prompt_tokens = sum(len(prompt) for prompt in prompted.prompts)
    chunks = generated_chunks(requests, served.generate, seconds)
    if prompted.body.stream:
        first = await while_connected(request, anext(chunks), seconds)
        include_usage = prompted.body.stream_options.include_usage
        events = _events(_chained(first, chunks), form, head, prompt_tokens, include_usage)
        return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
    texts = await while_connected(request, _gathered(chunks), seconds)
    usage = Usage.of(prompt_tokens, sum(text.generated for text in texts)).model_dump()
    choices = [form.choice(text) for text in texts]
    return JSONResponse({**head, "object": form.whole, "choices": choices, "usage": usage})


async def generated_chunks(
    requests: Sequence[GenerationRequest], submit: Callable[[Sequence[GenerationRequest]], list[Job]], seconds: float
) -> AsyncIterator[TextChunk]:
    """The chunks of all texts as they come, until each has ended; submitted when the first is awaited."""
    queue = ThreadQueue[TextChunk | Job](seconds)  # a chunk, or a job that has ended
    jobs = submit([replace(each, send=queue.put) for each in requests])
    for job in jobs:
        job.answer.add_done_callback(partial(_put_job, queue, job))
    running = len(jobs)
    try:
        while running:
            item = await queue.get()
            if isinstance(item, TextChunk):
                yield item
            else:
                item.answer.result()
                running -= 1
    finally:
        for job in jobs:
            job.answer.cancel()


def _put_job(queue: ThreadQueue[TextChunk | Job], job: Job, _: object) -> None:
    queue.put(job)


async def _gathered(chunks: AsyncIterator[TextChunk]) -> list[TextChunk]:
    """All chunks of each text as one, by index."""
    texts: dict[int, list[TextChunk]] = {}
    async for chunk in chunks:
        texts.setdefault(chunk.index, []).append(chunk)
    return [_joined(texts[index]) for index in sorted(texts)]


def _joined(chunks: Sequence[TextChunk]) -> TextChunk:
    tokens = tuple(token for chunk in chunks for token in chunk.tokens)
    return replace(chunks[-1], text="".join(chunk.text for chunk in chunks), tokens=tokens)


async def _chained(first: TextChunk, chunks: AsyncIterator[TextChunk]) -> AsyncIterator[TextChunk]:
    yield first
    async for chunk in chunks:
        yield chunk


async def _events(
    chunks: AsyncIterator[TextChunk], form: ResponseFormat, head: dict[str, Any], prompt_tokens: int, usage: bool
) -> AsyncIterator[str]:
    """The server-sent events of all texts."""
    head, generated = {**head, "object": form.event}, dict[int, int]()
    try:
        async for chunk in chunks:
            if chunk.index not in generated and form.opening is not None:
                yield _event({**head, "choices": [form.opening(chunk.index)]})
            generated[chunk.index] = chunk.generated
            yield _event({**head, "choices": [form.delta(chunk)]})
        if usage:
            total = Usage.of(prompt_tokens, sum(generated.values())).model_dump()
            yield _event({**head, "choices": [], "usage": total})
        yield "data: [DONE]\n\n"
    except Exception as problem:
        refused = to_request_error(problem)
        yield _event(error_document(refused.status, str(refused), refused.code))


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"

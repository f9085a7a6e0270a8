"""`POST /v1/completions`, and what it shares with chat: the request fields, and the answer whole or as a stream.

With `echo` the prompt is part of the answer, and so are its log-probabilities: `max_tokens=0` scores a text. Besides
OpenAI's fields every setting of the token loop can be given. A stream is a series of server-sent events, `data: {…}`,
and ends with `data: [DONE]`; a beam search sends its text when it is decided. `look` asks for inner tensors: they are
in the choice that has the finish_reason.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from clearhead.decode import Settings
from clearhead.serve.documents import json_bytes, large_response
from clearhead.serve.errors import ERROR_RESPONSES, RequestError, invalid_field, to_request_error
from clearhead.serve.generation import (
    GenerationRequest,
    TextChunk,
    TokenLogprob,
    chunks_together,
    generated_chunks,
    joined,
    submit_requests,
)
from clearhead.serve.inputs import (
    Ignored,
    ModelName,
    Only,
    Prompt,
    RequestBody,
    SearchBody,
    ServiceDep,
    TokenIds,
    check_count,
    json_schema,
    read_json,
    read_prompts,
)
from clearhead.serve.look import AnswerLook, AnswerLookReply, LookOptions, continue_text
from clearhead.serve.registry import ServedModel
from clearhead.serve.worker import while_connected

router = APIRouter(tags=["OpenAI"], responses=ERROR_RESPONSES)

StopString = Annotated[str, Field(min_length=1, max_length=200)]
StopStrings = Annotated[list[StopString], Field(max_length=16, fail_fast=True)]
STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # the latter makes nginx pass events on
DEFAULT_TOKENS = 16  # that a completion generates, if nothing is said
BANNED = -100  # the bias of a token that is never generated


def _check_bias(bias: Any) -> list[int]:
    """The ids of the tokens of a `logit_bias`; the only bias is BANNED."""
    wrong = PydanticCustomError(
        "logit_bias", "it must be an object such as {example}", {"example": f'{{"17": {BANNED}}}, at most 1,000 ids'}
    )
    if not isinstance(bias, dict) or len(bias) > 1000:
        raise wrong
    for name, value in bias.items():
        if not (name.isascii() and name.isdigit() and len(name) < 10) or type(value) not in (int, float):
            raise wrong
        if value != BANNED:
            reason = "only -100, never to generate a token, is supported; leave out other values"
            raise PydanticCustomError("logit_bias", "{reason}", {"reason": reason})
    return [int(name) for name in bias]


LogitBias = Annotated[
    list[int],
    PlainValidator(_check_bias),
    WithJsonSchema({"type": "object", "additionalProperties": {"enum": [BANNED]}, "maxProperties": 1000}),
]


# --- any request for generated text ---


class StreamOptions(RequestBody):
    """What a stream contains besides the text."""

    include_usage: bool = Field(False, description="Send the number of tokens in a last event.")
    include_obfuscation: Ignored = None


class GenerationBody(SearchBody):
    """The fields of every request for generated text."""

    model: ModelName
    temperature: float = Field(1.0, ge=0, le=2, description="0 = greedy. With beams the default is 0.")
    n: int = Field(1, ge=1, le=16, description="Texts for each prompt; with beams the n best.")
    stop: StopString | StopStrings = Field([], description="End before the first of these.")
    stream: bool = Field(False, description="Send the text as it is generated, by server-sent events.")
    stream_options: StreamOptions = StreamOptions()
    logit_bias: LogitBias = Field([], description="Token ids, each with -100: they are never generated.")
    prefix_tokens: TokenIds = Field([], description="Ids that every text begins with, after its prompt.")
    look: LookOptions | None = Field(None, description="Return attention weights or other inner tensors too.")
    user: Ignored = None
    metadata: Ignored = None
    store: Ignored = None
    service_tier: Ignored = None
    safety_identifier: Ignored = None
    prompt_cache_key: Ignored = None
    prompt_cache_retention: Ignored = None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def settings(self, max_tokens: int) -> Settings:
        """The settings of the token loop."""
        searches = self.beams > 1
        return self.search_settings(
            max_tokens=max_tokens,
            prefix_tokens=tuple(self.prefix_tokens),
            banned_tokens=(*self.banned_tokens, *self.logit_bias),
            n_best=self.n if searches else 1,
            temperature=0.0 if searches and "temperature" not in self.model_fields_set else self.temperature,
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
    choice: Callable[[TextChunk], dict[str, object]]
    opening: Callable[[int], dict[str, object]] | None  # the event before the first chunk of a text
    delta: Callable[[TextChunk], dict[str, object]]


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
        check_count(len(self.prompts) * body.n, limits, "n")
        for prompt in self.prompts:
            if len(prompt) + self.max_tokens > served.context:
                raise too_long(served, len(prompt), self.max_tokens)
        total = len(self.prompts) * max(body.n, body.beams) * self.max_tokens
        if total > limits.tokens:
            message = f"{total:,} tokens are more than the {limits.tokens:,} of one request; ask for fewer"
            raise RequestError(400, "too_many_tokens", message, param="max_tokens")
        if body.beams > 1 and self.top_logprobs is not None:
            raise invalid_field("logprobs", "a beam search keeps no alternatives; leave out logprobs or beams")
        known = len(served.model.tokenizer)
        if (highest := max(body.logit_bias, default=0)) >= known:
            raise invalid_field("logit_bias", f"there is no token {highest} in the vocabulary of {known} tokens")
        settings, start = body.settings(self.max_tokens), (served.model.tokenizer.start,)
        settings.check_vocabulary(known)
        rows = 1 if body.beams > 1 else body.n
        return [
            GenerationRequest(
                prompt or start,
                settings,
                row_seed,
                self.stops,
                self.top_logprobs,
                self.echo and bool(prompt),
                served.window,
                index=number * body.n + row_seed,
            )
            for number, prompt in enumerate(self.prompts)
            for row_seed in range(rows)
        ]


def too_long(served: ServedModel, prompt: int, generated: int) -> RequestError:
    """The answer to a request for more tokens than the model reads."""
    message = (
        f"{served.name} reads {served.context:,} tokens at most, and there are {prompt + generated:,}: "
        f"{prompt:,} of the prompt and {generated:,} to generate; shorten the prompt or ask for fewer"
    )
    return RequestError(400, "context_length_exceeded", message, param="max_tokens")


def default_tokens(most: int, prompts: Sequence[tuple[int, ...]], served: ServedModel) -> int:
    """How many tokens are generated if nobody says: `most`, or what the prompts leave of the context."""
    return max(1, min(most, served.context - max(map(len, prompts))))


async def respond(request: Request, served: ServedModel, prompted: Prompted, form: ResponseFormat) -> Response:
    """Generate, and answer all at once or as it comes."""
    seconds, requests = served.limits.seconds, prompted.requests(served)
    look = None if prompted.body.look is None else AnswerLook(served, prompted.body.look, continue_text)
    if look is not None:
        lengths = [len(each.prompt) + prompted.max_tokens for each in requests for _ in range(each.settings.n_best)]
        await while_connected(request, look.check(lengths), seconds)
        requests = [replace(each, wanted=look.wanted) for each in requests]
    head = {"id": f"{form.id_prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": served.name}
    prompt_tokens = sum(len(prompt) for prompt in prompted.prompts)
    submit = partial(submit_requests, served)
    if prompted.body.stream:
        chunks = chunks_together(requests, submit, seconds, served.pause)
        first = await while_connected(request, anext(chunks), seconds)
        include_usage = prompted.body.stream_options.include_usage
        end = _StreamEnd(sum(each.settings.n_best for each in requests), prompt_tokens if include_usage else None)
        events = _events(served, _chained(first, chunks), form, head, end, look)
        return StreamingResponse(events, media_type="text/event-stream", headers=STREAM_HEADERS)
    texts = await while_connected(request, _gathered(generated_chunks(requests, submit, seconds)), seconds)
    usage = Usage.of(prompt_tokens, sum(text.generated for text in texts)).model_dump()
    choices = [await while_connected(request, _with_look(form.choice(text), text, look), seconds) for text in texts]
    document = {**head, "object": form.whole, "choices": choices, "usage": usage}
    return JSONResponse(document) if look is None else await large_response(document)


async def _with_look(choice: dict[str, object], chunk: TextChunk, look: AnswerLook | None) -> dict[str, object]:
    """A choice, and at the end of its text what was asked to be seen."""
    return choice if look is None or chunk.finish is None else {**choice, "look": await look.of(chunk.ids, chunk.seen)}


async def _gathered(chunks: AsyncIterator[TextChunk]) -> list[TextChunk]:
    """All chunks of each text as one, by index."""
    texts: dict[int, list[TextChunk]] = {}
    async for chunk in chunks:
        texts.setdefault(chunk.index, []).append(chunk)
    return [joined(texts[index]) for index in sorted(texts)]


async def _chained(first: list[TextChunk], chunks: AsyncIterator[list[TextChunk]]) -> AsyncIterator[list[TextChunk]]:
    yield first
    async for some in chunks:
        yield some


@dataclass(frozen=True)
class _StreamEnd:
    """What is sent when all texts of a stream have ended."""

    texts: int
    prompt_tokens: int | None  # where the usage was asked for

    def events(self, head: dict[str, object], generated: int) -> str:
        done = "data: [DONE]\n\n"
        if self.prompt_tokens is None:
            return done
        total = Usage.of(self.prompt_tokens, generated).model_dump()
        return _event({**head, "choices": [], "usage": total}) + done


async def _events(
    served: ServedModel,
    chunks: AsyncIterator[list[TextChunk]],
    form: ResponseFormat,
    head: dict[str, object],
    end: _StreamEnd,
    look: AnswerLook | None,
) -> AsyncIterator[str]:
    """The server-sent events of all texts; those that are there together are sent together."""
    head, generated, running = {**head, "object": form.event}, dict[int, int](), end.texts
    served.streams += 1
    try:
        async for some in chunks:
            events = []
            for chunk in some:
                if chunk.index not in generated and form.opening is not None:
                    events.append(_event({**head, "choices": [form.opening(chunk.index)]}))
                generated[chunk.index] = chunk.generated
                data = {**head, "choices": [await _with_look(form.delta(chunk), chunk, look)]}
                events.append(_event(data) if look is None else await asyncio.to_thread(_large_event, data))
                running -= chunk.finish is not None
            if not running:
                events.append(end.events(head, sum(generated.values())))
            yield "".join(events)
        if running:  # a search found fewer texts than were asked for
            yield end.events(head, sum(generated.values()))
    except Exception as problem:
        yield _event(to_request_error(problem).document())
    finally:
        served.streams -= 1


def _event(data: dict[str, object]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"


def _large_event(data: dict[str, object]) -> str:
    return f"data: {json_bytes(data).decode()}\n\n"


# --- completions ---


class CompletionRequest(GenerationBody):
    """A prompt, and how to continue it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"model": "shakespeare", "prompt": "ROMEO:", "max_tokens": 40, "temperature": 0.8, "seed": 1}]
        }
    )

    prompt: Prompt = Field("", description="A text, texts, token ids, or rows of token ids.")
    max_tokens: int | None = Field(
        None, ge=0, description="Maximum number of generated tokens, 16 by default; 0 with echo scores the prompt."
    )
    logprobs: int | None = Field(None, ge=0, le=20, description="Number of alternatives for each token.")
    echo: bool = Field(False, description="Include the prompt in the answer.")
    best_of: int | None = Field(None, ge=1, description="The same as n; no other value is supported.")
    suffix: Annotated[Any, Only("")] = ""


class CompletionLogprobs(BaseModel):
    """Log-probabilities of each token; the first token of a prompt follows nothing and has none."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(BaseModel):
    """One text."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"] | None
    look: AnswerLookReply | None = Field(None, description="Only if it was asked for.")


class CompletionReply(BaseModel):
    """All texts; in a stream each event has this shape, with a part of one text and without usage."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None


@router.post(
    "/v1/completions",
    summary="Continue a prompt",
    response_model=CompletionReply,
    openapi_extra=json_schema(CompletionRequest),
)
async def completions(
    body: Annotated[CompletionRequest, Depends(read_json(CompletionRequest))], request: Request, service: ServiceDep
) -> Response:
    """Text that continues each prompt, whole or by server-sent events."""
    served = service.get(body.model)
    served.require("generate")
    if body.best_of not in (None, body.n):
        raise invalid_field("best_of", f"it must be n, which is {body.n}; for the likeliest of several texts use beams")
    prompts = await read_prompts(body.prompt, served, "prompt", served.model.tokenizer.prefix)
    max_tokens = default_tokens(DEFAULT_TOKENS, prompts, served) if body.max_tokens is None else body.max_tokens
    prompted = Prompted(body, prompts, max_tokens, body.logprobs, body.echo, body.stops)
    return await respond(request, served, prompted, _format(with_logprobs=body.logprobs is not None))


def _format(with_logprobs: bool) -> ResponseFormat:
    def choice(chunk: TextChunk) -> dict[str, object]:
        logprobs = _logprobs(chunk.tokens) if with_logprobs else None
        return {"index": chunk.index, "text": chunk.text, "logprobs": logprobs, "finish_reason": chunk.finish}

    return ResponseFormat("cmpl", "text_completion", "text_completion", choice, None, choice)


def _logprobs(tokens: tuple[TokenLogprob, ...]) -> dict[str, object]:
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [dict(token.top) or None for token in tokens],
        "text_offset": [token.offset for token in tokens],
    }

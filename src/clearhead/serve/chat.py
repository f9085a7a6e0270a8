"""`POST /v1/chat/completions`: messages, laid out as the model's chat template says, which a language model continues.

A model without a template, like those that come with the package, is given a play:

    USER:
    Who are you?

    ASSISTANT:
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from clearhead.serve.completions import GenerationBody, Prompted, ResponseFormat, Usage, respond
from clearhead.serve.errors import ERROR_RESPONSES
from clearhead.serve.generation import TextChunk, TokenLogprob
from clearhead.serve.inputs import (
    RequestBody,
    ServiceDep,
    check_length,
    check_texts,
    encode,
    json_schema,
    read_json,
)
from clearhead.serve.look import AnswerLookReply
from clearhead.text.chat_template import ChatTemplate, PlayTemplate, encode_chat

router = APIRouter(tags=["OpenAI"], responses=ERROR_RESPONSES)


class TextPart(RequestBody):
    """A part of a message; only text is supported."""

    type: Literal["text"]
    text: str


class Message(RequestBody):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Field(fail_fast=True)]
    name: str | None = Field(None, max_length=64, description="Shown to the model instead of the role.")

    @property
    def text(self) -> str:
        """The text of all parts."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatRequest(GenerationBody):
    """A conversation, and how to continue it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model": "shakespeare",
                    "messages": [{"role": "user", "content": "Who is there?"}],
                    "max_completion_tokens": 40,
                }
            ]
        }
    )

    messages: Annotated[list[Message], Field(min_length=1, max_length=200, fail_fast=True)]
    max_tokens: int | None = Field(None, ge=1, description="The older name of max_completion_tokens.")
    max_completion_tokens: int = Field(256, ge=1, description="Maximum number of generated tokens.")
    logprobs: bool = Field(False, description="Return the log-probability of each token.")
    top_logprobs: int = Field(0, ge=0, le=20, description="Number of alternatives for each token.")

    @property
    def token_limit(self) -> int:
        return self.max_completion_tokens if self.max_tokens is None else self.max_tokens


class ChatToken(BaseModel):
    """A token and its log-probability."""

    token: str
    logprob: float
    bytes: list[int] | None


class ChatTokenLogprobs(ChatToken):
    """A token of the answer, and the most likely tokens in its place."""

    top_logprobs: list[ChatToken]


class ChatLogprobs(BaseModel):
    """Log-probabilities of each token of the answer."""

    content: list[ChatTokenLogprobs]


class ChatMessage(BaseModel):
    """The message that the model generated."""

    role: Literal["assistant"]
    content: str


class ChatChoice(BaseModel):
    """One answer."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length"]
    look: AnswerLookReply | None = Field(None, description="Only if it was asked for.")


class ChatReply(BaseModel):
    """All answers; a stream has events with `delta` in the place of `message`."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


@router.post(
    "/v1/chat/completions",
    summary="Continue a conversation",
    response_model=ChatReply,
    openapi_extra=json_schema(ChatRequest),
)
async def chat(
    body: Annotated[ChatRequest, Depends(read_json(ChatRequest))], request: Request, service: ServiceDep
) -> Response:
    """The next message of a conversation, whole or by server-sent events."""
    served = service.get(body.model)
    served.require("generate")
    template: ChatTemplate = served.model.chat_template
    if template.has_special:
        check_texts([each.text for each in body.messages], served.limits)
        ids = await asyncio.to_thread(encode_chat, served.model.tokenizer, template, as_dicts(body.messages))
        check_length(len(ids), served)
        prompts = [tuple(ids)]
    else:
        prompts = await encode([as_play(body.messages)], served)
    top_logprobs = body.top_logprobs if body.logprobs else None
    prompted = Prompted(body, prompts, body.token_limit, top_logprobs, stops=(*body.stops, *template.stops))
    return await respond(request, served, prompted, _format(top_logprobs))


def as_dicts(messages: Sequence[Message]) -> list[dict[str, object]]:
    """The messages as templates read them."""
    return [each.model_dump(exclude_none=True) | {"content": each.text} for each in messages]


def as_play(messages: Sequence[Message]) -> str:
    """The conversation as a prompt, which ends with the cue for the model."""
    return PlayTemplate().render(as_dicts(messages))


def _format(top_logprobs: int | None) -> ResponseFormat:
    def logprobs(chunk: TextChunk) -> dict[str, object] | None:
        return None if top_logprobs is None else {"content": [_token(each, top_logprobs) for each in chunk.tokens]}

    def choice(chunk: TextChunk) -> dict[str, object]:
        message = {"role": "assistant", "content": chunk.text}
        return {"index": chunk.index, "message": message, "logprobs": logprobs(chunk), "finish_reason": chunk.finish}

    def opening(index: int) -> dict[str, object]:
        delta = {"role": "assistant", "content": ""}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def delta(chunk: TextChunk) -> dict[str, object]:
        content = {"content": chunk.text} if chunk.text else {}
        return {"index": chunk.index, "delta": content, "logprobs": logprobs(chunk), "finish_reason": chunk.finish}

    return ResponseFormat("chatcmpl", "chat.completion", "chat.completion.chunk", choice, opening, delta)


def _token(token: TokenLogprob, count: int) -> dict[str, object]:
    top = [_logprob(text, value) for text, value in token.top[:count]]
    return {**_logprob(token.text, token.logprob or 0.0), "top_logprobs": top}


def _logprob(text: str, value: float) -> dict[str, object]:
    """A part of a character has no text, and its bytes are not known."""
    return {"token": text, "logprob": value, "bytes": None if "�" in text else list(text.encode())}

"""`POST /v1/chat/completions`: messages, written down like a play, which a language model goes on with.

    USER:
    Who are you?

    ASSISTANT:

The models here learned no other form of conversation; what the next speaker would say ends the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from clearhead.serve.errors import ERROR_RESPONSES
from clearhead.serve.generation import Generation, Shape, Usage, Wanted, respond
from clearhead.serve.prompts import encode
from clearhead.serve.schemas import RequestBody, ServiceDep
from clearhead.serve.writing import Chunk, Scored

router = APIRouter(tags=["OpenAI"], responses=ERROR_RESPONSES)

NEXT_SPEAKER = "\n\nUSER:"


class TextPart(RequestBody):
    """A part of a message; only texts are read."""

    type: Literal["text"]
    text: str


class Message(RequestBody):
    """What somebody said."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: str | None = Field(None, max_length=64, description="Instead of the role, in the text that is read.")

    @property
    def text(self) -> str:
        """All of it."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatRequest(Generation):
    """A conversation, and how to go on with it."""

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

    messages: Annotated[list[Message], Field(min_length=1, max_length=200)]
    max_tokens: int | None = Field(None, ge=1, description="The older name of max_completion_tokens.")
    max_completion_tokens: int = Field(256, ge=1, description="Tokens to write.")
    logprobs: bool = Field(False, description="Tell how likely each token was.")
    top_logprobs: int = Field(0, ge=0, le=20, description="So many of the likeliest tokens in each place.")

    @property
    def longest(self) -> int:
        """Tokens to write at most."""
        return self.max_completion_tokens if self.max_tokens is None else self.max_tokens


class Likely(BaseModel):
    """A token and its log-probability."""

    token: str
    logprob: float
    bytes: list[int] | None


class LikelyToken(Likely):
    """A token of the answer, and what the model found likeliest in its place."""

    top_logprobs: list[Likely]


class ChatLogProbabilities(BaseModel):
    """Of each token of the answer."""

    content: list[LikelyToken]


class Answer(BaseModel):
    """What the model says."""

    role: Literal["assistant"]
    content: str


class ChatChoice(BaseModel):
    """One answer."""

    index: int
    message: Answer
    logprobs: ChatLogProbabilities | None
    finish_reason: Literal["stop", "length"]


class ChatReply(BaseModel):
    """All answers; a stream has events with `delta` in the place of `message`."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


@router.post("/v1/chat/completions", summary="Go on with a conversation", response_model=ChatReply)
async def chat(asked: ChatRequest, request: Request, service: ServiceDep) -> Response:
    """The next message of a conversation, whole or by server-sent events."""
    served = service.find(asked.model)
    served.must_write()
    prompts = await encode([as_play(asked.messages)], served)
    likeliest = asked.top_logprobs if asked.logprobs else None
    wanted = Wanted(asked, prompts, asked.longest, likeliest, stops=(*asked.stops, NEXT_SPEAKER))
    return await respond(request, served, wanted, _shape(likeliest))


def as_play(messages: Sequence[Message]) -> str:
    """The conversation as the text that the model reads; the last line is for it to speak."""
    said = "".join(f"{(each.name or each.role).upper()}:\n{each.text}\n\n" for each in messages)
    return f"{said}ASSISTANT:\n"


def _shape(likeliest: int | None) -> Shape:
    def logprobs(chunk: Chunk) -> dict[str, Any] | None:
        return None if likeliest is None else {"content": [_token(each, likeliest) for each in chunk.tokens]}

    def choice(index: int, chunk: Chunk) -> dict[str, Any]:
        message = {"role": "assistant", "content": chunk.text}
        return {"index": index, "message": message, "logprobs": logprobs(chunk), "finish_reason": chunk.finish}

    def opening(index: int) -> dict[str, Any]:
        delta = {"role": "assistant", "content": ""}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def delta(index: int, chunk: Chunk) -> dict[str, Any]:
        said = {"content": chunk.text} if chunk.text else {}
        return {"index": index, "delta": said, "logprobs": logprobs(chunk), "finish_reason": chunk.finish}

    return Shape("chatcmpl", "chat.completion", "chat.completion.chunk", choice, opening, delta)


def _token(scored: Scored, likeliest: int) -> dict[str, Any]:
    top = [_likely(text, value) for text, value in scored.likeliest[:likeliest]]
    return {**_likely(scored.text, scored.log_probability or 0.0), "top_logprobs": top}


def _likely(text: str, value: float) -> dict[str, Any]:
    """A part of a character has no text of its own, and its bytes are not known."""
    return {"token": text, "logprob": value, "bytes": None if "�" in text else list(text.encode())}

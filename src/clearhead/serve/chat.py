"""`POST /v1/chat/completions`: messages, laid out as the model's chat template says, which a language model continues.

A model without a template, like those that come with the package, is given a play:

    USER:
    Who are you?

    ASSISTANT:
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from clearhead.serve.completions import GenerationBody, Prompted, ResponseFormat, Usage, default_tokens, respond
from clearhead.serve.errors import ERROR_RESPONSES, invalid_field
from clearhead.serve.generation import TextChunk, TokenLogprob
from clearhead.serve.inputs import (
    Ignored,
    Only,
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

DEFAULT_TOKENS = 256  # of an answer, if nothing is said


class TextPart(RequestBody):
    """A part of a message; only text is supported."""

    type: Literal["text"]
    text: str

    @model_validator(mode="before")
    @classmethod
    def _check_type(cls, part: Any) -> Any:
        if isinstance(part, dict) and part.get("type") != "text":
            raise PydanticCustomError("part", "this service reads text only: the type of a part must be text")
        return part


class Message(RequestBody):
    """One message of a conversation."""

    tool_calls: Annotated[Any, Only([])] = None
    tool_call_id: Annotated[Any, Only(None)] = None
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Field(fail_fast=True)]
    name: str | None = Field(None, max_length=64, description="Shown to the model instead of the role.")
    type: Annotated[Any, Only("text", "message")] = None  # lm-evaluation-harness sends it
    annotations: Ignored = None  # of an answer that comes back as part of the conversation

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
    max_completion_tokens: int | None = Field(
        None, ge=1, description="Maximum number of generated tokens, 256 by default. Of both names the lower counts."
    )
    logprobs: bool = Field(False, description="Return the log-probability of each token.")
    top_logprobs: int = Field(0, ge=0, le=20, description="Number of alternatives for each token; needs logprobs.")
    response_format: Annotated[Any, Only({"type": "text"})] = None
    modalities: Annotated[Any, Only(["text"])] = None
    audio: Annotated[Any, Only(None)] = None
    reasoning_effort: Annotated[Any, Only("none")] = None
    verbosity: Annotated[Any, Only("medium")] = None
    web_search_options: Annotated[Any, Only(None)] = None
    tools: Annotated[Any, Only([])] = None
    tool_choice: Annotated[Any, Only("none", "auto")] = None
    functions: Annotated[Any, Only([])] = None
    function_call: Annotated[Any, Only("none", "auto")] = None
    parallel_tool_calls: Ignored = None
    prediction: Ignored = None

    @property
    def token_limit(self) -> int | None:
        return min((each for each in (self.max_tokens, self.max_completion_tokens) if each is not None), default=None)


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
    if body.top_logprobs and not body.logprobs:
        raise invalid_field("top_logprobs", "it needs logprobs: true")
    template: ChatTemplate = served.model.chat_template
    if template.has_special:
        check_texts([each.text for each in body.messages], served.limits, "messages")
        ids = await asyncio.to_thread(encode_chat, served.model.tokenizer, template, as_dicts(body.messages))
        check_length(len(ids), served, "messages")
        prompts = [tuple(ids)]
    else:
        prompts = await encode([as_play(body.messages)], served, "messages")
    top_logprobs = body.top_logprobs if body.logprobs else None
    limit = body.token_limit
    max_tokens = default_tokens(DEFAULT_TOKENS, prompts, served) if limit is None else limit
    prompted = Prompted(body, prompts, max_tokens, top_logprobs, stops=(*body.stops, *template.stops))
    return await respond(request, served, prompted, _format(top_logprobs))


def as_dicts(messages: Sequence[Message]) -> list[dict[str, object]]:
    """The messages as templates read them."""
    return [each.model_dump(include={"role", "name"}, exclude_none=True) | {"content": each.text} for each in messages]


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

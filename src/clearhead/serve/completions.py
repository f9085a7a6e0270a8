"""`POST /v1/completions`: a text that goes on from a prompt, with the log-probabilities of what was read and written.

With `echo` the prompt is part of the answer, so that its log-probabilities can be had: `max_tokens=0` scores a text.
"""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from clearhead.serve.errors import ERROR_RESPONSES
from clearhead.serve.generation import Generation, Shape, Usage, Wanted, respond
from clearhead.serve.prompts import Prompt, read_prompts
from clearhead.serve.schemas import ServiceDep
from clearhead.serve.writing import Chunk, Scored

router = APIRouter(tags=["OpenAI"], responses=ERROR_RESPONSES)


class CompletionRequest(Generation):
    """What to go on from, and how."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"model": "shakespeare", "prompt": "ROMEO:", "max_tokens": 40, "temperature": 0.8, "seed": 1}]
        }
    )

    prompt: Prompt = Field("", description="A text, texts, token ids, or rows of token ids.")
    max_tokens: int = Field(16, ge=0, description="Tokens to write; 0 with echo only scores the prompt.")
    logprobs: int | None = Field(None, ge=0, le=20, description="So many of the likeliest tokens in each place.")
    echo: bool = Field(False, description="The prompt is part of the answer.")


class LogProbabilities(BaseModel):
    """Of each token of a text; the first token of all follows nothing and has none."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(BaseModel):
    """One text."""

    index: int
    text: str
    logprobs: LogProbabilities | None
    finish_reason: Literal["stop", "length"] | None


class CompletionReply(BaseModel):
    """All texts; in a stream each event has this shape, with a part of one text and without usage."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None


@router.post("/v1/completions", summary="Go on from a prompt", response_model=CompletionReply)
async def completions(asked: CompletionRequest, request: Request, service: ServiceDep) -> Response:
    """Text that goes on from each prompt, whole or by server-sent events."""
    served = service.find(asked.model)
    served.must_write()
    prompts = await read_prompts(asked.prompt, served)
    wanted = Wanted(asked, prompts, asked.max_tokens, asked.logprobs, asked.echo, asked.stops)
    return await respond(request, served, wanted, _shape(scored=asked.logprobs is not None))


def _shape(scored: bool) -> Shape:
    def choice(index: int, chunk: Chunk) -> dict[str, Any]:
        logprobs = _log_probabilities(chunk.tokens) if scored else None
        return {"index": index, "text": chunk.text, "logprobs": logprobs, "finish_reason": chunk.finish}

    return Shape("cmpl", "text_completion", "text_completion", choice, None, choice)


def _log_probabilities(tokens: tuple[Scored, ...]) -> dict[str, Any]:
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.log_probability for token in tokens],
        "top_logprobs": [dict(token.likeliest) or None for token in tokens],
        "text_offset": [token.offset for token in tokens],
    }

"""`POST /v1/completions`: text that continues a prompt, with the log-probabilities of prompt and text.

With `echo` the prompt is part of the answer, and so are its log-probabilities: `max_tokens=0` scores a text.
"""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from clearhead.serve.errors import ERROR_RESPONSES
from clearhead.serve.generation import GenerationBody, Prompted, ResponseFormat, Usage, respond
from clearhead.serve.prompts import Prompt, read_prompts
from clearhead.serve.schemas import ServiceDep
from clearhead.serve.text_row import TextChunk, TokenLogprob

router = APIRouter(tags=["OpenAI"], responses=ERROR_RESPONSES)


class CompletionRequest(GenerationBody):
    """A prompt, and how to continue it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"model": "shakespeare", "prompt": "ROMEO:", "max_tokens": 40, "temperature": 0.8, "seed": 1}]
        }
    )

    prompt: Prompt = Field("", description="A text, texts, token ids, or rows of token ids.")
    max_tokens: int = Field(16, ge=0, description="Maximum number of generated tokens; 0 with echo scores the prompt.")
    logprobs: int | None = Field(None, ge=0, le=20, description="Number of alternatives for each token.")
    echo: bool = Field(False, description="Include the prompt in the answer.")


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


class CompletionReply(BaseModel):
    """All texts; in a stream each event has this shape, with a part of one text and without usage."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None


@router.post("/v1/completions", summary="Continue a prompt", response_model=CompletionReply)
async def completions(body: CompletionRequest, request: Request, service: ServiceDep) -> Response:
    """Text that continues each prompt, whole or by server-sent events."""
    served = service.get(body.model)
    served.require_generation()
    prompts = await read_prompts(body.prompt, served)
    prompted = Prompted(body, prompts, body.max_tokens, body.logprobs, body.echo, body.stops)
    return await respond(request, served, prompted, _format(with_logprobs=body.logprobs is not None))


def _format(with_logprobs: bool) -> ResponseFormat:
    def choice(chunk: TextChunk) -> dict[str, Any]:
        logprobs = _logprobs(chunk.tokens) if with_logprobs else None
        return {"index": chunk.index, "text": chunk.text, "logprobs": logprobs, "finish_reason": chunk.finish}

    return ResponseFormat("cmpl", "text_completion", "text_completion", choice, None, choice)


def _logprobs(tokens: tuple[TokenLogprob, ...]) -> dict[str, Any]:
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [dict(token.top) or None for token in tokens],
        "text_offset": [token.offset for token in tokens],
    }

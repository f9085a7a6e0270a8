"""Chats with a language model: the answer token by token with alternatives, and what each of its tokens looked at.

S tokens of the conversation, L layers, H heads
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import torch
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from pydantic import Field

from clearhead.look.inputs import PreparedInput
from clearhead.look.probes import capture
from clearhead.look.record import rounded
from clearhead.serve.chat import Message
from clearhead.serve.errors import ERROR_RESPONSES, RequestError
from clearhead.serve.inputs import ModelName, SearchBody, ServiceDep, TokenIds
from clearhead.serve.registry import ServedModel
from clearhead.studio.inputs import Document, compute_json, continues_text
from clearhead.studio.play import generate, stream
from clearhead.text.chat_template import encode_chat

router = APIRouter(responses=ERROR_RESPONSES)


class ChatBody(SearchBody):
    """A conversation; `forced` are the ids of a prefix of the answer."""

    model: ModelName
    messages: Annotated[list[Message], Field(min_length=1, max_length=100)]
    forced: Annotated[TokenIds, Field(max_length=1000)] = []
    longest: Annotated[int, Field(ge=1, le=1000)] = 256
    seed: Annotated[int | None, Field(ge=0, lt=2**63)] = 0


class ChatLookBody(ChatBody):
    """The token of an answer, `forced[token]`, whose attention is shown."""

    token: Annotated[int, Field(ge=0, le=1000)]


@router.post("/chat")
async def chat(body: ChatBody, service: ServiceDep) -> StreamingResponse:
    """The next message as lines of JSON, one for each token."""
    served = service.get(body.model)
    prepared = _prompt(served, body.messages)
    left = served.context - len(prepared.prompt)
    if left < 1:
        raise RequestError(
            400, "too_long", f"the chat fills the {served.context:,} tokens of {served.name}: start anew"
        )
    longest = min(left, max(body.longest, len(body.forced)))
    ends = served.model.tokenizer.stops
    settings = body.search_settings(max_tokens=longest, prefix_tokens=tuple(body.forced), stop_tokens=ends)
    stops = served.model.chat_template.stops
    lines = stream(served, lambda: generate(served.model, prepared, settings, stops))
    return StreamingResponse(lines, media_type="application/x-ndjson")


@router.post("/chat/attention")
async def attention(body: ChatLookBody, request: Request, service: ServiceDep) -> Document:
    """How much attention one token of the answer, when it was chosen, gave to each token before it."""
    served = service.get(body.model)
    prepared = _prompt(served, body.messages)
    if body.token >= len(body.forced):
        raise RequestError(
            400, "no_token", f"the answer has {len(body.forced)} tokens, and none is number {body.token}"
        )
    ids = [*prepared.prompt, *body.forced[: body.token]]  # what the model had read when it chose the token
    if len(ids) > (most := served.limits.seen * 4):
        raise RequestError(400, "too_long", f"the chat has {len(ids)} tokens; attention is shown up to {most}")
    return await compute_json(request, served, lambda: _attended(served.model, ids))


@torch.inference_mode()
def _attended(model: Any, ids: Sequence[int]) -> Document:
    with capture(model.network, "decoder.*.self.weights") as seen:
        model.network(torch.tensor([ids]))
    rows = torch.stack([weights[0, :, -1] for weights in seen.values()])  # (L, H, S)
    return {
        "format": "clearhead-chat-attention-1",
        "pieces": [piece.replace("▁", " ") for piece in model.tokenizer.pieces(ids)],
        "shares": rounded(rows.mean((0, 1))),
        "layers": rounded(rows.mean(1)),
    }


def _prompt(served: ServedModel, messages: Sequence[Message]) -> PreparedInput:
    """The conversation as its template lays it out."""
    if not continues_text(served):
        raise RequestError(400, "wrong_model", f"{served.name} is not a language model: it cannot chat")
    model = served.model
    laid_out = [{"role": each.role, "content": each.text} for each in messages]
    ids = encode_chat(model.tokenizer, model.chat_template, laid_out)
    return PreparedInput(
        prompt=tuple(ids), decoder=model.token_strings(ids), stop=model.tokenizer.stop, text="", choices=model.choices
    )

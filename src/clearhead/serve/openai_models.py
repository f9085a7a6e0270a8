"""`GET /v1/models` and `POST /v1/embeddings`: the models of this service, and text embeddings."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from clearhead.serve.completions import Usage
from clearhead.serve.documents import large_response
from clearhead.serve.errors import ERROR_RESPONSES, RequestError, invalid_field
from clearhead.serve.inputs import (
    Ignored,
    ModelName,
    Prompt,
    RequestBody,
    ServiceDep,
    json_schema,
    read_json,
    read_prompts,
)
from clearhead.serve.look import AnswerLook, AnswerLookReply, LookOptions, embed_text
from clearhead.serve.registry import ServedModel
from clearhead.serve.worker import answers, while_connected

router = APIRouter(tags=["OpenAI"], responses=ERROR_RESPONSES)


class ModelCard(BaseModel):
    """One model."""

    id: str = Field(examples=["en-es"])
    object: Literal["model"] = "model"
    created: int = Field(description="When it was loaded, in seconds since 1970.")
    owned_by: Literal["clearhead"] = "clearhead"
    task: str = Field(examples=["translate"])

    @classmethod
    def of(cls, served: ServedModel) -> ModelCard:
        """The card of a served model."""
        return cls(id=served.name, created=served.loaded, task=served.model.task)


class ModelList(BaseModel):
    """All models."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class EmbeddingRequest(RequestBody):
    """Texts to embed."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"model": "words", "input": ["king", "queen"], "encoding_format": "float"}]}
    )

    model: ModelName
    input: Prompt = Field(description="A text, texts, token ids, or rows of token ids.")
    encoding_format: Literal["float", "base64"] = Field("float", description="base64 = the bytes of float32 numbers.")
    dimensions: int | None = Field(None, ge=1, description="The size of the model's vectors; no other is supported.")
    user: Ignored = None
    look: LookOptions | None = Field(None, description="Return attention weights or other inner tensors too.")


class Embedding(BaseModel):
    """One vector."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str
    look: AnswerLookReply | None = Field(
        None, description="Only if it was asked for.", exclude_if=lambda look: look is None
    )


class EmbeddingReply(BaseModel):
    """A vector for each text."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: Usage


@router.get("/v1/models", summary="The models of this service")
async def models(service: ServiceDep) -> ModelList:
    """Every model of this service, with its task."""
    return ModelList(data=[ModelCard.of(served) for served in service.models.values()])


@router.get("/v1/models/{name:path}", summary="One model")
async def model(name: str, service: ServiceDep) -> ModelCard:
    """The model with this name, which may have slashes."""
    if not name:
        raise HTTPException(404)
    return ModelCard.of(service.get(name))


@router.post(
    "/v1/embeddings",
    summary="Embed texts",
    response_model=EmbeddingReply,
    openapi_extra=json_schema(EmbeddingRequest),
)
async def embeddings(
    body: Annotated[EmbeddingRequest, Depends(read_json(EmbeddingRequest))], request: Request, service: ServiceDep
) -> Response:
    """The mean of the hidden states of each text's tokens."""
    served = service.get(body.model)
    if served.model.reads == "image":
        message = f"{served.name} is {served.model.description}: it has no vectors of texts"
        raise RequestError(400, "wrong_model", message, param="model")
    rows = await read_prompts(body.input, served, "input")
    looks = await while_connected(request, _looks(body.look, rows, served), served.limits.seconds)
    vectors = await answers(request, served.embed(rows), served.limits.seconds)
    if body.dimensions not in (None, len(vectors[0])):
        reason = f"the vectors of {served.name} have {len(vectors[0])} dimensions; ask for that many or leave it out"
        raise invalid_field("dimensions", reason)
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": vector if body.encoding_format == "float" else _base64(vector),
            **({} if look is None else {"look": look}),
        }
        for index, (vector, look) in enumerate(zip(vectors, looks, strict=True))
    ]
    usage = Usage.of(sum(map(len, rows))).model_dump()
    return await large_response({"object": "list", "data": data, "model": served.name, "usage": usage})


async def _looks(
    options: LookOptions | None, rows: Sequence[Sequence[int]], served: ServedModel
) -> list[dict[str, object] | None]:
    """What was asked to be seen of each text."""
    if options is None:
        return [None] * len(rows)
    parts = [part for ids in rows for part in served.model.embedding_parts(ids)]
    if len(parts) > len(rows):
        message = f"look: {served.name} reads {served.model.max_read:,} tokens at a time; shorten the text"
        raise RequestError(400, "too_long", message)
    look = AnswerLook(served, options, embed_text)
    await look.check([len(part) for part in parts])
    return [await look.of(part) for part in parts]


def _base64(vector: list[float]) -> str:
    """Little-endian float32, as OpenAI's client reads them."""
    return base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode("ascii")

"""What all request bodies have in common: unknown fields are errors, null means the default, texts are limited."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request
from pydantic import BaseModel, ConfigDict, Field, model_validator

from clearhead.serve.errors import RequestError
from clearhead.serve.limits import Limits
from clearhead.serve.registry import Service

ModelName = Annotated[str, Field(description="A name that `/v1/models` lists.", max_length=200)]


class RequestBody(BaseModel):
    """The base of every request body."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, values: Any) -> Any:
        """Treat null as absent: OpenAI's clients send it for a default."""
        return {name: each for name, each in values.items() if each is not None} if isinstance(values, dict) else values


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(_service)]


def check_texts(texts: list[str], limits: Limits) -> None:
    """Refuse an empty list, too many texts, or a text that is too long."""
    check_count(len(texts), limits)
    longest = max(map(len, texts), default=0)
    if longest > limits.characters:
        message = f"a text has {longest:,} characters; the limit is {limits.characters:,}"
        raise RequestError(400, "too_long", message)


def check_count(count: int, limits: Limits) -> None:
    """Refuse none and too many."""
    if not count:
        raise RequestError(400, "invalid_value", "there is nothing to answer: the list is empty")
    if count > limits.texts:
        message = f"the request has {count} texts; the limit is {limits.texts}: split it into several requests"
        raise RequestError(400, "too_many", message)

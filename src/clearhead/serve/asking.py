"""What all requests share: unknown fields are mistakes, null is as good as absent, and texts have their limits."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request
from pydantic import BaseModel, ConfigDict, Field, model_validator

from clearhead.serve.failures import Refused
from clearhead.serve.limits import Limits
from clearhead.serve.registry import Service

ModelName = Annotated[str, Field(description="A name that `/v1/models` lists.", max_length=200)]
IMAGES = ("vision", "caption")  # tasks that read an image


class Asked(BaseModel):
    """The body of a request."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, values: Any) -> Any:
        """A client that sends null means the default."""
        return {name: each for name, each in values.items() if each is not None} if isinstance(values, dict) else values


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Serving = Annotated[Service, Depends(_service)]


def check_texts(texts: list[str], limits: Limits) -> None:
    """Neither too many nor too long."""
    check_count(len(texts), limits)
    longest = max(map(len, texts), default=0)
    if longest > limits.characters:
        raise Refused(400, "too_long", f"a text has {longest:,} characters, where {limits.characters:,} are read")


def check_count(count: int, limits: Limits) -> None:
    """At least one, and not too many."""
    if not count:
        raise Refused(400, "invalid_value", "there is nothing to answer: the list is empty")
    if count > limits.texts:
        raise Refused(
            400, "too_many", f"{count} texts are more than the {limits.texts} of one request; send them apart"
        )

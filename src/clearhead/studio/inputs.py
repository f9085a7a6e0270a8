"""What the Studio's routes have in common: a model, an input for it, and a computation in the model's thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Request
from pydantic import Field

from clearhead.look.render.html import finite
from clearhead.serve.errors import RequestError
from clearhead.serve.inputs import ModelName, RequestBody, decode_image
from clearhead.serve.registry import ServedModel
from clearhead.serve.worker import answers

Document = dict[str, Any]


class InputBody(RequestBody):
    """An input for a model."""

    model: ModelName
    text: Annotated[str, Field(description="A text for the model.")] = ""
    image: Annotated[str | None, Field(description="An image instead, as base64 or a data URL.")] = None


async def read_input(body: InputBody, served: ServedModel) -> Any:
    """Return the text or the pixels that a model reads, refused if they are too large to look into."""
    if served.model.reads == "image":
        if body.image is None:
            raise RequestError(400, "no_image", f"{served.name} reads an image: draw or drop one")
        return await decode_image(body.image, served)
    if not body.text.strip():
        raise RequestError(400, "no_text", f"the text for {served.name} is empty: write something")
    if (count := len(body.text)) > (limit := served.limits.characters):
        raise RequestError(400, "too_long", f"the text has {count:,} characters; the limit is {limit:,}")
    if (count := served.model.token_count(body.text)) > (limit := served.limits.seen):
        raise RequestError(400, "too_long", f"the text has {count:,} tokens; the limit is {limit:,}: shorten it")
    return body.text


def continues_text(served: ServedModel) -> bool:
    """Tell whether a model's output continues its input (a language model) instead of starting a new sequence."""
    return bool(served.model.verb == "generate")


def limit_tokens(served: ServedModel, item: Any, max_tokens: int) -> int:
    """Return `max_tokens`, or fewer where a language model's context has less room after the text."""
    if not continues_text(served):
        return max_tokens
    left = served.context - len(served.model.tokenizer.encode(item))
    if left < 1:
        limit = f"{served.name} has a context of {served.context:,} tokens"
        raise RequestError(400, "too_long", f"{limit}; shorten the text")
    return min(max_tokens, left)


async def compute_json(request: Request, served: ServedModel, compute: Callable[[], Document]) -> Document:
    """Return what is computed in the model's thread, with numbers that JSON can hold."""
    [found] = await answers(request, served.call(compute), served.limits.seconds)
    document: Document = finite(found)
    return document

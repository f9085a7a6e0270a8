"""What the Studio's requests have in common: a model, and something for it to read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Request
from pydantic import Field

from clearhead.look.render.html import finite
from clearhead.serve.asking import IMAGES, Asked, ModelName
from clearhead.serve.failures import Refused
from clearhead.serve.pictures import from_base64, read_pixels
from clearhead.serve.registry import Served
from clearhead.serve.waiting import answers

Text = Annotated[str, Field(description="What the model reads.")]
Picture = Annotated[str | None, Field(description="An image instead, as base64 or a data URL.")]


class Reading(Asked):
    """Something for a model to read."""

    model: ModelName
    text: Text = ""
    image: Picture = None


async def read(asked: Reading, served: Served) -> Any:
    """The text or the pixels that are to be read, of a size that can be looked into."""
    limits = served.limits
    if served.task in IMAGES:
        if asked.image is None:
            raise Refused(400, "no_image", f"{served.name} reads an image: draw or drop one")
        return await asyncio.to_thread(read_pixels, served.model, from_base64(asked.image), limits.pixels)
    if not asked.text.strip():
        raise Refused(400, "no_text", f"there is nothing for {served.name} to read: write something")
    if len(asked.text) > limits.characters:
        raise Refused(
            400, "too_long", f"the text has {len(asked.text):,} characters, where {limits.characters:,} are read"
        )
    count = len(served.model.tokenizer.encode(asked.text))
    if count > limits.seen:
        raise Refused(400, "too_long", f"the text has {count:,} tokens, where {limits.seen:,} can be seen; shorten it")
    return asked.text


def room(served: Served, item: Any, wanted: int) -> int:
    """As many of the wanted tokens as a language model can still write after a text; others begin a new one."""
    if served.task != "lm":
        return wanted
    left = served.context - len(served.model.tokenizer.encode(item))
    if left < 1:
        raise Refused(400, "too_long", f"{served.name} reads {served.context:,} tokens at most; shorten the text")
    return min(wanted, left)


async def computed(request: Request, served: Served, compute: Callable[[], Any]) -> Any:
    """What is computed in the model's own thread, as JSON can say it."""
    [found] = await answers(request, served.call(compute), served.limits.seconds)
    return finite(found)

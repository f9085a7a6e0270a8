"""Requests that may carry an image: in JSON as base64, or as the uploaded file of a form."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import Field, ValidationError, WithJsonSchema
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from clearhead.data.examples import Pixels
from clearhead.serve.asking import Asked, ModelName
from clearhead.serve.failures import Refused
from clearhead.serve.pictures import from_base64, read_pixels
from clearhead.serve.registry import ServedModel

UNPACKERS = ThreadPoolExecutor(2, "clearhead images")  # few, because each may need much memory
Image = Annotated[str | bytes, WithJsonSchema({"type": "string", "contentEncoding": "base64"})]


class ImageAsked(Asked):
    """A request that may carry an image."""

    model: ModelName
    image: Image | None = Field(None, description="An image file as base64, for a model that reads images.")


Body = TypeVar("Body", bound=ImageAsked)


def body_of(kind: type[Body]) -> Callable[[Request], Coroutine[Any, Any, Body]]:
    """How to read such a request, JSON or form."""

    async def read(request: Request) -> Body:
        values = await (_form(request) if _is_form(request) else _json(request))
        try:
            return kind.model_validate(values)
        except ValidationError as problem:
            raise RequestValidationError(problem.errors()) from None

    return read


def with_upload(kind: type[ImageAsked]) -> dict[str, Any]:
    """What OpenAPI says of it."""
    fields = kind.model_json_schema()
    upload = {**fields, "properties": {**fields["properties"], "image": {"type": "string", "format": "binary"}}}
    upload.pop("examples", None)
    content = {"application/json": {"schema": fields}, "multipart/form-data": {"schema": upload}}
    return {"requestBody": {"required": True, "content": content}}


async def pixels_of(asked: ImageAsked, served: ServedModel) -> Pixels:
    """The image of a request, in the size that the model reads."""
    if asked.image is None:
        raise Refused(400, "invalid_value", f"image: {served.name} reads an image, and there is none")
    content = from_base64(asked.image) if isinstance(asked.image, str) else asked.image
    unpack = partial(read_pixels, served.model, content, served.limits.pixels)
    return await asyncio.get_running_loop().run_in_executor(UNPACKERS, unpack)


def _is_form(request: Request) -> bool:
    return request.headers.get("content-type", "").startswith("multipart/form-data")


async def _json(request: Request) -> Any:
    try:
        return json.loads(await request.body())
    except (ValueError, RecursionError):
        raise HTTPException(400) from None


async def _form(request: Request) -> dict[str, Any]:
    """The fields of a form, and the bytes of its file."""
    async with request.form(max_files=1, max_fields=16) as form:
        return {name: await each.read() if isinstance(each, UploadFile) else each for name, each in form.items()}

"""Images in requests: in JSON as base64, or as the uploaded file of a form.

Only the header of a file is read before its format and size are checked: a small file can unpack to gigabytes.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
import json
import warnings
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import Field, ValidationError, WithJsonSchema
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from clearhead.data.images import pixels
from clearhead.errors import DataError
from clearhead.run import Sizes
from clearhead.serve.errors import RequestError
from clearhead.serve.registry import ServedModel
from clearhead.serve.schemas import ModelName, RequestBody

if TYPE_CHECKING:
    from clearhead.data.examples import Pixels

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")  # those that Pillow decodes without calling other programs
DECODERS = ThreadPoolExecutor(2, "clearhead images")  # few, because each may need much memory

Base64OrBytes = Annotated[str | bytes, WithJsonSchema({"type": "string", "contentEncoding": "base64"})]
Body = TypeVar("Body", bound=RequestBody)


class ImageBody(RequestBody):
    """A request that may carry an image."""

    model: ModelName
    image: Base64OrBytes | None = Field(None, description="An image file as base64, for a model that reads images.")


# --- request bodies, JSON or form ---


def json_or_form(kind: type[Body]) -> Callable[[Request], Coroutine[Any, Any, Body]]:
    """Return a dependency that reads a request body from JSON or from a form with an uploaded file."""

    async def read(request: Request) -> Body:
        values = await (_form(request) if _is_form(request) else _json(request))
        try:
            return kind.model_validate(values)
        except ValidationError as problem:
            raise RequestValidationError(problem.errors()) from None

    return read


def upload_schema(kind: type[RequestBody], field: str = "image") -> dict[str, Any]:
    """Return the OpenAPI description of such a body; `field` is the one that may be uploaded as a file."""
    schema = kind.model_json_schema()
    form = {**schema, "properties": {**schema["properties"], field: {"type": "string", "format": "binary"}}}
    form.pop("examples", None)
    content = {"application/json": {"schema": schema}, "multipart/form-data": {"schema": form}}
    return {"requestBody": {"required": True, "content": content}}


def _is_form(request: Request) -> bool:
    return request.headers.get("content-type", "").startswith("multipart/form-data")


async def _json(request: Request) -> Any:
    try:
        return json.loads(await request.body())
    except (ValueError, RecursionError):
        raise HTTPException(400) from None


async def _form(request: Request) -> dict[str, Any]:
    """Return the fields of a form, files as bytes."""
    async with request.form(max_files=1, max_fields=16) as form:
        return {name: await each.read() if isinstance(each, UploadFile) else each for name, each in form.items()}


# --- images ---


async def decode_image(image: str | bytes | None, served: ServedModel, field: str = "image") -> Pixels:
    """Decode an image, base64 or bytes, to the size that a model reads; (height, width, channels) bytes."""
    if image is None:
        raise RequestError(400, "invalid_value", f"{field}: {served.name} reads an image, and the request has none")
    content = from_base64(image) if isinstance(image, str) else image
    decode = partial(read_pixels, content, served.model.meta.sizes, served.limits.pixels)
    return await asyncio.get_running_loop().run_in_executor(DECODERS, decode)


def from_base64(text: str) -> bytes:
    """Decode base64, with or without the prefix of a data URL."""
    encoded = text.partition(",")[2] if text.startswith("data:") else text
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise RequestError(400, "invalid_image", "image: this is not base64") from None


def read_pixels(content: bytes, sizes: Sizes, max_pixels: int) -> Pixels:
    """Decode an image file of at most `max_pixels` to the size that a model reads."""
    _check_header(content, max_pixels)
    try:
        return pixels(content, size=sizes.height, channels=sizes.channels)
    except DataError:
        raise RequestError(400, "invalid_image", "image: the file is damaged") from None


def _check_header(content: bytes, max_pixels: int) -> None:
    """Refuse what is not one of the formats or is too large, before any pixel is decoded."""
    try:
        from PIL import Image
    except ImportError:
        raise RequestError(400, "no_images", "this service reads no images: it was installed without Pillow") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with Image.open(io.BytesIO(content), formats=FORMATS) as picture:
                width, height = picture.size
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_large("too many", max_pixels) from None
    except Exception:  # Pillow raises many kinds on bytes that are not an image
        raise RequestError(400, "invalid_image", f"image: this is not one of {', '.join(FORMATS)}") from None
    if width * height > max_pixels:
        raise _too_large(f"{width:,} × {height:,}", max_pixels)


def _too_large(found: str, most: int) -> RequestError:
    message = f"image: it has {found} pixels; the limit is {most:,}: scale it down"
    return RequestError(400, "image_too_large", message)

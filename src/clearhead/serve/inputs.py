"""Request bodies: the fields they share, prompts, and images as base64 or as the uploaded file of a form.

Unknown fields are errors, null means the default, and everything is limited. A large body is read in a thread, and the
first wrong value ends the reading: a list of a million wrong ones costs no more than one. Only the header of an image
file is read before its format and size are checked: a small file can unpack to gigabytes.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
import json
import logging
import re
import sys
import warnings
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from clearhead.data.images import pixels
from clearhead.decode import Settings
from clearhead.decode.loop import source_limit
from clearhead.errors import ConfigError, DataError, nearest
from clearhead.run import Sizes
from clearhead.serve.errors import UNKNOWN_FIELD, RequestError, invalid_field
from clearhead.serve.registry import ServedModel, Service
from clearhead.serve.security import SMALL_BODY, Limits, in_thread

if TYPE_CHECKING:
    from clearhead.data.examples import Pixels

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")  # those that Pillow decodes without calling other programs
MOST_NAMED = 10  # fields that an error lists
NEED_JSON = "send a JSON object; an image may be a file of a form, where /openapi.json lists multipart/form-data"
SMALL_TEXT = 1000  # characters that are tokenised in the event loop
logging.getLogger("python_multipart").setLevel(logging.ERROR)  # or every damaged form would write into the log
DECODERS = ThreadPoolExecutor(2, "clearhead images")  # few, because each may need much memory

ModelName = Annotated[str, Field(description="A name that `/v1/models` lists.", max_length=200)]
TokenId = Annotated[int, Field(ge=0, strict=True)]
TokenIds = Annotated[list[TokenId], Field(max_length=1000, fail_fast=True)]
Texts = Annotated[list[str], Field(fail_fast=True)]


def _check_prompt(prompt: Any) -> Any:
    """A prompt as it is; the error names the first wrong item."""
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, list):
        raise _wrong_prompt("it is neither a text nor a list")
    kind: type[Any] = type(prompt[0]) if prompt else str
    for place, item in enumerate(prompt):
        if type(item) is not kind or kind not in (str, int, list) or (kind is int and int(item) < 0):
            raise _wrong_prompt(f"item {place} is {_shortened(item)}")
        for inner, token in enumerate(item if kind is list else ()):
            if type(token) is not int or token < 0:
                raise _wrong_prompt(f"item {inner} of row {place} is {_shortened(token)}")
    return prompt


def _wrong_prompt(what: str) -> PydanticCustomError:
    needed = "a text, texts, token ids from 0 on, or rows of token ids"
    return PydanticCustomError("prompt", "{what}; it must be {needed}", {"what": what, "needed": needed})


def _shortened(value: Any) -> str:
    """How a value of JSON begins."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return json.dumps(value[:20] if isinstance(value, str) else value)[:40]


Prompt = Annotated[
    str | list[str] | list[int] | list[list[int]],
    PlainValidator(_check_prompt, json_schema_input_type=str | list[str] | list[TokenId] | list[list[TokenId]]),
]
# A field of OpenAI's API that changes no answer here; whatever it says is taken.
Ignored = Annotated[Any, Field(description="Ignored.")]


class Only:
    """In the type of a field of OpenAI's API: only these values are taken, those that change nothing."""

    def __init__(self, *values: Any):
        self.values = values

    def _check(self, value: Any) -> Any:
        if value not in self.values:
            raise PydanticCustomError("unsupported", "this service does not support it; leave it out")
        return value

    def __get_pydantic_core_schema__(self, *_: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._check)

    def __get_pydantic_json_schema__(self, *_: Any) -> dict[str, Any]:
        return {"enum": list(self.values), "description": "Anything else is not supported."}


Base64OrBytes = Annotated[str | bytes, WithJsonSchema({"type": "string", "contentEncoding": "base64"})]
Body = TypeVar("Body", bound="RequestBody")


async def _service(request: Request) -> Service:  # a plain function would be called in a thread
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(_service)]


# --- request bodies ---


class RequestBody(BaseModel):
    """The base of every request body."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, values: Any) -> Any:
        """Treat null as absent: OpenAI's clients send it for a default. The first unknown field is an error."""
        if not isinstance(values, dict):
            return values
        for name, value in values.items():
            if name not in cls.model_fields and value is not None:
                field = name.encode(errors="replace").decode()
                raise PydanticCustomError(UNKNOWN_FIELD, "{advice}", {"field": field, "advice": cls._advice(field)})
        return {name: values[name] for name in cls.model_fields if values.get(name) is not None}

    @classmethod
    def _advice(cls, unknown: str) -> str:
        advice = nearest(unknown[:60], cls.model_fields)
        if advice.startswith("choose") and len(cls.model_fields) > MOST_NAMED:
            advice = "leave it out (/openapi.json lists all fields)"
        return f"there is no such field here; {advice}"


# Settings of the token loop that a request calls otherwise.
FIELD_NAMES = {
    "beam_width": "beams",
    "beam_groups": "groups",
    "diversity_penalty": "diversity",
    "no_repeat_ngram": "no_repeat",
}


class SearchBody(RequestBody):
    """How to search for a text, or to sample one: the settings of the token loop."""

    temperature: float = Field(0.0, ge=0, le=2, description="0 = greedy.")
    top_p: float = Field(1.0, gt=0, le=1, description="Sample from the smallest set with total probability p.")
    top_k: int | None = Field(None, ge=1, lt=2**31, description="Sample from the k most likely tokens.")
    min_p: float = Field(0.0, ge=0, lt=1, description="Sample from tokens with this share of the highest probability.")
    seed: int | None = Field(None, ge=0, lt=2**63, description="The same seed samples the same text.")
    repetition_penalty: float = Field(1.0, ge=1, le=100, description="Above 1, earlier tokens become less likely.")
    presence_penalty: float = Field(0.0, ge=-2, le=2, description="Taken off the logit of each token generated before.")
    frequency_penalty: float = Field(0.0, ge=-2, le=2, description="Taken off for each time that it was generated.")
    no_repeat: int = Field(0, ge=0, le=1000, description="No n-gram of this size occurs twice; 0 = off.")
    banned_tokens: TokenIds = Field([], description="Ids of tokens that are never generated.")
    beams: int = Field(1, ge=1, le=16, description="Beam width; 1 = no beam search.")
    groups: int = Field(1, ge=1, le=16, description="Divide the beams into this many groups that should differ.")
    diversity: float = Field(0.0, ge=0, le=100, description="How much the groups should differ.")
    length_penalty: float = Field(1.0, ge=0, le=5, description="A score is log-probability / length^penalty.")

    def search_settings(self, **others: Any) -> Settings:
        """The settings of the token loop; `others` are further ones, or instead of those of the request."""
        values = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": self.min_p,
            "seed": self.seed,
            "repetition_penalty": self.repetition_penalty,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "no_repeat_ngram": self.no_repeat,
            "banned_tokens": tuple(self.banned_tokens),
            "beam_width": self.beams,
            "beam_groups": self.groups,
            "diversity_penalty": self.diversity,
            "length_penalty": self.length_penalty,
        }
        try:
            return Settings(**{**values, **others})
        except ConfigError as problem:
            raise ConfigError(self._with_field_names(str(problem))) from None

    def _with_field_names(self, sentence: str) -> str:
        """A sentence about settings in the words of the request: `beams` for beam_width."""
        names = FIELD_NAMES if "n_best" in type(self).model_fields else {**FIELD_NAMES, "n_best": "n"}
        return re.sub("|".join(names), lambda found: names[found[0]], sentence)


class ImageBody(RequestBody):
    """A request that may carry an image."""

    model: ModelName
    image: Base64OrBytes | None = Field(None, description="An image file as base64, for a model that reads images.")


def read_json(kind: type[Body]) -> Callable[[Request], Coroutine[Any, Any, Body]]:
    """Return a dependency that reads a request body from JSON."""

    async def read(request: Request) -> Body:
        content = await request.body()
        try:
            if len(content) > SMALL_BODY:
                return await in_thread(_read_json, kind, content)
            return _read_json(kind, content)
        except RequestError as problem:
            sent = request.headers.get("content-type", "application/json")[:60]
            if "json" in sent.lower() or content.lstrip()[:1] == b"{":
                raise
            raise RequestError(400, problem.code, f"{problem} (Content-Type: {sent}); {NEED_JSON}") from None

    return read


def json_or_form(kind: type[Body]) -> Callable[[Request], Coroutine[Any, Any, Body]]:
    """Return a dependency that reads a request body from JSON or from a form with an uploaded file."""
    from_json = read_json(kind)

    async def read(request: Request) -> Body:
        if not request.headers.get("content-type", "").startswith("multipart/form-data"):
            return await from_json(request)
        return _validated(kind, await _form(request))

    return read


def _read_json(kind: type[Body], content: bytes) -> Body:
    try:
        values = json.loads(content)
    except json.JSONDecodeError as problem:
        message = f"the body is not JSON: {problem.msg[:1].lower()}{problem.msg[1:]} at character {problem.pos + 1}"
        raise RequestError(400, "invalid_json", message) from None
    except UnicodeDecodeError:
        raise RequestError(400, "invalid_json", "the body is not JSON: it is not UTF-8") from None
    except (ValueError, RecursionError):
        message = "the body is not JSON that can be read: it is nested too deeply, or has too long a number"
        raise RequestError(400, "invalid_json", message) from None
    return _validated(kind, values)


def _validated(kind: type[Body], values: Any) -> Body:
    try:
        return kind.model_validate(values)
    except ValidationError as problem:
        raise RequestValidationError(problem.errors(include_url=False, include_input=False)) from None


async def _form(request: Request) -> dict[str, Any]:
    """Return the fields of a form, files as bytes."""
    try:
        async with request.form(max_files=1, max_fields=16) as form:
            for name in form:
                if len(form.getlist(name)) > 1:
                    raise invalid_field(name[:100], "the form has this field twice; send it once")
            return {name: await each.read() if isinstance(each, UploadFile) else each for name, each in form.items()}
    except HTTPException as problem:
        reason = f"{problem.detail[:1].lower()}{problem.detail[1:]}".rstrip(".")
        raise RequestError(400, "invalid_form", f"the form cannot be read: {reason}") from None


def json_schema(kind: type[RequestBody]) -> dict[str, Any]:
    """Return the OpenAPI description of a JSON body."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": _schema(kind)}}}}


def upload_schema(kind: type[RequestBody], field: str = "image") -> dict[str, Any]:
    """Return the OpenAPI description of a body of JSON or a form; `field` may be uploaded as a file."""
    schema = _schema(kind)
    form = {**schema, "properties": {**schema["properties"], field: {"type": "string", "format": "binary"}}}
    form.pop("examples", None)
    content = {"application/json": {"schema": schema}, "multipart/form-data": {"schema": form}}
    return {"requestBody": {"required": True, "content": content}}


def _schema(kind: type[RequestBody]) -> dict[str, Any]:
    """The JSON schema of a body, with the definitions in the places that refer to them."""
    schema = kind.model_json_schema()
    definitions = schema.pop("$defs", {})

    def inlined(part: Any) -> Any:
        if isinstance(part, list):
            return [inlined(each) for each in part]
        if not isinstance(part, dict):
            return part
        referred = definitions.get(str(part.get("$ref")).removeprefix("#/$defs/"), {})
        return {key: inlined(each) for key, each in {**referred, **part}.items() if key != "$ref"}

    found: dict[str, Any] = inlined(schema)
    return found


# --- texts and prompts ---


def check_texts(texts: list[str], limits: Limits, field: str = "text") -> None:
    """Refuse an empty list, too many texts, or a text that is too long; `field` is where they stand."""
    check_count(len(texts), limits, field)
    longest = max(map(len, texts), default=0)
    if longest > limits.characters:
        reason = f"a text has {longest:,} characters; the limit is {limits.characters:,}"
        raise invalid_field(field, reason, "too_long")


def check_count(count: int, limits: Limits, field: str) -> None:
    """Refuse none and too many."""
    if not count:
        raise invalid_field(field, "there is nothing to answer: the list is empty")
    if count > limits.texts:
        reason = f"the request has {count:,} texts; the limit is {limits.texts}: split it into several requests"
        raise invalid_field(field, reason, "too_many")


def check_read(rows: Sequence[Sequence[int]], served: ServedModel) -> None:
    """Refuse texts that have more tokens together than a request may."""
    if (total := sum(map(len, rows))) > served.limits.read:
        message = f"the request has {total:,} tokens to read, and the limit is {served.limits.read:,}: send fewer texts"
        raise RequestError(413, "too_much_work", message)


def check_length(count: int, served: ServedModel, field: str) -> None:
    """Refuse more tokens than the model reads."""
    if count > served.context:
        reason = f"{served.name} reads {served.context:,} tokens at most, and there are {count:,}; shorten the text"
        raise invalid_field(field, reason, "context_length_exceeded")


async def read_prompts(
    prompt: Prompt, served: ServedModel, field: str, prefix: Sequence[int] = ()
) -> list[tuple[int, ...]]:
    """The ids of each prompt, perhaps none; texts are tokenised in a thread, and `prefix` stands before each."""
    rows = _rows(prompt)
    check_count(len(rows), served.limits, field)
    texts = [row for row in rows if isinstance(row, str)]
    if texts:
        return [(*prefix, *ids) for ids in await encode(texts, served, field)]
    known = len(served.model.tokenizer)
    ids = [tuple(row) for row in rows if not isinstance(row, str)]
    for row in ids:
        check_length(len(row), served, field)
        if (highest := max(row, default=0)) >= known:
            counted = f"the vocabulary of {served.name} has {known:,}, counted from 0"
            raise invalid_field(field, f"there is no token {highest}: {counted}; send texts, or ids of this vocabulary")
    check_read(ids, served)
    return ids


def _rows(prompt: Prompt) -> Sequence[str | list[int]]:
    """One text or row of ids for each prompt."""
    if isinstance(prompt, str):
        return [prompt]
    ids = [each for each in prompt if isinstance(each, int)]
    return [ids] if ids else [each for each in prompt if not isinstance(each, int)]


async def check_work(texts: list[str], settings: Settings, served: ServedModel) -> list[int]:
    """The tokens × beams that the translation of each text may take; refused if they are too many together.

    A long text is translated in parts: `max_tokens` limits each of them, and not the whole.
    """
    rows = await _tokenise(texts, served)
    unlimited = replace(settings, max_tokens=sys.maxsize)
    costs = [source_limit(row, unlimited) * settings.beam_width for row in rows]
    if (total := sum(costs)) > served.limits.work:
        message = (
            f"the translations may take {total:,} tokens × beams, and the limit is {served.limits.work:,}: "
            "send shorter or fewer texts, or ask for fewer beams"
        )
        raise RequestError(413, "too_much_work", message)
    return costs


async def encode(texts: list[str], served: ServedModel, field: str) -> list[tuple[int, ...]]:
    """The ids of each text; `field` is where they stand."""
    check_texts(texts, served.limits, field)
    rows = await _tokenise(texts, served)
    for row in rows:
        check_length(len(row), served, field)
    check_read(rows, served)
    return [tuple(row) for row in rows]


async def _tokenise(texts: list[str], served: ServedModel) -> list[list[int]]:
    """In a thread, unless there are so few letters that to pass them to it takes longer."""
    tokenise = served.model.tokenizer.encode_batch
    if sum(map(len, texts)) <= SMALL_TEXT:
        return tokenise(texts)
    return await asyncio.to_thread(tokenise, texts)


# --- images ---


async def decode_image(image: str | bytes | None, served: ServedModel, field: str = "image") -> Pixels:
    """Decode an image, base64 or bytes, to the size that a model reads; (height, width, channels) bytes."""
    if image is None:
        raise invalid_field(field, f"{served.name} reads an image, and the request has none")
    decode = partial(read_pixels, image, served.model.meta.sizes, served.limits.pixels)
    return await asyncio.get_running_loop().run_in_executor(DECODERS, decode)


def from_base64(text: str) -> bytes:
    """Decode base64, in lines or not, with or without the prefix of a data URL."""
    encoded = text.partition(",")[2] if text.startswith("data:") else text
    try:
        return base64.b64decode(encoded.encode("ascii").translate(None, b" \t\r\n"), validate=True)
    except (binascii.Error, ValueError):
        raise RequestError(400, "invalid_image", "image: this is not base64") from None


def read_pixels(image: str | bytes, sizes: Sizes, max_pixels: int) -> Pixels:
    """Decode an image file of at most `max_pixels`, base64 or bytes, to the size that a model reads."""
    content = from_base64(image) if isinstance(image, str) else image
    _check_header(content, max_pixels)
    try:
        return pixels(content, size=(sizes.height, sizes.width), channels=sizes.channels)
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

"""A route for each task that OpenAI's API does not have, `/look`, and `/predict` for a model of any task."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from clearhead.decode import Settings
from clearhead.serve.documents import json_bytes
from clearhead.serve.errors import ERROR_RESPONSES, RequestError, invalid_field
from clearhead.serve.inputs import (
    Base64OrBytes,
    ImageBody,
    ModelName,
    RequestBody,
    SearchBody,
    ServiceDep,
    Texts,
    TokenIds,
    check_read,
    check_texts,
    check_work,
    decode_image,
    json_or_form,
    json_schema,
    read_json,
    upload_schema,
)
from clearhead.serve.registry import ServedModel
from clearhead.serve.worker import answers

router = APIRouter(tags=["Tasks"], responses=ERROR_RESPONSES)


async def _predict(request: Request, served: ServedModel, item: Any) -> dict[str, Any]:
    """Return a model's prediction for one item, computed together with those of other requests."""
    [found] = await answers(request, served.predict([item]), served.limits.seconds)
    return dict(found)


async def _predict_texts(request: Request, served: ServedModel, texts: list[str]) -> list[dict[str, Any]]:
    """Return a model's predictions for several texts."""
    check_texts(texts, served.limits)
    check_read(await asyncio.to_thread(served.model.tokenizer.encode_batch, texts), served)
    return [dict(found) for found in await answers(request, served.predict(texts), served.limits.seconds)]


async def _read_input(served: ServedModel, text: str | None, image: str | bytes | None) -> Any:
    """Return the text or the pixels of a request, whichever the model reads."""
    if served.model.reads == "image":
        if text is not None and image is not None:
            raise invalid_field("text", f"{served.name} reads an image; leave out the text")
        return await decode_image(image, served)
    _refuse_image(served, image)
    if text is None:
        raise invalid_field("text", f"{served.name} reads a text, and the request has none")
    check_texts([text], served.limits)
    return text


def _refuse_image(served: ServedModel, image: str | bytes | None) -> None:
    if image is not None:
        raise invalid_field("image", f"{served.name} reads a text; leave out the image")


# --- any task ---


class PredictRequest(RequestBody):
    """An input of a model: a text, a word, or an image as base64 or as an uploaded file."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "en-es", "input": "we are eating bread"}]})

    model: ModelName
    input: Base64OrBytes = Field(description="A text or a word; an image file as base64, if the model reads images.")


class PredictReply(BaseModel):
    """A model's answer; its further fields depend on the task."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [{"model": "en-es", "task": "translate", "translation": "Estamos comiendo pan."}]
        },
    )

    model: str
    task: str


@router.post(
    "/predict", summary="Answer with a model of any task", openapi_extra=upload_schema(PredictRequest, "input")
)
async def predict(
    body: Annotated[PredictRequest, Depends(json_or_form(PredictRequest))], request: Request, service: ServiceDep
) -> PredictReply:
    """What the model's task gives for one input, with default settings; also for tasks from outside the package."""
    served = service.get(body.model)
    predictor = served.model
    if predictor.reads == "image":
        item: Any = await decode_image(body.input, served, "input")
    elif isinstance(body.input, bytes):
        raise invalid_field("input", f"{served.name} reads a text, and the request has a file")
    else:
        check_texts([body.input], served.limits, "input")
        item = body.input
        if predictor.verb == "translate":
            await check_work([item], Settings(beam_width=4), served)
    return PredictReply(model=served.name, task=predictor.task, **await _predict(request, served, item))


# --- translate ---


class TranslateRequest(SearchBody):
    """One text or several, and how to search for their translations."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "en-es", "text": "we are eating bread"}]})

    model: ModelName
    text: str | Texts
    beams: int = Field(4, ge=1, le=16, description="Beam width; 1 = greedy. With a temperature the default is 1.")
    n_best: int = Field(1, ge=1, le=16, description="Candidates for each text.")
    coverage_penalty: float = Field(0.0, ge=0, le=100, description="Penalty for parts of the source that are not read.")
    prefix_tokens: TokenIds = Field([], description="Ids that every translation begins with.")


class CandidateReply(BaseModel):
    """A translation and its score; higher is better."""

    text: str
    score: float


class TranslateReply(BaseModel):
    """The best translation and all candidates, best first; lists if the request had a list."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model": "en-es",
                    "translation": "Estamos comiendo pan.",
                    "candidates": [{"text": "Estamos comiendo pan.", "score": -0.31}],
                }
            ]
        }
    )

    model: str
    translation: str | list[str]
    candidates: list[CandidateReply] | list[list[CandidateReply]]


@router.post(
    "/translate",
    summary="Translate texts",
    response_model=TranslateReply,
    openapi_extra=json_schema(TranslateRequest),
)
async def translate(
    body: Annotated[TranslateRequest, Depends(read_json(TranslateRequest))], request: Request, service: ServiceDep
) -> Response:
    """The best translation of each text; texts of several requests are decoded in one batch."""
    served = service.get(body.model)
    served.require("translate")
    texts = [body.text] if isinstance(body.text, str) else body.text
    check_texts(texts, served.limits)
    settings = body.search_settings(
        beam_width=1 if body.temperature and "beams" not in body.model_fields_set else body.beams,
        n_best=body.n_best,
        coverage_penalty=body.coverage_penalty,
        prefix_tokens=tuple(body.prefix_tokens),
        return_logprobs=True,
    )
    settings.check_vocabulary(len(served.model.tokenizer))
    costs = await check_work(texts, settings, served)
    found = await answers(request, served.translate(texts, settings, costs), served.limits.seconds)
    if body.temperature:  # one job for all
        [found] = found
    candidates = [[{"text": each.text, "score": each.score} for each in one] for one in found]
    best = [one[0].text for one in found]
    single = isinstance(body.text, str)
    reply = {"translation": best[0] if single else best, "candidates": candidates[0] if single else candidates}
    return JSONResponse({"model": served.name, **reply})


# --- classify and caption ---


class ClassifyRequest(ImageBody):
    """A text or an image."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "digits", "image": "iVBORw0KGgo…"}]})

    text: str | Texts | None = Field(None, description="One text or several, for a model that reads texts.")


class ClassifyReply(BaseModel):
    """The most probable label, and the probability of each; lists if the request had a list."""

    model: str
    label: str | list[str] = Field(examples=["7"])
    probabilities: dict[str, float] | list[dict[str, float]] = Field(examples=[{"1": 0.03, "7": 0.97}])


@router.post("/classify", summary="Classify a text or an image", openapi_extra=upload_schema(ClassifyRequest))
async def classify(
    body: Annotated[ClassifyRequest, Depends(json_or_form(ClassifyRequest))], request: Request, service: ServiceDep
) -> ClassifyReply:
    """The label of a text, or of an image given as base64 or as an uploaded file."""
    served = service.get(body.model)
    served.require("classify")
    if isinstance(body.text, list) and served.model.reads == "text":
        _refuse_image(served, body.image)
        found = await _predict_texts(request, served, body.text)
        labels, probabilities = ([each[key] for each in found] for key in ("label", "probabilities"))
        return ClassifyReply(model=served.name, label=labels, probabilities=probabilities)
    text = "" if isinstance(body.text, list) else body.text  # a model of images reads neither
    item = await _read_input(served, text, body.image)
    return ClassifyReply(model=served.name, **await _predict(request, served, item))


class TagRequest(RequestBody):
    """One text or several, whose words are separated by white space."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "tagger", "text": "the dog sleeps"}]})

    model: ModelName
    text: str | Texts


class TagReply(BaseModel):
    """(word, tag) of each word; a list of such lists if the request had a list."""

    model: str
    tags: list[tuple[str, str]] | list[list[tuple[str, str]]] = Field(examples=[[("the", "DET"), ("dog", "NOUN")]])


@router.post("/tag", summary="Tag the words of texts", openapi_extra=json_schema(TagRequest))
async def tag(
    body: Annotated[TagRequest, Depends(read_json(TagRequest))], request: Request, service: ServiceDep
) -> TagReply:
    """A tag for each word."""
    served = service.get(body.model)
    served.require("tag")
    texts = [body.text] if isinstance(body.text, str) else body.text
    tags = [each["tags"] for each in await _predict_texts(request, served, texts)]
    return TagReply(model=served.name, tags=tags[0] if isinstance(body.text, str) else tags)


class CaptionRequest(ImageBody):
    """An image."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "captions", "image": "iVBORw0KGgo…"}]})


class CaptionReply(BaseModel):
    """A sentence that describes an image."""

    model: str
    caption: str = Field(examples=["a dog on a beach"])


@router.post("/caption", summary="Describe an image", openapi_extra=upload_schema(CaptionRequest))
async def caption(
    body: Annotated[CaptionRequest, Depends(json_or_form(CaptionRequest))], request: Request, service: ServiceDep
) -> CaptionReply:
    """A sentence that describes an image, given as base64 or as an uploaded file."""
    served = service.get(body.model)
    served.require("caption")
    item = await _read_input(served, None, body.image)
    return CaptionReply(model=served.name, **await _predict(request, served, item))


# --- words ---


Words = Annotated[list[Annotated[str, Field(max_length=100)]], Field(fail_fast=True)]


class WordsRequest(RequestBody):
    """A question to word vectors."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"model": "words", "question": "neighbours", "words": ["king"]},
                {"model": "words", "question": "analogy", "words": ["king", "man", "woman"]},
            ]
        }
    )

    model: ModelName
    question: Literal["neighbours", "analogy"]
    words: Words = Field(description="One word; three for A - B + C.")
    count: int = Field(10, ge=1, le=1000, description="Number of words to return.")
    measure: Literal["cosine", "dot"] = Field("cosine", description="Similarity; with dot, longer vectors count more.")


class Neighbour(BaseModel):
    """A word and its similarity."""

    word: str
    near: float


class WordsReply(BaseModel):
    """The nearest words, nearest first."""

    model: str
    found: list[Neighbour]


WORD_COUNTS = {"neighbours": 1, "analogy": 3}  # words that each question takes


@router.post("/words", summary="Neighbours and analogies", openapi_extra=json_schema(WordsRequest))
async def words(
    body: Annotated[WordsRequest, Depends(read_json(WordsRequest))], request: Request, service: ServiceDep
) -> WordsReply:
    """The words nearest to a word, or to A - B + C."""
    served = service.get(body.model)
    served.require("words", "answer questions about words")
    if len(body.words) != WORD_COUNTS[body.question]:
        needed = WORD_COUNTS[body.question]
        raise invalid_field("words", f"{body.question} takes {needed} and not {len(body.words)} words")
    ask = getattr(served.model, body.question)
    jobs = served.call(lambda: ask(*body.words, count=body.count, measure=body.measure))
    [found] = await answers(request, jobs, served.limits.seconds)
    return WordsReply(model=served.name, found=[Neighbour(word=word, near=near) for word, near in found])


# --- look ---


class LookRequest(ImageBody):
    """A text or an image, for which the computation of a model is recorded."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "en-es", "text": "we are eating bread"}]})

    text: str | None = Field(None, description="For a model that reads texts.")
    target: str | None = Field(None, description="An output to use instead of the one that the model generates.")
    generate: bool = Field(False, description="Record the model while it generates.")
    max_tokens: int | None = Field(None, ge=1, le=200, description="Maximum number of generated tokens.")
    full: bool = Field(False, description="Include scores, queries, keys, values and hidden states.")


class LookReply(BaseModel):
    """Everything that was recorded; `Look.to_json` of `clearhead.look` describes each field."""

    model_config = ConfigDict(extra="allow")

    format: str
    model: str
    task: str
    text: str
    tokens: dict[str, list[str]]
    attention: dict[str, Any]
    output: str


@router.post("/look", summary="Look inside a model", response_model=LookReply, openapi_extra=upload_schema(LookRequest))
async def look(
    body: Annotated[LookRequest, Depends(json_or_form(LookRequest))], request: Request, service: ServiceDep
) -> Response:
    """The tokens, the attention weights of every layer and head, and the most probable outputs."""
    served = service.get(body.model)
    if body.target is not None and (body.generate or body.max_tokens is not None):
        raise invalid_field("target", "it stands for what the model generates; leave out generate and max_tokens")
    if body.max_tokens is not None and served.model.verb == "generate" and not body.generate:
        raise invalid_field("max_tokens", f"{served.name} only reads the text; add generate: true")
    item = await _read_input(served, body.text, body.image)
    if isinstance(item, str):
        await _check_look_length(item, body.target, served)
    settings = {} if body.max_tokens is None else {"max_tokens": body.max_tokens}

    def compute() -> bytes:
        seen = served.model.look(item, body.target, generate=body.generate, **settings)
        return json_bytes({**seen.to_json(body.full), "model": served.name})

    [content] = await answers(request, served.call(compute), served.limits.seconds)
    return Response(content, media_type="application/json")


async def _check_look_length(text: str, target: str | None, served: ServedModel) -> None:
    """Refuse texts whose attention weights would make a response of many megabytes."""
    texts, most = [text, *([] if target is None else [target])], served.limits.seen
    check_texts(texts, served.limits)
    for each in texts:
        count = await asyncio.to_thread(served.model.token_count, each)
        if count > most:
            raise RequestError(400, "too_long", f"the text has {count} tokens; the limit for looking is {most}")

"""A route for each task that OpenAI's API does not know: /translate, /classify, /caption, /words and /look."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from clearhead.decode import Settings
from clearhead.errors import ConfigError
from clearhead.serve.asking import Asked, ModelName, Serving, check_texts
from clearhead.serve.failures import FAILURES, Refused
from clearhead.serve.images import ImageAsked, body_of, pixels_of, with_upload
from clearhead.serve.prompts import encode
from clearhead.serve.registry import ServedModel
from clearhead.serve.worker import answers

router = APIRouter(tags=["Tasks"], responses=FAILURES)


# --- translate ---


class TranslateRequest(Asked):
    """One text or several, and how to search."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "en-es", "text": "we are eating bread"}]})

    model: ModelName
    text: str | list[str]
    beams: int = Field(4, ge=1, le=16, description="Beginnings kept by the search; 1 = greedy.")
    n_best: int = Field(1, ge=1, le=16, description="Candidates of each text.")
    length_penalty: float = Field(1.0, ge=0, le=5, description="A score is log-probability over length^penalty.")


class CandidateReply(BaseModel):
    """A translation, and its score: the higher, the likelier the model finds it."""

    text: str
    score: float


class TranslateReply(BaseModel):
    """The best translation, and all that were asked for, best first; lists where the text was one."""

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


@router.post("/translate", summary="Translate texts")
async def translate(asked: TranslateRequest, request: Request, service: Serving) -> TranslateReply:
    """The likeliest translation of each text; those of several requests are searched for together."""
    served = service.get(asked.model)
    served.require("translate")
    texts = [asked.text] if isinstance(asked.text, str) else asked.text
    check_texts(texts, served.limits)
    settings = Settings(
        beam_width=asked.beams, n_best=asked.n_best, length_penalty=asked.length_penalty, return_logprobs=True
    )
    found = await answers(request, served.translate(texts, settings), served.limits.seconds)
    candidates = [[CandidateReply(text=each.text, score=each.score) for each in one] for one in found]
    best = [one[0].text for one in candidates]
    if isinstance(asked.text, str):
        return TranslateReply(model=served.name, translation=best[0], candidates=candidates[0])
    return TranslateReply(model=served.name, translation=best, candidates=candidates)


# --- classify and caption ---


class ClassifyRequest(ImageAsked):
    """A text or an image."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "digits", "image": "iVBORw0KGgo…"}]})

    text: str | None = Field(None, description="For a model that reads texts.")


class ClassifyReply(BaseModel):
    """The likeliest label, and how likely each one is."""

    model: str
    label: str = Field(examples=["7"])
    probabilities: dict[str, float] = Field(examples=[{"1": 0.03, "7": 0.97}])


@router.post("/classify", summary="The label of a text or an image", openapi_extra=with_upload(ClassifyRequest))
async def classify(
    asked: Annotated[ClassifyRequest, Depends(body_of(ClassifyRequest))], request: Request, service: Serving
) -> ClassifyReply:
    """The label of a text, or of an image as base64 or as an uploaded file."""
    served = service.get(asked.model)
    served.require("classify")
    thing = await pixels_of(asked, served) if served.task == "vision" else _text_of(asked.text, served)
    [found] = await answers(request, served.classify([thing]), served.limits.seconds)
    return ClassifyReply(model=served.name, label=found.label, probabilities=found.probabilities)


class CaptionRequest(ImageAsked):
    """An image."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "captions", "image": "iVBORw0KGgo…"}]})


class CaptionReply(BaseModel):
    """A sentence about an image."""

    model: str
    caption: str = Field(examples=["a dog on a beach"])


@router.post("/caption", summary="A sentence about an image", openapi_extra=with_upload(CaptionRequest))
async def caption(
    asked: Annotated[CaptionRequest, Depends(body_of(CaptionRequest))], request: Request, service: Serving
) -> CaptionReply:
    """What is to be seen on an image, given as base64 or as an uploaded file."""
    served = service.get(asked.model)
    served.require("caption")
    image = await pixels_of(asked, served)
    [found] = await answers(request, served.caption([image]), served.limits.seconds)
    return CaptionReply(model=served.name, caption=found)


def _text_of(text: str | None, served: ServedModel) -> str:
    if text is None:
        raise Refused(400, "invalid_value", f"text: {served.name} reads a text, and there is none")
    check_texts([text], served.limits)
    return text


# --- words ---


class WordsRequest(Asked):
    """A question about word vectors."""

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
    words: list[Annotated[str, Field(max_length=100)]] = Field(description="One word; for A - B + C three.")
    count: int = Field(10, ge=1, le=1000, description="Words to list.")
    measure: Literal["cosine", "dot"] = Field("cosine", description="dot = long vectors count more.")


class Near(BaseModel):
    """A word, and how near it is."""

    word: str
    near: float


class WordsReply(BaseModel):
    """The words that were found, the nearest first."""

    model: str
    found: list[Near]


QUESTIONS = {"neighbours": 1, "analogy": 3}  # words that each takes


@router.post("/words", summary="Neighbours and analogies")
async def words(asked: WordsRequest, request: Request, service: Serving) -> WordsReply:
    """The words nearest to a word, or to A - B + C."""
    served = service.get(asked.model)
    served.require("words")
    if len(asked.words) != QUESTIONS[asked.question]:
        wanted = QUESTIONS[asked.question]
        raise ConfigError(f"words: {asked.question} takes {wanted} and not {len(asked.words)} words")
    ask = getattr(served.model, asked.question)
    items = served.call(lambda: ask(*asked.words, count=asked.count, measure=asked.measure))
    [found] = await answers(request, items, served.limits.seconds)
    return WordsReply(model=served.name, found=[Near(word=word, near=near) for word, near in found])


# --- look ---


class LookRequest(ImageAsked):
    """A text or an image that a model is to be seen with."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "en-es", "text": "we are eating bread"}]})

    text: str | None = Field(None, description="For a model that reads texts.")
    target: str | None = Field(None, description="What it is to have written, instead of what it writes itself.")
    generate: bool = Field(False, description="See it while it writes.")
    max_tokens: int | None = Field(None, ge=1, le=200, description="Tokens that it writes at most.")
    full: bool = Field(False, description="Scores, queries, keys, values and hidden states too.")


class Looked(BaseModel):
    """Everything that was computed; `clearhead.look.Look.to_json` says what each part is."""

    model_config = ConfigDict(extra="allow")

    format: str
    model: str
    task: str
    text: str
    tokens: dict[str, list[str]]
    attention: dict[str, Any]
    output: str


@router.post("/look", summary="Look inside a model", response_model=Looked, openapi_extra=with_upload(LookRequest))
async def look(
    asked: Annotated[LookRequest, Depends(body_of(LookRequest))], request: Request, service: Serving
) -> Response:
    """The words, the attention weights of every layer and head, and what the model found likely."""
    served = service.get(asked.model)
    thing = await _looked_at(asked, served)
    settings = {} if asked.max_tokens is None else {"max_tokens": asked.max_tokens}

    def compute() -> bytes:
        seen = served.model.look(thing, asked.target, generate=asked.generate, **settings)
        return json.dumps({**seen.to_json(asked.full), "model": served.name}, ensure_ascii=False).encode()

    [document] = await answers(request, served.call(compute), served.limits.seconds)
    return Response(document, media_type="application/json")


async def _looked_at(asked: LookRequest, served: ServedModel) -> Any:
    """What the model reads; neither a text nor a target that would make a document of many megabytes."""
    if served.task in ("vision", "caption"):
        return await pixels_of(asked, served)
    text = _text_of(asked.text, served)
    for row in await encode([text, asked.target or ""], served):
        if len(row) > served.limits.seen:
            most = served.limits.seen
            raise Refused(400, "too_long", f"{len(row)} tokens are too many to look into; {most} at most")
    return text

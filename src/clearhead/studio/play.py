"""Answers token by token, each with its probability and the most probable alternatives.

A model that generates answers with a line of JSON for each token and one for the end; any other model with one line.

    V vocabulary
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Annotated, Any

import torch
from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from pydantic import Field

from clearhead.decode import Row, Settings, Token, TokenLoop
from clearhead.look.inputs import PreparedInput, display_token
from clearhead.serve.errors import ERROR_RESPONSES, to_request_error
from clearhead.serve.inputs import SearchBody, ServiceDep, TokenIds
from clearhead.serve.registry import ServedModel
from clearhead.serve.worker import Job, ThreadQueue
from clearhead.studio.inputs import InputBody, limit_tokens, read_input
from clearhead.tasks.base.predictor import GeneratingPredictor, Predictor

router = APIRouter(responses=ERROR_RESPONSES)

ALTERNATIVES = 8  # sent with each token
LABELS = 10  # sent of a classification

Line = dict[str, Any]


class PlayBody(InputBody, SearchBody):
    """What to answer, and how to decode; `forced` are the ids of a prefix of the answer."""

    forced: Annotated[TokenIds, Field(max_length=256)] = []
    longest: Annotated[int, Field(ge=1, le=256)] = 120
    seed: Annotated[int | None, Field(ge=0, lt=2**63)] = 0
    coverage_penalty: Annotated[float, Field(ge=0, le=100)] = 0.0


@router.post("/play")
async def play(body: PlayBody, service: ServiceDep) -> StreamingResponse:
    """The answer of a model as lines of JSON, one for each token."""
    served = service.get(body.model)
    item = await read_input(body, served)
    settings = body.search_settings(
        max_tokens=limit_tokens(served, item, max(body.longest, len(body.forced))),
        prefix_tokens=tuple(body.forced),
        coverage_penalty=body.coverage_penalty,
    )
    return StreamingResponse(stream(served, lambda: answer(served, item, settings)), media_type="application/x-ndjson")


def answer(served: ServedModel, item: Any, settings: Settings) -> Iterator[Line]:
    """Yield the lines of a model's answer."""
    if served.model.generates:
        yield from generate(served.model, served.model.prepare(item), settings)
        return
    found = served.model.predict(item)
    line: Line = {"prediction": found}
    if "probabilities" in found:
        line["labels"] = sorted(found["probabilities"].items(), key=lambda each: -each[1])[:LABELS]
    if "tags" in found:
        line["tags"] = found["tags"]
    yield line


# --- models that generate ---


@torch.inference_mode()
def generate(
    model: GeneratingPredictor, prepared: PreparedInput, settings: Settings, stops: Sequence[str] = ()
) -> Iterator[Line]:
    """Yield a line for each token, the stop token included, and one with the whole text, up to one of `stops`.

    A beam search decides at its end: it has no lines for tokens.
    """
    tokenizer = model.tokenizer
    settings.check_vocabulary(len(tokenizer))
    tokens: deque[Token] = deque()
    limit = settings.max_tokens
    if model.verb != "generate":  # an answer is as long as elsewhere: the page asks for no length
        limit = max(len(settings.prefix_tokens), min(limit, prepared.max_tokens))
    row = Row(prepared.prompt, settings, prepared.stop, limit, keep_logits=True, on_token=tokens.append)
    stepper = model.engines.stepper(settings=settings)
    loop = TokenLoop(stepper)
    loop.add([row], model.start_state(stepper, prepared, settings.max_tokens))
    while loop.active:
        loop.step()
        while tokens:
            token = tokens.popleft()
            text = tokenizer.decode(_generated(row, prepared))
            yield {"token": _token(model, token), "text": text}
            if found := next((stop for stop in stops if stop in text), None):
                yield {"end": "stop", "text": text.partition(found)[0]}
                return
    yield {"end": row.end or "stop", "text": tokenizer.decode(_generated(row, prepared))}


def _generated(row: Row, prepared: PreparedInput) -> list[int]:
    return row.hypotheses[0].ids if row.hypotheses else row.ids[len(prepared.prompt) :]


def _token(model: Predictor, token: Token) -> Line:
    assert token.logits is not None
    probabilities = token.logits.float().softmax(-1)  # (V,)
    best = probabilities.topk(min(ALTERNATIVES, len(probabilities)))
    pieces = model.tokenizer.pieces([token.id, *best.indices.tolist()])
    others = zip(best.indices.tolist(), pieces[1:], best.values.tolist(), strict=True)
    return {
        "id": token.id,
        "word": display_token(pieces[0]),
        "piece": pieces[0].replace("▁", " "),
        "probability": float(probabilities[token.id]),
        "alternatives": [{"id": each, "word": display_token(piece), "probability": p} for each, piece, p in others],
    }


# --- from the model's thread to the page ---


async def stream(served: ServedModel, compute: Callable[[], Iterator[Line]]) -> AsyncIterator[str]:
    """Yield lines of JSON as they are computed; an error becomes the last line."""
    queue = ThreadQueue[Line | None](served.limits.seconds)

    def run(jobs: list[Job]) -> Iterator[None]:
        for line in compute():
            queue.put(line)
            yield
            if not jobs[0].pending:
                return
        jobs[0].resolve(None)

    job = Job(object(), None, run)
    job.answer.add_done_callback(lambda _: queue.put(None))
    try:
        served.worker.submit([job])
        ended = False
        while not ended:
            lines = await queue.take()
            ended = lines[-1] is None
            yield "".join(_encode(line) for line in lines if line is not None)
        job.answer.result()
    except Exception as problem:
        yield _encode({"error": str(to_request_error(problem))})
    finally:
        job.answer.cancel()


def _encode(line: Line) -> str:
    return json.dumps(line, ensure_ascii=False) + "\n"

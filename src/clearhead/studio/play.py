"""Answers token by token, each with its probability and the most probable alternatives.

A model that generates answers with a line of JSON for each token and one for the end; any other model with one line.

    V vocabulary
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import torch
from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from pydantic import Field
from torch import Tensor

from clearhead.decode import Prompts, Settings, stream_tokens
from clearhead.errors import ConfigError
from clearhead.look.inputs import PreparedInput, display_token
from clearhead.serve.errors import ERROR_RESPONSES, to_request_error
from clearhead.serve.registry import ServedModel
from clearhead.serve.schemas import ServiceDep
from clearhead.serve.worker import Job, ThreadQueue
from clearhead.studio.inputs import InputBody, continues_text, limit_tokens, read_input
from clearhead.tasks.base.predictor import Predictor

router = APIRouter(responses=ERROR_RESPONSES)

ALTERNATIVES = 8  # sent with each token
LABELS = 10  # sent of a classification

Line = dict[str, Any]


class PlayBody(InputBody):
    """What to answer, and how to decode; `forced` are the ids of a prefix of the answer."""

    forced: list[Annotated[int, Field(ge=0)]] = Field([], max_length=256)
    longest: Annotated[int, Field(ge=1, le=256)] = 120
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


@router.post("/play")
async def play(body: PlayBody, service: ServiceDep) -> StreamingResponse:
    """The answer of a model as lines of JSON, one for each token."""
    served = service.get(body.model)
    item = await read_input(body, served)
    settings = Settings.create(
        max_tokens=limit_tokens(served, item, max(body.longest, len(body.forced))),
        prefix_tokens=tuple(body.forced),
        temperature=body.temperature,
        seed=body.seed,
    )
    return StreamingResponse(_stream(served, lambda: answer(served, item, settings)), media_type="application/x-ndjson")


def answer(served: ServedModel, item: Any, settings: Settings) -> Iterator[Line]:
    """Yield the lines of a model's answer."""
    predictor = served.model
    if predictor.generates:
        yield from generate(served.model, predictor.prepare(item), settings)
    elif continues_text(served):
        raise ConfigError(f"{served.name} fills in masked tokens: it cannot continue a text; look at its heads")
    else:
        yield _prediction(predictor, item)


def _prediction(predictor: Predictor, item: Any) -> Line:
    """Return a prediction as one line: `labels` or `tags` where it has them, and all of it as `prediction`."""
    found = predictor.predict(item)
    line: Line = {"prediction": found}
    if "probabilities" in found:
        line["labels"] = sorted(found["probabilities"].items(), key=lambda each: -each[1])[:LABELS]
    if "tags" in found:
        line["tags"] = found["tags"]
    return line


# --- models that generate ---


class LogitsRecorder:
    """A stepper that keeps the logits of its last step."""

    def __init__(self, network: Any):
        self.network = network
        self.last = torch.empty(0)  # (V,)

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        logits, state = self.network.step(ids, state)
        self.last = logits[0, -1].float()
        return logits, state

    def reorder(self, state: Any, rows: Tensor) -> Any:
        return self.network.reorder(state, rows)


@torch.inference_mode()
def generate(model: Predictor, prepared: PreparedInput, settings: Settings) -> Iterator[Line]:
    """Yield a line for each token, the stop token included, and one with the whole text."""
    network, tokenizer = LogitsRecorder(model.network), model.tokenizer
    settings.check_vocabulary(len(tokenizer))
    ids: list[int] = []
    prompts = Prompts([prepared.prompt], prepared.stop)
    for [token] in stream_tokens(network, network.network.start(*prepared.sources), prompts, settings):
        ids.append(token.id)
        yield {"token": _token(model, token.id, network.last), "text": tokenizer.decode(ids)}
    stopped = len(ids) < settings.max_tokens and prepared.stop is not None
    if stopped:
        yield {"token": _token(model, prepared.stop or 0, network.last), "text": tokenizer.decode(ids)}
    yield {"end": "stop" if stopped else "length", "text": tokenizer.decode(ids)}


def _token(model: Predictor, token: int, logits: Tensor) -> Line:
    """Return a token with its probability and the most probable alternatives; logits (V,)."""
    probabilities = logits.softmax(-1)
    best = probabilities.topk(min(ALTERNATIVES, len(probabilities)))
    pieces = model.tokenizer.pieces([token, *best.indices.tolist()])
    others = zip(best.indices.tolist(), pieces[1:], best.values.tolist(), strict=True)
    return {
        "id": token,
        "word": display_token(pieces[0]),
        "piece": pieces[0].replace("▁", " "),
        "probability": float(probabilities[token]),
        "alternatives": [{"id": each, "word": display_token(piece), "probability": p} for each, piece, p in others],
    }


# --- from the model's thread to the page ---


async def _stream(served: ServedModel, lines: Callable[[], Iterator[Line]]) -> AsyncIterator[str]:
    """Yield lines of JSON as they are computed; an error becomes the last line."""
    queue = ThreadQueue[Line | None](served.limits.seconds)

    def run(jobs: list[Job]) -> Iterator[None]:
        for line in lines():
            queue.put(line)
            yield
            if not jobs[0].pending:
                return
        jobs[0].resolve(None)

    job = Job(object(), None, run)
    job.answer.add_done_callback(lambda _: queue.put(None))
    try:
        served.worker.submit([job])
        while (line := await queue.get()) is not None:
            yield _encode(line)
        job.answer.result()
    except Exception as problem:
        yield _encode({"error": str(to_request_error(problem))})
    finally:
        job.answer.cancel()


def _encode(line: Line) -> str:
    return json.dumps(line, ensure_ascii=False) + "\n"

"""Answers as they are written, token by token, with what else could have stood in the place of each.

The answer of a model that writes is a line of JSON for each token and one for the end; of any other, one line.

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

from clearhead.api import Model
from clearhead.decode import Prompts, Settings, stream_tokens
from clearhead.errors import ConfigError
from clearhead.look.see import readable
from clearhead.look.writing import Beginning
from clearhead.serve.asking import Serving
from clearhead.serve.failures import FAILURES, refusal
from clearhead.serve.registry import ServedModel
from clearhead.serve.studio.asking import Reading, read, room
from clearhead.serve.worker import Job, ThreadQueue
from clearhead.train.pixels import normalised

router = APIRouter(responses=FAILURES)

ALTERNATIVES = 8  # told of each token
LABELS = 10  # told of an answer that is one label

Line = dict[str, Any]


class Playing(Reading):
    """What to answer, and how."""

    forced: list[Annotated[int, Field(ge=0)]] = Field([], max_length=256)
    longest: Annotated[int, Field(ge=1, le=256)] = 120
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0

    def settings(self, longest: int) -> Settings:
        """How it is written: from the forced tokens on."""
        return Settings.create(
            max_tokens=longest,
            prefix_tokens=tuple(self.forced),
            temperature=self.temperature,
            seed=self.seed,
        )


@router.post("/play")
async def play(asked: Playing, service: Serving) -> StreamingResponse:
    """The answer of a model, a line of JSON for each token."""
    served = service.get(asked.model)
    item = await read(asked, served)
    settings = asked.settings(room(served, item, max(asked.longest, len(asked.forced))))
    lines = _streamed(served, lambda: answered(served.model, item, settings))
    return StreamingResponse(lines, media_type="application/x-ndjson")


def writes(model: Model) -> bool:
    """Whether it writes one token after the other."""
    return model.config.task in BEGINNINGS and getattr(model.config.model, "objective", "next") == "next"


def answered(model: Model, item: Any, settings: Settings) -> Iterator[Line]:
    """One line after the other."""
    if writes(model):
        yield from written(model, BEGINNINGS[model.config.task](model, item), settings)
    elif model.config.task == "tag":
        yield {"tags": model.tag(item)}
    elif model.config.task == "lm":
        raise ConfigError(f"{model.name} fills in masked tokens: it does not go on from a text; look at its heads")
    else:
        found = model.classify(item).probabilities
        yield {"labels": sorted(found.items(), key=lambda each: -each[1])[:LABELS]}


# --- models that write ---


def _sentence(model: Model, text: str) -> Beginning:
    vocabulary = model.tokenizer
    source = torch.tensor([[*vocabulary.encode(text), vocabulary.stop]])
    return Beginning([vocabulary.start], (source,), vocabulary.stop)


def _text(model: Model, text: str) -> Beginning:
    return Beginning(model.tokenizer.encode(text) or [model.tokenizer.start], stop=model.tokenizer.stop)


def _picture(model: Model, pixels: Any) -> Beginning:
    return Beginning([model.tokenizer.start], (normalised(pixels[None]),), model.tokenizer.stop)


BEGINNINGS: dict[str, Callable[[Model, Any], Beginning]] = {
    "translate": _sentence,
    "lm": _text,
    "caption": _picture,
}


class Overheard:
    """A network that writes, and what it held to be likely at its last step."""

    def __init__(self, network: Any):
        self.network = network
        self.last = torch.empty(0)  # (V,) logits

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """As the network does it."""
        logits, state = self.network.step(ids, state)
        self.last = logits[0, -1].float()
        return logits, state

    def reorder(self, state: Any, rows: Tensor) -> Any:
        """As the network does it."""
        return self.network.reorder(state, rows)


@torch.inference_mode()
def written(model: Model, beginning: Beginning, settings: Settings) -> Iterator[Line]:
    """A line for each token, the stop too, and one with the whole text."""
    network, vocabulary = Overheard(model.network), model.tokenizer
    settings.check_vocabulary(len(vocabulary))
    ids: list[int] = []
    prompts = Prompts([beginning.prompt], beginning.stop)
    for [token] in stream_tokens(network, model.network.start(*beginning.sources), prompts, settings):
        ids.append(token.id)
        yield {"token": _told(model, token.id, network.last), "text": vocabulary.decode(ids)}
    stopped = len(ids) < settings.max_tokens and beginning.stop is not None
    if stopped:
        yield {"token": _told(model, beginning.stop or 0, network.last), "text": vocabulary.decode(ids)}
    yield {"end": "stop" if stopped else "length", "text": vocabulary.decode(ids)}


def _told(model: Model, token: int, logits: Tensor) -> Line:
    """A token with its probability, and the likeliest in its place; logits (V,)."""
    shares = logits.softmax(-1)
    best = shares.topk(min(ALTERNATIVES, len(shares)))
    pieces = model.tokenizer.pieces([token, *best.indices.tolist()])
    others = zip(best.indices.tolist(), pieces[1:], best.values.tolist(), strict=True)
    return {
        "id": token,
        "word": readable(pieces[0]),
        "piece": pieces[0].replace("▁", " "),
        "probability": float(shares[token]),
        "alternatives": [{"id": each, "word": readable(piece), "probability": p} for each, piece, p in others],
    }


# --- from the model's thread to the page ---


async def _streamed(served: ServedModel, lines: Callable[[], Iterator[Line]]) -> AsyncIterator[str]:
    """Lines of JSON as they come; a failure on the way is the last one."""
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
            yield _line(line)
        job.answer.result()
    except Exception as problem:
        yield _line({"error": str(refusal(problem))})
    finally:
        job.answer.cancel()


def _line(line: Line) -> str:
    return json.dumps(line, ensure_ascii=False) + "\n"

"""The `look` of a request: attention weights and other inner tensors, returned beside the answer.

    {"model": …, "prompt": …, "look": {"probes": ["decoder.4.self.weights"], "heads": [1]}}

The answer is computed as always. Attention weights of a language model are handed out by its engine while it generates.
For anything else, the tokens of the answer are read once more by the network itself, in the model's thread and between
the steps of other requests: so the text does not change, and neither do those of others.

    T tokens
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import torch
from pydantic import BaseModel, Field
from torch import Tensor

from clearhead.decode import Steps
from clearhead.errors import ProbeError
from clearhead.look.probes import capture
from clearhead.look.record import rounded
from clearhead.look.seeing import SeenRow, Wanted, heads_to_see, read_seeing
from clearhead.serve.errors import RequestError
from clearhead.serve.inputs import RequestBody
from clearhead.serve.registry import ServedModel
from clearhead.serve.worker import timeout_error
from clearhead.tasks.lm import start_reading

SQUARE = ("weights", "scores", "visible")  # tensors with a number for each two tokens; others have some for each one

ProbeName = Annotated[str, Field(min_length=1, max_length=100)]
HeadNumber = Annotated[int, Field(ge=0, lt=2**31)]
ReadIds = Callable[[ServedModel, Tensor], object]  # lets a network read ids (1, T)


class LookOptions(RequestBody):
    """Inner tensors to return beside the answer."""

    probes: Annotated[list[ProbeName], Field(min_length=1, max_length=100, fail_fast=True)] = Field(
        description="Names of tensors, such as decoder.4.self.weights; * matches any letters.",
    )
    heads: Annotated[list[HeadNumber], Field(min_length=1, max_length=1000, fail_fast=True)] | None = Field(
        None, description="Numbers of the heads, from 0; all without them."
    )


class AnswerLookReply(BaseModel):
    """What the model computed for the tokens of a text; each tensor as nested lists."""

    tokens: list[str]
    probes: dict[str, list[Any]]


@dataclass(frozen=True)
class AnswerLook:
    """Looks at the texts of one request."""

    served: ServedModel
    options: LookOptions
    read: ReadIds

    @cached_property
    def wanted(self) -> Wanted | None:
        """The heads that the engine of a language model hands out; None if the network itself must read the text."""
        if self.read is not continue_text:
            return None
        model = self.served.model
        found = heads_to_see(model.outline, model.engines.stepper(), self.options.probes, self.options.heads)
        # The scores of the network are also those of what a token does not see.
        return None if found is None or any(name.endswith(".scores") for name in found) else found

    async def check(self, lengths: Sequence[int]) -> None:
        """Refuse names that the model does not have, and texts of so many tokens if they give too many numbers."""
        if self.wanted is None:
            one = await self._compute([self.served.model.tokenizer.start])
            sizes = {name: (tensor.numel(), 2 if name.split(".")[-1] in SQUARE else 1) for name, tensor in one.items()}
        else:
            sizes = {name: (len(heads), 2) for name, heads in self.wanted.items()}
        total = sum(count * length**power for length in lengths for count, power in sizes.values())
        if total > (most := self.served.limits.numbers):
            message = f"look: {total:,} numbers may be returned, and the limit is {most:,}: "
            raise RequestError(400, "too_long", message + "name fewer probes or heads, or send shorter texts")

    async def of(self, ids: Sequence[int], row: SeenRow | None = None) -> dict[str, object]:
        """The requested tensors of a text, which a row of the token loop may have seen."""
        seen = await self._compute(ids) if row is None else row.tensors()
        probes = await asyncio.to_thread(lambda: {name: rounded(tensor) for name, tensor in seen.items()})
        return {"tokens": self.served.model.token_strings(ids), "probes": probes}

    async def _compute(self, ids: Sequence[int]) -> dict[str, Tensor]:
        """By name, in the model's thread."""
        seconds = self.served.limits.seconds
        if self.wanted is None:
            [job] = self.served.call(lambda: self._capture(ids))
        else:
            [job] = self.served.call_steps(self._see(ids, SeenRow(self.wanted)))
        try:
            async with asyncio.timeout(seconds):
                found: dict[str, Tensor] = await asyncio.wrap_future(job.answer)
        except TimeoutError:
            raise timeout_error(seconds) from None
        return found

    def _see(self, ids: Sequence[int], row: SeenRow) -> Steps[dict[str, Tensor]]:
        """A text that was not generated row by row, such as that of a beam search, is read again by the engine."""
        stepper = self.served.model.engines.stepper()
        yield from read_seeing(stepper, start_reading(stepper, self.served.window), ids, row)
        return row.tensors()

    @torch.inference_mode()
    def _capture(self, ids: Sequence[int]) -> dict[str, Tensor]:
        network, read_all = self.served.model.network, False
        with capture(network, *self.options.probes, heads=self.options.heads, stop=True) as seen:
            self.read(self.served, torch.tensor([ids]))
            read_all = True  # not reached if everything was seen
        if read_all:
            raise ProbeError(f"look: {self.served.name} computes only {', '.join(seen) or 'none'} of these for this")
        return {name: tensor[0].cpu() for name, tensor in seen.items()}


def continue_text(served: ServedModel, ids: Tensor) -> None:
    """Read a prompt and its continuation as the token loop does."""
    network: Any = served.model.network
    network.step(ids, start_reading(network, served.window))


def embed_text(served: ServedModel, ids: Tensor) -> None:
    """Read a text as for its vector."""
    served.model.token_vectors(ids)

"""What tasks share that generate a text about a source, each token from the source and the tokens before it.

B examples, T tokens
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

from torch import Tensor

from clearhead.data.batches import Batches
from clearhead.tasks.base.losses import token_loss
from clearhead.tasks.base.scheduled_sampling import sampled_inputs
from clearhead.tasks.base.task import Batch, Examples, ModelT, Task
from clearhead.text import Tokenizer

PartT = TypeVar("PartT")  # the examples of one part of the data, tokenized


class SourceToTextTask(Task[ModelT], Generic[ModelT, PartT]):
    """A source, a sentence or an image, and the text that should be generated for it."""

    tokenizer: Tokenizer
    train: PartT
    held_out: PartT

    @abstractmethod
    def lengths(self, part: PartT) -> Sequence[Any]:
        """What each example costs of the token budget of a batch."""

    @abstractmethod
    def tensors(self, part: PartT, indices: list[int]) -> Batch:
        """The `source` of some examples, and the `target` (B, 1 + T + 1) between start and stop."""

    def cursor(self) -> Batches:
        return Batches(self.lengths(self.train), budget=self.config.data.batch_tokens, seed=self.config.train.seed)

    def batch(self, examples: Examples) -> Batch:
        return self.tensors(self.train, examples.tolist())

    def loss(self, model: Any, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """Teacher forcing: every target token from those before it, all at once."""
        target = batch["target"]
        logits = model(batch["source"], batch.get("read", target[:, :-1]))
        return token_loss(logits, target[:, 1:], pad=self.tokenizer.pad, smoothing=smoothing)

    def scheduled_sampling(self, model: Any, batch: Batch, share: float) -> Batch:
        return {**batch, "read": sampled_inputs(model, batch["source"], batch["target"], share, self.tokenizer.pad)}

    def validation(self) -> Iterator[Batch]:
        for indices in self.share.mine(sorted_batches(self.lengths(self.held_out), self.config.data.batch_tokens)):
            yield self.tensors(self.held_out, indices)


def sorted_batches(lengths: Sequence[Any], budget: int) -> Iterator[list[int]]:
    """The indices of examples in batches of similar length, always the same."""
    for indices in Batches(lengths, budget=budget, seed=0).plan(0):
        yield indices.tolist()

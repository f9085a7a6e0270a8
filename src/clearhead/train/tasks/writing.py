"""What every task does that writes: a text about a source, each token from the source and the tokens before it.

B examples, T tokens
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from clearhead.data.batches import Batches
from clearhead.text import Tokenizer
from clearhead.train.losses import token_loss
from clearhead.train.scheduled_sampling import sampled_inputs
from clearhead.train.task import Batch, Examples, Task
from clearhead.train.tasks.common import in_turn


class WritingTask(Task):
    """A source, which may be a sentence or an image, and the text that is wanted for it."""

    vocabulary: Tokenizer
    train: Any  # the parts, in the form that `lengths` and `tensors` know
    held_out: Any

    @abstractmethod
    def lengths(self, part: Any) -> Sequence[Any]:
        """What each example of a part costs of the token budget."""

    @abstractmethod
    def tensors(self, part: Any, indices: list[int]) -> Batch:
        """Of some examples the `source`, and the `target` (B, 1 + T + 1) between start and stop."""

    def cursor(self) -> Batches:
        """Batches by token budget."""
        return Batches(self.lengths(self.train), budget=self.config.data.batch_tokens, seed=self.config.train.seed)

    def batch(self, examples: Examples) -> Batch:
        """Some training examples."""
        return self.tensors(self.train, examples.tolist())

    def loss(self, model: Any, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """Every target token from those before it, all at once."""
        target = batch["target"]
        logits = model(batch["source"], batch.get("read", target[:, :-1]))
        return token_loss(logits, target[:, 1:], pad=self.vocabulary.pad, smoothing=smoothing)

    def scheduled_sampling(self, model: Any, batch: Batch, share: float) -> Batch:
        """Some of the words before each one are what the model itself would have written there."""
        return {**batch, "read": sampled_inputs(model, batch["source"], batch["target"], share, self.vocabulary.pad)}

    def validation(self) -> Iterator[Batch]:
        """The held-out examples, similar lengths together."""
        for indices in in_turn(self.lengths(self.held_out), self.config.data.batch_tokens):
            yield self.tensors(self.held_out, indices)

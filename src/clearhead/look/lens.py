"""The logit lens: what a model would answer if it stopped after each layer.

Every block adds to the same stream of vectors, so the model's own last norm and output matrix can read the stream
anywhere on the way: at first little more than the input, at the end the answer.

    L layers, T tokens, D width, V vocabulary or labels
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import ProbeError
from clearhead.look.capture import capture
from clearhead.look.probes import stacks
from clearhead.look.storing import rounded
from clearhead.nn import Decoder, Encoder, SequenceOutput, TokenOutput

FORMAT = "clearhead-lens-1"
LIKELIEST = 5  # answers of each layer and token in the document


@dataclass(frozen=True, eq=False)
class Lens:
    """The answers after no block, after the first, and so on."""

    logits: Tensor  # (1 + L, T, V); one label counts as one token

    @property
    def probabilities(self) -> Tensor:
        """(1 + L, T, V)."""
        return self.logits.softmax(-1)

    @property
    def rank(self) -> Tensor:
        """(1 + L, T): how many answers each layer finds likelier than the one that the model gives in the end."""
        final = self._of_the_end(self.logits)  # (1 + L, T, 1)
        return (self.logits > final).sum(-1)

    @property
    def probability(self) -> Tensor:
        """(1 + L, T): how likely each layer finds the answer that the model gives in the end."""
        return self._of_the_end(self.probabilities).squeeze(-1)

    def _of_the_end(self, numbers: Tensor) -> Tensor:
        answer = self.logits[-1].argmax(-1)[None, :, None]  # (1, T, 1)
        return numbers.gather(-1, answer.expand(len(numbers), -1, -1))

    def to_json(self, tokens: Sequence[str], choices: Sequence[str]) -> dict[str, Any]:
        """For each layer and token the likeliest answers, [[answer, probability], …]; `choices` names all V."""
        best = self.probabilities.topk(min(LIKELIEST, self.logits.size(-1)))
        numbers = zip(best.indices.tolist(), rounded(best.values), strict=True)
        layers = [
            [[[choices[i], p] for i, p in zip(*row, strict=True)] for row in zip(*layer, strict=True)]
            for layer in numbers
        ]
        return {
            "format": FORMAT,
            "tokens": list(tokens),
            "layers": layers,
            "probability": rounded(self.probability),
            "rank": self.rank.tolist(),
        }


@torch.no_grad()
def logit_lens(model: nn.Module, inputs: Sequence[Tensor]) -> Lens:
    """Read the last stack of a model, a batch of one, after each of its blocks."""
    name, stack = _last_stack(model)
    output = next(part for part in model.modules() if isinstance(part, TokenOutput | SequenceOutput))
    with capture(model, f"{name}.embedded", f"{name}.*.hidden") as seen:
        answers = model(*inputs)
    read = [output(stack.norm(state)) for state in seen.values()]  # each (1, T', V) or (1, V)
    words = answers.shape[1:-1]  # (T,), or () for one label
    return Lens(torch.stack([each.reshape(-1, each.size(-1))[-words.numel() :] for each in read]))


def _last_stack(model: nn.Module) -> tuple[str, Encoder | Decoder]:
    """What the output reads: the decoder, or an encoder that has none."""
    name, stack = list(stacks(model).items())[-1] if stacks(model) else ("", None)
    if not isinstance(stack, Encoder | Decoder):
        raise ProbeError("a logit lens reads between the blocks of a transformer, and this model has none")
    return name, stack

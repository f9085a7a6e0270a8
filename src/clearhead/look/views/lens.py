"""The logit lens: what a model would answer if it stopped after each layer.

Every block adds to the same residual stream, so the last norm and the output matrix of the model can read the stream
after any block: at first little more than the input, at the end the answer.

    L layers, T tokens, D width, V vocabulary or labels
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from clearhead.errors import ProbeError, ShapeError
from clearhead.look.probes import capture, stacks
from clearhead.look.record import LookRecord, rounded
from clearhead.look.render.figure import (
    SLIDE,
    Figure,
    axes_font_size,
    axes_size,
    fit_title,
    font_size,
    max_height,
    new_figure,
)
from clearhead.look.render.labels import label_edges, text_cells, token_label
from clearhead.look.render.matrix import Scale, Window, draw_colorbar, draw_matrix, window_slice
from clearhead.look.render.terminal import show_matrix
from clearhead.look.view import VIEWS, LookView, ViewOptions
from clearhead.nn import Decoder, Encoder, SequenceOutput, TokenOutput

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console

FORMAT = "clearhead-lens-1"
LIKELIEST = 5  # answers of each layer and token in JSON
SHORT_ANSWER = 5  # letters of an answer that must have room in a figure


@VIEWS.register("lens")
@dataclass(frozen=True, eq=False)
class Lens(LookView):
    """What the model would answer after each layer."""

    page = "lens"

    logits: Tensor  # (1 + L, T, V), after no block, after the first, …; one label counts as one token
    tokens: Sequence[str] = ()  # T that were read
    choices: Sequence[str] = ()  # V names of the answers
    columns: Window = None
    caption: str = ""  # the model and the text

    @classmethod
    def of(cls, look: LookRecord, options: ViewOptions) -> Lens:
        found = logit_lens(look.require_network(), look.inputs)
        tokens, count = look.tokens.get("decoder", look.tokens.get("encoder", [])), found.logits.size(1)
        names = tokens[-count:] if len(tokens) >= count and count > 1 else [look.output]
        return replace(found, tokens=names, choices=look.choices, columns=options.columns, caption=look.caption)

    @property
    def probabilities(self) -> Tensor:
        """(1 + L, T, V)."""
        return self.logits.softmax(-1)

    @property
    def rank(self) -> Tensor:
        """(1 + L, T): how many answers are likelier after each layer than the final answer of the model."""
        final = self._of_final_answer(self.logits)  # (1 + L, T, 1)
        return (self.logits > final).sum(-1)

    @property
    def probability(self) -> Tensor:
        """(1 + L, T): the probability after each layer of the final answer of the model."""
        return self._of_final_answer(self.probabilities).squeeze(-1)

    def _of_final_answer(self, numbers: Tensor) -> Tensor:
        answer = self.logits[-1].argmax(-1)[None, :, None]  # (1, T, 1)
        return numbers.gather(-1, answer.expand(len(numbers), -1, -1))

    def to_json(self) -> dict[str, Any]:
        """For each layer and token the likeliest answers, [[answer, probability], …]."""
        best = self.probabilities.topk(min(LIKELIEST, self.logits.size(-1)))
        numbers = zip(best.indices.tolist(), rounded(best.values), strict=True)
        layers = [
            [[[self.choices[i], p] for i, p in zip(*row, strict=True)] for row in zip(*layer, strict=True)]
            for layer in numbers
        ]
        return {
            "format": FORMAT,
            "tokens": list(self.tokens),
            "layers": layers,
            "probability": rounded(self.probability),
            "rank": self.rank.tolist(),
        }

    def show(self, console: Console) -> None:
        layers = ["embedded", *(f"layer {layer}" for layer in range(len(self.logits) - 1))]
        title = "probability of the final answer after each layer"
        show_matrix(console, self.probability, layers, self.tokens, title)

    def figure(self, width: float = SLIDE) -> Figure:
        """The likeliest answer in each cell, the likelier the darker; the last layer is at the top."""
        probability, best = self.probabilities.max(-1)  # (1 + L, T)
        if len(self.tokens) != probability.size(1):
            raise ShapeError(
                f"{len(self.tokens)} tokens do not fit the {probability.size(1)} that the lens has read: name each"
            )
        shown = self._readable(width)
        probability, best = probability[:, shown].flip(0), best[:, shown].flip(0)
        line = font_size(width) / 72
        with new_figure(width, min(max_height(width, 1.3), (2.0 * len(probability) + 7) * line)) as fig:
            axes = fig.add_subplot()
            scale = Scale(0.0, 1.0)
            draw_colorbar(fig, draw_matrix(axes, probability, scale), axes, "probability")
            axes.set_title(fit_title("likeliest answer after each layer", width, self.caption), loc="left")
            layers = [f"layer {number}" for number in range(len(probability) - 2, -1, -1)]
            label_edges(axes, [*layers, "embedded"], self.tokens[shown], top=False)
            answers = [[token_label(self.choices[number], 14) for number in row] for row in best.tolist()]
            _write_answers(axes, answers, probability, scale)
        return Figure(fig)

    def _readable(self, width: float) -> slice:
        """The chosen columns; without a choice as many as have room for their answers, with a note about the others."""
        fit = int(0.8 * width * 72 / (SHORT_ANSWER * 0.6 * 0.6 * font_size(width)))
        if self.columns is not None or len(self.tokens) <= fit:
            return window_slice(self.columns, len(self.tokens), "columns")
        warnings.warn(f"columns 0:{fit} of {len(self.tokens)} are drawn; columns={fit}: shows the others", stacklevel=3)
        return slice(0, fit)


def _write_answers(axes: Axes, answers: Sequence[Sequence[str]], probability: Tensor, scale: Scale) -> None:
    """Each answer in its cell, cut to fit; none if not even three letters fit."""
    width, height = axes_size(axes)
    longest = max(text_cells(answer) for row in answers for answer in row)
    four_letters = width / len(answers[0]) / (0.6 * min(4, longest))  # the font size at which four letters fit
    usual = axes_font_size(axes)
    size = min(0.85 * usual, max(0.6 * usual, four_letters), height / len(answers) / 1.2)
    room = int(width / len(answers[0]) / (0.6 * size))
    if room < min(3, longest):
        return
    for i, row in enumerate(answers):
        for j, answer in enumerate(row):
            colour = scale.text_colour(float(probability[i, j]))
            axes.text(j, i, token_label(answer, room), ha="center", va="center", fontsize=size, color=colour)


@torch.no_grad()
def logit_lens(model: nn.Module, inputs: Sequence[Tensor]) -> Lens:
    """The answers of a model after each block of its last stack, for a batch of one."""
    name, stack = _last_stack(model)
    output = next((part for part in model.modules() if isinstance(part, TokenOutput | SequenceOutput)), None)
    if output is None:
        raise ProbeError("a logit lens reads answers between the blocks, and this model gives vectors instead")
    besides: list[Tensor] = []  # what the output reads besides the states
    hook = output.register_forward_pre_hook(lambda _, args: besides.extend(args[1:]))
    try:
        with capture(model, f"{name}.embedded", f"{name}.*.hidden") as seen:
            answers = model(*inputs)
    finally:
        hook.remove()
    read = [output(stack.norm(state), *besides) for state in seen.values()]  # each (1, T', V) or (1, V)
    positions = answers.shape[1:-1]  # (T,), or () for one label
    return Lens(torch.stack([each.reshape(-1, each.size(-1))[-positions.numel() :] for each in read]))


def _last_stack(model: nn.Module) -> tuple[str, Encoder | Decoder]:
    """The stack before the output: the decoder, or the encoder of a model without one."""
    name, stack = list(stacks(model).items())[-1] if stacks(model) else ("", None)
    if not isinstance(stack, Encoder | Decoder):
        raise ProbeError("a logit lens reads between the blocks of a transformer, and this model has none")
    return name, stack

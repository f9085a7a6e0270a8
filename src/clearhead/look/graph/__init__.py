"""A model as one graph: every tensor between the text and the answer, what it is computed from, and how.

    graph = model_graph(look)
    graph.parts["decoder.1.cross.scores"].inputs        ("decoder.1.cross.query", "decoder.1.cross.key")
    graph.groups["decoder.1"].items                     what stands in the block, in the order of the computation

The graph is read off the parts of the model (their residual form, their norms, their score) and the probes of one
forward pass, so a translator, a language model, a Vision Transformer, a recurrent network and an imported model are all
described by the same code. A part that says nothing about itself is a `function` of its inputs.

The operation of a part (`Part.op`) says how each of its numbers is made, and its `details` are what that needs besides
the inputs, so that any number can be followed back:

    lookup  given                  a row of a table; a tensor that nothing is computed for
    add  norm  linear  activation  x + z;  γ (x - μ) / σ + β;  x W + b;  φ(x)
    rotate  score  softmax  mix    rotary positions;  c q · k + b;  exp s / Σ exp s;  Σ_j a_j v_j
    products                       Σ of products of numbers in the same place: gates, gated feed-forward
    shift  concat  prepend  pool   the row before;  side by side;  rows in front;  one row of many
    logits  probability            the likeliest choices of each row, and their shares

    H heads, T tokens, S keys, D width
"""

from __future__ import annotations

from typing import Any

import torch

from clearhead.look.graph.cells import CellParts
from clearhead.look.graph.embedding import EmbeddingParts
from clearhead.look.graph.output import OutputParts
from clearhead.look.graph.parts import Graph, Group, Part, code_line, code_of
from clearhead.look.record import LookRecord
from clearhead.models.rnn import AttentionDecoder, ContextDecoder
from clearhead.nn import Decoder, Encoder, Recurrent, State

__all__ = ["Graph", "Group", "Part", "code_of", "model_graph"]


@torch.no_grad()
def model_graph(look: LookRecord, changed: bool = False, temperature: float = 1.0) -> Graph:
    """The graph of the network that computed a look, with every tensor of the forward pass on its inputs.

    With `changed` the network has interventions open: where a tensor is not what its inputs make, the difference is
    in its details as `changed`. The probabilities are those at a `temperature`.
    """
    return _ModelBuilder(look, changed, temperature).build()


class _ModelBuilder(EmbeddingParts, CellParts, OutputParts):
    """A whole model, stack by stack."""

    def build(self) -> Graph:
        ends: dict[str, str] = {}  # the last part of each stack
        for name, stack in self.stacks.items():
            title = {"encoder": "Encoder", "decoder": "Decoder"}.get(name, name)
            about = {
                "encoder": "Reads the whole input: every token can look at every other.",
                "decoder": "Writes one token at a time: each token sees only those before it.",
            }.get(name, "")
            with self.group(name, "stack", title, about):
                x = self.input(name)
                ends[name] = self.stack(name, stack, x, ends.get("encoder"))
        if ends:
            with self.group("output", "output", "Output", "From the last vectors to the answer."):
                self.output(list(ends)[-1], list(ends.values())[-1])
        return Graph(self.axes, self.groups, self.parts)

    def stack(self, name: str, stack: Any, x: str, memory: str | None) -> str:
        """The blocks or cells of a stack -> its last part."""
        if isinstance(stack, Encoder | Decoder):
            for number, block in enumerate(stack.blocks):
                about = "Attention moves information between the tokens, then a small network works on each token."
                with self.group(f"{name}.{number}", "block", f"Block {number}", about, code=code_line(block)):
                    x = self.block(f"{name}.{number}", block, x, memory)
            return self.norm(f"{name}.norm", stack.norm, x)
        call = self.calls.stack[name]
        cells = stack if isinstance(stack, Recurrent) else stack.network
        first: State | None = call.kwargs.get("state") if isinstance(stack, Recurrent) else call.args[2]
        if isinstance(stack, AttentionDecoder) and memory is not None:
            with self.group(f"{name}.0.cross", "attention", "Attention", "The last state looks back at the input."):
                context = self.alignment(f"{name}.0.cross", stack, memory)
            x = self.concat(f"{name}.read", [x, context], "[y_t; c_t]", "The token read and its context side by side.")
        if isinstance(stack, ContextDecoder):
            summary = call.args[1].summary[0]  # (D,)
            given = self.add(
                f"{name}.context", "function", "context", summary.expand(len(self.axes[name]), -1),
                [memory] if memory else [], rows=name, symbol="c", equation="c",
                about="One vector for the whole input, the same at every step.",
            )  # fmt: skip
            x = self.concat(f"{name}.read", [x, given], "[y_t; c]", "The token read and the context side by side.")
        for layer in range(cells.network.num_layers):
            kind = cells.network.mode.split("_")[0]
            about = "Reads one token after the other; all it knows of the text is its state."
            with self.group(f"{name}.{layer}", "cell", f"{kind} layer {layer}", about, code=code_line(cells)):
                x = self.cell(f"{name}.{layer}.cell", cells, layer, x, first)
        return x

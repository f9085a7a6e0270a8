"""What a model computed on the way to one answer: `look = model.look("we are eating bread")`.

    look.tokens["encoder"]                    the words that were read
    look.weights["decoder.cross"][2]          (H, T, S): layer 2, from each word written to each word read
    look.hidden["encoder"]                    what entered the first block, then what each block wrote, (T, D)
    look.heads(layer=2, head=1).save("head.svg")

Kinds of attention are `encoder.self`, `decoder.self` and `decoder.cross`; the alignment of a recurrent translator is
`decoder.cross` too. The numbers are those of the explicit equation, whatever kernel the model computes with.

    H heads, T queries, S keys, D size of a vector, V vocabulary or labels
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from clearhead.errors import ProbeError, nearest

if TYPE_CHECKING:
    import numpy as np

    from clearhead.look.figures.sheet import Figure
    from clearhead.look.rollout import Heads as Fusion
    from clearhead.look.steps import Steps

KINDS = ("decoder.cross", "decoder.self", "encoder.self")  # what is shown first, if nothing is asked for
VIEWS = ("heads", "patches", "steps")  # of a page
TENSORS = ("weights", "scores", "query", "key", "value")  # of an `Attended`, one for each layer


@dataclass(frozen=True, eq=False)
class Attended:
    """One kind of attention in all layers, with a word for each query and each key."""

    rows: list[str]  # T words
    columns: list[str]  # S words
    causal: bool  # no query sees what comes after it
    visible: Tensor  # (T, S) bool: True = may be seen
    weights: list[Tensor]  # each (H, T, S)
    scores: list[Tensor]  # each (H, T, S): scaled, with the position's bias, before the mask
    query: list[Tensor]  # each (H, T, D)
    key: list[Tensor]  # each (H, S, D); heads that share keys and values each have them
    value: list[Tensor]  # each (H, S, D)

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return len(self.weights)

    @property
    def heads(self) -> int:
        """How many heads a layer has."""
        return self.weights[0].size(0)


@dataclass(frozen=True, eq=False)
class Look:
    """One input, what the model answered, and everything it computed in between."""

    model: str
    task: str
    text: str  # the input as given, or the name of the image
    attention: dict[str, Attended]  # by kind
    tokens: dict[str, list[str]]  # by stack: the words that it read, as people write them
    hidden: dict[str, list[Tensor]]  # by stack: layers + 1 of (T, D), what was embedded and what each block wrote
    logits: Tensor | None  # (T, V), or (V,) for one label
    output: str  # the text or label that was answered
    choices: tuple[str, ...] = ()  # what the V logits are about: tokens or labels
    image: Tensor | None = None  # (height, width, channels) uint8
    grid: tuple[int, int] | None = None  # rows and columns of patches
    class_token: bool = False  # whether one stands before the patches or words
    network: Any = field(default=None, repr=False)  # what computed it; None for one that was loaded from a file
    inputs: tuple[Tensor, ...] = field(default=(), repr=False)  # what it was called with, each a batch of one

    @property
    def weights(self) -> dict[str, list[Tensor]]:
        """By kind and layer: (H, T, S), each row sums to 1."""
        return {kind: attended.weights for kind, attended in self.attention.items()}

    @property
    def scores(self) -> dict[str, list[Tensor]]:
        """By kind and layer: (H, T, S), what the softmax reads before the mask."""
        return {kind: attended.scores for kind, attended in self.attention.items()}

    @property
    def q(self) -> dict[str, list[Tensor]]:
        """By kind and layer: the queries, (H, T, D)."""
        return {kind: attended.query for kind, attended in self.attention.items()}

    @property
    def k(self) -> dict[str, list[Tensor]]:
        """By kind and layer: the keys, (H, S, D)."""
        return {kind: attended.key for kind, attended in self.attention.items()}

    @property
    def v(self) -> dict[str, list[Tensor]]:
        """By kind and layer: the values, (H, S, D)."""
        return {kind: attended.value for kind, attended in self.attention.items()}

    @property
    def probabilities(self) -> Tensor | None:
        """The softmax of the logits: (T, V), or (V,)."""
        return None if self.logits is None else self.logits.softmax(-1)

    def kind(self, kind: str | None = None) -> str:
        """A kind of attention that is there: the one asked for, or the one to show first."""
        if kind is None and self.attention:
            return next((name for name in KINDS if name in self.attention), next(iter(self.attention)))
        if kind not in self.attention:
            wanted = "attention" if kind is None else f"attention called {kind}"
            raise ProbeError(f"{self.model} has no {wanted}; it has {', '.join(self.attention) or 'none at all'}")
        return kind

    def pick(
        self, kind: str | None = None, layer: int | None = None, head: int | None = None, query: int | None = None
    ) -> Attended:
        """One kind of attention, after making sure that it has the layer, head and query that are wanted of it."""
        name = self.kind(kind)
        found = self.attention[name]
        for what, number, count in (
            ("layer", layer, found.layers),
            ("head", head, found.heads),
            ("query", query, len(found.rows)),
        ):
            if number is not None and not 0 <= number < count:
                raise ProbeError(f"{name} of {self.model} has no {what} {number}; choose from {span(count)}")
        return found

    # --- what can be made of it ---

    def heads(
        self, layer: int | None = None, head: int | None = None, kind: str | None = None, **layout: Any
    ) -> Figure:
        """A figure of one head; without a head those of a layer, without a layer all. `.save("head.svg")` writes it."""
        from clearhead.look.figures.heads import heads

        return heads(self, layer, head, kind, **layout)

    def steps(self, layer: int, head: int, query: int, kind: str | None = None) -> Steps:
        """How one query of one head found its answer, step by step with its numbers."""
        from clearhead.look.steps import steps

        return steps(self, layer, head, query, kind)

    def rollout(self, kind: str | None = None, heads: Fusion = "mean", residual: float = 0.5) -> Tensor:
        """(T, T): how much of each token is in what the last layer knows of each, through all layers."""
        from clearhead.look.rollout import rollout

        kinds = [name for name in self.attention if name.endswith(".self")]
        chosen = kinds[0] if kind is None and kinds else kind
        return rollout(self.pick(chosen).weights, heads, residual)

    def to_html(self, path: str | Path | None = None, view: str = "heads", **choice: Any) -> str:
        """One page that needs nothing else: `heads` or `patches`, or `steps` of a layer, head and query."""
        from clearhead.look.html import page
        from clearhead.look.storing import write_text

        if view not in VIEWS:
            raise ProbeError(f"a look has no view called {view}; {nearest(view, VIEWS)}")
        data = self.steps(**choice).to_json() if view == "steps" else self.to_json()
        text = page(view, data, f"{self.model}: {self.text}")
        if path is not None:
            write_text(Path(path), text)
        return text

    # --- as plain data, and on disk ---

    def to_numpy(self) -> dict[str, np.ndarray[Any, Any]]:
        """Every tensor by a name such as `decoder.cross.weights.2`, `encoder.hidden.0` or `logits`."""
        from clearhead.look.storing import named_tensors

        return {name: tensor.numpy() for name, tensor in named_tensors(self).items()}

    def to_json(self, full: bool = False) -> dict[str, Any]:
        """Plain lists and words, numbers to five digits; `full` adds scores, queries, keys, values and hidden states.

        `probabilities` has the ten likeliest choices of each position, [[token, probability], …], best first;
        a single label counts as one position.
        """
        from clearhead.look.storing import document

        return document(self, full)

    def save(self, path: str | Path) -> Path:
        """Write one `.safetensors` file; a folder gets `look.safetensors`. Gives the file that was written."""
        from clearhead.look.storing import write

        return write(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Look:
        """What `save` wrote."""
        from clearhead.look.storing import read

        return read(Path(path))


def span(count: int) -> str:
    """The numbers that can be chosen among `count` things: `0 to 5`, or `0` alone."""
    return "0" if count == 1 else f"0 to {count - 1}"

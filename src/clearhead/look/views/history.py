"""Attention as it is learned: the weights of one validation example, written at every evaluation of a training.

    RUN/attention/step-00000500.safetensors     decoder.1.cross (H, T, S) in float16, and so on for every layer;
                                                the metadata holds the token strings at the edges of each kind

    history = read_history(run / "attention")
    history.weights["decoder.cross"][1]          # (N, H, T, S): layer 1 at every evaluation

The weights are those of the explicit equation, for a text of at most `inputs.MAX_LOGGED` tokens. Nothing random is
used, and the same model gives the same bytes.

    N evaluations, H heads, T queries, S keys
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from clearhead.errors import ProbeError, RunError
from clearhead.files import read_tensors, regular_file, write_errors, write_tensors
from clearhead.look.build import run_probes
from clearhead.look.inputs import Edges, PreparedInput
from clearhead.look.probes import probes
from clearhead.look.record import KINDS, index_range, rounded
from clearhead.look.render.figure import NARROW, SLIDE, Figure
from clearhead.look.render.matrix import small_multiples
from clearhead.look.render.terminal import show_matrix
from clearhead.look.view import VIEWS, Model, View, ViewOptions

if TYPE_CHECKING:
    from rich.console import Console

FORMAT = "clearhead-history-1"
MAX_PATCHES = 65  # logged tokens of an image: 8 × 8 patches after a class token


# --- written during training ---


@dataclass(frozen=True)
class AttentionSnapshot:
    """The attention weights of one evaluation."""

    weights: dict[str, Tensor]  # encoder.0.self, decoder.1.cross, …: (H, T, S) float16
    edges: dict[str, Edges]  # encoder.self, decoder.cross, …


def log_attention(folder: Path, step: int, model: nn.Module, example: PreparedInput) -> None:
    """Write the attention weights of an example; nothing for a model without attention."""
    weights = attention_weights(model, example)
    if not weights:
        return
    stored = {name: each[:, :MAX_PATCHES, :MAX_PATCHES].half().cpu().contiguous() for name, each in weights.items()}
    kinds = sorted({_kind(name) for name in weights})
    edges = {kind: [list(tokens[:MAX_PATCHES]) for tokens in example.edges[kind]] for kind in kinds}
    with write_errors(folder):
        folder.mkdir(exist_ok=True)
    # One entry only: safetensors writes several in no fixed order.
    write_tensors(folder / f"step-{step:08d}.safetensors", stored, {"edges": json.dumps(edges, ensure_ascii=False)})


def read_attention(path: Path) -> AttentionSnapshot:
    """Read what `log_attention` wrote."""
    weights, metadata = read_tensors(regular_file(path, path.parent))
    try:
        edges = {kind: (rows, columns) for kind, (rows, columns) in json.loads(metadata["edges"]).items()}
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        raise RunError(f"{path} is not a file of attention weights: its metadata has no tokens") from None
    return AttentionSnapshot(weights, edges)


def attention_weights(model: nn.Module, example: PreparedInput) -> dict[str, Tensor]:
    """The weights of every attention layer, (H, T, S), by stack, layer and kind; in evaluation mode."""
    names = [name for name in probes(model) if name.endswith(".weights")]
    seen = run_probes(model, example.inputs, *names) if names else {}
    return {name.removesuffix(".weights"): weights[0] for name, weights in seen.items()}


def _kind(name: str) -> str:
    """decoder.1.cross -> decoder.cross."""
    stack, _, kind = name.split(".")
    return f"{stack}.{kind}"


# --- the view ---


@VIEWS.register("history")
@dataclass(frozen=True, eq=False)
class History(View):
    """One example at every evaluation of the training."""

    page = "history"

    steps: list[int]  # N, increasing
    edges: dict[str, Edges]  # by kind of attention
    weights: dict[str, list[Tensor]]  # by kind and layer: (N, H, T, S) float32
    kind: str | None = None  # what is drawn: by default the first of `KINDS`,
    layer: int | None = None  # the last layer,
    head: int | None = None  # and the mean of its heads

    @classmethod
    def compute(cls, model: Model, options: ViewOptions) -> History:
        found = read_history(model.folder / "attention")
        return replace(found, kind=options.kind, layer=options.layer, head=options.head)

    def at(self, step: int) -> dict[str, list[Tensor]]:
        """The weights of one evaluation: by kind and layer, (H, T, S)."""
        if step not in self.steps:
            raise ProbeError(f"nothing was kept at step {step}; choose from: {', '.join(map(str, self.steps))}")
        number = self.steps.index(step)
        return {kind: [layer[number] for layer in layers] for kind, layers in self.weights.items()}

    def largest(self, kind: str) -> Tensor:
        """(N, layers, H): the largest weight of a query, averaged over queries."""
        if kind not in self.weights:
            raise ProbeError(f"nothing was kept of {kind}; choose from: {', '.join(self.weights)}")
        return torch.stack([layer.amax(-1).mean(-1) for layer in self.weights[kind]], dim=1)

    def to_json(self) -> dict[str, Any]:
        """The weights of a kind by step, layer and head."""
        kinds = {
            kind: {
                "rows": list(self.edges[kind][0]),
                "columns": list(self.edges[kind][1]),
                "weights": rounded(torch.stack(layers, dim=1)),
            }
            for kind, layers in self.weights.items()
        }
        return {"format": FORMAT, "steps": self.steps, "attention": kinds}

    def show(self, console: Console) -> None:
        kind = self._kind
        largest = self.largest(kind).flatten(1)  # (N, layers × H)
        heads = self.weights[kind][0].size(1)
        names = [f"{number // heads}.{number % heads}" for number in range(largest.size(1))]
        title = f"largest weight of a query, on average: {KINDS.get(kind, kind)}, layer.head"
        show_matrix(console, largest, [f"step {step:,}" for step in self.steps], names, title)

    def figure(self, width: float = SLIDE) -> Figure:
        """One head, or the mean of the heads of a layer, at up to eight evaluations from the first to the last."""
        kind, head = self._kind, self.head
        if kind not in self.weights:
            raise ProbeError(f"nothing was kept of {kind}; choose from: {', '.join(self.weights)}")
        layer = len(self.weights[kind]) - 1 if self.layer is None else self.layer
        for what, number, count in (
            ("layer", layer, len(self.weights[kind])),
            ("head", head or 0, self.weights[kind][0].size(1)),
        ):
            if not 0 <= number < count:
                raise ProbeError(f"{kind} of this run has no {what} {number}; choose from {index_range(count)}")
        weights = self.weights[kind][layer]  # (N, H, T, S)
        shown = weights.mean(1) if head is None else weights[:, head]  # (N, T, S)
        chosen = evenly_spaced(len(self.steps), 8 if width > NARROW else 4)
        which = "mean of its heads" if head is None else f"head {head}"
        rows, columns = self.edges[kind]
        return small_multiples(
            [shown[number] for number in chosen],
            [f"step {self.steps[number]:,}" for number in chosen],
            rows=rows,
            columns=columns,
            title=f"{KINDS.get(kind, kind)}, layer {layer}, {which}",
            width=width,
        )

    @property
    def _kind(self) -> str:
        return self.kind or next((name for name in KINDS if name in self.weights), next(iter(self.weights)))


def read_history(folder: Path) -> History:
    """Everything that a run kept in its folder `attention`."""
    numbered = ((file.stem.removeprefix("step-"), file) for file in folder.glob("step-*.safetensors"))
    files = {int(step): file for step, file in numbered if step.isdecimal()}
    if not files:
        raise ProbeError(f"{folder} has no attention of any evaluation; train a model that attends")
    return history({step: read_attention(files[step]) for step in sorted(files)})


def history(snapshots: Mapping[int, AttentionSnapshot]) -> History:
    """The snapshots by step as one history."""
    steps = sorted(snapshots)
    last = snapshots[steps[-1]]
    for step in steps:
        if _shapes(snapshots[step]) != _shapes(last):
            raise ProbeError(f"steps {step} and {steps[-1]} kept the attention of different models or examples")
    over_time = {name: torch.stack([snapshots[step].weights[name].float() for step in steps]) for name in last.weights}
    weights = {kind: [over_time[name] for name in _layers(kind, over_time)] for kind in last.edges}
    return History(steps, dict(last.edges), weights)


def _shapes(snapshot: AttentionSnapshot) -> dict[str, torch.Size]:
    return {name: weights.shape for name, weights in snapshot.weights.items()}


def _layers(kind: str, names: Mapping[str, Tensor]) -> list[str]:
    """decoder.cross -> the layers that exist: decoder.0.cross, decoder.1.cross, …"""
    stack, part = kind.split(".")
    own = [name.split(".") for name in names]
    numbers = sorted(int(number) for place, number, what in own if (place, what) == (stack, part))
    return [f"{stack}.{number}.{part}" for number in numbers]


def evenly_spaced(count: int, most: int) -> list[int]:
    """At most `most` of `count` indices, evenly spread, with the first and the last.

    >>> evenly_spaced(10, 4)
    [0, 3, 6, 9]
    """
    few = min(count, most)
    return sorted({round(place * (count - 1) / max(1, few - 1)) for place in range(few)})

"""The data of a look: everything that a model computed on the way to one answer.

Kinds of attention are `encoder.self`, `decoder.self` and `decoder.cross`; the alignment of a recurrent translator is
`decoder.cross` too. The numbers are those of the explicit equation, whatever kernel the model computes with. What can
be made of a look (figures, steps, pages) is in `look.py` and `views/`.

    H heads, T queries, S keys, D size of a vector, V vocabulary or labels
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from clearhead.errors import ProbeError, RunError
from clearhead.files import read_tensors, write_errors, write_tensors

FORMAT = "clearhead-look-1"
DIGITS = 5  # significant digits of a number in JSON

KINDS = {  # the kinds of attention, in the order in which they are chosen, and their titles
    "decoder.cross": "cross-attention",
    "decoder.self": "decoder self-attention",
    "encoder.self": "encoder self-attention",
}
TENSORS = ("weights", "scores", "query", "key", "value")  # of an `AttentionRecord`, one for each layer
SHORT = {"query": "q", "key": "k", "value": "v"}  # their names in JSON
LIKELIEST = 10  # choices of each position in JSON


@dataclass(frozen=True, eq=False)
class AttentionRecord:
    """One kind of attention in all layers, with a token for each query and each key."""

    rows: list[str]  # T tokens
    columns: list[str]  # S tokens
    causal: bool  # no query sees keys after its own position
    visible: Tensor  # (T, S) bool: True = may be seen
    weights: list[Tensor]  # each (H, T, S)
    scores: list[Tensor]  # each (H, T, S): scaled, with the position bias, before the mask
    query: list[Tensor]  # each (H, T, D)
    key: list[Tensor]  # each (H, S, D); repeated for heads that share keys and values
    value: list[Tensor]  # each (H, S, D)

    @property
    def layers(self) -> int:
        return len(self.weights)

    @property
    def heads(self) -> int:
        return self.weights[0].size(0)


@dataclass(frozen=True, eq=False, repr=False)
class LookRecord:
    """One input, the answer of the model, and everything that was computed in between."""

    model: str
    task: str
    text: str  # the input as given, or the name of the image
    attention: dict[str, AttentionRecord]  # by kind
    tokens: dict[str, list[str]]  # by stack: the tokens that it read, as `display_token` shows them
    hidden: dict[str, list[Tensor]]  # by stack: layers + 1 of (T, D), the embedded input and the output of each block
    logits: Tensor | None  # (T, V), or (V,) for one label
    output: str  # the text or label that was answered
    choices: tuple[str, ...] = ()  # V names of the logits: tokens or labels
    image: Tensor | None = None  # (height, width, channels) uint8
    grid: tuple[int, int] | None = None  # rows and columns of patches
    class_token: bool = False  # whether one stands before the patches or tokens
    network: nn.Module | None = field(default=None, repr=False)  # None if loaded from a file
    inputs: tuple[Tensor, ...] = field(default=(), repr=False)  # what the network was called with, each a batch of one

    def __repr__(self) -> str:
        kinds = ", ".join(f"{kind} {each.layers} × {each.heads}" for kind, each in self.attention.items())
        answer = f" -> {self.output!r}" if self.output and self.output != self.text else ""
        return f"<{type(self).__name__} of {self.model}: {self.text!r}{answer}; layers × heads: {kinds or 'none'}>"

    @property
    def caption(self) -> str:
        """The model and the text, for a figure."""
        return f"{self.model}: {self.text}" if self.text else self.model

    @property
    def weights(self) -> dict[str, list[Tensor]]:
        """By kind and layer: (H, T, S), each row sums to 1."""
        return {kind: record.weights for kind, record in self.attention.items()}

    @property
    def scores(self) -> dict[str, list[Tensor]]:
        """By kind and layer: (H, T, S), the input of the softmax before the mask."""
        return {kind: record.scores for kind, record in self.attention.items()}

    @property
    def q(self) -> dict[str, list[Tensor]]:
        """By kind and layer: the queries, (H, T, D)."""
        return {kind: record.query for kind, record in self.attention.items()}

    @property
    def k(self) -> dict[str, list[Tensor]]:
        """By kind and layer: the keys, (H, S, D)."""
        return {kind: record.key for kind, record in self.attention.items()}

    @property
    def v(self) -> dict[str, list[Tensor]]:
        """By kind and layer: the values, (H, S, D)."""
        return {kind: record.value for kind, record in self.attention.items()}

    @property
    def probabilities(self) -> Tensor | None:
        """The softmax of the logits: (T, V), or (V,)."""
        return None if self.logits is None else self.logits.softmax(-1)

    def kind(self, kind: str | None = None) -> str:
        """The name of a kind of attention that exists: the given one, or the first of `KINDS`."""
        if kind is None and self.attention:
            return next((name for name in KINDS if name in self.attention), next(iter(self.attention)))
        if kind not in self.attention:
            wanted = "attention" if kind is None else f"attention called {kind}"
            raise ProbeError(f"{self.model} has no {wanted}; it has {', '.join(self.attention) or 'none at all'}")
        return kind

    def pick(
        self, kind: str | None = None, layer: int | None = None, head: int | None = None, query: int | None = None
    ) -> AttentionRecord:
        """One kind of attention, after checking that it has this layer, head and query."""
        name = self.kind(kind)
        found = self.attention[name]
        for what, number, count in (
            ("layer", layer, found.layers),
            ("head", head, found.heads),
            ("query", query, len(found.rows)),
        ):
            if number is not None and not 0 <= number < count:
                raise ProbeError(f"{name} of {self.model} has no {what} {number}; choose from {index_range(count)}")
        return found

    def require_network(self) -> nn.Module:
        """The network that computed this look."""
        if self.network is None:
            raise ProbeError(f"this look at {self.model} was loaded from a file: look again with the model itself")
        return self.network

    # --- JSON ---

    def to_json(self, full: bool = False) -> dict[str, Any]:
        """Nested lists and strings, numbers to five digits; `full` adds scores, queries, keys, values, hidden states.

        `probabilities` has the ten likeliest choices of each position, [[token, probability], …], best first;
        a single label counts as one position.
        """
        found = {
            "format": FORMAT,
            "model": self.model,
            "task": self.task,
            "text": self.text,
            "tokens": self.tokens,
            "attention": {kind: _attention_json(record, full) for kind, record in self.attention.items()},
            "output": self.output,
            "probabilities": self._likeliest(),
            "image": None if self.image is None else self.image.tolist(),
            "grid": None if self.grid is None else list(self.grid),
            "class_token": self.class_token,
        }
        if full:
            found["hidden"] = {stack: [rounded(layer) for layer in layers] for stack, layers in self.hidden.items()}
        return found

    def _likeliest(self) -> list[list[list[Any]]]:
        """For each position the choices with the highest probabilities, best first."""
        if self.probabilities is None:
            return []
        probabilities = self.probabilities.reshape(-1, self.probabilities.size(-1))  # (T, V)
        best = probabilities.topk(min(LIKELIEST, probabilities.size(-1)))
        rows = zip(best.indices.tolist(), rounded(best.values), strict=True)
        return [[[self.choices[i] if self.choices else str(i), p] for i, p in zip(*row, strict=True)] for row in rows]

    # --- tensors and files ---

    def to_numpy(self) -> dict[str, np.ndarray[Any, Any]]:
        """Every tensor by a name such as `decoder.cross.weights.2`, `encoder.hidden.0`, `logits` or `image`."""
        return {name: tensor.numpy() for name, tensor in self._named_tensors().items()}

    def _named_tensors(self) -> dict[str, Tensor]:
        found = {}
        for kind, record in self.attention.items():
            found[f"{kind}.visible"] = record.visible
            found |= {f"{kind}.{name}.{n}": each for name in TENSORS for n, each in enumerate(getattr(record, name))}
        found |= {f"{stack}.hidden.{n}": each for stack, layers in self.hidden.items() for n, each in enumerate(layers)}
        single = {"logits": self.logits, "image": self.image}
        return found | {name: tensor for name, tensor in single.items() if tensor is not None}

    def save(self, path: str | Path) -> Path:
        """Write one `.safetensors` file, in a folder `look.safetensors` -> the file that was written."""
        header = {
            "format": FORMAT,
            "model": self.model,
            "task": self.task,
            "text": self.text,
            "attention": {
                kind: {"rows": each.rows, "columns": each.columns, "causal": each.causal, "layers": each.layers}
                for kind, each in self.attention.items()
            },
            "tokens": self.tokens,
            "hidden": {stack: len(layers) for stack, layers in self.hidden.items()},
            "output": self.output,
            "choices": self.choices,
            "grid": self.grid,
            "class_token": self.class_token,
        }
        file = Path(path) if Path(path).suffix == ".safetensors" else Path(path) / "look.safetensors"
        with write_errors(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            contiguous = {name: tensor.contiguous() for name, tensor in self._named_tensors().items()}
            write_tensors(file, contiguous, {"look": json.dumps(header, ensure_ascii=False)})
        return file

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote, from the file or its folder."""
        file = Path(path) / "look.safetensors" if Path(path).is_dir() else Path(path)
        tensors, metadata = read_tensors(file)
        header: dict[str, Any] = json.loads(metadata.get("look", "{}"))
        if (found := header.get("format", "unknown")) != FORMAT:
            raise RunError(f"{file} is not a saved look of this version: its format is {found}")

        def layers(name: str, count: int) -> list[Tensor]:
            return [tensors[f"{name}.{number}"] for number in range(count)]

        attention = {
            kind: AttentionRecord(
                about["rows"],
                about["columns"],
                about["causal"],
                tensors[f"{kind}.visible"],
                *(layers(f"{kind}.{name}", about["layers"]) for name in TENSORS),
            )
            for kind, about in header["attention"].items()
        }
        return cls(
            **{name: header[name] for name in ("model", "task", "text", "tokens", "output", "class_token")},
            attention=attention,
            hidden={stack: layers(f"{stack}.hidden", count) for stack, count in header["hidden"].items()},
            logits=tensors.get("logits"),
            choices=tuple(header["choices"]),
            image=tensors.get("image"),
            grid=None if header["grid"] is None else (header["grid"][0], header["grid"][1]),
        )


def _attention_json(record: AttentionRecord, full: bool) -> dict[str, Any]:
    names = TENSORS if full else ("weights",)
    tensors = {SHORT.get(name, name): [rounded(layer) for layer in getattr(record, name)] for name in names}
    return {
        "rows": record.rows,
        "columns": record.columns,
        "causal": record.causal,
        "visible": record.visible.tolist(),
        **tensors,
    }


def rounded(tensor: Tensor) -> Any:
    """A tensor as nested lists of numbers with five significant digits."""
    numbers: NDArray[np.float64] = tensor.double().numpy()
    known = np.isfinite(numbers) & (numbers != 0)
    magnitude = np.floor(np.log10(np.abs(numbers), where=known, out=np.zeros_like(numbers)))
    places = DIGITS - 1 - magnitude  # after the point; before it if negative
    up, down = 10.0 ** np.maximum(places, 0), 10.0 ** np.maximum(-places, 0)
    return (np.rint(numbers * up / down) / up * down).tolist()


def index_range(count: int) -> str:
    """The valid indices of `count` things: `0 to 5`, or `0` alone."""
    return "0" if count == 1 else f"0 to {count - 1}"

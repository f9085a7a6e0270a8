"""A look as plain data, and as one file: its tensors by name, and the words around them in the file's header."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from clearhead.errors import RunError
from clearhead.look.look import TENSORS, Attended, Look

FORMAT = "clearhead-look-1"
SHORT = {"query": "q", "key": "k", "value": "v"}  # what `Look` calls them
LIKELIEST = 10  # choices of each position in the document
DIGITS = 5  # that count


# --- plain data ---


def document(look: Look, full: bool) -> dict[str, Any]:
    """Everything that a page, a notebook or another program needs to draw it."""
    found = {
        "format": FORMAT,
        "model": look.model,
        "task": look.task,
        "text": look.text,
        "tokens": look.tokens,
        "attention": {kind: _attended(each, full) for kind, each in look.attention.items()},
        "output": look.output,
        "probabilities": _likeliest(look),
        "image": None if look.image is None else look.image.tolist(),
        "grid": None if look.grid is None else list(look.grid),
        "class_token": look.class_token,
    }
    return found | ({"hidden": _of_each_stack(look)} if full else {})


def _attended(attended: Attended, full: bool) -> dict[str, Any]:
    names = TENSORS if full else ("weights",)
    tensors = {SHORT.get(name, name): [rounded(layer) for layer in getattr(attended, name)] for name in names}
    return {
        "rows": attended.rows,
        "columns": attended.columns,
        "causal": attended.causal,
        "visible": attended.visible.tolist(),
        **tensors,
    }


def _of_each_stack(look: Look) -> dict[str, list[Any]]:
    return {stack: [rounded(layer) for layer in layers] for stack, layers in look.hidden.items()}


def _likeliest(look: Look) -> list[list[list[Any]]]:
    """For each position the choices with the highest probabilities, best first."""
    if look.probabilities is None:
        return []
    probabilities = look.probabilities.reshape(-1, look.probabilities.size(-1))  # (T, V)
    best = probabilities.topk(min(LIKELIEST, probabilities.size(-1)))
    numbers = zip(best.indices.tolist(), rounded(best.values), strict=True)
    return [[[_choice(look, i), p] for i, p in zip(*row, strict=True)] for row in numbers]


def _choice(look: Look, number: int) -> str:
    return look.choices[number] if look.choices else str(number)


def rounded(tensor: Tensor) -> Any:
    """Nested lists of numbers with five digits that count, as a person would write them."""
    numbers: NDArray[np.float64] = tensor.double().numpy()
    known = np.isfinite(numbers) & (numbers != 0)
    magnitude = np.floor(np.log10(np.abs(numbers), where=known, out=np.zeros_like(numbers)))
    places = DIGITS - 1 - magnitude  # after the point; before it if negative
    up, down = 10.0 ** np.maximum(places, 0), 10.0 ** np.maximum(-places, 0)
    return (np.rint(numbers * up / down) / up * down).tolist()


# --- one file ---


def named_tensors(look: Look) -> dict[str, Tensor]:
    """Every tensor by its name: `decoder.cross.weights.2`, `encoder.hidden.0`, `logits`, `image`."""
    found = {}
    for kind, attended in look.attention.items():
        found[f"{kind}.visible"] = attended.visible
        found |= {f"{kind}.{name}.{n}": each for name in TENSORS for n, each in enumerate(getattr(attended, name))}
    found |= {f"{stack}.hidden.{n}": each for stack, layers in look.hidden.items() for n, each in enumerate(layers)}
    single = {"logits": look.logits, "image": look.image}
    return found | {name: tensor for name, tensor in single.items() if tensor is not None}


def write(look: Look, path: Path) -> Path:
    """One safetensors file; a folder gets `look.safetensors`."""
    file = path if path.suffix == ".safetensors" else path / "look.safetensors"
    # The format knows no shared memory: each name gets its own copy.
    tensors = {name: tensor.clone().contiguous() for name, tensor in named_tensors(look).items()}
    with _writing(file):
        save_file(tensors, file, {"look": json.dumps(_header(look), ensure_ascii=False)})
    return file


def write_text(file: Path, text: str) -> None:
    """A text file."""
    with _writing(file):
        file.write_text(text, encoding="utf-8")


@contextmanager
def _writing(file: Path) -> Iterator[None]:
    """Its folder is made; a full disk or a forbidden folder is one sentence."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        yield
    except (OSError, SafetensorError) as problem:
        raise RunError(f"cannot write {file}: {getattr(problem, 'strerror', None) or problem}") from None


def _header(look: Look) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "model": look.model,
        "task": look.task,
        "text": look.text,
        "attention": {
            kind: {"rows": each.rows, "columns": each.columns, "causal": each.causal, "layers": each.layers}
            for kind, each in look.attention.items()
        },
        "tokens": look.tokens,
        "hidden": {stack: len(layers) for stack, layers in look.hidden.items()},
        "output": look.output,
        "choices": look.choices,
        "grid": look.grid,
        "class_token": look.class_token,
    }


def read(path: Path) -> Look:
    """What `write` wrote, from the file or its folder."""
    file = path / "look.safetensors" if path.is_dir() else path
    try:
        with safe_open(file, framework="pt") as stored:
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - it is no mapping
            header = json.loads((stored.metadata() or {}).get("look", "{}"))
    except (SafetensorError, OSError) as problem:
        raise RunError(f"{file} is damaged or not a saved look ({problem})") from None
    if header.get("format") != FORMAT:
        raise RunError(f"{file} is not a saved look of this version: its format is {header.get('format', 'unknown')}")
    return _from_header(header, tensors)


def _from_header(header: dict[str, Any], tensors: dict[str, Tensor]) -> Look:
    def layers(name: str, count: int) -> list[Tensor]:
        return [tensors[f"{name}.{number}"] for number in range(count)]

    attention = {
        kind: Attended(
            said["rows"],
            said["columns"],
            said["causal"],
            tensors[f"{kind}.visible"],
            *(layers(f"{kind}.{name}", said["layers"]) for name in TENSORS),
        )
        for kind, said in header["attention"].items()
    }
    return Look(
        header["model"],
        header["task"],
        header["text"],
        attention,
        header["tokens"],
        {stack: layers(f"{stack}.hidden", count) for stack, count in header["hidden"].items()},
        tensors.get("logits"),
        header["output"],
        tuple(header["choices"]),
        tensors.get("image"),
        _pair(header["grid"]),
        header["class_token"],
    )


def _pair(numbers: Sequence[int] | None) -> tuple[int, int] | None:
    return None if numbers is None else (numbers[0], numbers[1])

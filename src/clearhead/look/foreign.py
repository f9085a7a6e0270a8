"""The same `Look` from other people's models: plain torch modules, and those of `transformers`.

    look_at(encoder, x)                                              any module with nn.MultiheadAttention inside
    look_at(gpt2, {"input_ids": ids}, tokens=tokenizer.tokenize(text))
    look_at(marian, {"input_ids": ids, "decoder_input_ids": written}, tokens={"encoder": [...], "decoder": [...]})

An adapter (`adapters.py`) hears every call of attention while the module computes as always. A row of cross-attention
is here a token that is read, since only the model's own code knows what it writes.

    H heads, T queries, S keys, D size of a vector, V vocabulary or labels
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import ProbeError
from clearhead.look.adapters import Call, attention_calls
from clearhead.look.build import evaluating
from clearhead.look.inputs import patch_names
from clearhead.look.look import Attended, Look

Inputs = Tensor | Sequence[Tensor] | Mapping[str, Any]
Words = Sequence[str] | Mapping[str, Sequence[str]]


def look_at(
    module: nn.Module, inputs: Inputs, tokens: Words | None = None, *, text: str = "", choices: Sequence[str] = ()
) -> Look:
    """What a module computes for one example, called as `module(*inputs)` or `module(**inputs)`.

    `tokens` are the words that are read, by stack where there are two; without them tokens are numbered. `choices` are
    what the logits are about; what a plain module gives counts as its logits.
    """
    calls, hidden, given = _listen(module, inputs)
    if not calls:
        raise ProbeError(f"{type(module).__name__} did not attend: no nn.MultiheadAttention or transformers layer ran")
    kinds = _by_kind(calls)
    names, grid = _names(kinds, tokens, module, inputs)
    logits = _logits(given)
    choices = tuple(choices) or _labels(module, logits)
    return Look(
        model=type(module).__name__,
        task="other",
        text=text,
        attention={kind: _attended(kind, of_kind, names) for kind, of_kind in kinds.items()},
        tokens=names,
        hidden=_hidden(kinds, hidden),
        logits=logits,
        output=_answer(logits, choices),
        choices=choices,
        grid=grid,
        class_token=grid is not None and len(names["encoder"]) > grid[0] * grid[1],
    )


@dataclass(frozen=True)
class Passage:
    """One call of a block."""

    path: str
    read: Tensor  # (T, D)
    wrote: Tensor  # (T, D)


def _listen(module: nn.Module, inputs: Inputs) -> tuple[list[Call], list[Passage], Any]:
    """Call the module once: its calls of attention, its blocks, and what it gave."""
    with evaluating(module), torch.no_grad(), attention_calls(module) as calls, _blocks(module) as passed:
        if isinstance(inputs, Mapping):
            return calls, passed, module(**inputs)
        return calls, passed, module(*([inputs] if isinstance(inputs, Tensor) else inputs))


# --- kinds, layers and blocks ---


@contextmanager
def _blocks(module: nn.Module) -> Iterator[list[Passage]]:
    """What every member of a list or sequence of modules read and wrote, in the order of the calls."""
    passed: list[Passage] = []
    lists = [(path, part) for path, part in module.named_modules() if isinstance(part, nn.ModuleList | nn.Sequential)]
    members = {part: f"{path}.{name}".lstrip(".") for path, several in lists for name, part in several.named_children()}

    def listen(block: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any], gave: Any) -> None:
        read = next((each for each in (*arguments, *named.values()) if isinstance(each, Tensor)), None)
        wrote = gave[0] if isinstance(gave, tuple) else gave
        if read is not None and isinstance(wrote, Tensor):
            # A batch of one, wherever it stands: (1, T, D) or (T, 1, D) -> (T, D).
            passed.append(Passage(members[block], *(x.reshape(-1, x.size(-1)).cpu() for x in (read, wrote))))

    hooks = [block.register_forward_hook(listen, with_kwargs=True) for block in members]
    try:
        yield passed
    finally:
        for hook in hooks:
            hook.remove()


def _by_kind(calls: Sequence[Call]) -> dict[str, list[Call]]:
    """The layers of each kind, in their order; all of one kind must read the same tokens."""
    kinds: dict[str, list[Call]] = {}
    for call in calls:
        kinds.setdefault(call.kind, []).append(call)
    for kind, layers in kinds.items():
        for layer in layers:
            if layer.weights.shape != layers[0].weights.shape:
                sizes = [" × ".join(map(str, each.weights.shape)) for each in (layers[0], layer)]
                raise ProbeError(
                    f"{layers[0].path} and {layer.path} are both {kind} and have weights of {sizes[0]} and {sizes[1]}; "
                    "look at a part of the module whose layers are alike"
                )
    return kinds


def _attended(kind: str, layers: Sequence[Call], names: Mapping[str, list[str]]) -> Attended:
    rows, columns = {
        "encoder.self": ("encoder", "encoder"),
        "decoder.self": ("decoder", "decoder"),
        "decoder.cross": ("decoder", "encoder"),
    }[kind]
    return Attended(
        rows=names[rows],
        columns=names[columns],
        causal=kind == "decoder.self" and not bool(layers[0].visible.triu(1).any()),
        visible=layers[0].visible,
        weights=[layer.weights for layer in layers],
        scores=[layer.scores for layer in layers],
        query=[layer.query for layer in layers],
        key=[layer.key for layer in layers],
        value=[layer.value for layer in layers],
    )


def _hidden(kinds: Mapping[str, Sequence[Call]], passed: Sequence[Passage]) -> dict[str, list[Tensor]]:
    """What entered the first block of a stack, and what each wrote; a block is the member of a list that attends."""
    found = {}
    for stack in ("encoder", "decoder"):
        attending = [call.path for call in kinds.get(f"{stack}.self", ())]
        blocks = {_innermost(path, passed) for path in attending}
        through = [each for each in passed if each.path in blocks]
        if through:
            found[stack] = [through[0].read, *(each.wrote for each in through)]
    return found


def _innermost(path: str, passed: Sequence[Passage]) -> str | None:
    """The path of the block that a layer is in."""
    around = [each.path for each in passed if f"{path}.".startswith(f"{each.path}.")]
    return max(around, key=len, default=None)


# --- words ---


def _names(
    kinds: Mapping[str, Sequence[Call]], tokens: Words | None, module: nn.Module, inputs: Inputs
) -> tuple[dict[str, list[str]], tuple[int, int] | None]:
    """The words of each stack, and the grid of patches if the encoder reads an image."""
    lengths = _lengths(kinds)
    patches, grid = _patches(module, inputs, lengths.get("encoder", 0))
    numbered = {stack: [str(number) for number in range(length)] for stack, length in lengths.items()}
    given = _by_stack(tokens, list(lengths))
    names = numbered | ({"encoder": patches} if patches else {}) | given
    for stack, length in lengths.items():
        if len(names[stack]) != length:
            raise ProbeError(f"{len(names[stack])} words were given for the {length} tokens that the {stack} reads")
    return names, grid


def _lengths(kinds: Mapping[str, Sequence[Call]]) -> dict[str, int]:
    """How many tokens each stack reads."""
    found: dict[str, int] = {}
    for kind, (layer, *_) in kinds.items():
        queries, keys = layer.visible.shape
        found |= {"decoder": queries, "encoder": keys} if kind == "decoder.cross" else {kind.split(".")[0]: queries}
    return {stack: found[stack] for stack in ("encoder", "decoder") if stack in found}


def _by_stack(tokens: Words | None, stacks: Sequence[str]) -> dict[str, list[str]]:
    if isinstance(tokens, Mapping):
        for stack in tokens:
            if stack not in stacks:
                raise ProbeError(f"tokens were given for a stack called {stack}; this module has {', '.join(stacks)}")
        return {stack: list(words) for stack, words in tokens.items()}
    if tokens is not None and len(stacks) > 1:
        raise ProbeError("this module has two stacks: give their words as tokens={'encoder': [...], 'decoder': [...]}")
    return {} if tokens is None else {stacks[0]: list(tokens)}


def _patches(module: nn.Module, inputs: Inputs, length: int) -> tuple[list[str], tuple[int, int] | None]:
    """The places of the patches of an image that transformers calls `pixel_values`, after that of a class token."""
    patch = getattr(getattr(module, "config", None), "patch_size", None)
    if not isinstance(inputs, Mapping) or "pixel_values" not in inputs or not isinstance(patch, int):
        return [], None
    images = inputs["pixel_values"]
    names = patch_names(images, patch)
    if length - len(names) not in (0, 1):
        return [], None
    return ["class"] * (length - len(names)) + names, (images.size(-2) // patch, images.size(-1) // patch)


# --- the answer ---


def _logits(given: Any) -> Tensor | None:
    """(T, V) or (V,), from whatever a module gives."""
    found = getattr(given, "logits", given)
    found = found[0] if type(found) in (tuple, list) else found
    if not isinstance(found, Tensor) or found.dim() not in (2, 3):
        return None
    if found.dim() == 3:
        return found.reshape(-1, found.size(-1)).cpu()  # a batch of one, wherever it stands
    return (found[0] if len(found) == 1 else found).cpu()


def _labels(module: nn.Module, logits: Tensor | None) -> tuple[str, ...]:
    """The names that a classifier of transformers has for its classes."""
    labels = getattr(getattr(module, "config", None), "id2label", None) or {}
    fits = logits is not None and logits.dim() == 1 and len(labels) == len(logits)
    return tuple(labels[number] for number in sorted(labels)) if fits else ()


def _answer(logits: Tensor | None, choices: Sequence[str]) -> str:
    """The likeliest choice, or one for each token."""
    best = [] if logits is None else logits.argmax(-1).reshape(-1).tolist()
    return " ".join(choices[number] if choices else str(number) for number in best)

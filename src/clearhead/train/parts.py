"""The parts of a model by name, for `train.freeze` and `train.targets`.

    embedding            what turns tokens or patches into vectors: tables, positions, the class token
    encoder, decoder     the blocks of a stack, and the norm after them
    decoder.0-2          the first three of its blocks;  decoder.0.self_attention  a part of one
    output               the last layer
    *.feed_forward       a star stands for any names

The name of a weight in model.safetensors works as well, and so does its beginning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from clearhead.errors import ConfigError, nearest
from clearhead.models.build import TokenInput
from clearhead.nn import ClassToken, InputPositions, NgramEmbedding, PatchEmbedding

EMBEDDINGS = (TokenInput, NgramEmbedding, PatchEmbedding, ClassToken, InputPositions, nn.Embedding)


def freeze(model: nn.Module, patterns: Iterable[str]) -> str:
    """Train none of the parts that match; returns a sentence that says how much is left."""
    names = parameter_names(model)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for pattern in filter(None, patterns):
        found = [name for name, called in names.items() if any(_expression(pattern).match(each) for each in called)]
        if not found:
            raise ConfigError(f"train.freeze={pattern} is no part of this model; {_suggestion(pattern, names)}")
        for name in found:
            parameters[name].requires_grad_(False)
    _keep_statistics(model)
    total, trained = (sum(p.numel() for p in model.parameters() if p.requires_grad or not only) for only in (0, 1))
    if not trained:
        raise ConfigError(f"train.freeze={','.join(patterns)} leaves nothing to train; freeze fewer parts")
    return f"trains {trained:,} of {total:,} parameters; the others are frozen"


def parameter_names(model: nn.Module) -> dict[str, tuple[str, ...]]:
    """What each parameter is called: its own name, and the one that begins with its part."""
    places = dict(_places(model))
    named = model.named_parameters(remove_duplicate=False)
    return {name: (name, *_aliases(name, places)) for name, _ in named}


def linear_names(model: nn.Module) -> dict[str, tuple[str, ...]]:
    """What each linear map inside a stack is called."""
    stacks = {place: part for place, part in _places(model) if part != "embedding"}
    linears = (name for name, module in model.named_modules() if isinstance(module, nn.Linear))
    return {name: (name, *called) for name in linears if (called := _aliases(name, stacks))}


def matching_linears(model: nn.Module, patterns: Iterable[str]) -> list[str]:
    """The names of the linear maps that `train.targets` chooses: by their own name, after that of a part if given."""
    names, chosen = linear_names(model), set[str]()
    for pattern in filter(None, patterns):
        part, _, own = pattern.rpartition(".")
        wanted = re.compile(rf"{_words(part)}\.(.*\.)?{_words(own)}$" if part else rf"(.*\.)?{_words(own)}$")
        found = {name for name, called in names.items() if any(wanted.match(each) for each in called)}
        if not found:
            known = {name.rpartition(".")[2] for name in names}
            hint = nearest(own, known) if own not in known else _suggestion(part, names)
            raise ConfigError(f"train.targets={pattern} is no linear map of this model's blocks; {hint}")
        chosen |= found
    return [name for name in names if name in chosen]


def _places(model: nn.Module) -> Iterator[tuple[str, str]]:
    """(name of a module, what its part is called)."""
    modules = {id(module): name for name, module in model.named_modules()}
    stacks: Mapping[str, nn.Module] = getattr(model, "stacks", dict)()
    for part, stack in stacks.items():
        yield modules[id(stack)], part
    inside = [f"{modules[id(stack)]}." for stack in stacks.values()]
    for name, module in model.named_modules():
        if isinstance(module, EMBEDDINGS) and not any(name.startswith(stack) for stack in inside):
            yield name, "embedding"


def _aliases(name: str, places: Mapping[str, str]) -> Iterator[str]:
    """The name with its part instead of the module's path: `stack.blocks.0.…` is `decoder.0.…`."""
    for place, part in places.items():
        if name.startswith(f"{place}."):
            yield f"{part}.{name.removeprefix(f'{place}.').removeprefix('blocks.')}"


def _expression(pattern: str) -> re.Pattern[str]:
    """Matches names that begin with the pattern."""
    return re.compile(rf"{_words(pattern)}(\.|$)")


def _words(pattern: str) -> str:
    return r"\.".join(map(_word, pattern.split(".")))


def _word(word: str) -> str:
    """A word as a regular expression: `0-2` is 0, 1 or 2, and a star is anything."""
    if span := re.fullmatch(r"(\d+)-(\d+)", word):
        return f"({'|'.join(map(str, range(int(span[1]), int(span[2]) + 1)))})"
    return ".*".join(map(re.escape, word.split("*")))


def _suggestion(pattern: str, names: Mapping[str, Any]) -> str:
    """The nearest right name: of those that go on where the pattern stops being right."""
    known = {each for called in names.values() for each in called}
    words = pattern.split(".")
    right = next(i for i in reversed(range(len(words))) if i == 0 or _begins(words[:i], known))
    prefix = f"{'.'.join(words[:right])}." if right else ""
    following = {name.split(".")[right] for name in known if right == 0 or _expression(prefix[:-1]).match(name)}
    return nearest(pattern, [prefix + word for word in following])


def _begins(words: list[str], known: Iterable[str]) -> bool:
    expression = _expression(".".join(words))
    return any(expression.match(name) for name in known)


def _keep_statistics(model: nn.Module) -> None:
    """A frozen batch norm does not learn its running mean and variance either."""
    for module in model.modules():
        if isinstance(module, _BatchNorm) and not any(p.requires_grad for p in module.parameters()):
            module.momentum = 0.0

"""Tables of names: where each tensor of a foreign model goes in ours, and how it got back.

    table = {"layers.*.self_attn.q_proj": "stack.blocks.*.self_attention.query", "wte": into("tokens.tokens.table")}
    ours = translated(theirs, table)            # a tensor without a place is left over
    theirs = restored(ours, table, layers=12)   # the inverse: export uses it

A row reads `their name: our name`. `*` is the number of a layer, and a row for a module holds for its weight and its
bias. A row may change the layout of a tensor and cut it into several: every `Change` knows its inverse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

import torch
from torch import Tensor

from clearhead.errors import RunError

ENDS = (".weight", ".bias", "")


@dataclass(frozen=True)
class Change:
    """A change of a tensor, and its inverse."""

    apply: Callable[[Tensor], Tensor]
    undo: Callable[[Tensor], Tensor]


SAME = Change(lambda x: x, lambda x: x)
TURNED = Change(lambda x: x.t(), lambda x: x.t())  # Conv1D has its matrix as (in, out); a bias stays as it is
PLUS_ONE = Change(lambda x: x.float() + 1.0, lambda x: x.float() - 1.0)  # a gain that is stored as its distance from 1
TWICE = Change(lambda x: torch.cat((x, x)), lambda x: x.chunk(2)[0])  # for two parts that read the same


def scaled(factor: float) -> Change:
    """Multiplied by a number."""
    return Change(lambda x: x.float() * factor, lambda x: x.float() / factor)


def without_rows(count: int) -> Change:
    """Without the first rows, which are never read; the inverse puts zeros there."""
    return Change(lambda x: x[count:], lambda x: torch.cat((x.new_zeros(count, *x.shape[1:]), x)))


def regrouped(heads: int, parts: int = 3) -> Change:
    """Rows in the order (head, part, number) -> (part, head, number): queries, keys and values apart."""

    def apply(x: Tensor) -> Tensor:
        return x.reshape(heads, parts, -1, *x.shape[1:]).transpose(0, 1).flatten(0, 2)

    def undo(x: Tensor) -> Tensor:
        return x.reshape(parts, heads, -1, *x.shape[1:]).transpose(0, 1).flatten(0, 2)

    return Change(apply, undo)


def key_value_groups(queries: int, groups: int) -> Change:
    """Rows in groups of some queries, a key and a value -> all queries, all keys, all values."""

    def apply(x: Tensor) -> Tensor:
        grouped = x.reshape(groups, queries + 2, -1, *x.shape[1:])
        parts = (grouped[:, :queries], grouped[:, queries], grouped[:, queries + 1])
        return torch.cat([part.reshape(-1, *x.shape[1:]) for part in parts])

    def undo(x: Tensor) -> Tensor:
        parts = x.reshape(queries + 2, groups, -1, *x.shape[1:])
        rows = parts[:queries].reshape(groups, queries, -1, *x.shape[1:])
        return torch.cat((rows, parts[queries:].transpose(0, 1)), dim=1).flatten(0, 2)

    return Change(apply, undo)


def rotary_halves(heads: int, rotated: int) -> Change:
    """Rows of each head whose rotary partners are neighbours -> partners (i, i + rotated / 2); the rest stays."""

    def apply(x: Tensor) -> Tensor:
        rows = x.reshape(heads, -1, *x.shape[1:])
        return torch.cat((rows[:, 0:rotated:2], rows[:, 1:rotated:2], rows[:, rotated:]), dim=1).reshape(x.shape)

    def undo(x: Tensor) -> Tensor:
        rows = x.reshape(heads, -1, *x.shape[1:])
        pairs = torch.stack(rows[:, :rotated].chunk(2, dim=1), dim=2).flatten(1, 2)
        return torch.cat((pairs, rows[:, rotated:]), dim=1).reshape(x.shape)

    return Change(apply, undo)


@dataclass(frozen=True)
class Into:
    """Where a tensor goes: changed, then cut along the first axis into as many parts as there are names."""

    names: tuple[str, ...]
    change: Change = SAME
    sizes: tuple[int, ...] | None = None  # rows of each part; None = equal parts

    def cut(self, theirs: Tensor) -> tuple[Tensor, ...]:
        changed = self.change.apply(theirs)
        return torch.split(changed, list(self.sizes)) if self.sizes else changed.chunk(len(self.names))

    def join(self, ours: list[Tensor]) -> Tensor:
        return self.change.undo(torch.cat(ours) if len(ours) > 1 else ours[0]).contiguous()


Table = Mapping[str, str | Into]


def into(*names: str, change: Change = SAME, sizes: tuple[int, ...] | None = None) -> Into:
    """A row of a table that does more than rename."""
    return Into(names, change, sizes)


def within(theirs: str, ours: str, table: Table) -> dict[str, str | Into]:
    """The table of a part, for a model that holds the part under these names."""

    def inside(target: str | Into) -> str | Into:
        if isinstance(target, str):
            return f"{ours}{target}"
        return replace(target, names=tuple(f"{ours}{name}" for name in target.names))

    return {f"{theirs}{name}": inside(target) for name, target in table.items()}


@dataclass
class Translated:
    """Foreign tensors under our names, and what became of each."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    used: list[str] = field(default_factory=list)  # their names
    left_over: list[str] = field(default_factory=list)


def translated(theirs: Mapping[str, Tensor], table: Table) -> Translated:
    """Foreign tensors under our names and in our layouts."""
    found = Translated()
    for name in theirs:
        target = place(name, table)
        if target is None:
            found.left_over.append(name)
            continue
        if taken := found.tensors.keys() & set(target.names):
            raise RunError(f"{name} goes where another tensor went: {', '.join(sorted(taken))}")
        try:
            parts = target.cut(theirs[name])
        except RuntimeError:
            shape = tuple(theirs[name].shape)
            raise RunError(f"{name} has the shape {shape}, which does not fit its config.json") from None
        found.tensors.update(zip(target.names, parts, strict=True))
        found.used.append(name)
    return found


def row_orders(outputs: int, change: Callable[[Tensor], list[Tensor] | tuple[Tensor, ...]]) -> list[Tensor] | None:
    """What a change does to a matrix of so many rows: the rows of each result; None where it does more than that."""
    numbers = torch.arange(outputs, dtype=torch.float64).unsqueeze(1)
    parts, ones = change(numbers), change(torch.ones_like(numbers))
    only_rows = all(part.dim() == 2 and part.size(1) == 1 for part in parts)
    unchanged = all(bool((part == 1).all()) for part in ones)
    return [part.squeeze(1).long() for part in parts] if only_rows and unchanged else None


def restored(ours: Mapping[str, Tensor], table: Table, layers: int) -> dict[str, Tensor]:
    """Our tensors under their names and in their layouts, as far as the table has places for them."""
    theirs: dict[str, Tensor] = {}
    for pattern, target in table.items():
        target = into(target) if isinstance(target, str) else target
        for number in range(layers) if "*" in pattern else (0,):
            for end in ENDS:
                names = [name.replace("*", str(number)) + end for name in target.names]
                if all(name in ours for name in names):
                    theirs[pattern.replace("*", str(number)) + end] = target.join([ours[name] for name in names])
    return theirs


def place(name: str, table: Table) -> Into | None:
    """Where the tensor of this name goes; None: nowhere."""
    for pattern, target in table.items():
        if found := _pattern(pattern).fullmatch(name):
            *layer, end = found.groups()
            target = into(target) if isinstance(target, str) else target
            return replace(target, names=tuple(part.replace("*", "".join(layer)) + end for part in target.names))
    return None


@cache
def _pattern(row: str) -> re.Pattern[str]:
    return re.compile(re.escape(row).replace(r"\*", r"(\d+)") + r"(\.weight|\.bias|)")


def matching(names: Mapping[str, Tensor] | list[str], patterns: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(name, reason) of the names that a pattern matches; `*` stands for anything."""
    compiled = [(re.compile(re.escape(row).replace(r"\*", ".*")), reason) for row, reason in patterns.items()]
    for name in names:
        reason = next((reason for pattern, reason in compiled if pattern.fullmatch(name)), None)
        if reason is not None:
            yield name, reason

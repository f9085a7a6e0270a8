"""What a graph is made of, and how it is added to: parts in groups, in the order of the computation."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.look.graph.calls import Calls
from clearhead.look.probes import stacks
from clearhead.look.record import LookRecord
from clearhead.look.views.steps import PACKAGE, Code, source_line
from clearhead.nn import (
    ParallelBlock,
    Recurrent,
)
from clearhead.nn.attention import join_heads
from clearhead.nn.norm import NativeNorm, NoNorm


@dataclass(frozen=True, eq=False)
class Part:
    """One tensor, and how it is computed from others."""

    id: str  # the probe's name where there is one
    op: str
    name: str
    value: Tensor  # (T, D), or (H, T, D)
    rows: str  # the axis of its rows: a name in `Graph.axes`
    inputs: tuple[str, ...] = ()
    columns: str = ""  # the axis of its columns; empty for the numbers of a vector
    symbol: str = ""
    equation: str = ""
    about: str = ""  # one plain sentence
    code: Code | None = None
    details: dict[str, Any] = field(default_factory=dict)  # numbers, strings and tensors that `op` needs
    weight: tuple[Tensor, ...] = ()  # each (out, in), one for each input of a linear map

    @property
    def heads(self) -> int | None:
        return self.value.size(0) if self.value.dim() == 3 else None


@dataclass(frozen=True)
class Group:
    """Parts and groups that belong together: a stack, a block, an attention layer."""

    id: str
    kind: str  # model, stack, input, block, attention, feed_forward, cell or output
    name: str
    about: str = ""
    equation: str = ""
    code: Code | None = None
    items: list[str] = field(default_factory=list)  # ids, in the order of the computation


@dataclass(frozen=True)
class Graph:
    """A whole model for one input; the group "" holds the rest."""

    axes: dict[str, list[str]]  # by name: a label for each row or column
    groups: dict[str, Group]
    parts: dict[str, Part]

    def of_group(self, group: str) -> list[Part]:
        """The parts inside a group, however deep."""
        found: list[Part] = []
        for item in self.groups[group].items:
            found += [self.parts[item]] if item in self.parts else self.of_group(item)
        return found


def code_of(code: Code | None) -> tuple[str, int, str]:
    """File, line and text of the code of a part; empty where there is none to show."""
    if code is None:
        return "", 0, ""
    try:
        file, line = source_line(*code)
    except (OSError, StopIteration, TypeError):  # written in C, or typed into a notebook
        return "", 0, ""
    return file, line, linecache.getline(str(PACKAGE / file), line).strip()


class GraphBuilder:
    """Adds parts and groups of one look."""

    def __init__(self, look: LookRecord, changed: bool = False, temperature: float = 1.0):
        self.look, self.network = look, look.require_network()
        self.changed, self.temperature = changed, temperature
        self.stacks = stacks(self.network)
        self.parts: dict[str, Part] = {}
        self.groups = {"": Group("", "model", look.model)}
        self.open: list[Group] = [self.groups[""]]
        self.axes = {stack: list(tokens) for stack, tokens in look.tokens.items()}
        for kind, record in look.attention.items():
            stack = kind.split(".")[0]
            self.axes.setdefault(stack, list(record.columns))
        self.calls = Calls(self.network, self.stacks)
        self.seen = self.calls.run(look, changed)

    def group(self, id: str, kind: str, name: str, about: str = "", **more: Any) -> _Open:
        return _Open(self, Group(id, kind, name, about, **more))

    def add(self, id: str, op: str, name: str, value: Tensor, inputs: Sequence[str] = (), **more: Any) -> str:
        """Add a part to the open group -> its id; its rows are those of its first input unless given."""
        value = value.detach().float().cpu()
        rows = more.pop("rows", None) or (self.parts[inputs[0]].rows if inputs else self.open[1].id)
        self.parts[id] = Part(id, op, name, value, rows, tuple(inputs), **more)
        self.open[-1].items.append(id)
        return id

    def linear(self, id: str, name: str, value: Tensor, inputs: Sequence[str], *layers: nn.Module, **more: Any) -> str:
        """A part that a matrix computes; of another module only the inputs are known."""
        plain = [each for each in layers if type(each) is nn.Linear]
        if len(plain) < len(layers):
            return self.add(id, "function", name, value, inputs, **more)
        biases = [each.bias for each in plain if each.bias is not None]
        details = {**more.pop("details", {}), **({"bias": sum(biases)} if biases else {})}
        weight = tuple(each.weight.detach() for each in plain)
        return self.add(id, "linear", name, value, inputs, weight=weight, details=details, **more)

    def through(self, module: nn.Module, x: str) -> Tensor:
        """What a module makes of a part (T, D), computed where its weights are."""
        value, like = self.parts[x].value, next(module.parameters(), None)
        found: Tensor = module((value if like is None else value.to(like))[None])[0]
        return found

    def norm(self, id: str, module: nn.Module, x: str) -> str:
        """Add Norm(x), unless the module leaves x alone."""
        if isinstance(module, NoNorm):
            return x
        value = self.through(module, x)
        about = "Brings each token's vector to the same mean and size, so that no token is louder than another."
        more: dict[str, Any] = {"op": "function", "equation": "Norm(x)"}
        if isinstance(module, NativeNorm) and (form := module.native_form()).kind in ("layer", "rms"):
            equation = {"layer": "y = γ (x - μ) / σ + β", "rms": "y = γ x / √(mean of x²)"}[form.kind]
            found = {"gain": form.gain, "shift": form.shift}
            tensors = {name: each for name, each in found.items() if each is not None}
            more = {"op": "norm", "equation": equation, "details": {"norm": form.kind, "eps": form.eps, **tensors}}
        code = (type(module).forward, "return ")
        return self.add(id, more.pop("op"), "norm", value, [x], symbol="y", about=about, code=code, **more)

    def concat(self, id: str, inputs: list[str], equation: str, about: str) -> str:
        tensors = (self.parts[each].value for each in inputs)
        value = torch.cat([each if each.dim() == 2 else join_heads(each[None])[0] for each in tensors], dim=-1)
        return self.add(id, "concat", "input", value, inputs, symbol="x", equation=equation, about=about)

    def products(
        self,
        id: str,
        name: str,
        value: Tensor,
        terms: list[list[list[str]]],  # added up; the factors of each are [function, part]
        symbol: str,
        equation: str,
        about: str,
        code: Code = (Recurrent.forward, "self.network("),
    ) -> str:
        inputs = [each[1] for term in terms for each in term]
        more: dict[str, Any] = {"symbol": symbol, "equation": equation, "about": about, "code": code}
        return self.add(id, "products", name, value, inputs, details={"terms": terms}, **more)

    def as_seen(self, id: str, seen: Tensor | None = None, made: Tensor | None = None) -> str:
        """Give a part of a changed network the value that was computed, where its inputs do not make it -> its id.

        `seen` is by default the probe of its name, `made` the value that it has.
        """
        if not self.changed or (seen is None and id not in self.seen):
            return id
        part = self.parts[id]
        found = (self.seen[id][0] if seen is None else seen).detach().float().cpu()
        own = part.value if made is None else made
        if found.shape == own.shape and not torch.allclose(found, own, rtol=1e-3, atol=1e-4):
            self.parts[id] = replace(part, value=found, details={**part.details, "changed": found - own})
        return id

    def rename(self, old: str, new: str) -> str:
        items = self.open[-1].items
        self.parts[new] = Part(**{**vars(self.parts.pop(old)), "id": new})
        items[items.index(old)] = new
        return new


class _Open:
    """`with builder.group(…):` what is added belongs to the group."""

    def __init__(self, builder: GraphBuilder, group: Group):
        self.builder, self.group = builder, group

    def __enter__(self) -> None:
        self.builder.open[-1].items.append(self.group.id)
        self.builder.groups[self.group.id] = self.group
        self.builder.open.append(self.group)

    def __exit__(self, *_: object) -> None:
        self.builder.open.pop()


def code_line(module: nn.Module) -> Code:
    """The line of a block or layer that says what it does."""
    line = {Recurrent: "self.network(", ParallelBlock: "attended ="}.get(type(module), "return ")
    return type(module).forward, "self.self_attention(" if line == "return " and hasattr(module, "residual1") else line

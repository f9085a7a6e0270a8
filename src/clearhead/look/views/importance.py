"""How important each head is, over a whole dataset.

    ablation    the rise of the loss when the output of the head is zero: one pass for each head
    gradient    mean over examples of |∂ loss / ∂ g_h|, where g_h = 1 multiplies the output of head h: one pass in all

(Michel, Levy and Neubig, 2019.) The gradient is the effect of a little less of a head, the ablation that of none.

    B batch, H heads
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError, ShapeError, nearest
from clearhead.look.interventions import attention_layers, heads_off
from clearhead.look.probes import removing
from clearhead.look.record import KINDS, rounded
from clearhead.look.render.figure import SLIDE, Figure, fit_title, panels
from clearhead.look.render.labels import label_edges
from clearhead.look.render.matrix import Scale, draw_colorbar, draw_matrix, write_numbers
from clearhead.look.render.terminal import show_heads
from clearhead.look.view import VIEWS, Loss, Model, View, ViewOptions

if TYPE_CHECKING:
    from rich.console import Console

FORMAT = "clearhead-importance-1"
BATCHES = 8  # of held-out examples
TITLES = {"ablation": "rise of the loss without the head", "gradient": "gradient of the loss with respect to the head"}


@VIEWS.register("importance")
@dataclass(frozen=True, eq=False)
class Importance(View):
    """How much worse the model is without each head."""

    page = "importance"

    method: str
    loss: float  # of the whole model, for each token or example
    heads: dict[str, Tensor]  # encoder.0.self, decoder.1.cross, …: (H,)
    model: str = ""

    @classmethod
    def compute(cls, model: Model, options: ViewOptions) -> Importance:
        method = options.method or "gradient"
        if method not in METHODS:
            raise ConfigError(f"unknown method {method}; {nearest(method, METHODS)}")
        batches, loss = model.validation_batches(options.data, BATCHES)
        return replace(METHODS[method](model.network, batches, loss), model=model.name)

    @property
    def title(self) -> str:
        return TITLES.get(self.method, self.method)

    def ranking(self) -> list[tuple[str, int, float]]:
        """Layer, head and importance, the most important first."""
        every = [(name, head, value) for name, row in self.heads.items() for head, value in enumerate(row.tolist())]
        return sorted(every, key=lambda each: -each[2])

    def to_json(self) -> dict[str, Any]:
        heads = {name: rounded(row) for name, row in self.heads.items()}
        return {"format": FORMAT, "method": self.method, "loss": self.loss, "heads": heads}

    def by_kind(self) -> dict[str, Tensor]:
        """encoder.0.self (H,), encoder.1.self (H,), … -> encoder.self (layers, H), and so on."""
        rows: dict[str, list[Tensor]] = {}
        for name, row in self.heads.items():
            stack, _, part = name.split(".")
            rows.setdefault(f"{stack}.{part}", []).append(row)
        return {kind: torch.stack(layers) for kind, layers in rows.items()}

    def show(self, console: Console) -> None:
        for kind, table in self.by_kind().items():
            show_heads(console, table.clamp(min=0), KINDS.get(kind, kind))

    def figure(self, width: float = SLIDE) -> Figure:
        """All kinds on one colour scale: blue is what the model needs, red what it would be better without."""
        tables = self.by_kind()
        if not tables:
            raise ShapeError("there is no head to draw: rank those of a model with attention")
        scale = Scale.of(*tables.values())
        with panels(len(tables), width, fit_title(self.title, width, self.model)) as (fig, plots):
            for axes, (kind, table) in zip(plots, tables.items(), strict=True):
                image = draw_matrix(axes, table, scale)
                axes.set_title(KINDS.get(kind, kind))
                layers, heads = ([str(number) for number in range(count)] for count in table.shape)
                label_edges(axes, layers, heads, top=False)
                axes.set(xlabel="head", ylabel="layer")
            for axes, table in zip(plots, tables.values(), strict=True):
                write_numbers(axes, table, scale)
            draw_colorbar(fig, image, plots, "")
        return Figure(fig)


def importance_by_ablation(model: nn.Module, batches: Sequence[Any], loss: Loss, layers: str = "*") -> Importance:
    """The rise of the loss with one head after the other switched off."""
    whole = _mean_loss(model, batches, loss)
    found: dict[str, Tensor] = {}
    for name, (_, count) in attention_layers(model, layers).items():
        without = []
        for head in range(count):
            with heads_off(model, name, [head]):
                without.append(_mean_loss(model, batches, loss) - whole)
        found[name] = torch.tensor(without, dtype=torch.float64)
    return Importance("ablation", whole, found)


def importance_by_gradient(model: nn.Module, batches: Sequence[Any], loss: Loss, layers: str = "*") -> Importance:
    """The gradient of the loss with respect to each head, its size averaged over examples."""
    last = deque(gradient_by_batch(model, batches, loss, layers), maxlen=1)
    _check(len(last))
    return last[0]


def gradient_by_batch(model: nn.Module, batches: Iterable[Any], loss: Loss, layers: str = "*") -> Iterator[Importance]:
    """The same after each batch, over all batches up to then."""
    total, count, examples = 0.0, 0.0, 0
    total_slopes: dict[str, Tensor] = {}
    for batch in batches:
        with torch.enable_grad(), head_gates(model, layers) as by_layer:
            value, counted = loss(model, batch)
            slopes = torch.autograd.grad(value, list(by_layer.values()))
        for name, slope in zip(by_layer, slopes, strict=True):
            total_slopes[name] = total_slopes.get(name, 0.0) + slope.abs().sum(0).double()  # (H,)
        total, count, examples = total + float(value.detach()), count + float(counted), examples + len(slopes[0])
        _check(count)
        means = {name: row.cpu() / examples for name, row in total_slopes.items()}
        yield Importance("gradient", total / count, means)


@contextmanager
def head_gates(model: nn.Module, layers: str = "*") -> Iterator[dict[str, Tensor]]:
    """Multiply the output of each head by 1, which has a gradient: (B, H) for each layer, once it has computed."""
    made: dict[str, Tensor] = {}

    def gate(name: str) -> Callable[..., Tensor]:
        def multiply(_kernel: nn.Module, _inputs: Any, mixed: Tensor) -> Tensor:
            made[name] = mixed.new_ones(mixed.shape[:2]).requires_grad_()
            return mixed * made[name][:, :, None, None]

        return multiply

    found = attention_layers(model, layers).items()
    with removing(kernel.register_forward_hook(gate(name)) for name, (kernel, _) in found):
        yield made


@torch.no_grad()
def _mean_loss(model: nn.Module, batches: Sequence[Any], loss: Loss) -> float:
    total, count = 0.0, 0.0
    for batch in batches:
        value, counted = loss(model, batch)
        total, count = total + float(value), count + float(counted)
    _check(count)
    return total / count


def _check(count: float) -> None:
    if count == 0:
        raise ShapeError("heads cannot be ranked without examples; give at least one batch")


METHODS: dict[str, Callable[[nn.Module, Sequence[Any], Loss], Importance]] = {
    "ablation": importance_by_ablation,
    "gradient": importance_by_gradient,
}

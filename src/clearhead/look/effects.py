"""The effects of interventions on the answers of a model and on its loss.

    found = effects(model, (source, target), {"no head 1": lambda: heads_off(model, "encoder.2.self", [1])}, answers)
    found.each[0].change                   # how much the loss rises without it

and activation patching, state by state: how much of another input's answer its states bring back (`trace`).

    B batch, T tokens, V vocabulary or labels, L states
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.look.interventions import patched
from clearhead.look.probes import capture
from clearhead.look.serialize import rounded

Intervention = Callable[[], AbstractContextManager[None]]
Measure = Callable[[Tensor], Tensor]  # logits (B, T, V) or (B, V) -> one number


@dataclass(frozen=True, eq=False)
class Effect:
    """The effect of one intervention."""

    name: str
    logits: Tensor  # (B, T, V) or (B, V), with it
    divergence: Tensor  # (B, T) or (B,): KL(p without it || p with it), in nats
    flipped: float  # share of the likeliest answers that changed
    change: float | None  # of the loss, if the right answers are known


@dataclass(frozen=True, eq=False)
class Effects:
    """The answers of a model without interventions, and the effect of each."""

    logits: Tensor  # (B, T, V) or (B, V)
    loss: float | None
    each: list[Effect]

    def to_json(self) -> dict[str, Any]:
        """One row for each intervention, without the logits."""
        rows = [
            {"name": one.name, "divergence": float(one.divergence.mean()), "flipped": one.flipped, "change": one.change}
            for one in self.each
        ]
        return {"format": "clearhead-effects-1", "loss": self.loss, "effects": rows}


@torch.no_grad()
def effects(
    model: nn.Module,
    inputs: Sequence[Tensor],
    interventions: Mapping[str, Intervention],
    answers: Tensor | None = None,
) -> Effects:
    """Call the model without and with each intervention; `answers` (B, T) or (B,), -100 where there is none."""
    before = model(*inputs)
    loss = _loss(before, answers)
    return Effects(
        before, loss, [_effect(name, one, model, inputs, before, answers) for name, one in interventions.items()]
    )


def _effect(
    name: str,
    intervention: Intervention,
    model: nn.Module,
    inputs: Sequence[Tensor],
    before: Tensor,
    answers: Tensor | None,
) -> Effect:
    with intervention():
        after = model(*inputs)
    was, became = _loss(before, answers), _loss(after, answers)
    return Effect(
        name,
        after,
        divergence(before, after),
        flipped=float((before.argmax(-1) != after.argmax(-1)).double().mean()),
        change=None if was is None or became is None else became - was,
    )


def divergence(before: Tensor, after: Tensor) -> Tensor:
    """KL(p || q) = Σ p log(p / q) of two logits (…, V) -> (…), in nats."""
    log_p, log_q = before.log_softmax(-1), after.log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def _loss(logits: Tensor, answers: Tensor | None) -> float | None:
    if answers is None:
        return None
    return float(F.cross_entropy(logits.reshape(-1, logits.size(-1)), answers.reshape(-1)))


@dataclass(frozen=True, eq=False)
class Trace:
    """How far each state of a donor, at each token, brings back the donor's answer."""

    states: list[str]  # L names
    values: Tensor  # (L, T): the measure with this one state of the donor
    own: float  # the measure without any patch
    donor: float  # the measure of the donor

    @property
    def recovered(self) -> Tensor:
        """(L, T): 0 = no effect, 1 = the answer of the donor."""
        return (self.values - self.own) / (self.donor - self.own)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": "clearhead-trace-1",
            "states": self.states,
            "values": rounded(self.values),
            "own": self.own,
            "donor": self.donor,
        }


@torch.no_grad()
def trace(
    model: nn.Module, inputs: Sequence[Tensor], donor: Sequence[Tensor], measure: Measure, states: str = "*.hidden"
) -> Trace:
    """Patch the states of a donor, an input of equal length, one by one into the run of another input."""
    with capture(model, states) as theirs:
        answer = float(measure(model(*donor)))
    rows = []
    for name, state in theirs.items():
        row = []
        for token in range(state.size(1)):
            with patched(model, name, state, [token]):
                row.append(float(measure(model(*inputs))))
        rows.append(row)
    return Trace(list(theirs), torch.tensor(rows), float(measure(model(*inputs))), answer)

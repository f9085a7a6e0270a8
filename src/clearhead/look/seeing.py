"""Attention heads that are seen while a text is generated, by the engine that generates it.

A native step hands out the weights or scores of single heads, so the network itself need not run: one head costs next
to nothing, and a model whose weights are quantised is not expanded. What no engine hands out (queries, hidden states)
is left to `capture`, which reads the finished text once more.

    H heads, T tokens
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from clearhead.decode import Row, Settings, TokenLoop
from clearhead.decode.stepper import PART
from clearhead.engines.native.engine import SeenHead
from clearhead.look.build import evaluation_mode, placed
from clearhead.look.probes import capture, requested_probes

Wanted = Mapping[str, Sequence[SeenHead]]  # the heads of each probe
SeenTensor = Literal["weights", "scores"]


@dataclass(frozen=True)
class SeenText:
    """A generated text, and what was seen of the model while it generated it."""

    text: str  # the prompt and its continuation
    tokens: list[str]  # T
    probes: dict[str, Tensor]  # by name; weights and scores are (H, T, T), 0 where a token does not see another


def heads_to_see(
    network: nn.Module, stepper: object, patterns: Sequence[str], heads: int | Sequence[int] | None = None
) -> Wanted | None:
    """The heads that a native step hands out for some probes; None if there are others among them."""
    can_see = getattr(stepper, "can_see", None)
    wanted, (found, chosen) = dict[str, list[SeenHead]](), requested_probes(network, patterns, heads)
    for name, probe in found.items():
        match name.split("."):
            case ["decoder", layer, "self", ("weights" | "scores") as tensor] if can_see is not None and probe.heads:
                numbers = range(probe.heads) if chosen is None else chosen
                wanted[name] = [SeenHead(int(layer), head, tensor=_tensor(tensor)) for head in numbers]
                if not all(map(can_see, wanted[name])):
                    return None
            case _:
                return None
    return wanted


def _tensor(name: str) -> SeenTensor:
    return next(each for each in get_args(SeenTensor) if each == name)


@dataclass
class SeenRow:
    """What one row of the token loop has seen, step by step."""

    wanted: Wanted
    _steps: list[list[Tensor]] = field(default_factory=list)  # of each step, of each probe: (H, tokens, keys)

    @property
    def heads(self) -> list[SeenHead]:
        """Those that a step hands out, in order."""
        return [head for heads in self.wanted.values() for head in heads]

    def add(self, seen: Sequence[Tensor]) -> None:
        """Take what a step has handed out of each head."""
        rest = iter(seen)
        self._steps.append([torch.stack([next(rest) for _ in heads]) for heads in self.wanted.values()])

    def add_groups(self, seen: Sequence[Tensor]) -> None:
        """Take what `see` has handed out of the heads of each probe, (H, tokens, keys)."""
        self._steps.append(list(seen))

    def tensors(self) -> dict[str, Tensor]:
        """By probe: (H, T, T), of all tokens that were read."""
        return {name: placed([step[i] for step in self._steps]) for i, name in enumerate(self.wanted)}


@torch.inference_mode()
def read_seeing(stepper: Any, state: Any, ids: Sequence[int], seen: SeenRow) -> Iterator[None]:
    """Read a text in parts, one with each step, to see it."""
    for first in range(0, len(ids), PART):
        part = torch.tensor([ids[first : first + PART]])
        found = stepper.see(part, state, list(seen.wanted.values()))
        [keys] = stepper.seen_keys(state)
        seen.add_groups([each[:, 0, :, :keys] for each in found])
        yield


def generate_seeing(
    stepper: Any, state: Any, prompt: Sequence[int], stop: int | None, settings: Settings, seen: SeenRow | None
) -> list[int]:
    """The prompt and its continuation, in which every token is seen, the last included."""
    if settings.max_tokens == 0 and seen is not None:  # the loop would have nothing to do
        deque(read_seeing(stepper, state, prompt, seen), maxlen=0)
        return list(prompt)
    row = Row(prompt, settings, stop)
    if seen is not None:
        row.heads, row.on_seen = seen.heads, seen.add
        row.on_end = lambda ended: None if ended.see_rest is None else ended.see_rest()
    loop = TokenLoop(stepper)
    loop.add([row], state)
    while loop.active:
        loop.step()
    return [*prompt, *row.hypotheses[0].ids]


@torch.inference_mode()
def read_capturing(
    network: Any, state: Any, ids: Sequence[int], patterns: Sequence[str], heads: int | Sequence[int] | None = None
) -> dict[str, Tensor]:
    """Any probes of a text that is read at once by the network itself, without the batch axis."""
    device = next(network.parameters()).device
    with evaluation_mode(network), capture(network, *patterns, heads=heads, stop=True) as seen:
        network.step(torch.tensor([ids], device=device), state)
    return {name: tensor[0].cpu() for name, tensor in seen.items()}

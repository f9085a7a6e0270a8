"""What a model calls around its stacks: the way from the input to each stack, and the output.

calls = Calls(network, stacks(network))
seen = calls.run(look)              # the probes that a look does not have, by name; batch first
calls.before["encoder"]             # each call of a module that leads to the encoder, in order
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.look.build import evaluation_mode
from clearhead.look.probes import capture, probes
from clearhead.look.record import LookRecord
from clearhead.models.build import TokenInput
from clearhead.models.classifier import TextEncoder
from clearhead.models.vision import PatchEncoder, SequenceCaptioner
from clearhead.nn import FlattenOutput, PooledVector, SequenceOutput, TokenOutput

OUTPUTS = (TokenOutput, SequenceOutput, FlattenOutput, PooledVector)


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a module outside of the stacks."""

    module: Any
    inputs: tuple[Tensor, ...]
    output: Any
    start: Any = 0  # the position of the first token
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


class Calls:
    """Records, in one forward pass, what leads to each stack, how the stack is called, and the output."""

    def __init__(self, network: nn.Module, named: dict[str, nn.Module]):
        self.network, self.named = network, named
        self.before: dict[str, list[Call]] = {name: [] for name in named}
        self.stack: dict[str, Call] = {}
        self.output: Call | None = None
        self.waiting: list[Call] = []

    def run(self, look: LookRecord, changed: bool = False) -> dict[str, Tensor]:
        """The probes that are not in the look, by name; batch first. Of a changed network also what a layer sees."""
        network = self.network
        ends = ["embedded", "hidden", "inner", "output", "weights"]  # with weights, computed as those of the look
        ends += ["mixed", "visible"] if changed else []
        names = [name for name in probes(network) if name.split(".")[-1] in ends]
        hooks = [module.register_forward_hook(self._called, with_kwargs=True) for module in self._watched()]
        for name, stack in self.named.items():
            hooks.append(stack.register_forward_pre_hook(self._enters(name), with_kwargs=True))
        device = next(network.parameters()).device
        try:
            with evaluation_mode(network), torch.no_grad(), capture(network, *names) as seen:
                network(*(tensor.to(device) for tensor in look.inputs))
        finally:
            for hook in hooks:
                hook.remove()
        return seen

    def _watched(self) -> list[nn.Module]:
        """The modules between tokens and stacks, and the output."""
        found: list[nn.Module] = []
        for module in self.network.modules():
            match module:
                case TokenInput():
                    found += [module.tokens, module.positions, module.segments, module.norm, module.project]
                case PatchEncoder():
                    found += [module.patches, module.extra_tokens, module.class_token, module.positions]
                case TextEncoder():
                    found += [module.ngrams, *filter(None, [getattr(module, "features", None)])]
                case SequenceCaptioner():
                    found.append(module.patches)
                case _ if isinstance(module, OUTPUTS):
                    found.append(module)
        return list(dict.fromkeys(found))

    def _called(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        inputs = tuple(each for each in args if isinstance(each, Tensor))
        start = kwargs.get("start", args[1] if len(args) > 1 and isinstance(args[1], int) else 0)
        call = Call(module, inputs, output, start)
        if isinstance(module, OUTPUTS):
            self.output = call
        elif not any(output is each for each in inputs):  # nothing was done to it
            self.waiting.append(call)

    def _enters(self, name: str) -> Callable[..., None]:
        def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self.before[name] += self.waiting
            self.waiting = []
            self.stack[name] = Call(module, (), None, 0, args, kwargs)

        return enter

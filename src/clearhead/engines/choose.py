"""Which engine writes: the one that was asked for, or the fastest that is at hand and worth its start.

`auto` never waits for a compiler on account of a few texts: native code that this machine has compiled before is used
at once, and compiled only when there is much to write. Where it cannot be had, torch does the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from clearhead.decode import Hypothesis, Settings, SpecialTokens, generate_batch
from clearhead.engines.compiled import Compiled, reasons_against
from clearhead.engines.compiler import kept, native
from clearhead.engines.flat import Flat, flat
from clearhead.engines.threads import cores
from clearhead.errors import ConfigError, EngineError, nearest

if TYPE_CHECKING:
    from clearhead.engines.ct2 import Ct2

ENGINES = ("auto", "torch", "compiled", "ct2")
MANY = 32  # texts for which a compiler, or TorchScript, is worth waiting for
SAMPLE = 32  # texts on which the loss of int8 weights is measured


@dataclass
class Engines:
    """The engines of one network."""

    network: Any
    wanted: str = "auto"
    int8: bool = False
    names: Callable[[], Sequence[str]] = tuple  # what each token is called, for ct2
    folder: Path | None = None  # where a converted model may be kept
    on_note: Callable[[str], None] = lambda _note: None
    _judged: int = field(default=0, init=False)  # texts on which the loss of int8 was said
    _compiled: Compiled | None = field(default=None, init=False)
    _ct2: Ct2 | None = field(default=None, init=False)
    _made_of: list[tuple[int, ...]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if self.wanted not in ENGINES:
            raise ConfigError(f"unknown engine {self.wanted}; {nearest(self.wanted, ENGINES)}")
        if self.int8 and self.wanted == "torch":
            raise ConfigError("int8 weights need the engine compiled or ct2; the engine torch computes in float32")
        self._made_of = parts_of(self.network)

    def generate_batch(
        self, sources: Sequence[Sequence[int]], special: SpecialTokens, settings: Settings
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each source, the best first."""
        if self.wanted == "ct2" and not self.changed:
            return self.ct2(special, sources[:SAMPLE]).generate_batch(sources, special, settings)
        stepper = self.stepper(len(sources), settings)
        threads = cores() if stepper is self._compiled else 1
        found = generate_batch(stepper, sources, special, settings, threads=threads)
        if self.int8 and stepper is self._compiled and self._judged < min(SAMPLE, len(sources)):
            self._judged = min(SAMPLE, len(sources))
            judged = slice(self._judged)
            self.on_note(str(loss_of_int8(self.network, sources[judged], found[judged], special, settings)))
        return found

    def ct2(self, special: SpecialTokens, examples: Sequence[Sequence[int]] = ()) -> Ct2:
        """CTranslate2 with this network; the first time it is converted, and checked on some examples."""
        from clearhead.engines.ct2 import open_ct2

        if self._ct2 is None:
            names = self.names()
            self._ct2 = open_ct2(self.network, names, special, self.folder, examples=examples, int8=self.int8)
        return self._ct2

    def stepper(self, texts: int = 1, settings: Settings | None = None) -> Any:
        """What makes the steps: native code, torch's operations, or the network, which alone says where it looks."""
        if self.changed:
            return self.network
        must = self.wanted == "compiled" or self.int8
        if settings is not None and settings.coverage_penalty and not must:
            return self.network
        if self._compiled is None and self.wanted != "torch":
            self._compiled = self._compile() if must else self._compiled_if_easy(texts)
        if self._compiled is None and texts >= MANY and isinstance(self._flat, Flat):
            self._flat.prepare()
        return self._compiled or self._flat

    @property
    def changed(self) -> bool:
        """Whether the network is no longer what was loaded: it learned, or somebody tries what else it could be."""
        return parts_of(self.network) != self._made_of

    @cached_property
    def _flat(self) -> Any:
        return flat(self.network)

    def _compile(self) -> Compiled:
        """Native steps, or a sentence that says why there are none."""
        if reasons := reasons_against(self.network):
            raise EngineError(f"the engine compiled cannot run this model: {reasons[0]}; use the engine torch")
        library = native()
        if library is None:
            raise EngineError(
                "the engine compiled needs a C compiler (cc, gcc or clang); install one, "
                "or pip install 'clearhead[compiler]', or use the engine torch"
            )
        return Compiled(self.network, library, int8=self.int8)

    def _compiled_if_easy(self, texts: int) -> Compiled | None:
        if reasons_against(self.network):
            return None
        library = native() if texts >= MANY else kept()
        return None if library is None else Compiled(self.network, library)


def parts_of(network: Any) -> list[tuple[int, ...]]:
    """What tells whether a network has changed: its modules, their functions and hooks, and the versions of weights.

    Engines have copies of the weights, and know nothing of a hook.
    """
    modules = [
        (id(part), len(part._forward_hooks), len(part._forward_pre_hooks), *_functions_of(part))
        for part in network.modules()
    ]
    return [*modules, *((id(weight), weight._version) for weight in network.parameters() if not weight.is_inference())]


def _functions_of(part: Any) -> Iterator[int]:
    return (id(each) for each in vars(part).values() if callable(each))


@dataclass(frozen=True)
class Loss:
    """What int8 weights cost, on some texts."""

    texts: int
    same: int  # texts that are written the same
    log_probability: float  # how much less likely a token is on average, by the network in float32

    def __str__(self) -> str:
        return (
            f"int8 weights: {self.same} of {self.texts} texts are written as with float32, "
            f"and a token's log-probability is lower by {self.log_probability:.4f} on average"
        )


def loss_of_int8(
    network: Any,
    sources: Sequence[Sequence[int]],
    found: Sequence[Sequence[Hypothesis]],
    special: SpecialTokens,
    settings: Settings,
) -> Loss:
    """Write some texts again in float32, and let the network in float32 judge both."""
    both = [
        (a[0].ids, b[0].ids) for a, b in zip(found, generate_batch(network, sources, special, settings), strict=True)
    ]
    lower = [
        _log_probability(network, source, b, special) - _log_probability(network, source, a, special)
        for source, (a, b) in zip(sources, both, strict=True)
    ]
    return Loss(len(both), sum(a == b for a, b in both), sum(lower) / max(1, len(lower)))


@torch.inference_mode()
def _log_probability(network: Any, source: Sequence[int], target: Sequence[int], special: SpecialTokens) -> float:
    """Of a token of the target on average, its stop included."""
    written = torch.tensor([*target, special.stop])
    logits = network(torch.tensor([[*source, special.stop]]), torch.tensor([[special.start, *target]]))[0]
    return float(logits.log_softmax(-1).gather(1, written.unsqueeze(1)).mean())

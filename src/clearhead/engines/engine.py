"""The engines of a network: what an engine is, and which one generates.

`auto` is native code where it supports the network and its library was built; otherwise torch does the work. Weights
that are stored in blocks (a GGUF file), or that `quantise` rounds, are multiplied as they are; the vectors that meet
them are rounded to bytes, except by `exact`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from clearhead.decode import (
    Hypothesis,
    Prompts,
    Settings,
    SpecialTokens,
    Stepper,
    Steps,
    batch_steps,
    finish,
    generate,
    generate_batch,
    stream_tokens,
)
from clearhead.engines.native.encoder import NativeEncoder
from clearhead.engines.native.engine import CACHE_TYPES, NativeEngine
from clearhead.engines.native.library import cores, library_problem, load_library
from clearhead.engines.native.lm import LmEngine
from clearhead.errors import ConfigError, EngineError, nearest
from clearhead.models.classifier import EncoderModel
from clearhead.models.lm import LanguageModel
from clearhead.nn.quantised import NAMES, Quantised, can_quantise, quantise

if TYPE_CHECKING:
    from clearhead.engines.ct2 import Ct2Engine

ENGINES = ("auto", "torch", "compiled", "exact", "ct2")
MOST_TOKENS = 8192  # places of the batches whose vectors are held at once
INT8_SAMPLE = 32  # texts on which the loss of int8 weights is measured


class Engine(Stepper, Protocol):
    """A network, or a faster way to compute its steps: the logits are equal up to rounding."""

    def start(self, *source: Tensor, window: int | None = None) -> Any:
        """The state before the first token; a language model may read through a `window`."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """Those of the network."""
        ...


class StoredWeights(Protocol):
    """The weights of a network that may not hold all of them yet."""

    has_blocks: bool  # some are stored in blocks

    def network(self) -> Any:
        """The network with all of its weights."""
        ...

    def quantised(self) -> Mapping[str, Quantised]:
        """Those that are stored in blocks, by their names."""
        ...


@dataclass
class Engines:
    """The engines of one network, each made when it is first used."""

    network: Any
    engine: str = "auto"
    int8: bool = False
    token_names: Callable[[], Sequence[str]] = tuple  # of every token, for ct2
    folder: Path | None = None  # where a converted model may be kept
    on_note: Callable[[str], None] = lambda _note: None
    quantise: str | None = None  # q8 or q4: the matrices of a language model are rounded; int8 is another name of q8
    cache_type: str | None = None  # f32, f16 or, beside quantised weights, int8: how keys and values are kept
    stored: StoredWeights | None = None  # where the weights come from; None: the network has them
    _int8_texts: int = field(default=0, init=False)  # texts on which the loss of int8 was reported
    _native: NativeEngine | None = field(default=None, init=False)
    _encoder: NativeEncoder | None = field(default=None, init=False)
    _ct2: Ct2Engine | None = field(default=None, init=False)
    _loaded: list[tuple[int, ...]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise ConfigError(f"unknown engine {self.engine}; {nearest(self.engine, ENGINES)}")
        if self.int8 and self.engine == "torch":
            raise ConfigError("int8 weights need the engine compiled or ct2; the engine torch computes in float32")
        if self.quantise is not None:
            self._check_quantise(self.quantise)
        elif self.int8 and self.engine != "ct2" and isinstance(self.network, LanguageModel):
            self._quantise_to_bytes(self.network)
        if self.cache_type is not None:
            self._check_cache_type(self.cache_type)
        self._loaded = _fingerprint(self.network)

    def _check_cache_type(self, name: str) -> None:
        if name not in CACHE_TYPES:
            raise ConfigError(f"unknown cache_type={name}; {nearest(name, CACHE_TYPES)}")
        if self.quantise is not None or self._has_blocks or name == "f32":
            return
        if name != "f16":
            raise ConfigError(f"cache_type={name} is for quantised language models; add quantise=q8 or q4")
        if not isinstance(self.network, LanguageModel):
            raise ConfigError(f"cache_type={name} is for language models; leave it out")
        if self.engine not in ("auto", "compiled"):
            raise ConfigError(f"cache_type={name} needs the engine auto or compiled, not {self.engine}")

    def _check_quantise(self, name: str) -> None:
        if name not in NAMES:
            raise ConfigError(f"unknown quantise={name}; {nearest(name, NAMES)}")
        if self.engine in ("torch", "ct2"):
            raise ConfigError(f"quantise={name} needs the engine auto, compiled or exact, not {self.engine}")
        if not isinstance(self.network, LanguageModel):
            if name != "q8":
                raise ConfigError(f"quantise={name} is for language models; other models have quantise=q8")
            self.int8, self.quantise = True, None
        elif self._has_blocks:
            raise ConfigError(f"quantise={name}: the weights of this model are quantised already; leave it out")

    def _quantise_to_bytes(self, network: LanguageModel) -> None:
        """`int8` of a language model is q8 where its rows are whole blocks; blocks that are stored stay as they are."""
        matrices = (weight for weight in network.parameters() if weight.dim() == 2)
        if self._has_blocks:
            self.int8 = False
        elif not LmEngine.unsupported_features(network) and all(map(can_quantise, matrices)):
            self.int8, self.quantise = False, "q8"

    def generate_batch(
        self,
        sources: Sequence[Sequence[int]],
        special: SpecialTokens,
        settings: Settings,
        row_seeds: Sequence[int] | None = None,
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each source, the best first; `row_seeds` are those of the sources, instead of 0, 1, 2, …"""
        return finish(self.batch_steps(sources, special, settings, row_seeds=row_seeds))

    def batch_steps(
        self,
        sources: Sequence[Sequence[int]],
        special: SpecialTokens,
        settings: Settings,
        work: int | None = None,
        row_seeds: Sequence[int] | None = None,
    ) -> Steps[list[list[Hypothesis]]]:
        """What `generate_batch` returns, step by step; `work` limits the tokens × beams of a step."""
        if self.engine == "ct2" and not self.network_changed:
            return self.ct2(special, sources[:INT8_SAMPLE]).generate_batch(sources, special, settings)
        stepper = self.stepper(settings)
        threads = cores() if stepper is self._native else 1
        found = yield from batch_steps(
            stepper, sources, special, settings, threads=threads, work=work, row_seeds=row_seeds
        )
        if self.int8 and stepper is self._native and self._int8_texts < min(INT8_SAMPLE, len(sources)):
            self._int8_texts = min(INT8_SAMPLE, len(sources))
            sample = slice(self._int8_texts)
            self.on_note(int8_loss(self.network, sources[sample], found[sample], special, settings))
        return found

    def stream(
        self, prompt: Sequence[int], special: SpecialTokens, settings: Settings, window: int | None = None
    ) -> Iterator[int]:
        """The tokens that continue a prompt, up to the stop token; those of a beam search come all at its end."""
        if self.engine == "ct2" and not self.network_changed:
            yield from self.ct2(special).stream(prompt, settings, special.stop)
            return
        model = self.stepper(settings)
        state = model.start() if window is None else model.start(window=window)
        prompts = Prompts([prompt], special.stop)
        if settings.beam_width > 1:
            [found] = generate(model, state, prompts, settings)
            yield from found[0].ids
            return
        for tokens in stream_tokens(model, state, prompts, settings):
            yield from (token.id for token in tokens)

    def ct2(self, special: SpecialTokens, examples: Sequence[Sequence[int]] = ()) -> Ct2Engine:
        """CTranslate2 with this network; the first time it is converted, and checked on some examples."""
        from clearhead.engines.ct2 import open_ct2

        if self._ct2 is None:
            names = self.token_names()
            self._ct2 = open_ct2(self.network, names, special, self.folder, examples=examples, int8=self.int8)
        return self._ct2

    def stepper(self, settings: Settings | None = None) -> Engine:
        """The engine for these settings, or the network itself: it alone returns its attention."""
        if self.network_changed:
            return self._whole_network()
        rounds = self.int8 or self.quantise is not None or self.cache_type == "f16"
        native_only = rounds or self.engine in ("compiled", "exact")
        if settings is not None and settings.coverage_penalty and not native_only:
            return self._whole_network()
        if self._native is None and self.engine != "torch":
            self._native = self._make_native(native_only)
        return self._native or self._whole_network()

    def apply(self, ids: Tensor) -> Tensor:
        """The output of a network for padded texts (B, T), its text encoder by native code where there is one."""
        network: Any = self._whole_network()
        encoder = self._text_encoder(network)
        found: Tensor = network(ids) if encoder is None else network.head(encoder(ids), ids)
        return found

    def apply_all(self, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        """`apply` of batch after batch; native code reads several at once."""
        waiting = list[Tensor]()
        for ids in batches:
            waiting.append(ids)
            if sum(each.shape[:2].numel() for each in waiting) >= MOST_TOKENS:
                yield from self._apply_together(waiting)
                waiting.clear()
        yield from self._apply_together(waiting)

    def _apply_together(self, batches: Sequence[Tensor]) -> list[Tensor]:
        network: Any = self._whole_network()
        encoder = self._text_encoder(network)
        if encoder is None or not batches:
            return [network(ids) for ids in batches]
        return [network.head(states, ids) for states, ids in zip(encoder.encode_all(batches), batches, strict=True)]

    def encode(self, ids: Tensor) -> Tensor:
        """What the text encoder of a network makes of padded texts: (B, T) -> (B, T, D)."""
        network: Any = self._whole_network()
        found: Tensor = (self._text_encoder(network) or network.encoder)(ids)
        return found

    def _text_encoder(self, network: Any) -> NativeEncoder | None:
        """The encoder as native code; None where there is none, or the network has changed since it was loaded."""
        if self.engine not in ("auto", "compiled") or not isinstance(network, EncoderModel) or self.network_changed:
            return None
        library = load_library()
        if self._encoder is None and library is not None and not NativeEncoder.unsupported_features(network.encoder):
            self._encoder = NativeEncoder(network.encoder, library, int8=self.int8)
        return self._encoder

    @property
    def _has_blocks(self) -> bool:
        return self.stored is not None and self.stored.has_blocks

    def _whole_network(self) -> Engine:
        network: Engine = self.network if self.stored is None else self.stored.network()
        return network

    def _make_native(self, native_only: bool) -> NativeEngine | None:
        """Native code for this network; None where there is none, an error where nothing else will do."""
        if self._has_blocks or self.quantise is not None:
            reasons, library = LmEngine.unsupported_features(self.network), load_library()
            if library is not None and not reasons:
                exact = self.engine == "exact"
                return LmEngine(self.network, library, self._matrices(), exact=exact, cache_type=self.cache_type)
            why = reasons[0] if reasons else str(library_problem())
            if self.quantise is not None:
                raise EngineError(f"quantise={self.quantise} cannot be had for this model: {why}; leave it out")
            self.on_note(f"the quantised weights are expanded to float32: {why}")
        self._whole_network()
        return self._require_native() if native_only else native_engine(self.network)

    def _matrices(self) -> Mapping[str, Quantised]:
        """The matrices in blocks: as they are stored, or rounded now."""
        if self.quantise is None:
            return {} if self.stored is None else self.stored.quantised()
        weights = self._whole_network().state_dict()  # type: ignore[attr-defined]
        return {name: quantise(each, NAMES[self.quantise]) for name, each in weights.items() if can_quantise(each)}

    @property
    def network_changed(self) -> bool:
        """Whether weights, hooks or submodules differ from those at loading: by training, or by an intervention.

        An engine has its own copy of the weights and calls no hooks, so only the network itself may run then.
        """
        return _fingerprint(self.network) != self._loaded

    def _require_native(self) -> NativeEngine:
        instead = "leave out cache_type=f16" if self.cache_type == "f16" else "use the engine torch"
        if reasons := NativeEngine.unsupported_features(self.network):
            raise EngineError(f"the engine compiled cannot run this model: {reasons[0]}; {instead}")
        library = load_library()
        if library is None:
            raise EngineError(f"{library_problem()}, or {instead}")
        return NativeEngine(self.network, library, int8=self.int8, cache_type=self.cache_type)


def native_engine(network: Any) -> NativeEngine | None:
    """The native engine with the current weights of a network; None where there is none for it."""
    if NativeEngine.unsupported_features(network):
        return None
    library = load_library()
    return None if library is None else NativeEngine(network, library)


def _fingerprint(network: Any) -> list[tuple[int, ...]]:
    """What differs once a network has changed: its modules, their hooks and patched functions, and weight versions.

    Objects are compared by id, which is cheap enough for every call: all of them live as long as the network does.
    torch counts the changes in place of a tensor in `_version`.
    """
    found: list[tuple[int, ...]] = []
    waiting: list[nn.Module] = [network]
    while waiting:  # a plain walk: `modules()` and `parameters()` take several times as long
        module = waiting.pop()
        patched = (id(each) for each in vars(module).values() if callable(each))  # a replaced `forward`, for example
        found.append((id(module), len(module._forward_hooks), len(module._forward_pre_hooks), *patched))
        for weight in module._parameters.values():
            if weight is not None and not weight.is_inference():
                found.append((id(weight), weight._version))
        waiting += (part for part in module._modules.values() if part is not None)
    return found


def int8_loss(
    network: Any,
    sources: Sequence[Sequence[int]],
    found: Sequence[Sequence[Hypothesis]],
    special: SpecialTokens,
    settings: Settings,
) -> str:
    """What int8 weights cost, in a sentence: the same texts are generated in float32, and both scored in float32."""
    exact = generate_batch(network, sources, special, settings)
    both = [(a[0].ids, b[0].ids) for a, b in zip(found, exact, strict=True)]
    lower = [
        _mean_logprob(network, source, b, special) - _mean_logprob(network, source, a, special)
        for source, (a, b) in zip(sources, both, strict=True)
    ]
    return (
        f"int8 weights: {sum(a == b for a, b in both)} of {len(both)} texts are the same as with float32, "
        f"and a token's log-probability is lower by {sum(lower) / max(1, len(lower)):.4f} on average"
    )


@torch.inference_mode()
def _mean_logprob(network: Any, source: Sequence[int], target: Sequence[int], special: SpecialTokens) -> float:
    """The mean log-probability of the tokens of a target, its stop token included."""
    tokens = torch.tensor([*target, special.stop])
    logits = network(torch.tensor([[*source, special.stop]]), torch.tensor([[special.start, *target]]))[0]
    return float(logits.log_softmax(-1).gather(1, tokens.unsqueeze(1)).mean())

"""`clearhead check`: what must hold for every model, measured on this one.

    causality            a token does not change what stands before it
    padding              padding changes nothing
    batch                a text in a batch is what it is alone
    cache                token by token gives what one pass gives
    beam                 a beam search of width 1 is the greedy search
    fused                the fused kernel gives what the equation gives
    native               native code gives what torch gives
    seed                 the same seed gives the same text
    tokenizer            what is decoded is encoded to the same tokens again
    original             every block and the logits are those of the original (`--against`)
    original tokenizer   texts are cut as the original cuts them

Each has the worst difference, relative to the largest number of the tensor where that is above 1; where it is too
large, the first tensor in the order of computation that differs is named.

    B batch, T tokens, D width
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.decode import Prompts, Settings, beam_search, generate
from clearhead.engines.native.engine import NativeEngine
from clearhead.engines.native.library import load_library
from clearhead.errors import ClearheadError
from clearhead.interop.checkpoint import FORMATS
from clearhead.interop.importing import prepare_import
from clearhead.interop.nasty import NASTY_TEXTS
from clearhead.interop.parity import imported_network
from clearhead.interop.reference import (
    CLASSES,
    Difference,
    Parity,
    compare_tensors,
    compare_tokens,
    difference,
    example_inputs,
    has_reference,
)
from clearhead.look.build import evaluation_mode
from clearhead.look.probes import capture, probes
from clearhead.nn import Fused, MultiHeadAttention
from clearhead.tasks.base.predictor import Predictor

LENGTH, CHANGED = 13, 4  # tokens of a text; its last tokens that are changed
TOKENS = 9  # that are generated
Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Result:
    """The outcome of one check."""

    name: str
    passed: bool
    worst: float | None = None  # None where nothing is measured
    where: str = ""  # the first tensor that differs, or the text
    skipped: str = ""  # why it was not done

    def record(self) -> dict[str, Any]:
        return asdict(self)


def check_model(model: Predictor, against: Path | None = None) -> list[Result]:
    """Every check that applies to a model."""
    checks: list[Callable[[Predictor], Result]] = [
        *(causality, padding, batch, cache, beam, fused, native, seed, tokenizer),
    ]
    with evaluation_mode(model.network), torch.no_grad():
        found = [check(model) for check in checks]
        return found + (original(model, against) if against is not None else [])


# --- inputs and tensors ---


def inputs_of(model: Predictor, number: int = 1) -> tuple[Tensor, ...]:
    """Random tokens or an image as the network reads them, a batch of one; another `number` gives others."""
    generator, sizes = torch.Generator().manual_seed(number), model.meta.sizes
    image = torch.rand(1, sizes.channels, sizes.height, sizes.width, generator=generator) * 2 - 1
    if model.task == "vision":
        return (image,)
    ids = _tokens(model, generator)
    if model.task == "caption":
        return image, ids
    if model.task in ("classify", "tag", "embed", "masked_lm"):
        longest = model.config.data.max_length
        return (torch.tensor([model.tokenizer.framed(ids[0].tolist(), longest, (model.tokenizer.cls,))]),)
    return (_tokens(model, generator), ids) if model.task == "translate" else (ids,)


def _tokens(model: Predictor, generator: torch.Generator) -> Tensor:
    """(1, T) without special tokens."""
    own = model.tokenizer
    special = {own.pad, own.unknown, own.start, own.stop, own.mask, own.cls, *own.prefix, *own.suffix}
    usable = torch.tensor([each for each in range(len(own)) if each not in special])
    return usable[torch.randint(len(usable), (1, LENGTH), generator=generator)]


def hidden_names(network: nn.Module, stack: str = "") -> list[str]:
    """The probes of the outputs of all blocks or layers, and the logits."""
    hidden = [name for name in probes(network) if name.startswith(stack) and name.endswith(".hidden")]
    return [*hidden, "logits"] if hidden else []


def tensors_of(network: nn.Module, inputs: tuple[Tensor, ...], stack: str = "") -> Tensors:
    """Those tensors in the order of computation."""
    with capture(network, *hidden_names(network, stack)) as seen:
        network(*inputs)
    return dict(seen)


def compared(name: str, found: Tensors, expected: Tensors, cut: Callable[[Tensor], Tensor] = lambda x: x) -> Result:
    """The result of a check that compares tensors."""
    names = [each for each in found if each in expected]
    return result(name, [difference(each, cut(found[each]), cut(expected[each])) for each in names])


def result(name: str, differences: list[Difference]) -> Result:
    """The result of a check from the differences in the order of computation."""
    parity = Parity(differences)
    first, worst = parity.first_drift, parity.worst
    return Result(name, first is None, worst.largest / worst.scale, first.name if first else "")


def _attends(model: Predictor) -> bool:
    return bool(hidden_names(model.network))


def _writes(model: Predictor) -> bool:
    return model.generates and hasattr(model.network, "step")


# --- the checks ---


def causality(model: Predictor) -> Result:
    """The last tokens are changed: nothing before them may change."""
    if not _writes(model):
        return Result("causality", True, skipped="it reads both ways")
    inputs, others = inputs_of(model), inputs_of(model, 2)
    changed = torch.cat((inputs[-1][:, :-CHANGED], others[-1][:, -CHANGED:]), dim=1)
    found = tensors_of(model.network, (*inputs[:-1], changed), "decoder")
    return compared("causality", found, tensors_of(model.network, inputs, "decoder"), lambda x: x[:, :-CHANGED])


def padding(model: Predictor) -> Result:
    """The text is padded: its own tokens may not change."""
    if model.reads != "text" or model.task in ("lm", "words"):
        return Result("padding", True, skipped="it never reads padding")
    if model.config.model.__dict__.get("pool") == "flatten":
        return Result("padding", True, skipped="its output depends on the length")
    source, *rest = inputs_of(model)
    longer = torch.nn.functional.pad(source, (0, 3), value=model.tokenizer.pad)
    expected, found = tensors_of(model.network, (source, *rest)), tensors_of(model.network, (longer, *rest))
    length = source.size(1)
    sides = {
        name: tensor[:, :length] if name.startswith("encoder") or (not rest and tensor.dim() == 3) else tensor
        for name, tensor in found.items()
    }
    return compared("padding", sides, expected)


def batch(model: Predictor) -> Result:
    """Two texts of one length at once: the first is what it is alone."""
    if not _attends(model):
        return Result("batch", True, skipped="it reads no sequences")
    first, second = inputs_of(model), inputs_of(model, 2)
    both = tuple(torch.cat(pair) for pair in zip(first, second, strict=True))
    return compared("batch", tensors_of(model.network, both), tensors_of(model.network, first), lambda x: x[:1])


def cache(model: Predictor) -> Result:
    """Some tokens at once, then one by one, with a cache: what one pass gives."""
    if not _writes(model):
        return Result("cache", True, skipped="it does not generate")
    *sources, ids = inputs_of(model)
    network: Any = model.network
    parts: list[Tensors] = []
    state = network.start(*sources)
    with capture(network, *hidden_names(network, "decoder")) as seen:
        for part in (ids[:, :CHANGED], *torch.split(ids[:, CHANGED:], 1, dim=1)):
            _, state = network.step(part, state)
            parts.append(dict(seen))
    found = {name: torch.cat([part[name] for part in parts], dim=1) for name in parts[0]}
    expected = tensors_of(network, (*sources, ids), "decoder")
    return compared("cache", found, {name: each[:, -ids.size(1) :] for name, each in expected.items()})


def beam(model: Predictor) -> Result:
    """A beam search of width 1 against the token loop."""
    if not _writes(model):
        return Result("beam", True, skipped="it does not generate")
    settings = Settings(max_tokens=TOKENS)
    prompts = Prompts([inputs_of(model)[-1][0, :CHANGED].tolist()])
    [[greedy, *_]] = generate(model.network, _start(model), prompts, settings)  # type: ignore[arg-type]
    [[widest, *_]] = beam_search(model.network, _start(model), prompts, settings)  # type: ignore[arg-type]
    return same_tokens("beam", greedy.ids, widest.ids)


def same_tokens(name: str, found: list[int], expected: list[int]) -> Result:
    """The result of a check that compares generated tokens."""
    return Result(name, found == expected, where="" if found == expected else f"{found}, not {expected}")


def _start(model: Predictor) -> Any:
    network: Any = model.network
    return network.start(*inputs_of(model)[:-1])


def fused(model: Predictor) -> Result:
    """Every fused kernel replaced by the equation."""
    layers = [part for part in model.network.modules() if isinstance(part, MultiHeadAttention)]
    if not any(isinstance(layer.kernel, Fused) for layer in layers):
        return Result("fused", True, skipped="it has no fused kernel")
    found = tensors_of(model.network, inputs_of(model))
    with explicit_kernels(layers):
        expected = tensors_of(model.network, inputs_of(model))
    return compared("fused", found, expected)


@contextmanager
def explicit_kernels(layers: list[MultiHeadAttention]) -> Iterator[None]:
    """The equation in place of the fused kernel, while open."""
    kernels = [layer.kernel for layer in layers]
    try:
        for layer in layers:
            layer.kernel = layer.kernel.explicit()
        yield
    finally:
        for layer, kernel in zip(layers, kernels, strict=True):
            layer.kernel = kernel


def native(model: Predictor) -> Result:
    """Steps in native code against one pass of the network."""
    if not _writes(model):
        return Result("native", True, skipped="it does not generate")
    if reasons := NativeEngine.unsupported_features(model.network):
        return Result("native", True, skipped=f"native code cannot run it: {reasons[0]}")
    library = load_library()
    if library is None:
        return Result("native", True, skipped="the native library is not built")
    network: Any = model.network
    *sources, ids = inputs_of(model)
    engine = NativeEngine(network, library)
    state, logits = engine.start(*sources), []
    for part in (ids[:, :CHANGED], *torch.split(ids[:, CHANGED:], 1, dim=1)):
        step, state = engine.step(part, state)
        logits.append(step)
    return result("native", [difference("logits", torch.cat(logits, dim=1), network(*sources, ids)[:, -ids.size(1) :])])


def seed(model: Predictor) -> Result:
    """The same text twice, with the same seed."""
    if not _writes(model):
        return Result("seed", True, skipped="it does not generate")
    settings = Settings(max_tokens=TOKENS, temperature=1.0, seed=7)
    prompts = Prompts([inputs_of(model)[-1][0, :CHANGED].tolist()])
    texts = [generate(model.network, _start(model), prompts, settings)[0][0].ids for _ in range(2)]  # type: ignore[arg-type]
    return same_tokens("seed", *texts)


def tokenizer(model: Predictor) -> Result:
    """Decoded text is encoded to tokens that mean the same text; texts with unknown tokens are left out."""
    if model.reads == "image":
        return Result("tokenizer", True, skipped="it reads no text")
    own = model.tokenizer
    for text in NASTY_TEXTS:
        ids = own.encode(text)
        if own.unknown in ids:
            continue
        once = own.decode(ids)
        if own.decode(own.encode(once)) != once:
            return Result("tokenizer", False, where=repr(text))
    return Result("tokenizer", True)


# --- the original ---


def original(model: Predictor, path: Path) -> list[Result]:
    """The model beside the files that it was imported from: run by transformers, or imported once more."""
    imported = prepare_import(path)
    if imported.plan.task != model.task:
        raise ClearheadError(f"{path} is a model for {imported.plan.task}, and {model.name} one for {model.task}")
    if has_reference() and imported.plan.task in CLASSES and imported.family.in_transformers:
        parity = compare_tensors(model.network, imported)
    else:
        inputs = example_inputs(imported)
        expected = tensors_of(imported_network(imported), inputs)
        found = tensors_of(model.network, inputs)
        parity = Parity([difference(name, found[name], expected[name]) for name in found])
    results = [result("original", parity.differences)]
    if imported.tokenizer is not None:
        results.append(_original_tokenizer(model, imported))
    return results


def _original_tokenizer(model: Predictor, imported: Any) -> Result:
    own, theirs = model.tokenizer, imported.tokenizer
    for text in NASTY_TEXTS:
        if own.encode(text) != theirs.encode(text) or (own.prefix, own.suffix) != (theirs.prefix, theirs.suffix):
            return Result("original tokenizer", False, where=repr(text))
    if has_reference() and FORMATS["huggingface"]().can_read(imported.checkpoint.source):
        sentence, equal = compare_tokens(own, imported.checkpoint)
        return Result("original tokenizer", equal, where="" if equal else sentence)
    return Result("original tokenizer", True)

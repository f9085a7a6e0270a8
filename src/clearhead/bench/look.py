"""`clearhead bench look`: the cost of capturing attention, against a plain forward pass and against other packages.

The peers are transformers with eager attention and `output_attentions=True`, and TransformerLens with its full cache,
if it is installed. All use the same GPT-2 weights, and the candidates take turns. A pass for the weights alone ends
when the last of them is captured, and is compared with a peer without output head; a pass for weights and answer is
compared with a peer that has one.

`clearhead bench look --model MODEL` measures a language model from elsewhere instead, with its own weights in all
candidates, and what one head costs while it generates. There the engine of quantised weights is a candidate too, as
`see` uses it, with the vectors that meet a matrix rounded; how much that changes a weight is a figure. Without rounding
(`exact`) its products take as long as those of any float arithmetic.

    T tokens
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.bench.measure import (
    Measurement,
    Round,
    in_own_process,
    median_ratio,
    medians,
    rounds_together,
    side_by_side,
)
from clearhead.bench.peers import Gpt, transformers_gpt2
from clearhead.config import AnyConfig
from clearhead.decode import Settings
from clearhead.engines.native.lm import LmEngine
from clearhead.interop.checkpoint import read_checkpoint
from clearhead.interop.reference import load_reference
from clearhead.look import capture
from clearhead.look.seeing import SeenRow, Wanted, generate_seeing, heads_to_see
from clearhead.run import Sizes
from clearhead.tasks import default_config, override_config
from clearhead.tasks.base.network import build_network
from clearhead.tasks.base.predictor import load

PLAIN, ALL, ALONE = "plain forward", "all weights and the answer", "all weights"
ONE = "one head of one layer"
ROUNDED, EXACT = f"{ALONE}, by the engine", f"{ALONE}, by the engine exact"
TRANSFORMERS = "transformers with output_attentions"
HEADLESS, LENS = f"{TRANSFORMERS}, without its head", "TransformerLens with its full cache"
MOST = {ALL: 1.5, ONE: 1.1}  # of a plain forward pass
MOST_OF_PEER = {
    (ALL, TRANSFORMERS): 1.0,
    (ALONE, HEADLESS): 1.0,
    (EXACT, HEADLESS): 1.0,
    (ALL, LENS): None,
    (ALONE, LENS): 0.5,
    (EXACT, LENS): 0.5,
    (ROUNDED, LENS): 0.5,
}


@dataclass(frozen=True)
class Translator:
    """The sizes of an encoder-decoder."""

    layers: int = 6
    dim: int = 512
    heads: int = 8
    inner: int = 2048
    vocabulary: int = 8000


GPT2 = Gpt(layers=12, dim=768, heads=12, block=1024, batch=1, vocabulary=50257)
LENGTHS = {64: 80, 1024: 9}  # tokens, and the number of rounds
LONG = 8192


def run(peers: bool) -> Iterator[Measurement]:
    """Yield every figure as soon as it is measured."""
    yield from against_plain_forward(Translator(), length=64, rounds=40)
    yield memory_of_one_head(LONG)
    for length, rounds in LENGTHS.items():
        yield from against_peers(GPT2, length, measured(GPT2, length, peers, rounds))
    if peers and not has_lens():
        yield Measurement("packages that are not installed and not compared with: transformer-lens", 1, "")


# --- against a plain forward pass ---


def against_plain_forward(size: Translator, length: int, rounds: int) -> Iterator[Measurement]:
    """A translator with `length` tokens on both sides: plain, with all weights captured, with one head captured."""
    network, texts = our_translator(size), tuple(torch.randint(1, size.vocabulary, (2, 1, length)))
    one = f"decoder.{size.layers // 2}.cross.weights"
    candidates = {
        PLAIN: lambda: network(*texts),
        ALL: lambda: captured(network, texts, "*.weights"),
        ONE: lambda: captured(network, texts, one, heads=size.heads - 1),
    }
    with torch.inference_mode():
        taken = side_by_side(candidates, rounds)
    what = f"translator of {size.layers} + {size.layers} layers, {length} tokens"
    for name, most in MOST.items():
        detail = {"milliseconds": taken, "rounds": rounds}
        yield Measurement(f"{what}: {name} / {PLAIN}", taken[name] / taken[PLAIN], "×", most, detail)


def our_translator(size: Translator) -> Any:
    """An encoder-decoder with random weights."""
    torch.manual_seed(1)
    sizes = {"layers": size.layers, "dim": size.dim, "heads": size.heads, "inner": size.inner}
    config = override_config(default_config("translate"), [f"model.{name}={value}" for name, value in sizes.items()])
    return build_network(config, Sizes(vocabulary=size.vocabulary)).eval()


def captured(
    network: Any, inputs: tuple[Tensor, ...], pattern: str, heads: int | None = None, stop: bool = False
) -> Mapping[str, Tensor]:
    """The probes that match the pattern in one forward pass."""
    with capture(network, pattern, heads=heads, stop=stop) as found:
        network(*inputs)
    return found


# --- memory ---

_ONE_HEAD = """
import sys, torch
from clearhead.look import capture
from clearhead.nn import Encoder, EncoderBlock, Mask
length, pattern = int(sys.argv[1]), sys.argv[2]
torch.manual_seed(1)
stack, x, mask = Encoder([EncoderBlock(128, 8)]), torch.randn(1, length, 128), Mask(causal=True)
with torch.inference_mode(), capture(stack, pattern, heads=5):
    stack(x, mask=mask)
result = {}
"""


def memory_of_one_head(length: int) -> Measurement:
    """The memory for capturing one head of eight, in matrices of T × T: little more than its own."""
    plain, one = (in_own_process(_ONE_HEAD, str(length), f"encoder.0.{what}") for what in ("hidden", "self.weights"))
    matrix = length * length * 4 / 1e6  # MB
    taken = (one["peak_mb"] - plain["peak_mb"]) / matrix
    detail = {"matrix MB": matrix, "plain MB": plain["peak_mb"], "one head MB": one["peak_mb"]}
    return Measurement(f"one head of eight, {length:,} tokens: matrices in memory", taken, "", 1.5, detail)


# --- against other packages ---


def against_peers(size: Gpt, length: int, rounds: Sequence[Round]) -> Iterator[Measurement]:
    """The time of each candidate, and ours relative to each peer."""
    yield from compared(f"{size}, {length:,} tokens", rounds)


def compared(what: str, rounds: Sequence[Round]) -> Iterator[Measurement]:
    """The same for candidates of any model."""
    taken = medians(rounds)
    lens = {"transformer-lens": version("transformer-lens")} if LENS in taken else {}
    detail = {"milliseconds": taken, "rounds": len(rounds), **lens}
    for name, each in taken.items():
        yield Measurement(f"{what}: {name}", each, "ms", None, detail)
    yield Measurement(f"{what}: {ONE} / {PLAIN}", median_ratio(rounds, ONE, PLAIN), "×", MOST[ONE], detail)
    for (ours, theirs), most in MOST_OF_PEER.items():
        if ours in taken and theirs in taken:
            yield Measurement(f"{what}: {ours} / {theirs}", median_ratio(rounds, ours, theirs), "×", most, detail)


@torch.inference_mode()
def measured(size: Gpt, length: int, peers: bool, rounds: int) -> list[Round]:
    """The milliseconds of each candidate on one text."""
    torch.manual_seed(1)
    ours, ids = our_gpt(size), torch.randint(1, size.vocabulary, (1, length))
    candidates = our_candidates(ours, ids, f"decoder.{size.layers // 2}.self.weights", size.heads - 1)
    if peers:
        theirs: Any = transformers_gpt2(size, "eager").eval()
        copy_gpt2(theirs, ours)
        candidates |= their_candidates(theirs, ours, ids)
    return rounds_together(candidates, rounds)


def our_candidates(ours: Any, ids: Tensor, one: str, head: int) -> dict[str, Callable[[], object]]:
    """A pass without capture, and with it: all weights with the answer, all weights alone, one head."""
    return {
        PLAIN: lambda: ours(ids),
        ALL: lambda: captured(ours, (ids,), "*.weights"),
        ALONE: lambda: captured(ours, (ids,), "*.weights", stop=True),
        ONE: lambda: captured(ours, (ids,), one, heads=head),
    }


def their_candidates(theirs: Any, ours: Any, ids: Tensor) -> dict[str, Callable[[], object]]:
    """The peers on the same text, after checking that their weights equal ours."""
    assert_same_weights(ours, ids, theirs(ids, output_attentions=True).attentions)
    found: dict[str, Callable[[], object]] = {
        TRANSFORMERS: lambda: theirs(ids, output_attentions=True),
        HEADLESS: lambda: theirs.base_model(ids, output_attentions=True),
    }
    if has_lens():
        sources = import_module("transformer_lens.model_bridge.sources")
        kind = type(theirs).__name__
        lens = sources.build_bridge_from_module(deepcopy(theirs), kind, hf_config=theirs.config).eval()
        found[LENS] = lambda: lens.run_with_cache(ids)
    return found


def assert_same_weights(ours: Any, ids: Tensor, theirs: Sequence[Tensor]) -> None:
    """Check the weights of each layer (1, H, T, T) against those of our network."""
    for our, their in zip(captured(ours, (ids,), "*.weights", stop=True).values(), theirs, strict=True):
        torch.testing.assert_close(our, their, rtol=1e-3, atol=1e-5)


# --- a model from elsewhere ---


def run_model(path: str, peers: bool, length: int = 512, generated: int = 64, rounds: int = 9) -> Iterator[Measurement]:
    """The same figures of one language model, and of its generation."""
    model: Any = load(path)
    model.require("generate")
    torch.manual_seed(1)
    ids = torch.randint(1, len(model.tokenizer), (1, min(length, model.max_read)))
    layers = len(model.network.stacks()["decoder"].blocks)
    one, head = f"decoder.{layers // 2}.self.weights", model.config.model.heads - 1
    with torch.inference_mode():
        engines = by_engines(path, model, ids)
        candidates = {**our_candidates(model.network, ids, one, head), **engines}
        theirs = peers_of(path, model.network, ids) if peers else {}
        yield from compared(f"{model.name}, {ids.size(1)} tokens", rounds_together({**candidates, **theirs}, rounds))
    if engines:
        yield effect_of_rounding(model.name, engines[ROUNDED](), engines[EXACT]())
    yield while_generating(model, one, head, ids[0, :64].tolist(), generated, rounds)
    if peers and not has_lens():
        yield Measurement("packages that are not installed and not compared with: transformer-lens", 1, "")


def by_engines(path: str, model: Any, ids: Tensor) -> dict[str, Callable[[], list[Tensor]]]:
    """All weights handed out by the engine of quantised weights; none for a model without them."""
    found: dict[str, Callable[[], list[Tensor]]] = {}
    for name, engine in {ROUNDED: "auto", EXACT: "exact"}.items():
        stepper = load(path, engine=engine).engines.stepper()
        wanted = heads_to_see(model.outline, stepper, ["*.weights"]) if isinstance(stepper, LmEngine) else None
        if wanted is not None:
            found[name] = partial(read_by_engine, stepper, ids[0].tolist(), wanted)
    if EXACT in found:
        assert_same_weights(model.network, ids, found[EXACT]())
    return found


def effect_of_rounding(name: str, rounded: Sequence[Tensor], exact: Sequence[Tensor]) -> Measurement:
    """How much of the attention of a token goes elsewhere, (1, H, T, T) of each layer."""
    moved = torch.stack([(one - other).abs().sum(-1).mean() / 2 for one, other in zip(rounded, exact, strict=True)])
    detail = {"of each layer": moved.tolist()}
    return Measurement(f"{name}: attention that rounding moves to other tokens", float(moved.mean()), "", None, detail)


def read_by_engine(stepper: Any, ids: list[int], wanted: Wanted) -> list[Tensor]:
    """The weights of each layer, with the batch axis."""
    seen = SeenRow(wanted)
    generate_seeing(stepper, stepper.start(), ids, None, Settings(max_tokens=0), seen)
    return [weights[None] for weights in seen.tensors().values()]


def while_generating(model: Any, one: str, head: int, prompt: list[int], tokens: int, rounds: int) -> Measurement:
    """Greedy generation with one head seen at every token, against plain generation; by the engine if it can."""
    wanted, settings = heads_to_see(model.outline, model.engines.stepper(), [one], head), Settings(max_tokens=tokens)
    stepper = model.network if wanted is None else model.engines.stepper()

    def generated(seen: SeenRow | None = None) -> object:
        return generate_seeing(stepper, stepper.start(), prompt, None, settings, seen)

    def looking() -> object:
        if wanted is not None:
            return generated(SeenRow(wanted))
        with capture(model.network, one, heads=head):
            return generated()

    found = rounds_together({PLAIN: generated, ONE: looking}, rounds, warm_up=1)
    what = f"{model.name}, {tokens} tokens generated: {ONE} / without looking"
    return Measurement(what, median_ratio(found, ONE, PLAIN), "×", MOST[ONE], {"milliseconds": medians(found)})


def peers_of(path: str, ours: Any, ids: Tensor) -> dict[str, Callable[[], object]]:
    """The original by `transformers` and in TransformerLens, after checking that their weights equal ours."""
    theirs: Any = load_reference(read_checkpoint(Path(path)), "lm")
    return their_candidates(theirs, ours, ids)


def has_lens() -> bool:
    """Whether TransformerLens is installed; it has too many dependencies to require it."""
    return find_spec("transformer_lens") is not None


def gpt_config(size: Gpt) -> AnyConfig:
    """A language model with the parts of GPT-2."""
    settings = {
        "layers": size.layers,
        "dim": size.dim,
        "heads": size.heads,
        "max_length": size.block,
        "length": size.block,
        "positions": "learned",
        "norm": "layer",
        "feed_forward": "gelu",
        "tied": "false",
    }
    return override_config(default_config("lm"), [f"model.{name}={value}" for name, value in settings.items()])


def our_gpt(size: Gpt) -> Any:
    """Our GPT-2, with random weights."""
    return build_network(gpt_config(size), Sizes(vocabulary=size.vocabulary)).eval()


@torch.no_grad()
def copy_gpt2(theirs: Any, ours: Any) -> None:
    """Copy the weights of a `GPT2LMHeadModel` into ours."""
    body, embedding = theirs.transformer, ours.tokens.tokens
    embedding.table.weight.copy_(body.wte.weight / embedding.scale)
    ours.tokens.positions.table.weight.copy_(body.wpe.weight)
    ours.output.linear.weight.copy_(body.wte.weight)
    _copy(body.ln_f, ours.stack.norm)
    for their, our in zip(body.h, ours.stack.blocks, strict=True):
        _copy(their.ln_1, our.residual1.norm)
        _copy(their.ln_2, our.residual2.norm)
        _copy(their.attn.c_attn, our.self_attention.query, our.self_attention.key, our.self_attention.value)
        _copy(their.attn.c_proj, our.self_attention.output)
        _copy(their.mlp.c_fc, our.feed_forward.inner)
        _copy(their.mlp.c_proj, our.feed_forward.outer)


def _copy(theirs: Any, *ours: Any) -> None:
    """Copy weight and bias; GPT-2 stores matrices transposed, and several side by side."""
    weights = theirs.weight.t().chunk(len(ours)) if theirs.weight.dim() == 2 else [theirs.weight]
    for our, weight, bias in zip(ours, weights, theirs.bias.chunk(len(ours)), strict=True):
        our.weight.copy_(weight)
        our.bias.copy_(bias)

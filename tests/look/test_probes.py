"""Named probes: equal to the explicit equation in every model, only what is asked for, and gone afterwards."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearhead.errors import ProbeError
from clearhead.look import attention as attention_calls
from clearhead.look.probes import capture, probes, stacks
from clearhead.nn import (
    Alibi,
    Decoder,
    DecoderBlock,
    Encoder,
    EncoderBlock,
    Fused,
    Mask,
    MultiHeadAttention,
    Rotary,
    T5Relative,
    length_mask,
)
from clearhead.run import Sizes
from clearhead.tasks import TASKS
from clearhead.tasks.base.network import build_network

B, S, T = 3, 7, 5
HEADS, DIM, VOCABULARY, CLASSES = 2, 22, 13, 11
SIZES = Sizes(vocabulary=VOCABULARY, classes=CLASSES, channels=3, height=4, width=10)
SMALL = {"dim": DIM, "heads": HEADS, "layers": 2, "inner": 17, "dropout": 0.3, "max_length": 19}
IMAGES = {"patch": 2}
VARIATIONS: list[dict[str, Any]] = [
    {"positions": "sinusoidal"},
    {"positions": "learned"},
    {"positions": "rotary", "heads": 11},
    {"positions": "alibi"},
    {"positions": "t5"},
    {"positions": "none", "window": 3},
    {"positions": "alibi", "window": 2, "heads": 11},
    {"heads": 11, "kv_heads": 1, "placement": "after"},
    {"score": "dot", "key_dim": 5, "value_dim": 3, "placement": "around"},
    {"score": "additive"},
    {"score": "bilinear"},
    {"score": "cosine", "hard": True},
]
RNN = {"architecture": "rnn"}
CASES: list[tuple[str, dict[str, Any]]] = [
    *(("translate", each) for each in VARIATIONS),
    *(("lm", each) for each in VARIATIONS),
    ("masked_lm", {}),
    *(("classify", each) for each in ({}, {"positions": "t5"}, {"pool": "mean"})),
    ("tag", {}),
    *(("vision", {**IMAGES, **each}) for each in ({}, {"positions": "alibi"})),
    *(("caption", {**IMAGES, "architecture": kind}) for kind in ("cross", "sequence", "rnn")),
    *(("translate", {**RNN, "context": "attention", "score": score}) for score in ("additive", "dot", "cosine")),
    ("translate", {**RNN, "context": "attention", "hard": True, "cell": "lstm"}),
    ("translate", {**RNN, "context": "sum", "cell": "gru"}),
    ("lm", {**RNN, "cell": "lstm"}),
]


def named(case: tuple[str, dict[str, Any]]) -> str:
    task, settings = case
    return ",".join([task, *(f"{key}={value}" for key, value in settings.items())])


def made(task: str, settings: dict[str, Any]) -> tuple[Any, tuple[Tensor, ...]]:
    """A model in float64 and inputs for it; sentences are padded on the right."""
    torch.manual_seed(1)
    model = (
        build_network(TASKS[task].config_type().model_validate({"model": {**SMALL, **settings}}), SIZES).double().eval()
    )
    sentences = torch.randint(1, VOCABULARY, (B, S)) * length_mask(torch.tensor([4, 7, 6])).squeeze(1)
    images, target = torch.randn(B, 3, 4, 10).double(), torch.randint(1, VOCABULARY, (B, T))
    inputs = {"translate": (sentences, target), "caption": (images, target), "vision": (images,)}
    return model, inputs.get(task, (sentences,) if task in ("classify", "tag") else (target,))


def written_out(model: nn.Module, inputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """What every attention layer weighs with, by its own explicit equation from what the whole layer is given."""
    found: dict[str, Tensor] = {}

    def recorder(name: str) -> Any:
        def record(layer: MultiHeadAttention, given: Any, named: dict[str, Any]) -> None:
            found[name] = layer.weights(*given, **named)

        return record

    layers = {
        f"{stack}.{number}.{part}": getattr(block, f"{part}_attention")
        for stack, blocks in stacks(model).items()
        for number, block in enumerate(getattr(blocks, "blocks", ()))
        for part in ("self", "cross")
        if hasattr(block, f"{part}_attention")
    }
    hooks = [layer.register_forward_pre_hook(recorder(name), with_kwargs=True) for name, layer in layers.items()]
    model(*inputs)
    for hook in hooks:
        hook.remove()
    return found


learning_or_not = pytest.mark.parametrize("learning", [True, False], ids=["gradients", "no gradients"])


@learning_or_not
@pytest.mark.parametrize("case", CASES, ids=named)
def test_captured_weights_are_those_of_the_explicit_equation(case: tuple[str, dict[str, Any]], learning: bool) -> None:
    model, inputs = made(*case)
    expected = written_out(model, inputs)
    if case[1].get("context") == "attention":
        expected["decoder.0.cross"] = model.alignment(*inputs).unsqueeze(1)
    names = [name for name in probes(model) if name.endswith(".weights")]
    assert {name.removesuffix(".weights") for name in names} == set(expected)
    if not names:
        return
    with torch.set_grad_enabled(learning), capture(model, *names) as seen:
        model(*inputs)
    for name, weights in expected.items():
        torch.testing.assert_close(seen[f"{name}.weights"], weights.detach(), rtol=0, atol=1e-12)


@learning_or_not
@pytest.mark.parametrize("case", CASES, ids=named)
def test_everything_fits_together_and_nothing_changes(case: tuple[str, dict[str, Any]], learning: bool) -> None:
    model, inputs = made(*case)
    with torch.set_grad_enabled(learning):
        before = model(*inputs)
        with capture(model, "*") as seen:
            after = model(*inputs)
        afterwards = model(*inputs)
    assert set(seen) == set(probes(model))
    within = 0 if learning else 1e-12  # without gradients the mixture is that of the weights that are seen
    torch.testing.assert_close(after, before, rtol=0, atol=within)
    torch.testing.assert_close(seen["logits"], after.detach(), rtol=0, atol=0)
    torch.testing.assert_close(afterwards, before, rtol=0, atol=0)
    for name in (name.removesuffix(".weights") for name in seen if name.endswith(".weights")):
        weights, value, mixed = (seen[f"{name}.{what}"] for what in ("weights", "value", "mixed"))
        shared = value.repeat_interleave(weights.size(1) // value.size(1), dim=1)
        torch.testing.assert_close(weights @ shared, mixed, rtol=0, atol=1e-12)
        visible, scores = seen[f"{name}.visible"].unsqueeze(1), seen[f"{name}.scores"]
        assert weights.masked_select(~visible).eq(0).all()
        if not case[1].get("hard"):
            masked = scores.masked_fill(~visible, -torch.inf).softmax(-1).nan_to_num()
            torch.testing.assert_close(weights, masked, rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=named)
def test_some_heads_are_a_part_of_all(case: tuple[str, dict[str, Any]]) -> None:
    model, inputs = made(*case)
    parts = ("weights", "scores", "query", "key", "value", "mixed")
    names = [name for name, probe in probes(model).items() if probe.heads and name.split(".")[-1] in parts]
    heads = [case[1].get("heads", HEADS) - 1, 0] if names and ".cross" not in names[0] else [0]
    if not names:
        return
    with capture(model, *names) as whole, capture(model, *names, heads=heads) as some:
        model(*inputs)
    for name in names:
        every = whole[name]
        count = whole[f"{name.rsplit('.', 1)[0]}.weights"].size(1)
        every = every.repeat_interleave(count // every.size(1), dim=1)
        torch.testing.assert_close(some[name], every[:, heads], rtol=0, atol=1e-12)


def test_hidden_states_are_what_blocks_read_and_write() -> None:
    model, (source, target) = made("translate", {})
    with capture(model, "*.hidden", "*.embedded", "*.feed_forward.*", "decoder.1.cross.output") as seen:
        model(source, target)
    torch.testing.assert_close(seen["encoder.embedded"], model.source(source).detach(), rtol=0, atol=0)
    block = model.encoder.blocks[1]
    mask = length_mask(torch.tensor([4, 7, 6]))
    torch.testing.assert_close(seen["encoder.1.hidden"], block(seen["encoder.0.hidden"], mask).detach())
    inner, network = seen["encoder.1.feed_forward.inner"], block.feed_forward
    assert inner.shape == (B, S, 17)
    assert (inner >= 0).all()
    torch.testing.assert_close(network.outer(inner).detach(), seen["encoder.1.feed_forward.output"])
    assert seen["decoder.1.cross.output"].shape == (B, T, DIM)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("context", ["last", "attention"])
def test_states_of_recurrent_layers_are_those_of_each_layer_by_itself(cell: str, context: str) -> None:
    model, inputs = made("translate", {**RNN, "cell": cell, "context": context, "layers": 3})
    drawn = torch.get_rng_state()
    with capture(model, "*.cell.hidden") as seen:
        model(*inputs)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert set(seen) == {f"{stack}.{layer}.cell.hidden" for stack in ("encoder", "decoder") for layer in range(3)}
    network = model.encoder.network
    ways = 2 if network.bidirectional else 1
    last = network(model.source(inputs[0])[1:2], None)[1]  # row 1 has no padding
    states = last[0] if cell == "lstm" else last  # (layers × ways, 1, D)
    for layer in range(3):
        ends = seen[f"encoder.{layer}.cell.hidden"][1].detach()  # (S, D)
        wanted = torch.cat([ends[-1:, : DIM // ways], *([ends[:1, DIM // 2 :]] if ways == 2 else [])])
        torch.testing.assert_close(wanted, states[layer * ways : (layer + 1) * ways, 0].detach())
    _, state = model.step(inputs[1], model.start(inputs[0]))
    for layer in range(3):
        after = seen[f"decoder.{layer}.cell.hidden"][:, -1]
        torch.testing.assert_close(after, state.last.hidden[layer].detach())


def test_a_step_through_the_cache_sees_what_reading_all_at_once_sees() -> None:
    model, (source, target) = made("translate", {"positions": "rotary", "heads": 11})
    with capture(model, "decoder.*.weights") as whole:
        model(source, target)
    state = model.start(source)
    with capture(model, "decoder.*.weights") as seen:
        for place in range(T):
            model.step(target[:, place : place + 1], state)
    for name, weights in whole.items():
        torch.testing.assert_close(seen[name], weights[:, :, -1:], rtol=0, atol=1e-12)


@pytest.mark.parametrize("relative", [None, Rotary(6), Alibi(5), T5Relative(5)], ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("mask", [Mask(), Mask(causal=True), Mask(window=4), Mask(causal=True, window=3)], ids=str)
@pytest.mark.parametrize("strip", [1, 200, 2**19])
@pytest.mark.parametrize("padded", [True, False])
@learning_or_not
def test_strips_of_any_height_give_the_same(
    relative: Any, mask: Mask, strip: int, padded: bool, learning: bool, monkeypatch: Any
) -> None:
    torch.manual_seed(2)
    monkeypatch.setattr(attention_calls, "STRIP", strip)
    layer = MultiHeadAttention(30, 5, relative=relative).double()
    stack = Encoder([EncoderBlock(30, 5, attention=layer)]).double()
    x, real = torch.randn(2, 13, 30).double(), length_mask(torch.tensor([13, 9]))
    mask = mask & real if padded else mask
    with torch.set_grad_enabled(learning), capture(stack, "encoder.0.self.weights", "encoder.0.self.scores") as seen:
        written = stack(x, mask=mask)
    torch.testing.assert_close(written, stack(x, mask=mask), rtol=0, atol=1e-12)
    torch.testing.assert_close(seen["encoder.0.self.weights"], layer.weights(x, mask=mask).detach(), rtol=0, atol=1e-12)
    expected = layer.weights(x).detach()
    torch.testing.assert_close(seen["encoder.0.self.scores"].softmax(-1), expected, rtol=0, atol=1e-12)


def test_a_query_that_sees_nothing_looks_nowhere() -> None:
    stack = Encoder([EncoderBlock(12, 3)])
    with capture(stack, "*.weights") as seen:
        stack(torch.randn(2, 5, 12), mask=length_mask(torch.tensor([0, 4]), 5))
    assert seen["encoder.0.self.weights"][0].eq(0).all()
    torch.testing.assert_close(seen["encoder.0.self.weights"][1].sum(-1), torch.ones(3, 5))


def test_one_head_of_a_long_text_never_builds_the_matrices_of_the_others(monkeypatch: Any) -> None:
    """At 8,192 tokens one matrix has 67 million numbers, and 7 heads would have 470 million."""
    length, largest = 8192, 0
    stack = Encoder([EncoderBlock(14, 7, attention=MultiHeadAttention(14, 7, relative=Alibi(7)))])
    kernel = stack.blocks[0].self_attention.kernel
    assert isinstance(kernel, Fused)
    monkeypatch.setattr(kernel, "forward", lambda *given: given[2])  # what is measured is the capture

    class Watching(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
            nonlocal largest
            out = function(*given, **(named or {}))
            largest = max(largest, out.numel() if isinstance(out, Tensor) else 0)
            return out

    with torch.inference_mode(), capture(stack, "encoder.0.self.weights", heads=3) as seen, Watching():
        stack(torch.randn(1, length, 14), mask=Mask(causal=True))
    weights = seen["encoder.0.self.weights"]
    assert weights.shape == (1, 1, length, length)
    torch.testing.assert_close(weights[0, 0, ::997].sum(-1), torch.ones(len(range(0, length, 997))))
    assert largest == length * length


def small_decoder() -> Decoder:
    torch.manual_seed(1)
    return Decoder([DecoderBlock(12, 3) for _ in range(2)]).double()


def test_the_hooks_are_gone_whatever_happens() -> None:
    decoder, x, memory = small_decoder(), *torch.randn(2, 2, 5, 12).double()
    seen = {}

    def interrupted() -> None:
        with capture(decoder, "*") as recorded:
            decoder(x, memory)
            seen.update(recorded)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        interrupted()
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in decoder.modules())
    assert not any("forward" in vars(part) for part in decoder.modules())
    kept = seen["decoder.0.self.weights"].clone()
    decoder(2 * x, memory)
    torch.testing.assert_close(seen["decoder.0.self.weights"], kept, rtol=0, atol=0)


def test_captured_numbers_carry_no_gradient_and_training_goes_on() -> None:
    decoder, x, memory = small_decoder(), *torch.randn(2, 2, 5, 12).double()
    decoder(x, memory).sum().backward()
    expected = {name: weight.grad.clone() for name, weight in decoder.named_parameters() if weight.grad is not None}
    decoder.zero_grad()
    with capture(decoder, "*") as seen:
        decoder(x, memory).sum().backward()
    assert not any(tensor.requires_grad for tensor in seen.values())
    for name, gradient in expected.items():
        torch.testing.assert_close(decoder.get_parameter(name).grad, gradient, rtol=0, atol=0)


@torch.no_grad()
def test_captures_inside_each_other_see_the_same_and_leave_what_was_there() -> None:
    decoder, x, memory = small_decoder(), *torch.randn(2, 2, 5, 12).double()
    kernel: Any = decoder.blocks[1].cross_attention.kernel
    own = kernel.forward = lambda *given: 2 * type(kernel).forward(kernel, *given)
    expected = decoder(x, memory)
    with capture(decoder, "*.weights") as outer:
        with capture(decoder, "*.weights") as inner:
            torch.testing.assert_close(decoder(x, memory), expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(inner, outer, rtol=0, atol=1e-12)
        decoder(2 * x, memory)
    assert kernel.forward is own
    assert not torch.equal(outer["decoder.0.self.weights"], inner["decoder.0.self.weights"])


def test_dropout_of_weights_goes_on_while_they_are_seen() -> None:
    decoder, x, memory = small_decoder(), *torch.randn(2, 2, 5, 12).double()
    for part in decoder.modules():
        if isinstance(part, Fused):
            part.dropout = 0.5
    with torch.no_grad():
        torch.manual_seed(3)
        before = decoder.train()(x, memory)
        torch.manual_seed(3)
        with capture(decoder, "*.weights") as seen:
            after = decoder(x, memory)
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    torch.testing.assert_close(seen["decoder.1.self.weights"].sum(-1), torch.ones(2, 3, 5).double())


def test_only_what_is_asked_for_is_computed() -> None:
    decoder, x, memory = small_decoder(), *torch.randn(2, 2, 5, 12).double()
    with capture(decoder, "decoder.1.cross.weights") as seen:
        changed = [path for path, part in decoder.named_modules() if part._forward_hooks or "forward" in vars(part)]
        decoder(x, memory)
    assert list(seen) == ["decoder.1.cross.weights"]
    assert changed == ["blocks.1.cross_attention.kernel"]


@learning_or_not
@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_pass_that_ends_where_all_was_seen_sees_the_same(case: tuple[str, dict[str, Any]], learning: bool) -> None:
    model, inputs = made(*case)
    with torch.set_grad_enabled(learning):
        for pattern in ("*.embedded", "*.weights", "*.0.*", "*"):
            if not any(fnmatchcase(name, pattern) for name in probes(model)):
                continue
            with capture(model, pattern) as whole:
                model(*inputs)
            with capture(model, pattern, stop=True) as seen:
                model(*inputs)
                raise AssertionError("this is not reached")
            torch.testing.assert_close(seen, whole, rtol=0, atol=0)
    assert not any(part._forward_hooks or "forward" in vars(part) for part in model.modules())


@pytest.mark.parametrize("pattern", ["decoder.0.cross.weights", "decoder.0.cross.query"])
def test_nothing_is_computed_after_all_was_seen(pattern: str) -> None:
    decoder, x, memory = small_decoder(), *torch.randn(2, 2, 5, 12).double()
    called: list[str] = []
    for name, part in decoder.named_modules():
        part.register_forward_pre_hook(lambda *_, name=name: called.append(name))
    with torch.no_grad(), capture(decoder, pattern, stop=True):
        decoder(x, memory)
    assert called[-1] == "blocks.0.cross_attention.kernel"


def test_a_pass_is_ended_by_the_capture_that_has_seen_all() -> None:
    decoder, x, memory = small_decoder(), *torch.randn(2, 2, 5, 12).double()
    reached = []
    with capture(decoder, "decoder.0.hidden", stop=True) as outer:
        with capture(decoder, "decoder.*.self.output", stop=True) as inner:
            decoder(x, memory)
        reached.append("after the inner one")
    assert (list(outer), list(inner), reached) == (["decoder.0.hidden"], ["decoder.0.self.output"], [])
    with capture(decoder, "decoder.*.hidden", stop=True) as outer:
        with capture(decoder, "decoder.0.hidden", stop=True) as inner:
            decoder(x, memory)
        reached.append("after the inner one")
    assert (list(outer), list(inner), reached) == (["decoder.0.hidden"], ["decoder.0.hidden"], ["after the inner one"])


def test_an_attention_layer_of_somebodys_own_hides_nothing_else() -> None:
    decoder, x, memory = small_decoder(), *torch.randn(2, 2, 5, 12).double()
    decoder.blocks[0].self_attention = Halved()
    with capture(decoder, "*") as seen:
        decoder(x, memory)
    assert not any(name.startswith("decoder.0.self") for name in seen)
    assert {"decoder.0.hidden", "decoder.0.cross.weights", "decoder.1.self.weights"} <= set(seen)


class Halved(nn.Module):
    def forward(self, x: Tensor, **_: Any) -> Tensor:
        return x / 2


def test_stacks_are_called_by_what_they_do() -> None:
    roles = {named(case): list(stacks(made(*case)[0])) for case in CASES}
    both, writes, reads = ["encoder", "decoder"], ["decoder"], ["encoder"]
    assert {name: role for name, role in roles.items() if "positions" not in name and "score" not in name} == {
        "translate,heads=11,kv_heads=1,placement=after": both,
        "lm,heads=11,kv_heads=1,placement=after": writes,
        "masked_lm": reads,
        "classify": reads,
        "classify,pool=mean": reads,
        "tag": reads,
        "vision,patch=2": reads,
        "caption,patch=2,architecture=cross": both,
        "caption,patch=2,architecture=sequence": writes,
        "caption,patch=2,architecture=rnn": both,
        "translate,architecture=rnn,context=attention,hard=True,cell=lstm": both,
        "translate,architecture=rnn,context=sum,cell=gru": both,
        "lm,architecture=rnn,cell=lstm": writes,
    }


@pytest.mark.parametrize(
    ("patterns", "heads", "sentence"),
    [
        ((), None, "there is nothing to capture: name some probes, such as encoder"),
        (("decoder.2.cross.weights",), None, r"no decoder\.2\.cross\.weights: after decoder comes 0 to 1, embedded"),
        (("encoder.*",), None, r"this model has no encoder\.\*: a name begins with decoder"),
        (("decoder.*.sefl.weights",), None, r"after decoder\.\* comes cross, feed_forward, hidden, self"),
        (("decoder.0.self.wieghts",), None, r"after decoder\.0\.self comes key, mixed, output, query, scores, value"),
        (("decoder.0.self",), None, r"no decoder\.0\.self: it goes on with key, mixed, output"),
        (("decoder.0.*.weights",), 3, r"decoder\.0\.self has no head 3; choose from 0 to 2"),
        (("decoder.1.cross.query",), [0, -1], r"decoder\.1\.cross has no head -1; choose from 0 to 2"),
    ],
)
def test_what_does_not_exist_is_answered_with_what_does(patterns: Any, heads: Any, sentence: str) -> None:
    decoder = small_decoder()
    with pytest.raises(ProbeError, match=sentence), capture(decoder, *patterns, heads=heads):
        pass
    assert not any(part._forward_hooks for part in decoder.modules())


def test_a_model_without_attention_says_what_it_has() -> None:
    model, _ = made("lm", {**RNN, "layers": 1})
    has = r"decoder\.0\.cell\.hidden, decoder\.0\.cell\.memory, decoder\.embedded, logits"
    sentence = rf"no \*\.weights: it does not attend; it has {has}"
    with pytest.raises(ProbeError, match=sentence), capture(model, "*.weights"):
        pass
    with pytest.raises(ProbeError, match="it does not attend; it has nothing to see"), capture(nn.ReLU(), "*.weights"):
        pass

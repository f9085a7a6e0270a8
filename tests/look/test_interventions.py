from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from tests.look.networks import small_network
from torch import Tensor, nn

from clearhead.errors import ProbeError, ShapeError
from clearhead.look import interventions as change
from clearhead.look.probes import capture
from clearhead.nn import Explicit, Fused, causal_mask

B, S, T, V, DIM, HEADS = 2, 7, 5, 13, 12, 3
Open = Callable[[nn.Module], AbstractContextManager[None]]


def make(task: str = "translate", seed: int = 1, **settings: Any) -> nn.Module:
    return small_network(task, seed=seed, **settings).double()


def sentences(seed: int = 5) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    return torch.randint(1, V, (B, S)), torch.randint(1, V, (B, T))


EVERY: dict[str, Open] = {
    "heads_off": lambda model: change.heads_off(model, "decoder.1.cross", [2]),
    "heads_averaged": lambda model: change.heads_averaged(model, "encoder.*.self"),
    "heads_even": lambda model: change.heads_even(model, "decoder.0.self", [0, 1]),
    "layers_off": lambda model: change.layers_off(model, "encoder.1"),
    "layers_averaged": lambda model: change.layers_averaged(model, "decoder.*"),
    "tokens_hidden": lambda model: change.tokens_hidden(model, "decoder.*.cross", [3]),
    "tokens_averaged": lambda model: change.tokens_averaged(model, "encoder.embedded", [0, 6]),
    "mask_off": lambda model: change.mask_off(model),
    "scale_off": lambda model: change.scale_off(model),
    "positions_off": lambda model: change.positions_off(model),
    "patched": lambda model: change.patched(model, "encoder.0.hidden", torch.ones(1, S, DIM), [1]),
}


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "alibi", "t5"])
def test_it_changes_the_answer_and_is_gone_afterwards_whatever_happens(name: str, positions: str) -> None:
    model, inputs = make(positions=positions), sentences()
    before, state = model(*inputs), {key: value.clone() for key, value in model.state_dict().items()}
    with EVERY[name](model):
        assert not torch.allclose(model(*inputs), before)

    def interrupted() -> None:
        with EVERY[name](model):
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        interrupted()
    torch.testing.assert_close(model(*inputs), before, rtol=0, atol=0)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    assert list(state) == list(model.state_dict())
    assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())


def test_a_head_that_is_off_is_a_head_whose_rows_of_the_output_matrix_are_zero() -> None:
    model, inputs, size = make(), sentences(), DIM // HEADS
    with change.heads_off(model, "decoder.1.cross", [0, 2]):
        without = model(*inputs)
    output = model.decoder.blocks[1].cross_attention.output  # type: ignore[union-attr,index]
    with torch.no_grad():
        output.weight[:, :size], output.weight[:, 2 * size :] = 0, 0  # type: ignore[index,union-attr]
    torch.testing.assert_close(without, model(*inputs))


def test_averaged_heads_write_their_mean_and_the_others_as_always() -> None:
    model, inputs = make("lm"), sentences()[:1]
    with capture(model, "decoder.0.self.mixed") as plain:
        model(*inputs)
    with change.heads_averaged(model, "decoder.0.self", [1]), capture(model, "decoder.0.self.mixed") as seen:
        model(*inputs)
    own, averaged = plain["decoder.0.self.mixed"], seen["decoder.0.self.mixed"]
    torch.testing.assert_close(averaged[:, [0, 2]], own[:, [0, 2]])
    torch.testing.assert_close(averaged[1, 1, 3], own[:, 1].mean((0, 1)))


def test_even_heads_write_the_mean_of_the_values_that_they_may_see() -> None:
    model, inputs = make("lm", positions="alibi"), sentences()[:1]
    with change.heads_even(model, "decoder.0.self"), capture(model, "decoder.0.self.*") as seen:
        model(*inputs)
    visible = causal_mask(S).double()
    expected = (visible / visible.sum(-1, keepdim=True)) @ seen["decoder.0.self.value"]
    torch.testing.assert_close(seen["decoder.0.self.mixed"], expected)


@pytest.mark.parametrize("placement", ["before", "after"])
def test_a_layer_that_is_off_is_a_model_without_it(placement: str) -> None:
    model, inputs = make("lm", placement=placement), sentences()[:1]
    with change.layers_off(model, "decoder.0"):
        without = model(*inputs)
    del model.stack.blocks[0]  # type: ignore[union-attr,operator]
    torch.testing.assert_close(without, model(*inputs))


def test_an_averaged_layer_adds_the_same_to_every_token() -> None:
    model, inputs = make("lm"), sentences()[:1]
    with capture(model, "decoder.embedded", "decoder.0.hidden") as plain:
        model(*inputs)
    with change.layers_averaged(model, "decoder.0"), capture(model, "decoder.0.hidden") as seen:
        model(*inputs)
    read = plain["decoder.embedded"]
    added = (plain["decoder.0.hidden"] - read).mean((0, 1))
    torch.testing.assert_close(seen["decoder.0.hidden"], read + added)


def test_hidden_tokens_are_those_that_never_were() -> None:
    model = make(positions="none")
    source, target = sentences()
    with change.tokens_hidden(model, "encoder.*.self", [2, 4]), change.tokens_hidden(model, "decoder.*.cross", [2, 4]):
        hidden = model(source, target)
    torch.testing.assert_close(hidden, model(source[:, [0, 1, 3, 5, 6]], target))


def test_without_the_mask_a_causal_model_sees_ahead_and_padding_stays_hidden() -> None:
    model, (ids, _) = make("lm"), sentences()
    other = ids.clone()
    other[:, -1] = ids[:, -1] % (V - 1) + 1
    torch.testing.assert_close(model(ids)[:, :-1], model(other)[:, :-1])
    with change.mask_off(model):
        assert not torch.allclose(model(ids)[:, :-1], model(other)[:, :-1])
    translator, (source, target) = make(), sentences()
    padded = torch.cat((source, torch.zeros(B, 3, dtype=torch.long)), dim=1)
    with change.mask_off(translator):
        torch.testing.assert_close(translator(source, target), translator(padded, target))


def test_without_the_scale_the_score_is_the_plain_dot_product() -> None:
    model, inputs = make("lm"), sentences()[:1]
    plain = make("lm", score="dot")
    with change.scale_off(model):
        torch.testing.assert_close(model(*inputs), plain(*inputs))


@pytest.mark.parametrize("scheme", ["sinusoidal", "learned", "rotary", "alibi", "t5"])
def test_without_positions_a_model_does_not_know_the_order(scheme: str) -> None:
    model, (ids, _) = make("classify", positions=scheme), sentences()
    order = torch.tensor([0, 3, 1, 2, 6, 5, 4])  # the class token stays first
    assert not torch.allclose(model(ids), model(ids[:, order]))
    with change.positions_off(model):
        torch.testing.assert_close(model(ids), model(ids[:, order]))


@pytest.mark.parametrize("intervention", [change.positions_off, change.positions_averaged])
@pytest.mark.parametrize("concatenated", [False, True])
def test_positions_that_are_all_alike_say_no_order(intervention: Open, concatenated: bool) -> None:
    model, (ids, _) = make("classify", positions="learned", position_concat=concatenated), sentences()
    order = torch.tensor([0, 3, 1, 2, 6, 5, 4])
    before = model(ids)
    with intervention(model):
        torch.testing.assert_close(model(ids), model(ids[:, order]))
        assert not torch.allclose(model(ids), before)
    torch.testing.assert_close(model(ids), before, rtol=0, atol=0)


def test_averaged_positions_add_their_mean() -> None:
    model, (ids, _) = make("classify", positions="learned"), sentences()
    table = model.encoder.tokens.positions.table.weight.detach()  # type: ignore[union-attr]
    with change.positions_off(model), capture(model, "encoder.embedded") as without:
        model(ids)
    with change.positions_averaged(model), capture(model, "encoder.embedded") as averaged:
        model(ids)
    torch.testing.assert_close(averaged["encoder.embedded"], without["encoder.embedded"] + table[:S].mean(0))


@pytest.mark.parametrize("state", ["embedded", "0.hidden", "0.self.output", "0.feed_forward.inner"])
def test_a_patch_is_seen_where_it_was_put_and_nowhere_else(state: str) -> None:
    model, (ids, _), (donor, _) = make("lm"), sentences(), sentences(seed=6)
    with capture(model, f"decoder.{state}") as theirs:
        model(donor)
    with capture(model, f"decoder.{state}") as own:
        model(ids)
    value = theirs[f"decoder.{state}"]
    probe = "decoder.0.hidden" if state == "embedded" else f"decoder.{state}"
    with change.patched(model, f"decoder.{state}", value, [2, 5]), capture(model, probe, "decoder.embedded") as seen:
        model(ids)
    if state != "embedded":
        torch.testing.assert_close(seen[probe][:, [2, 5]], value[:, [2, 5]])
        torch.testing.assert_close(seen[probe][:, [0, 1, 3, 4, 6]], own[probe][:, [0, 1, 3, 4, 6]])


def test_all_of_a_patched_state_gives_the_answer_of_the_donor() -> None:
    model, (ids, _), (donor, _) = make("lm"), sentences(), sentences(seed=6)
    for state in ("decoder.embedded", "decoder.1.hidden"):
        with capture(model, state) as theirs:
            answer = model(donor)
        with change.patched(model, state, theirs[state]):
            torch.testing.assert_close(model(ids), answer)


def test_images_and_recurrent_networks_can_be_changed_where_they_have_the_part() -> None:
    vision, images = make("vision", heads=2), torch.randn(B, 1, 4, 6).double()
    before = vision(images)
    with change.heads_off(vision, "encoder.0.self", [1]):
        assert not torch.allclose(vision(images), before)
    recurrent, inputs = make(architecture="rnn"), sentences()
    before = recurrent(*inputs)
    with change.patched(recurrent, "decoder.embedded", torch.zeros(1, T, DIM), [0]):
        assert not torch.allclose(recurrent(*inputs), before)


def test_the_attention_layers_of_a_model_by_name() -> None:
    found = change.attention_layers(make(score="additive"), "decoder.*")
    assert list(found) == ["decoder.0.self", "decoder.0.cross", "decoder.1.self", "decoder.1.cross"]
    assert all(isinstance(kernel, Explicit) and count == HEADS for kernel, count in found.values())
    assert all(isinstance(kernel, Fused) for kernel, _ in change.attention_layers(make("lm")).values())


RNN = {"architecture": "rnn"}
BAD: list[tuple[dict[str, Any], Open, type[Exception], str]] = [
    (
        {},
        lambda model: change.heads_off(model, "encoder.1.self", [3]),
        ProbeError,
        r"encoder\.1\.self has no head 3; choose from 0 to 2",
    ),
    (
        {},
        lambda model: change.layers_off(model, "encoder.2"),
        ProbeError,
        r"this model has no encoder\.2\.hidden: after encoder comes 0 to 1",
    ),
    (
        {},
        lambda model: change.tokens_hidden(model, "encoder.0.self", [7]),
        ProbeError,
        r"there is no token 7; choose from 0 to 6",
    ),
    (
        {"score": "cosine"},
        lambda model: change.scale_off(model),
        ProbeError,
        r"encoder\.0\.self has no scale to switch off: its score is not the scaled dot product",
    ),
    (
        RNN,
        lambda model: change.mask_off(model),
        ProbeError,
        r"decoder\.0\.cross belongs to a recurrent network, which has no heads to change",
    ),
    (
        {"positions": "alibi"},
        lambda model: change.positions_averaged(model),
        ProbeError,
        r"this model has no position vectors at its input to average; positions_off removes positions",
    ),
    (
        {},
        lambda model: change.patched(model, "encoder.0.self.query", torch.ones(1)),
        ProbeError,
        r"encoder\.0\.self\.query cannot be changed; choose a state of a block that ends in \.embedded, \.feed_forward",
    ),
    (
        RNN,
        lambda model: change.layers_off(model, "encoder.*"),
        ProbeError,
        r"encoder\.0\.cell\.hidden cannot be changed; choose a state of a block",
    ),
    (
        {},
        lambda model: change.patched(model, "encoder.embedded", torch.ones(1, 3, DIM)),
        ShapeError,
        r"encoder\.embedded has the shape \(2, 7, 12\) and cannot be patched with \(1, 3, 12\)",
    ),
]


@pytest.mark.parametrize(("settings", "intervention", "error", "sentence"), BAD)
def test_what_cannot_be_changed_is_one_sentence(
    settings: dict[str, Any], intervention: Open, error: type[Exception], sentence: str
) -> None:
    model, inputs = make(**settings), sentences()
    before = model(*inputs)

    def try_it() -> None:
        with intervention(model):
            model(*inputs)

    with pytest.raises(error, match=sentence):
        try_it()
    torch.testing.assert_close(model(*inputs), before, rtol=0, atol=0)

"""From a network and one prepared input to a look."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from clearhead.look.build import compute_look, evaluation_mode, run_probes
from clearhead.look.inputs import PreparedInput, display_token, patch_names
from clearhead.look.look import Look
from clearhead.run import Sizes
from clearhead.tasks import TASKS
from clearhead.tasks.base.network import build_network

SIZES = Sizes(vocabulary=13, classes=11, channels=3, height=4, width=10)
SMALL = {"dim": 22, "heads": 2, "layers": 2, "inner": 17, "dropout": 0.3, "max_length": 19}


def model(task: str, **settings: object) -> torch.nn.Module:
    torch.manual_seed(1)
    return build_network(TASKS[task].config_type().model_validate({"model": {**SMALL, **settings}}), SIZES)


def look_of(network: torch.nn.Module, prepared: PreparedInput) -> Look:
    return compute_look(network, prepared, lambda logits: f"{tuple(logits.shape)}", model="small")


SOURCE, TARGET = torch.tensor([[3, 1, 4, 1, 5, 9, 2]]), torch.tensor([[2, 7, 1, 8, 12]])
READ = (2, 7, 1, 8, 12)
TRANSLATION = PreparedInput((SOURCE,), READ, list("abcdefg"), list("vwxyz"), list("wxyz."))


def test_a_translator() -> None:
    network = model("translate", kv_heads=1)
    look = look_of(network, TRANSLATION)
    assert look.output == "(5, 13)"
    assert look.tokens == {"encoder": list("abcdefg"), "decoder": list("vwxyz")}
    shapes = {kind: [tuple(each.shape) for each in look.weights[kind]] for kind in look.attention}
    assert shapes == {
        "encoder.self": [(2, 7, 7)] * 2,
        "decoder.self": [(2, 5, 5)] * 2,
        "decoder.cross": [(2, 5, 7)] * 2,
    }
    cross, own = look.attention["decoder.cross"], look.attention["decoder.self"]
    assert (cross.rows, cross.columns) == (list("wxyz."), list("abcdefg"))
    assert (own.rows, own.causal, cross.causal) == (list("vwxyz"), True, False)
    assert torch.equal(own.visible, torch.ones(5, 5).tril().bool())
    assert [tuple(each.shape) for each in (*cross.query, *cross.key, *cross.value)] == [
        *[(2, 5, 11)] * 2,
        *[(2, 7, 11)] * 4,
    ]
    assert [tuple(each.shape) for each in look.hidden["decoder"]] == [(5, 22)] * 3
    network.eval()
    assert look.logits is not None
    torch.testing.assert_close(look.logits, network(SOURCE, TARGET)[0])
    torch.testing.assert_close(cross.weights[1].sum(-1), torch.ones(2, 5))


def test_the_parts_of_a_look_make_each_other() -> None:
    look = look_of(model("translate"), TRANSLATION)
    for attended in look.attention.values():
        for layer in range(attended.layers):
            products = attended.query[layer] @ attended.key[layer].transpose(-2, -1) / 11**0.5
            torch.testing.assert_close(attended.scores[layer], products)
            hidden = products.masked_fill(~attended.visible, -torch.inf).softmax(-1)
            torch.testing.assert_close(attended.weights[layer], hidden)


def test_looking_leaves_the_mode_and_draws_no_numbers() -> None:
    network = model("translate").train()
    before = torch.get_rng_state()
    once, again = (look_of(network, TRANSLATION) for _ in range(2))
    assert network.training
    assert torch.equal(torch.get_rng_state(), before)
    assert once.logits is not None
    assert again.logits is not None
    torch.testing.assert_close(once.logits, again.logits, rtol=0, atol=0)


def test_the_mode_comes_back_whatever_happens() -> None:
    network = model("tag").train()

    def interrupted() -> None:
        with evaluation_mode(network):
            assert not network.training
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        interrupted()
    assert network.training


def test_an_alignment_is_cross_attention_of_one_head() -> None:
    network = model("translate", architecture="rnn", context="attention")
    look = look_of(network, TRANSLATION)
    assert list(look.attention) == ["decoder.cross"]
    expected = network.eval().alignment(SOURCE, TARGET).detach()  # type: ignore[operator]
    torch.testing.assert_close(look.weights["decoder.cross"][0], expected)
    assert {stack: len(each) for stack, each in look.hidden.items()} == {"encoder": 3, "decoder": 3}


def test_a_model_without_attention_still_shows_its_states() -> None:
    look = look_of(model("lm", architecture="rnn"), PreparedInput(prompt=READ, decoder=list("vwxyz")))
    assert look.attention == {}
    assert [tuple(each.shape) for each in look.hidden["decoder"]] == [(5, 22)] * 3


def test_a_language_model() -> None:
    look = look_of(model("lm"), PreparedInput(prompt=READ, decoder=list("vwxyz")))
    assert list(look.attention) == ["decoder.self"]
    assert look.attention["decoder.self"].causal
    assert look.tokens == {"decoder": list("vwxyz")}


def test_a_masked_language_model() -> None:
    look = look_of(model("masked_lm"), PreparedInput((TARGET,), encoder=list("vwxyz")))
    assert list(look.attention) == ["encoder.self"]
    assert not look.attention["encoder.self"].causal
    assert look.tokens == {"encoder": list("vwxyz")}


def test_one_token_is_enough() -> None:
    look = look_of(model("lm"), PreparedInput(prompt=READ[:1], decoder=["v"]))
    assert look.attention["decoder.self"].causal
    assert look.weights["decoder.self"][0].tolist() == [[[1.0]], [[1.0]]]


def test_patches_before_words_are_one_sequence() -> None:
    images: Tensor = torch.randn(1, 3, 4, 10)
    words = [*patch_names(images, 2), *"vwxyz"]
    network = model("caption", architecture="sequence", patch=2)
    look = look_of(network, PreparedInput((images,), READ, decoder=words))
    seen = look.attention["decoder.self"]
    assert seen.rows[:6] == ["1,1", "1,2", "1,3", "1,4", "1,5", "2,1"]
    assert len(seen.rows) == 15
    assert not seen.causal
    assert seen.visible[0, 9]
    assert not seen.visible[10, 11]
    assert look.logits is not None
    assert look.logits.shape == (5, 13)


def test_only_some_probes() -> None:
    found = run_probes(model("tag"), (SOURCE,), "encoder.1.hidden")
    assert list(found) == ["encoder.1.hidden"]
    assert found["encoder.1.hidden"].shape == (1, 7, 22)


@pytest.mark.parametrize(
    ("piece", "word"),
    [("▁the", "the"), ("ing", "ing"), (" a", "a"), ("▁", "␣"), (" ", "␣"), ("\n\n", "⏎⏎"), ("", "·"), ("\t", "⇥")],
)
def test_tokens_as_people_write_them(piece: str, word: str) -> None:
    assert display_token(piece) == word

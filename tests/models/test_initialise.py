"""The weights before training: of one size at any width and depth, and never those that start themselves."""

from __future__ import annotations

import copy
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from clearhead.models import assemble
from clearhead.models.config import ModelConfig
from clearhead.models.initialise import initialise, without_initialisation
from clearhead.nn import Recurrent
from clearhead.run import Sizes
from clearhead.tasks import TASKS
from clearhead.tasks.base.network import build_network

from .setting import DIM, MODELS, PAD, RNN, SIZES, VARIATIONS, B, System, T, V, sentences

ROTARY = {"positions": "rotary", "heads": 11}


@pytest.mark.parametrize("system", [System("translate"), System("lm"), System("caption"), System("lm", RNN)], ids=str)
def test_what_starts_itself_is_left_alone(system: System) -> None:
    model = system.build()
    before = copy.deepcopy(model)
    initialise(model)
    for part, was in zip(model.modules(), before.modules(), strict=True):
        if isinstance(part, nn.Embedding | nn.LayerNorm):
            assert part.weight.equal(was.weight)
        elif isinstance(part, nn.Linear) and part is not model.output.linear:
            assert not part.weight.equal(was.weight)


@pytest.mark.parametrize(
    "system",
    [System("translate", ROTARY), System("lm", ROTARY), *(each for each in MODELS if "cell" in each.settings)],
    ids=str,
)
def test_an_untrained_model_guesses(system: System) -> None:
    """Where no positions are added to the tokens, nothing makes one answer likelier than another."""
    logits, anything = system.build()(*system.sources(), sentences(B, T)), sentences(B, T)
    assert F.cross_entropy(logits.flatten(0, 1), anything.flatten()).item() == pytest.approx(math.log(V), abs=0.5)


@pytest.mark.parametrize(
    ("settings", "small"),
    [(ROTARY, True), ({"positions": "none"}, True), ({"positions": "sinusoidal"}, False), (RNN, False)],
    ids=str,
)
def test_token_vectors_are_small_where_nothing_is_added_to_them(settings: dict[str, str], small: bool) -> None:
    torch.manual_seed(0)
    config = TASKS["lm"].config_type().model_validate({"model": {"dim": 66, "layers": 1, "heads": 2, **settings}})
    model = build_network(config, Sizes(vocabulary=997))
    assert model.tokens.tokens.table.weight.std().item() == pytest.approx(0.02 if small else 66**-0.5, rel=0.02)


@pytest.mark.parametrize("positions", ["rotary", "sinusoidal"])
def test_the_row_of_padding_starts_at_zero(positions: str) -> None:
    model = System("translate", {"positions": positions, "heads": 11}).build()
    assert model.source.tokens.table.weight[PAD].eq(0).all()


def test_linear_maps_keep_the_size_of_their_input() -> None:
    torch.manual_seed(0)
    linear = initialise(nn.Linear(300, 500))
    assert linear.weight.std().item() == pytest.approx(math.sqrt(2 / 800), rel=0.01)
    assert linear.bias.eq(0).all()


@pytest.mark.parametrize(("stack", "sums"), [(assemble.encoder, 2), (assemble.decoder, 3)], ids=["encoder", "decoder"])
@pytest.mark.parametrize("feed_forward", ["relu", "swiglu"])
def test_ends_of_residuals_shrink_with_the_depth(stack, sums: int, feed_forward: str) -> None:
    torch.manual_seed(0)
    config = ModelConfig(dim=64, heads=2, layers=7, feed_forward=feed_forward)
    model = initialise(stack(config))
    shrunk = 1 / math.sqrt(sums * 7)
    for block in model.blocks:
        ends = [(block.self_attention.output, 64), (block.feed_forward.outer, 4 * 64)]
        ends += [(block.cross_attention.output, 64)] if sums == 3 else []
        for end, inputs in ends:
            assert end.weight.std().item() == pytest.approx(shrunk * math.sqrt(2 / (inputs + 64)), rel=0.05)
        assert block.self_attention.value.weight.std().item() == pytest.approx(math.sqrt(1 / 64), rel=0.05)


@pytest.mark.parametrize(("cell", "gates"), [("rnn", 1), ("gru", 3), ("lstm", 4)])
def test_recurrent_matrices_are_orthogonal(cell: str, gates: int) -> None:
    network = initialise(Recurrent(cell, 13, DIM, layers=2, both_ways=True)).network
    for name, weight in network.named_parameters():
        if name.startswith("weight_hh"):
            assert weight.shape == (gates * DIM, DIM)
            for gate in weight.chunk(gates):
                assert_close(gate @ gate.T, torch.eye(DIM), rtol=0, atol=1e-5)


def test_an_lstm_begins_by_remembering() -> None:
    network = initialise(Recurrent("lstm", 13, DIM)).network
    forget = torch.cat((torch.zeros(DIM), torch.ones(DIM), torch.zeros(2 * DIM)))  # torch: input, forget, cell, output
    assert (network.bias_ih_l0 + network.bias_hh_l0).equal(forget)


# --- models whose weights are loaded ---

ALL = [*MODELS, *VARIATIONS, System("masked_lm"), System("classify"), System("tag"), System("vision")]


@pytest.mark.parametrize("system", ALL, ids=str)
def test_a_model_whose_weights_are_loaded_draws_none(system: System) -> None:
    trained = system.build(seed=1).eval()
    torch.manual_seed(2)
    before = torch.get_rng_state()
    with without_initialisation():
        loaded = build_network(system.config(), SIZES).eval()
    assert torch.get_rng_state().equal(before)
    for name, buffer in loaded.named_buffers():
        if name not in loaded.state_dict():  # sines, slopes: computed, not loaded
            assert buffer.equal(dict(trained.named_buffers())[name])
    assert loaded.load_state_dict(trained.state_dict()).missing_keys == []
    assert [name for name, _ in loaded.named_modules()] == [name for name, _ in trained.named_modules()]
    for name, tensor in trained.state_dict().items():
        assert loaded.state_dict()[name].equal(tensor)


def test_word_vectors_whose_weights_are_loaded_draw_none() -> None:
    before = torch.get_rng_state()
    with without_initialisation():
        build_network(TASKS["words"].config_type().model_validate({"model": {"dim": 5}}), Sizes(vocabulary=V))
    assert torch.get_rng_state().equal(before)


def test_afterwards_weights_are_drawn_again() -> None:
    with pytest.raises(ZeroDivisionError), without_initialisation():
        raise ZeroDivisionError
    system = System("translate")
    assert system.build(seed=3).output.linear.weight.equal(system.build(seed=3).output.linear.weight)
    assert not system.build(seed=3).output.linear.weight.equal(system.build(seed=4).output.linear.weight)


def test_another_thread_draws_weights_meanwhile() -> None:
    torch.manual_seed(5)
    expected = nn.Linear(3, 7).weight
    torch.manual_seed(5)
    with without_initialisation(), ThreadPoolExecutor(1) as pool:
        assert pool.submit(nn.Linear, 3, 7).result().weight.equal(expected)

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW, Optimizer

from clearhead.config import TrainConfig
from clearhead.errors import RunError
from clearhead.nn import (
    CosineScore,
    Encoder,
    EncoderBlock,
    LearnedPositions,
    MultiHeadAttention,
    ResidualPatches,
    T5Relative,
    TokenEmbedding,
    TokenOutput,
)
from clearhead.train.muon import Muon
from clearhead.train.optimizers import load_optimizer_state, make_optimizers, optimizer_state, set_learning_rates


class Model(nn.Module):
    """A part of every kind: embeddings, positions, blocks with a learned score, an untied output."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = TokenEmbedding(13, 6)
        self.positions = LearnedPositions(6, 11)
        relative = T5Relative(2)
        blocks = [
            EncoderBlock(6, 2, attention=MultiHeadAttention(6, 2, score=CosineScore(2), relative=relative))
            for _ in range(2)
        ]
        self.stack = Encoder(blocks)
        self.output = TokenOutput(6, 13)
        self.unused = nn.Linear(5, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.output(self.stack(self.positions(self.tokens(ids))))


def made(kind: str = "muon", **settings: float) -> tuple[Model, list[Optimizer]]:
    torch.manual_seed(0)
    model = Model()
    return model, make_optimizers(model, TrainConfig(optimizer=kind, **settings))


def train(model: Model, optimizers: list[Optimizer], steps: range) -> None:
    for step in steps:
        ids = torch.randint(13, (3, 7), generator=torch.Generator().manual_seed(step))
        F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
        set_learning_rates(optimizers, 1 / (1 + step))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


def names(group: dict[str, list[str]]) -> set[str]:
    return set(group["param_names"])


def each_parameter(model: nn.Module) -> Iterator[str]:
    return (name for name, _ in model.named_parameters())


# --- parameter groups ---


def test_adamw_decays_matrices_only():
    model, (optimizer,) = made("adamw", weight_decay=0.3)
    assert isinstance(optimizer, AdamW)
    decayed, kept = optimizer.param_groups
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.3, 0.0)
    assert names(decayed) | names(kept) == set(each_parameter(model))
    linear = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    assert names(decayed) == linear


def test_muon_takes_the_matrices_of_blocks_and_adamw_the_rest():
    model, (adamw, muon) = made("muon", weight_decay=0.3, learning_rate=0.005, matrix_rate=0.07)
    assert isinstance(adamw, AdamW)
    assert isinstance(muon, Muon)
    (group,) = muon.param_groups
    assert (group["lr"], group["weight_decay"]) == (0.07, 0.3)
    parts = ["self_attention.query", "self_attention.key", "self_attention.value", "self_attention.output"]
    parts += ["feed_forward.inner", "feed_forward.outer"]
    assert names(group) == {f"stack.blocks.{block}.{part}.weight" for block in range(2) for part in parts}
    decayed, kept = adamw.param_groups
    assert names(decayed) == {"output.linear.weight", "unused.weight"}
    assert names(group) | names(decayed) | names(kept) == set(each_parameter(model))
    assert {g["lr"] for g in adamw.param_groups} == {0.005}


def test_a_tied_output_is_an_embedding_and_is_given_once():
    model = Model()
    model.output = TokenOutput(6, 13, tied=model.tokens.table)
    (optimizer,) = make_optimizers(model, TrainConfig(weight_decay=0.3))
    decayed, kept = optimizer.param_groups
    assert "tokens.table.weight" in names(kept)
    assert not {name for name in names(decayed) if name.startswith(("output", "tokens"))}


def test_a_tied_model_leaves_adamw_nothing_to_decay():
    model = Model()
    model.output = TokenOutput(6, 13, bias=False, tied=model.tokens.table)
    del model.unused
    adamw, muon = make_optimizers(model, TrainConfig(optimizer="muon", weight_decay=0.3))
    (kept,) = adamw.param_groups
    assert kept["weight_decay"] == 0.0
    assert names(kept) | names(muon.param_groups[0]) == set(each_parameter(model))


def test_muon_takes_the_convolutions_of_residual_patches():
    patches = ResidualPatches(4, 3, 10)
    _, muon = make_optimizers(patches, TrainConfig(optimizer="muon"))
    blocks = {f"halvings.{n}.3.blocks.{k}.weight" for n in range(2) for k in range(2)}
    assert names(muon.param_groups[0]) == blocks


def test_a_model_without_blocks_has_nothing_for_muon():
    (optimizer,) = make_optimizers(nn.GRU(5, 3), TrainConfig(optimizer="muon"))
    assert isinstance(optimizer, AdamW)


def test_frozen_parameters_are_left_out():
    model = Model()
    model.tokens.requires_grad_(False)
    (optimizer,) = make_optimizers(model, TrainConfig())
    assert "tokens.table.weight" not in {name for group in optimizer.param_groups for name in names(group)}


def test_rates_are_shares_of_the_highest():
    _, optimizers = made("muon", learning_rate=0.004, matrix_rate=0.06)
    for factor in (0.25, 1.0, 0.0, 0.5):
        set_learning_rates(optimizers, factor)
        assert [group["lr"] for o in optimizers for group in o.param_groups] == [
            0.004 * factor,
            0.004 * factor,
            0.06 * factor,
        ]


# --- saving ---


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_three_steps_saved_and_three_more_equal_six_bit_for_bit(kind):
    whole, optimizers = made(kind)
    train(whole, optimizers, range(6))

    first, optimizers = made(kind)
    train(first, optimizers, range(3))
    weights = {name: value.clone() for name, value in first.state_dict().items()}
    tensors = {name: value.clone() for name, value in optimizer_state(optimizers).items()}

    second, optimizers = made(kind)
    train(second, optimizers, range(20, 22))  # loading replaces this state
    second.load_state_dict(weights)
    load_optimizer_state(optimizers, dict(reversed(tensors.items())))
    for name, value in optimizer_state(optimizers).items():
        assert torch.equal(value, tensors[name])
    train(second, optimizers, range(3, 6))
    for name, value in whole.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name


def test_names_are_those_of_parameters_and_scalars_are_tensors():
    model, optimizers = made("muon")
    assert optimizer_state(optimizers) == {}
    train(model, optimizers, range(2))
    tensors = optimizer_state(optimizers)
    assert tensors["0.step.tokens.table.weight"].shape == ()
    assert float(tensors["0.step.tokens.table.weight"]) == 2.0
    assert tensors["0.exp_avg.output.linear.weight"].shape == (13, 6)
    assert tensors["1.momentum.stack.blocks.1.feed_forward.inner.weight"].shape == (24, 6)
    assert not [name for name in tensors if "unused" in name]  # it never had a gradient
    assert all(not value.requires_grad for value in tensors.values())


def test_loading_copies_and_loading_nothing_clears_the_state():
    model, optimizers = made("adamw")
    train(model, optimizers, range(2))
    tensors = {name: value.clone() for name, value in optimizer_state(optimizers).items()}
    kept = {name: value.clone() for name, value in tensors.items()}
    load_optimizer_state(optimizers, tensors)
    train(model, optimizers, range(2, 4))
    for name, value in kept.items():
        assert torch.equal(tensors[name], value)
    load_optimizer_state(optimizers, {})
    assert optimizer_state(optimizers) == {}


def test_state_of_another_model_is_refused_and_changes_nothing():
    model, optimizers = made("muon")
    train(model, optimizers, range(2))
    tensors = optimizer_state(optimizers)
    name = "1.momentum.stack.blocks.0.feed_forward.inner.weight"
    wrong = {
        "nothing here is called 0.exp_avg.encoder.weight": {**tensors, "0.exp_avg.encoder.weight": torch.ones(1)},
        r"inner\.weight of shape \(2, 3\) where \(24, 6\) is expected": {**tensors, name: torch.ones(2, 3)},
        r"not whole: 0\.step\.output\.linear\.bias is missing": {
            key: value for key, value in tensors.items() if key != "0.step.output.linear.bias"
        },
    }
    before = {name: value.clone() for name, value in tensors.items()}
    for message, saved in wrong.items():
        with pytest.raises(RunError, match=message):
            load_optimizer_state(optimizers, saved)
    for name, value in optimizer_state(optimizers).items():
        assert torch.equal(value, before[name])


def test_an_optimiser_of_another_kind_is_refused():
    model, optimizers = made("muon")
    train(model, optimizers, range(1))
    with pytest.raises(RunError, match=r"of another kind: nothing here is called 1\.momentum\.stack"):
        load_optimizer_state(made("adamw")[1], optimizer_state(optimizers))

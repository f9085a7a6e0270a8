from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW, Optimizer
from torch.testing import assert_close

from clearhead.config import TrainConfig
from clearhead.errors import RunError, ShapeError
from clearhead.nn import (
    Cosine,
    Encoder,
    EncoderBlock,
    LearnedPositions,
    MultiHeadAttention,
    T5Relative,
    TokenEmbedding,
    TokenOutput,
)
from clearhead.train.optimizers import (
    Muon,
    load_optimizer_tensors,
    make_optimizers,
    optimizer_tensors,
    orthogonal,
    set_rates,
)

SHAPES = [(7, 7), (7, 11), (11, 7), (3, 17), (17, 3), (1, 5), (5, 1)]
COEFFICIENTS = (3.4445, -4.7750, 2.0315)


class Model(nn.Module):
    """Something of everything: tables, positions, blocks with a learned score, an output of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = TokenEmbedding(13, 6)
        self.positions = LearnedPositions(6, 11)
        relative = T5Relative(2)
        blocks = [
            EncoderBlock(6, 2, attention=MultiHeadAttention(6, 2, score=Cosine(2), relative=relative)) for _ in range(2)
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
        set_rates(optimizers, 1 / (1 + step))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


def names(group: dict[str, list[str]]) -> set[str]:
    return set(group["param_names"])


def each_parameter(model: nn.Module) -> Iterator[str]:
    return (name for name, _ in model.named_parameters())


# --- orthogonal ---


def iterated(value: Tensor) -> Tensor:
    """What five rounds do to one singular value."""
    a, b, c = COEFFICIENTS
    for _ in range(5):
        value = a * value + b * value**3 + c * value**5
    return value


@pytest.mark.parametrize("shape", SHAPES)
def test_orthogonal_keeps_singular_vectors_and_brings_values_near_one(shape):
    matrices = torch.randn(3, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    u, values, v = torch.linalg.svd(matrices, full_matrices=False)
    after = iterated(values / values.norm(dim=-1, keepdim=True))
    assert_close(orthogonal(matrices), u @ torch.diag_embed(after) @ v)
    assert_close(orthogonal(matrices.float()).double(), u @ torch.diag_embed(after) @ v, rtol=1e-4, atol=1e-5)
    assert after.min() > 0.6
    assert after.max() < 1.3


def slowly(matrix: Tensor) -> Tensor:
    """The definition, for one matrix, without transposing or short cuts."""
    a, b, c = COEFFICIENTS
    x = matrix / matrix.norm()
    for _ in range(5):
        square = x @ x.T
        x = a * x + b * square @ x + c * square @ square @ x
    return x


@given(st.integers(1, 13), st.integers(1, 13), st.integers(0, 99), st.floats(-6, 6))
def test_orthogonal_is_its_definition_at_every_scale(rows, columns, seed, exponent):
    matrices = torch.randn(2, rows, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    wanted = torch.stack([slowly(matrix) for matrix in matrices])
    assert_close(orthogonal(matrices), wanted)
    assert_close(orthogonal((10**exponent * matrices).float()).double(), wanted, rtol=1e-3, atol=1e-4)


def test_orthogonal_of_nothing_is_nothing():
    assert_close(orthogonal(torch.zeros(2, 3, 5)), torch.zeros(2, 3, 5))


@pytest.mark.parametrize("shape", [(29, 31), (29, 101)])
def test_a_gradient_of_low_rank_is_made_orthogonal_as_exactly_in_float32(shape):
    rows, columns = shape
    generator = torch.Generator().manual_seed(3)
    left, right = torch.randn(1, rows, 2, generator=generator), torch.randn(1, 2, columns, generator=generator)
    low = left @ right
    assert_close(orthogonal(low), orthogonal(low.double()).float(), rtol=1e-3, atol=1e-4)


# --- Muon ---


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_muon_is_its_equation(decay):
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.randn(shape)) for shape in [(5, 7), (11, 3), (5, 7), (7, 5)]]
    weights = [p.detach().clone() for p in parameters]
    momenta = [torch.zeros_like(p) for p in parameters]
    optimizer = Muon(parameters, lr=0.03, momentum=0.9, weight_decay=decay)
    for _ in range(3):
        for i, parameter in enumerate(parameters):
            parameter.grad = torch.randn_like(parameter)
            momenta[i] = 0.9 * momenta[i] + parameter.grad
            direction = slowly(parameter.grad + 0.9 * momenta[i])
            stride = 0.03 * max(1, parameter.size(0) / parameter.size(1)) ** 0.5
            weights[i] = weights[i] * (1 - 0.03 * decay) - stride * direction
        optimizer.step()
    for parameter, weight in zip(parameters, weights, strict=True):
        assert_close(parameter.detach(), weight, rtol=1e-4, atol=1e-5)


def test_muon_agrees_with_torch_as_far_as_its_bfloat16_goes():
    torch.manual_seed(0)
    ours, theirs = (nn.Parameter(torch.ones(11, 5)) for _ in range(2))
    optimizers = Muon([ours], lr=0.1), torch.optim.Muon([theirs], lr=0.1, weight_decay=0.0)
    for _ in range(3):
        ours.grad = theirs.grad = torch.randn(11, 5)
        for optimizer in optimizers:
            optimizer.step()
    assert_close(ours.detach(), theirs.detach(), rtol=0.02, atol=0.02)


def test_muon_leaves_alone_what_has_no_gradient():
    moving, still = nn.Parameter(torch.ones(3, 5)), nn.Parameter(torch.ones(3, 5))
    optimizer = Muon([moving, still], weight_decay=0.5)
    moving.grad = torch.ones(3, 5)
    optimizer.step()
    assert still.eq(1).all()
    assert moving.ne(1).all()


def test_muon_calls_the_closure_with_gradients():
    parameter = nn.Parameter(torch.ones(3, 5))

    def loss() -> float:
        value = parameter.square().sum()
        value.backward()
        return value.item()

    assert Muon([parameter]).step(loss) == 15.0
    assert parameter.ne(1).all()


def test_muon_refuses_what_is_no_matrix():
    with pytest.raises(ShapeError, match=r"muon is for matrices, and a parameter has shape \(7,\)"):
        Muon([nn.Parameter(torch.ones(7))])


# --- who learns how ---


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
        set_rates(optimizers, factor)
        assert [group["lr"] for o in optimizers for group in o.param_groups] == [
            0.004 * factor,
            0.004 * factor,
            0.06 * factor,
        ]


# --- saving ---


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_three_steps_then_three_more_are_six_to_the_bit(kind):
    whole, optimizers = made(kind)
    train(whole, optimizers, range(6))

    first, optimizers = made(kind)
    train(first, optimizers, range(3))
    weights = {name: value.clone() for name, value in first.state_dict().items()}
    tensors = {name: value.clone() for name, value in optimizer_tensors(optimizers).items()}

    second, optimizers = made(kind)
    train(second, optimizers, range(20, 22))  # whatever it remembers is replaced
    second.load_state_dict(weights)
    load_optimizer_tensors(optimizers, dict(reversed(tensors.items())))
    for name, value in optimizer_tensors(optimizers).items():
        assert torch.equal(value, tensors[name])
    train(second, optimizers, range(3, 6))
    for name, value in whole.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name


def test_names_are_those_of_parameters_and_scalars_are_tensors():
    model, optimizers = made("muon")
    assert optimizer_tensors(optimizers) == {}
    train(model, optimizers, range(2))
    tensors = optimizer_tensors(optimizers)
    assert tensors["0.step.tokens.table.weight"].shape == ()
    assert float(tensors["0.step.tokens.table.weight"]) == 2.0
    assert tensors["0.exp_avg.output.linear.weight"].shape == (13, 6)
    assert tensors["1.momentum.stack.blocks.1.feed_forward.inner.weight"].shape == (24, 6)
    assert not [name for name in tensors if "unused" in name]  # it never had a gradient
    assert all(not value.requires_grad for value in tensors.values())


def test_loading_copies_and_loading_nothing_forgets():
    model, optimizers = made("adamw")
    train(model, optimizers, range(2))
    tensors = {name: value.clone() for name, value in optimizer_tensors(optimizers).items()}
    kept = {name: value.clone() for name, value in tensors.items()}
    load_optimizer_tensors(optimizers, tensors)
    train(model, optimizers, range(2, 4))
    for name, value in kept.items():
        assert torch.equal(tensors[name], value)
    load_optimizer_tensors(optimizers, {})
    assert optimizer_tensors(optimizers) == {}


def test_what_does_not_fit_is_refused_and_changes_nothing():
    model, optimizers = made("muon")
    train(model, optimizers, range(2))
    tensors = optimizer_tensors(optimizers)
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
            load_optimizer_tensors(optimizers, saved)
    for name, value in optimizer_tensors(optimizers).items():
        assert torch.equal(value, before[name])


def test_an_optimiser_of_another_kind_is_refused():
    model, optimizers = made("muon")
    train(model, optimizers, range(1))
    with pytest.raises(RunError, match=r"of another kind: nothing here is called 1\.momentum\.stack"):
        load_optimizer_tensors(made("adamw")[1], optimizer_tensors(optimizers))

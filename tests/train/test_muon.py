from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from clearhead.errors import ShapeError
from clearhead.train.muon import Muon, orthogonal

SHAPES = [(7, 7), (7, 11), (11, 7), (3, 17), (17, 3), (1, 5), (5, 1)]
COEFFICIENTS = (3.4445, -4.7750, 2.0315)


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


def test_orthogonal_of_zeros_is_zeros():
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
def test_muon_follows_its_equation(decay):
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


def test_muon_skips_parameters_without_a_gradient():
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


def test_filters_are_learned_as_the_rows_of_a_matrix():
    torch.manual_seed(4)
    filters = nn.Parameter(torch.randn(11, 2, 3, 5))
    matrix = nn.Parameter(filters.detach().flatten(1).clone())
    optimizers = [Muon([each], lr=0.03, weight_decay=0.1) for each in (filters, matrix)]
    for _ in range(3):
        filters.grad = torch.randn(11, 2, 3, 5)
        matrix.grad = filters.grad.flatten(1)
        for optimizer in optimizers:
            optimizer.step()
    assert_close(filters.flatten(1), matrix, rtol=0, atol=0)


def test_muon_refuses_parameters_that_are_not_matrices():
    with pytest.raises(ShapeError, match=r"muon is for matrices, and a parameter has shape \(7,\)"):
        Muon([nn.Parameter(torch.ones(7))])

"""What parts tell engines that compute without torch, and what they say about themselves."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from clearhead.nn import (
    FEED_FORWARDS,
    NORMS,
    PLACEMENTS,
    POSITIONS,
    Alibi,
    BatchNorm,
    FeedForward,
    InputPositions,
    LayerNorm,
    LearnedPositions,
    MultiHeadAttention,
    NoPositions,
    NoRelativePositions,
    PositionSizes,
    RelativePositions,
    RMSNorm,
    Rotary,
    SinusoidalPositions,
    T5Relative,
    concatenate_positions,
    cosine,
    dot,
    scaled_dot,
)
from clearhead.nn.feedforward import ACTIVATIONS
from clearhead.nn.norm import NativeNorm, NoNorm
from clearhead.nn.positions import apply_rotary, length_limit, reads_in_windows
from clearhead.nn.scores import dot_scale, score_equation

SIZES = PositionSizes(dim=12, heads=3, key_dim=4, max_length=7)


def test_norms() -> None:
    layer, rms = LayerNorm(5), RMSNorm(5)
    assert layer.native_form().kind == "layer"
    assert layer.native_form().shift is layer.bias
    assert (rms.native_form().kind, rms.native_form().shift) == ("rms", None)
    assert rms.native_form().eps == torch.finfo(torch.float32).eps
    x = torch.randn(3, 5)
    assert_close(rms(x), x * (x.pow(2).mean(-1, keepdim=True) + rms.native_form().eps).rsqrt())
    assert NoNorm().native_form().kind == "none"
    assert not isinstance(BatchNorm(5), NativeNorm)
    assert all(isinstance(NORMS[name](5), nn.Module) for name in NORMS.builtin())


@pytest.mark.parametrize("name", FEED_FORWARDS.builtin())
def test_a_native_feed_forward_is_the_feed_forward(name: str) -> None:
    part, x = FEED_FORWARDS[name](5, 7, bias=True, dropout=0.0), torch.randn(3, 5)
    form = part.native_form()
    assert form is not None
    activation = ACTIVATIONS[form.activation]
    inner = activation(form.inner(x)) if form.gate is None else activation(form.gate(x)) * form.inner(x)
    assert_close(form.outer(inner), part(x))


def test_an_activation_of_the_users_has_no_native_form() -> None:
    assert FeedForward(5, activation=torch.tanh).native_form() is None


@pytest.mark.parametrize("name", PLACEMENTS.builtin())
def test_a_native_residual_is_the_residual(name: str) -> None:
    part, x, sublayer = PLACEMENTS[name](5), torch.randn(2, 3, 5), nn.Linear(5, 5)
    form = part.native_form()
    assert form is not None
    before, inside, after = (norm or NoNorm() for norm in (form.before, form.inside, form.after))
    assert_close(after(x + inside(sublayer(before(x)))), part(x, sublayer))


@pytest.mark.parametrize(("name", "scheme"), [("rotary", Rotary), ("alibi", Alibi), ("t5", T5Relative)])
def test_native_positions_are_the_positions(name: str, scheme: type[RelativePositions]) -> None:
    part, length = POSITIONS[name].in_heads(SIZES), 6
    assert isinstance(part, scheme)
    assert isinstance(POSITIONS[name].at_input(SIZES), NoPositions)
    form = part.native_form(length)
    assert form is not None
    if form.bias is not None:
        positions = torch.arange(length)
        by_distance = form.bias[:, (length - 1) - (positions - positions.unsqueeze(-1))]  # from far ahead to far behind
        assert part.bias is not None
        assert_close(by_distance, part.bias(positions, positions))
    else:
        assert form.sin is not None
        assert form.cos is not None
        x = torch.randn(2, 3, length, 4)
        cos, sin = torch.cat((form.cos, form.cos), -1), torch.cat((-form.sin, form.sin), -1)
        assert_close(apply_rotary(x, cos, sin), part.rotate(x, 0))


def test_a_scheme_without_a_native_form_runs_with_torch() -> None:
    class Mine(RelativePositions):
        def rotate(self, x, start):
            return x + start

    assert Mine().native_form(3) is None
    assert NoRelativePositions().native_form(3) is not None
    assert Mine().products(3) is None


def test_a_scheme_at_the_input_says_whether_it_is_only_added() -> None:
    class Multiplied(InputPositions):
        def forward(self, x, start=0):
            return x * start

    assert SinusoidalPositions(4).is_added
    assert NoPositions().is_added
    assert not SinusoidalPositions(4, combine=concatenate_positions).is_added
    assert not Multiplied().is_added


@pytest.mark.parametrize("name", POSITIONS.builtin())
def test_schemes_know_their_name_limit_and_window(name: str) -> None:
    parts = nn.ModuleList([POSITIONS[name].at_input(SIZES), POSITIONS[name].in_heads(SIZES)])
    assert length_limit(parts) == (7 if name.startswith("learned") else None)
    assert reads_in_windows(parts) == (name in ("rotary", "t5", "none"))
    own = [part.scheme for part in parts if not isinstance(part, NoPositions | NoRelativePositions)]
    assert own == {"none": [], "learned_and_t5": ["learned", name]}.get(name, [name])


def test_position_vectors_and_products() -> None:
    learned = LearnedPositions(4, 7)
    vectors = learned.vectors(9)
    assert vectors is not None
    assert vectors.equal(learned.table.weight)  # no more than there are
    products = learned.products(5)
    assert products is not None
    assert_close(products, (vectors[:5] @ vectors[:5].T).unsqueeze(0))
    assert NoPositions().products(5) is None


def test_vectors_at_the_input_can_be_changed_for_a_while() -> None:
    part, x = SinusoidalPositions(4), torch.randn(2, 3, 4)
    as_always = part(x)
    with part.changed(torch.zeros_like):
        assert part(x).equal(x)
        assert not part.is_added
    assert part(x).equal(as_always)
    assert part.is_added


def test_scores_say_their_equation_and_scale() -> None:
    assert (dot_scale(dot, 16), dot_scale(scaled_dot, 16), dot_scale(cosine, 16)) == (1.0, 0.25, None)
    assert score_equation(dot) == "s_j = q · k_j"
    assert score_equation(lambda q, k: q @ k.mT) is None


def test_a_multiple_of_the_dot_product_from_outside_is_fused() -> None:
    class Third(nn.Module):
        def dot_scale(self, _key_dim):
            return 1 / 3

        def forward(self, q, k):
            return dot(q, k) / 3

    layer, x = MultiHeadAttention(6, 2, score=Third()).double(), torch.randn(2, 5, 6, dtype=torch.float64)
    q, k, v, mask, offset, bias = layer.project(x, None, None, None)
    assert type(layer.kernel).__name__ == "Fused"
    assert_close(layer.kernel(q, k, v, mask, offset, bias), layer.kernel.explicit()(q, k, v, mask, offset, bias))

"""The Vision Transformer: its equations, its shapes, and images that do not fit."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from clearhead.errors import ShapeError
from clearhead.nn import POOLS

from .setting import (
    CHANNELS,
    CLASSES,
    DIM,
    HEIGHT,
    PATCHES,
    WIDTH,
    B,
    System,
    assert_every_parameter_learns,
    images,
    memorise,
)

VISION = System("vision", {"positions": "learned", "feed_forward": "gelu"})


@pytest.mark.parametrize("pool", POOLS.builtin())
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary"])
def test_one_label_for_an_image(pool: str, positions: str) -> None:
    model = VISION.build(pool=pool, positions=positions, heads=11)
    logits = model(images(B))
    assert logits.shape == (B, CLASSES)
    (logits * torch.randn_like(logits)).sum().backward()
    assert_every_parameter_learns(model)


def test_it_is_the_lectures_equations() -> None:
    model, x = VISION.build().double().eval(), images(B).double()
    encoder = model.encoder
    z = torch.cat((encoder.class_token.vector.expand(B, 1, DIM), encoder.patches(x)), dim=1)
    z = z + encoder.positions.table.weight  # z_0
    assert z.shape == (B, 1 + PATCHES, DIM)
    for block in encoder.stack.blocks:
        z = block.self_attention(block.residual1.norm(z)) + z  # z'_l = MSA(LN(z_{l-1})) + z_{l-1}
        z = block.feed_forward(block.residual2.norm(z)) + z  # z_l = MLP(LN(z'_l)) + z'_l
    y = encoder.stack.norm(z[:, 0])  # y = LN(z_L^0)
    assert_close(model(x), y @ model.output.linear.weight.T + model.output.linear.bias)


def test_a_few_images_are_learned_by_heart() -> None:
    model, pictures, labels = VISION.build(), images(5), torch.tensor([3, 0, 3, 10, 7])
    assert memorise(model, lambda: F.cross_entropy(model(pictures), labels)) < 0.1
    assert model(pictures).argmax(-1).equal(labels)


def test_images_that_do_not_fit_are_refused() -> None:
    model = VISION.build()
    with pytest.raises(ShapeError, match="patches of 2 × 2 do not divide an image of 4 × 11"):
        model(torch.randn(B, CHANNELS, HEIGHT, WIDTH + 1))
    with pytest.raises(ShapeError, match="the image has 1 channels and the model was made for 3"):
        model(torch.randn(B, 1, HEIGHT, WIDTH))

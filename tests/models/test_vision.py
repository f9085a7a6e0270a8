"""The Vision Transformer: its equations, its shapes, and images that do not fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from clearhead.errors import ShapeError
from clearhead.nn import POOLS, TokenEmbedding, prefix_mask

from .setting import (
    CELLS,
    CHANNELS,
    CLASSES,
    DIM,
    HEIGHT,
    PATCHES,
    WIDTH,
    B,
    System,
    T,
    V,
    assert_every_parameter_learns,
    images,
    memorise,
    sentences,
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


def test_images_that_do_not_fit_have_no_label() -> None:
    model = VISION.build()
    with pytest.raises(ShapeError, match="patches of 2 × 2 do not divide an image of 4 × 11"):
        model(torch.randn(B, CHANNELS, HEIGHT, WIDTH + 1))
    with pytest.raises(ShapeError, match="the image has 1 channels and the model was made for 3"):
        model(torch.randn(B, 1, HEIGHT, WIDTH))


# --- captions: what sees what, in each of the three ways to describe an image ---


ARCHITECTURES = ["cross", "sequence", "rnn"]


def captioner(architecture: str, **settings: Any) -> Any:
    return System("caption", {"architecture": architecture, **settings}).build().double().eval()


def pictures() -> Tensor:
    return images(B).double()


def test_the_mask_of_patches_and_text() -> None:
    o, x = True, False
    seen = [[o, o, o, x, x], [o, o, o, x, x], [o, o, o, x, x], [o, o, o, o, x], [o, o, o, o, o]]
    assert prefix_mask(3, 2).equal(torch.tensor(seen))
    assert prefix_mask(0, 3).equal(torch.ones(3, 3, dtype=torch.bool).tril())


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "t5"])
def test_in_one_sequence_text_does_not_change_patches(positions: str) -> None:
    model, shown = captioner("sequence", positions=positions), pictures()
    one, other = (model.read(shown, sentences(B, T)) for _ in range(2))
    assert one.shape == (B, PATCHES + T, DIM)
    assert_close(one[:, :PATCHES], other[:, :PATCHES], rtol=0, atol=1e-12)
    assert (one[:, PATCHES:] - other[:, PATCHES:]).abs().amax() > 1e-3


def test_in_one_sequence_patches_see_each_other_and_words_see_all_patches() -> None:
    model, shown, target = captioner("sequence"), pictures(), sentences(B, T)
    changed = shown.clone()
    changed[:, :, -2:, -2:] += 1.0  # the last patch
    difference = (model.read(changed, target) - model.read(shown, target)).abs().amax(-1)  # (B, N + T)
    assert difference.gt(1e-6).all()


def test_in_one_sequence_text_goes_on_counting_where_the_patches_end() -> None:
    model, target = captioner("sequence", positions="learned"), sentences(B, T)
    table = model.text.tokens.positions.table.weight
    assert_close(model.embed(pictures() * 0), (model.patches.linear.bias + table[:PATCHES]).expand(B, PATCHES, DIM))
    tokens: TokenEmbedding = model.text.tokens.tokens
    assert_close(model.text.tokens(target, start=PATCHES), tokens(target) + table[PATCHES : PATCHES + T])


def test_a_window_holds_for_patches_and_text() -> None:
    model, shown, target = captioner("sequence", window=3, layers=1), pictures(), sentences(B, T)
    changed = shown.clone()
    changed[:, :, :2, :2] += 1.0  # the first patch
    difference = (model.read(changed, target) - model.read(shown, target)).abs().amax(-1)
    assert difference[:, :3].gt(1e-6).all()
    assert_close(difference[:, 3:], torch.zeros(B, PATCHES + T - 3, dtype=torch.float64), rtol=0, atol=1e-12)


def test_a_decoder_looks_at_every_patch_and_the_class_token() -> None:
    model, shown = captioner("cross"), pictures()
    memory, real = model.encode(shown)
    assert memory.shape == (B, 1 + PATCHES, DIM)
    assert real.equal(torch.ones(B, 1, 1 + PATCHES, dtype=torch.bool))
    assert not any(name.startswith(("source", "encoder")) for name, _ in model.named_parameters())


@pytest.mark.parametrize("cell", CELLS)
def test_a_recurrent_captioner_knows_the_mean_of_the_patches(cell: str) -> None:
    model, shown = captioner("rnn", cell=cell), pictures()
    memory, patches = model.read(shown), model.patches(shown)[:, 1:]
    assert memory.states.shape == (B, PATCHES, DIM)
    assert_close(memory.summary, model.project(patches.mean(1)))
    state = model.start(shown)
    assert state.last.hidden.shape == (2, B, DIM)
    assert (state.last.cell is None) == (cell != "lstm")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_images_that_do_not_fit_are_refused(architecture: str) -> None:
    model, target = captioner(architecture), sentences(B, T)
    with pytest.raises(ShapeError, match="patches of 2 × 2 do not divide an image of 5 × 10"):
        model(torch.randn(B, CHANNELS, HEIGHT + 1, WIDTH, dtype=torch.float64), target)
    with pytest.raises(ShapeError, match="the image has 2 channels and the model was made for 3"):
        model.start(torch.randn(B, 2, HEIGHT, WIDTH, dtype=torch.float64))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_one_matrix_serves_text_and_output(architecture: str) -> None:
    shapes = [tuple(weight.shape) for weight in captioner(architecture).parameters()]
    untied = [tuple(weight.shape) for weight in captioner(architecture, tied=False).parameters()]
    assert (shapes.count((V, DIM)), untied.count((V, DIM))) == (1, 2)

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

import clearhead
from clearhead.data import read
from clearhead.errors import ConfigError, ShapeError
from clearhead.look.probes import capture
from clearhead.look.views.relevance import relevance
from clearhead.look.views.rollout import fuse_heads, patch_shares, rollout, share_of_mass
from clearhead.tasks.base.images import load_images, normalise

LAYERS, H, T = 3, 2, 5
REAL = Path(os.environ.get("CLEARHEAD_DATA", "nowhere"))


def some_weights(*batch: int) -> list[Tensor]:
    torch.manual_seed(7)
    return [torch.randn(*batch, H, T, T, dtype=torch.float64).softmax(-1) for _ in range(LAYERS)]


def slow_rollout(weights: list[Tensor], heads: str, residual: float) -> Tensor:
    """Number by number: every path from a token of the last layer down to one of the input."""
    choose = {"mean": lambda seen: sum(seen) / len(seen), "max": max, "min": min}[heads]
    tables = []
    for layer in weights:
        table = [[choose([float(layer[h, i, j]) for h in range(H)]) for j in range(T)] for i in range(T)]
        table = [[cell / sum(row) for cell in row] for row in table]
        tables.append([[residual * (i == j) + (1 - residual) * table[i][j] for j in range(T)] for i in range(T)])
    out = torch.zeros(T, T, dtype=torch.float64)
    for i in range(T):
        for a in range(T):
            for b in range(T):
                for j in range(T):
                    out[i, j] += tables[2][i][a] * tables[1][a][b] * tables[0][b][j]
    return out


@pytest.mark.parametrize("heads", ["mean", "max", "min"])
@pytest.mark.parametrize("residual", [0.0, 0.3, 0.5])
def test_rollout_is_the_sum_over_all_paths(heads: str, residual: float) -> None:
    weights = some_weights()
    rolled = rollout(weights, heads, residual)  # type: ignore[arg-type]
    torch.testing.assert_close(rolled, slow_rollout(weights, heads, residual))
    torch.testing.assert_close(rolled.sum(-1), torch.ones(T, dtype=torch.float64))


def test_all_of_the_residual_leaves_every_token_alone() -> None:
    torch.testing.assert_close(rollout(some_weights(), residual=1.0), torch.eye(T, dtype=torch.float64))


def test_a_batch_is_rolled_out_row_by_row() -> None:
    weights = some_weights(3)
    rolled = rollout(weights, "max")
    for row in range(3):
        torch.testing.assert_close(rolled[row], rollout([each[row] for each in weights], "max"))


def test_a_causal_model_rolls_out_to_nothing_ahead() -> None:
    weights = [each.tril() / each.tril().sum(-1, keepdim=True) for each in some_weights()]
    assert rollout(weights).triu(1).eq(0).all()


def test_heads_that_agree_on_nothing_leave_zeros_not_nan() -> None:
    apart = torch.eye(2)[:, None, :].expand(2, 2, 2)  # head 0 sees only key 0, head 1 only key 1
    torch.testing.assert_close(fuse_heads(apart, "min"), torch.zeros(2, 2))


def test_what_cannot_be_rolled_out_is_one_sentence() -> None:
    with pytest.raises(ShapeError, match=r"there are no layers to roll out; look at a model with attention"):
        rollout([])
    with pytest.raises(ShapeError, match=r"layer 1 has weights of shape \(2, 5, 3\) where \(heads, tokens, tokens\)"):
        rollout([torch.ones(2, 5, 5), torch.ones(2, 5, 3)])
    with pytest.raises(ConfigError, match=r"residual=1\.5 is not a share: choose a number from 0 to 1"):
        rollout(some_weights(), residual=1.5)
    with pytest.raises(ConfigError, match=r"unknown way to fuse heads 'maxx'; did you mean max\?"):
        rollout(some_weights(), "maxx")  # type: ignore[arg-type]


def test_the_class_token_or_else_the_mean_speaks_for_an_image() -> None:
    torch.manual_seed(1)
    shares = torch.rand(2, 7, 7).softmax(-1)
    seen = patch_shares(shares, (2, 3))
    torch.testing.assert_close(seen, (shares[:, 0, 1:] / shares[:, 0, 1:].sum(-1, keepdim=True)).view(2, 2, 3))
    plain = patch_shares(shares[:, 1:, 1:], (3, 2), class_token=False)
    mean = shares[:, 1:, 1:].mean(1)
    torch.testing.assert_close(plain, (mean / mean.sum(-1, keepdim=True)).view(2, 3, 2))
    with pytest.raises(ShapeError, match=r"a grid of 2 × 3 patches does not fit 6 tokens"):
        patch_shares(shares[:, 1:, 1:], (2, 3))


def test_the_share_of_the_mass_on_marked_pixels() -> None:
    marked = torch.zeros(4, 6, dtype=torch.bool)
    marked[:2, :3], marked[2, 5] = True, True  # all of the first patch, a sixth of the last
    mass = torch.tensor([[0.5, 0.25], [0.125, 0.125]])
    torch.testing.assert_close(share_of_mass(mass, marked), torch.tensor(0.5 + 0.125 / 6))
    torch.testing.assert_close(share_of_mass(torch.full((2, 2), 0.25), marked), marked.float().mean())
    with pytest.raises(ShapeError, match=r"a grid of 2 × 5 patches does not fit an image of 4 × 6"):
        share_of_mass(torch.ones(2, 5), marked)


@pytest.mark.skipif(not (REAL / "mnist").is_dir(), reason="needs the real corpora: set CLEARHEAD_DATA")
def test_of_a_thousand_digits_the_model_saw_the_ink() -> None:
    network = clearhead.load("digits").network
    held_out = list(read("mnist", validation=0.1667).validation)[:1000]
    pixels = load_images([each.image for each in held_out])
    images, ink = normalise(pixels), torch.from_numpy(pixels[..., 0]) > 127
    chance = ink.double().mean((1, 2))
    with torch.no_grad(), capture(network, "encoder.*.self.weights") as seen:
        network(images)
    covered = share_of_mass(patch_shares(rollout(list(seen.values())), (7, 7)), ink)
    assert covered.mean() > 2 * chance.mean()
    assert (covered > chance).double().mean() > 0.99
    felt = relevance(network, (images[:100],)).tables["encoder.self"]
    assert share_of_mass(patch_shares(felt, (7, 7)), ink[:100]).mean() > 2.5 * chance[:100].mean()

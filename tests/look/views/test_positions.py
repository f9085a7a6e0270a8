from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from clearhead.errors import ProbeError, ShapeError
from clearhead.look.views.positions import Positions, positions
from clearhead.nn import Alibi, LearnedPositions, Rotary, SinusoidalPositions, T5Relative
from clearhead.run import Sizes
from clearhead.tasks import TASKS
from clearhead.tasks.base.network import build_network

T, DIM, HEADS = 7, 12, 3


def language_model(**settings: Any) -> nn.Module:
    torch.manual_seed(3)
    model = {"dim": DIM, "heads": HEADS, "layers": 2, "max_length": 11, **settings}
    return build_network(TASKS["lm"].config_type().model_validate({"model": model}), Sizes(vocabulary=13))


def only(model: nn.Module, length: int | None = T) -> Positions:
    (found,) = positions(model, length).values()
    return found


def test_sinusoidal_vectors_are_those_added_and_their_products_fall_with_distance() -> None:
    found = only(SinusoidalPositions(64), 31)
    torch.testing.assert_close(found.vectors, SinusoidalPositions(64).encode(31))
    assert found.scheme == "sinusoidal"
    for i, j in ((0, 0), (3, 17), (30, 2)):
        angles = [(i - j) / 10000 ** (2 * pair / 64) for pair in range(32)]
        assert found.products[0, i, j] == pytest.approx(sum(map(math.cos, angles)), abs=1e-4)
    curve = found.by_distance[0]
    assert (curve[:5].diff() < 0).all()
    assert curve[0] == pytest.approx(32)
    assert curve[10:].max() < curve[1]


def test_a_learned_table_is_looked_at_whole_or_in_part() -> None:
    part = LearnedPositions(5, 11)
    whole, some = only(part, None), only(part, 3)
    torch.testing.assert_close(whole.vectors, part.table.weight.detach())
    torch.testing.assert_close(some.vectors, part.table.weight.detach()[:3])
    rows = part.table.weight.detach()
    expected = torch.stack([torch.cosine_similarity(rows[i], rows) for i in range(11)])
    torch.testing.assert_close(whole.similarity, expected)


def test_the_positions_of_patches_lie_on_their_grid() -> None:
    found = only(LearnedPositions(5, 7), None)
    grid = found.over_grid((2, 3))
    assert found.similarity is not None
    torch.testing.assert_close(grid[4, 0, 2], found.similarity[1 + 4, 1 + 2])
    torch.testing.assert_close(grid.reshape(6, 6), found.similarity[1:, 1:])
    with pytest.raises(ShapeError, match=r"a grid of 4 × 2 patches has no vector for each in learned positions"):
        found.over_grid((4, 2))


def test_rotary_positions_keep_a_vector_itself_and_know_only_the_distance() -> None:
    found = only(Rotary(6))
    assert found.vectors is None
    assert found.similarity is None
    for distance in range(T):
        along = found.products[0].diagonal(-distance)
        expected = sum(math.cos(distance / 10000 ** (2 * pair / 6)) for pair in range(3)) / 3
        torch.testing.assert_close(along, torch.full((T - distance,), expected))
        assert found.by_distance[0, distance] == pytest.approx(expected, abs=1e-5)


def test_what_heads_add_to_a_score_is_shown_for_each_head() -> None:
    slopes = Alibi(HEADS).slopes
    torch.testing.assert_close(only(Alibi(HEADS)).by_distance, -slopes[:, None] * torch.arange(T))
    part = T5Relative(HEADS, both_ways=False)
    curve = only(part).by_distance
    torch.testing.assert_close(curve, part.table.weight.detach()[part.bucket(-torch.arange(T))].T)


@pytest.mark.parametrize("scheme", ["sinusoidal", "learned", "rotary", "alibi", "t5"])
def test_a_model_shows_its_scheme_once(scheme: str) -> None:
    found = only(language_model(positions=scheme, heads=2))
    assert found.scheme == scheme
    document = found.to_json()
    assert document["format"] == "clearhead-positions-1"
    assert [len(row) for row in document["by_distance"]] == [T] * len(document["by_distance"])
    assert (document["vectors"] is None) == (scheme not in ("sinusoidal", "learned"))


def test_a_model_without_positions_says_so() -> None:
    with pytest.raises(ProbeError, match=r"this model has no positions: it is recurrent, or was trained with"):
        positions(language_model(positions="none"))
    with pytest.raises(ProbeError, match=r"this model has no positions: it is recurrent"):
        positions(language_model(architecture="rnn"))

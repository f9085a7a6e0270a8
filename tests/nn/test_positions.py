import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from clearhead.errors import ShapeError
from clearhead.nn import (
    Alibi,
    LearnedPositions,
    NoPositions,
    NoRelativePositions,
    Rotary,
    SinusoidalPositions,
    T5Relative,
    concatenate_positions,
)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def sinusoid(position: int, dim: int, base: float = 10000.0) -> list[float]:
    waves = (math.sin, math.cos)
    return [waves[column % 2](position / base ** ((column - column % 2) / dim)) for column in range(dim)]


@pytest.mark.parametrize("dim", [1, 2, 7, 10])
def test_sinusoidal_positions_of_even_and_odd_width(dim):
    table = SinusoidalPositions(dim).encode(11)
    assert_close(table, torch.tensor([sinusoid(position, dim) for position in range(11)]))


def test_sinusoidal_positions_beyond_their_table():
    positions = SinusoidalPositions(6)
    near = positions.encode(7)
    far = positions.encode(5, start=1009)
    assert_close(far, torch.tensor([sinusoid(1009 + i, 6) for i in range(5)]))
    assert_close(positions.encode(1014)[1009:], far, rtol=0, atol=0)
    assert_close(positions.encode(7), near, rtol=0, atol=0)  # what was there has not changed


def test_waves_are_accurate_far_out():
    far = SinusoidalPositions(64).encode(3, start=100_000)
    wanted = torch.tensor([sinusoid(100_000 + i, 64) for i in range(3)])
    assert_close(far, wanted, rtol=0, atol=1e-6)


def test_waves_keep_their_type_when_they_grow():
    positions = SinusoidalPositions(4).double()
    assert positions.encode(1, start=5000).dtype == torch.float64
    assert SinusoidalPositions(4)(torch.zeros(1, 3, 4, dtype=torch.float64)).dtype == torch.float64


def test_fixed_positions_are_not_saved():
    for part in (SinusoidalPositions(6), Rotary(6), Alibi(3), NoPositions(), NoRelativePositions()):
        assert part.state_dict() == {}
    assert set(LearnedPositions(6, 5).state_dict()) == {"table.weight"}
    assert set(T5Relative(3).state_dict()) == {"table.weight"}


def test_no_positions():
    x = torch.randn(2, 5, 3)
    assert NoPositions()(x, 7) is x


def test_learned_positions():
    positions, x = LearnedPositions(3, 11), torch.randn(2, 5, 3)
    assert_close(positions(x, start=6), x + positions.table.weight[6:11])


@pytest.mark.parametrize(("length", "start", "end"), [(12, 0, 12), (5, 7, 12), (3, torch.tensor([2, 10]), 13)])
def test_learned_table_too_short(length, start, end):
    message = rf"a sequence of {end} tokens is longer than the learned table of 11 positions; .*model\.max_length"
    with pytest.raises(ShapeError, match=message):
        LearnedPositions(3, 11)(torch.randn(2, length, 3), start)


def test_concatenated_positions_of_rows_with_their_own_start():
    positions, x = SinusoidalPositions(4, combine=concatenate_positions), torch.randn(2, 5, 3)
    starts = torch.tensor([3, 8])
    wanted = torch.stack([positions.encode(5, 3), positions.encode(5, 8)])
    assert_close(positions(x, starts), torch.cat([x, wanted], dim=-1))


def test_relative_positions_put_in_nothing():
    x = torch.randn(2, 3, 5, 7)
    assert NoRelativePositions().rotate(x, 3) is x
    assert NoRelativePositions().bias is None


def test_odd_rotary_head():
    with pytest.raises(ShapeError, match=r"rotary positions rotate pairs of numbers, and a head size of 5 is odd"):
        Rotary(5)


def test_rotary_turns_each_pair():
    x = torch.randn(1, 1, 3, 6)
    turned = Rotary(6, base=100.0).rotate(x, start=4)
    for t in range(3):
        for i in range(3):
            pair = complex(x[0, 0, t, i], x[0, 0, t, i + 3])
            angle = (4 + t) / 100.0 ** (2 * i / 6)
            wanted = pair * complex(math.cos(angle), math.sin(angle))
            assert_close(turned[0, 0, t, [i, i + 3]], torch.tensor([wanted.real, wanted.imag]))


@given(query=st.integers(0, 200), key=st.integers(0, 200), shift=st.integers(0, 2000))
def test_rotary_products_depend_on_the_distance_alone(query, key, shift):
    torch.default_generator.manual_seed(0)
    rotary, q, k = Rotary(6).double(), *torch.randn(2, 1, 1, 1, 6, dtype=torch.float64)
    here = rotary.rotate(q, query).flatten() @ rotary.rotate(k, key).flatten()
    there = rotary.rotate(q, query + shift).flatten() @ rotary.rotate(k, key + shift).flatten()
    assert_close(there, here, rtol=0, atol=1e-5)


def test_alibi_slopes_of_8_heads():
    assert_close(Alibi(8).slopes, torch.tensor([1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]))


def test_alibi_slopes_of_12_heads():
    between = [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]  # every second slope of 16 heads
    assert_close(Alibi(12).slopes, torch.tensor([2.0**-i for i in range(1, 9)] + between))


@pytest.mark.parametrize(
    ("heads", "slopes"), [(1, [2.0**-8]), (2, [2.0**-4, 2.0**-8]), (3, [2.0**-4, 2.0**-8, 2.0**-2])]
)
def test_alibi_slopes_of_few_heads(heads, slopes):
    assert_close(Alibi(heads).slopes, torch.tensor(slopes))


def test_alibi_falls_in_a_straight_line():
    alibi, queries, keys = Alibi(5), torch.tensor([3, 11]), torch.tensor([0, 4, 7])
    bias = alibi.bias(queries, keys)
    distance = torch.tensor([[3.0, 1.0, 4.0], [11.0, 7.0, 4.0]])
    assert_close(bias, torch.stack([-slope * distance for slope in alibi.slopes]))


def slow_bucket(ahead: int, buckets: int, longest: int, both_ways: bool) -> int:
    """The rule of the T5 paper for one distance, in exact arithmetic."""
    side = 0
    if both_ways:
        buckets //= 2
        side, distance = (buckets if ahead > 0 else 0), abs(ahead)
    else:
        distance = max(-ahead, 0)
    near = buckets // 2
    if distance < near:
        return side + distance
    wider = buckets - near  # buckets whose ranges grow by the same factor
    steps = 0
    while steps < wider - 1 and distance**wider * near ** (steps + 1) >= longest ** (steps + 1) * near**wider:
        steps += 1
    return side + near + steps


@pytest.mark.parametrize(("buckets", "longest"), [(32, 128), (8, 20), (6, 11), (32, 1000)])
@pytest.mark.parametrize("both_ways", [True, False])
def test_t5_buckets_match_a_slow_reference(buckets, longest, both_ways):
    ahead = torch.arange(-1500, 1501)
    wanted = torch.tensor([slow_bucket(int(a), buckets, longest, both_ways) for a in ahead])
    assert_close(T5Relative(3, buckets, longest, both_ways).bucket(ahead), wanted)


@given(buckets=st.integers(2, 20).map(lambda half: 2 * half), longest=st.integers(21, 500), both_ways=st.booleans())
def test_t5_buckets_grow_with_the_distance_and_fit_the_table(buckets, longest, both_ways):
    relative = T5Relative(1, buckets, longest, both_ways)
    back, forward = relative.bucket(-torch.arange(600)), relative.bucket(torch.arange(1, 600))
    assert (back.diff() >= 0).all()
    assert back[0] == 0
    assert (forward.diff() >= 0).all()
    if both_ways:
        assert back.max() == buckets // 2 - 1 < forward.min()
        assert forward.max() == buckets - 1
    else:
        assert back.max() == buckets - 1
        assert forward.eq(0).all()  # what comes later cannot be seen anyway


def test_t5_bias_is_a_lookup():
    relative = T5Relative(3, buckets=8, longest=16)
    bias = relative.bias(torch.tensor([2, 5]), torch.tensor([0, 2, 3, 9]))
    assert bias.shape == (3, 2, 4)
    for i, query in enumerate((2, 5)):
        for j, key in enumerate((0, 2, 3, 9)):
            row = slow_bucket(key - query, 8, 16, both_ways=True)
            assert_close(bias[:, i, j], relative.table.weight[row])


@pytest.mark.parametrize(
    ("buckets", "longest", "both_ways"), [(2, 9, True), (1, 9, False), (8, 2, True), (8, 4, False)]
)
def test_t5_needs_room_for_near_and_far(buckets, longest, both_ways):
    with pytest.raises(ShapeError, match=f"buckets={buckets} and longest={longest} leave no room"):
        T5Relative(3, buckets, longest, both_ways)

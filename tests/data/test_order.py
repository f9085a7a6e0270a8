from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.data.order import generator, share
from clearhead.errors import DataError

seeds = st.integers(0, 2**63)


@given(count=st.integers(0, 200), seed=seeds, epoch=st.integers(0, 1000))
@settings(deadline=None)
def test_an_epoch_visits_everything_once_in_an_order_of_its_own(count: int, seed: int, epoch: int) -> None:
    order = generator(seed, epoch).permutation(count)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(count))
    assert order.tolist() == generator(seed, epoch).permutation(count).tolist()
    if count > 20:
        assert order.tolist() != generator(seed, epoch + 1).permutation(count).tolist()
        assert order.tolist() != generator(seed + 1, epoch).permutation(count).tolist()


@given(count=st.integers(0, 200), world=st.integers(1, 9), seed=seeds)
@settings(deadline=None)
def test_ranks_share_equally_and_leave_less_than_one_each(count: int, world: int, seed: int) -> None:
    order = generator(seed, 0).permutation(count)
    shares = [share(order, rank, world).tolist() for rank in range(world)]
    assert {len(part) for part in shares} == {count // world}
    taken = [item for part in shares for item in part]
    assert len(set(taken)) == len(taken) > count - world
    assert set(taken) == set(order[: len(taken)].tolist())


def test_what_is_left_out_changes_with_the_epoch() -> None:
    def left(epoch: int) -> int:
        order = generator(1, epoch).permutation(10)
        return (set(range(10)) - {int(item) for rank in range(3) for item in share(order, rank, 3)}).pop()

    assert len({left(epoch) for epoch in range(30)}) > 5


@pytest.mark.parametrize("rank", [-1, 4])
def test_a_rank_outside_the_world_is_refused(rank: int) -> None:
    with pytest.raises(DataError, match=f"rank={rank} is not one of the world=4 processes"):
        share(np.arange(8), rank, 4)

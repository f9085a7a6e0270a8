from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from clearhead.data.batches import Batches, generator, pad, padding_share, share
from clearhead.errors import DataError
from clearhead.text import Tokenizer

sides = st.integers(1, 3).flatmap(
    lambda count: st.lists(st.lists(st.integers(0, 40), min_size=count, max_size=count), min_size=1, max_size=60)
)
budgets = st.integers(1, 120)
seeds = st.integers(0, 2**32)


def plain(batches: list[NDArray[np.int64]]) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


@given(sides, budgets, seeds)
@settings(deadline=None)
def test_every_example_once_an_epoch_and_within_the_budget(lengths: list[list[int]], budget: int, seed: int) -> None:
    batches = Batches(lengths, budget=budget, seed=seed)
    for _ in range(3):
        epoch = list(batches)
        assert len(epoch) == len(batches)
        assert sorted(np.concatenate(epoch).tolist()) == list(range(len(lengths)))
        for batch in epoch:
            assert batch.dtype == np.int64
            assert len(batch) == 1 or len(batch) * max(max(lengths[i]) for i in batch) <= budget


@given(sides, budgets, seeds, st.integers(2, 4))
@settings(deadline=None)
def test_ranks_have_as_many_batches_each_and_none_in_common(
    lengths: list[list[int]], budget: int, seed: int, world: int
) -> None:
    alone = Batches(lengths, budget=budget, seed=seed)
    if len(alone) < world:
        with pytest.raises(DataError, match=rf"{len(alone)} batches cannot be shared by {world} processes"):
            Batches(lengths, budget=budget, seed=seed, world=world)
        return
    ranks = [list(Batches(lengths, budget=budget, seed=seed, rank=rank, world=world)) for rank in range(world)]
    assert {len(rank) for rank in ranks} == {len(alone) // world}
    shared = {tuple(batch.tolist()) for rank in ranks for batch in rank}
    assert len(shared) == len(alone) // world * world
    assert shared <= {tuple(batch.tolist()) for batch in alone}


@given(sides, budgets, seeds, st.integers(0, 40), st.integers(0, 1))
@settings(deadline=None)
def test_going_on_from_anywhere_is_as_if_one_had_never_stopped(
    lengths: list[list[int]], budget: int, seed: int, cut: int, rank: int
) -> None:
    def fresh() -> Batches:
        longer = [*lengths, *lengths]  # at least two batches, for two ranks
        return Batches(longer, budget=min(budget, max(map(max, longer))), seed=seed, rank=rank, world=2)

    whole = plain(list(islice(fresh().forever(), cut + 30)))
    first, second = fresh(), fresh()
    seen = plain(list(islice(first.forever(), cut)))
    second.restore(json.loads(json.dumps(first.state())))
    assert seen + plain(list(islice(second.forever(), 30))) == whole


def test_a_state_after_the_last_batch_is_the_next_epoch() -> None:
    one, two = (Batches([3] * 10, budget=6, seed=1) for _ in range(2))
    first = list(one)
    assert (one.epoch, one.position) == (1, 0)
    two.restore(one.state())
    assert len(first) == 5
    assert plain(list(two)) == plain(list(one)) != plain(first)


def test_breaking_out_of_a_loop_keeps_the_place() -> None:
    batches = Batches([3] * 10, budget=6, seed=1)
    whole = plain(list(Batches([3] * 10, budget=6, seed=1)))
    seen = []
    for batch in batches:
        seen.append(batch)
        if len(seen) == 2:
            break
    assert plain(seen + list(batches)) == whole


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 2}, "the state has seed=1 and this run has seed=2"),
        ({"budget": 9}, "the state has budget=6 and this run has budget=9"),
        ({"world": 2}, "the state has world=1 and this run has world=2"),
        ({"lengths": [3] * 9 + [2]}, "the state has data=[0-9a-f]{16} and this run has data="),
    ],
)
def test_a_state_of_another_run_is_refused(change: dict[str, object], message: str) -> None:
    given = {"lengths": [3] * 10, "budget": 6, "seed": 1}
    state = Batches(**given).state()  # type: ignore[arg-type]
    other = Batches(**{**given, **change})  # type: ignore[arg-type]
    with pytest.raises(DataError, match=f"cannot resume: {message}"):
        other.restore(state)


@pytest.mark.parametrize(
    "place", [{"position": 5}, {"position": -1}, {"epoch": -1}, {"epoch": "x"}, {"position": None}]
)
def test_a_place_that_does_not_exist_is_refused(place: dict[str, int]) -> None:
    batches = Batches([3] * 10, budget=6, seed=1)
    with pytest.raises(DataError, match=r"cannot resume: epoch=.*, position=.* is not a position among 5 batches"):
        batches.restore({**batches.state(), **place})
    with pytest.raises(DataError, match="cannot resume: the state has seed=None"):
        batches.restore({})


def test_an_example_over_the_budget_is_alone_in_its_batch() -> None:
    epoch = list(Batches([[3, 900], [2, 2], [2, 3]], budget=10, seed=1))
    assert sorted(map(len, epoch)) == [1, 2]
    assert [0] in plain(epoch)


def test_epochs_group_and_order_anew() -> None:
    batches = Batches([5] * 60, budget=30, seed=1)
    first, second = plain(list(batches)), plain(list(batches))
    assert first != second
    assert {frozenset(batch) for batch in first} != {frozenset(batch) for batch in second}


def test_nothing_to_batch_is_refused() -> None:
    with pytest.raises(DataError, match="there are no examples to batch"):
        Batches([], budget=10, seed=1)


def test_padding_counts_cells_on_all_sides() -> None:
    lengths = [[4, 2], [2, 2], [1, 5]]
    assert padding_share(lengths, [np.array([0, 1])]) == 1 - 10 / 12
    assert padding_share(lengths, [np.array([0]), np.array([1]), np.array([2])]) == 0
    assert padding_share(lengths, []) == 0


def multi30k(folder: Path) -> Iterator[tuple[str, str]]:
    with gzip.open(folder / "train.en.gz", "rt") as english, gzip.open(folder / "train.de.gz", "rt") as german:
        yield from zip(english, german, strict=True)


def tatoeba(folder: Path) -> Iterator[tuple[str, str]]:
    with gzip.open(folder / "en-es.tsv.gz", "rt") as file:
        for line in file:
            source, target, *_ = line.split("\t")
            yield source, target


@pytest.mark.parametrize("corpus", [multi30k, tatoeba])
def test_real_pairs_are_padded_by_less_than_a_twentieth(corpus) -> None:  # type: ignore[no-untyped-def]
    folder = Path(os.environ.get("CLEARHEAD_DATA", "nowhere")) / corpus.__name__
    if not folder.is_dir():
        pytest.skip(f"needs $CLEARHEAD_DATA/{corpus.__name__}")
    pairs = [(source.strip(), target.strip()) for source, target in islice(corpus(folder), 20_000)]
    tokenizer = Tokenizer.train("bpe", (text for pair in pairs for text in pair), size=8000)
    source, target = (tokenizer.encode_batch(list(side)) for side in zip(*pairs, strict=True))
    lengths = np.array([[len(a) + 1, len(b) + 2] for a, b in zip(source, target, strict=True)])  # (N, 2)
    epoch = list(Batches(lengths, budget=4096, seed=1))
    assert sum(map(len, epoch)) == len(pairs)
    assert padding_share(lengths, epoch) < 0.05
    rows = pad([target[i] for i in epoch[0]], tokenizer.pad, tokenizer.start, tokenizer.stop)
    assert rows.size <= 4096
    assert (rows != tokenizer.pad).sum() == lengths[epoch[0], 1].sum()


# Order

long_seeds = st.integers(0, 2**63)


@given(count=st.integers(0, 200), seed=long_seeds, epoch=st.integers(0, 1000))
@settings(deadline=None)
def test_an_epoch_visits_everything_once_in_an_order_of_its_own(count: int, seed: int, epoch: int) -> None:
    order = generator(seed, epoch).permutation(count)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(count))
    assert order.tolist() == generator(seed, epoch).permutation(count).tolist()
    if count > 20:
        assert order.tolist() != generator(seed, epoch + 1).permutation(count).tolist()
        assert order.tolist() != generator(seed + 1, epoch).permutation(count).tolist()


@given(count=st.integers(0, 200), world=st.integers(1, 9), seed=long_seeds)
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


# Padding


def test_rows_are_filled_up_to_the_longest() -> None:
    assert pad([[7, 8, 9], [5], []], pad_id=0).tolist() == [[7, 8, 9], [5, 0, 0], [0, 0, 0]]


def test_start_and_stop_stand_around_each_row() -> None:
    assert pad([[7, 8], [5], []], 0, start=2).tolist() == [[2, 7, 8], [2, 5, 0], [2, 0, 0]]
    assert pad([[7, 8], [5], []], 0, stop=3).tolist() == [[7, 8, 3], [5, 3, 0], [3, 0, 0]]
    assert pad([[7, 8], [5], []], 9, start=0, stop=0).tolist() == [[0, 7, 8, 0], [0, 5, 0, 9], [0, 0, 9, 9]]


def test_no_sequences_give_no_rows() -> None:
    assert pad([], 0).shape == (0, 0)
    assert pad([], 0, start=2, stop=3).shape == (0, 2)
    assert pad([[], []], 0).shape == (2, 0)


def test_arrays_are_sequences_too() -> None:
    rows = pad([np.array([7, 8], np.uint16), np.array([], np.int32)], 1)
    assert rows.tolist() == [[7, 8], [1, 1]]
    assert rows.dtype == np.int64


@given(
    st.lists(st.lists(st.integers(0, 2**40), max_size=7), max_size=11),
    st.integers(0, 9),
    st.none() | st.integers(0, 9),
    st.none() | st.integers(0, 9),
)
@settings(deadline=None)
def test_it_is_the_loop_one_would_write(
    sequences: list[list[int]], filler: int, start: int | None, stop: int | None
) -> None:
    whole = [[i for i in (start, *row, stop) if i is not None] for row in sequences]
    longest = max(map(len, whole), default=sum(end is not None for end in (start, stop)))
    expected = [row + [filler] * (longest - len(row)) for row in whole]
    assert pad(sequences, filler, start, stop).tolist() == expected


@pytest.mark.parametrize("sequences", [[[1, 2], [3]]])
def test_the_sequences_stay_as_they_were(sequences: list[list[int]]) -> None:
    pad(sequences, 0, 1, 2)
    assert sequences == [[1, 2], [3]]

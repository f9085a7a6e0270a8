from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.data.collate import pad


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

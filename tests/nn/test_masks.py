import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from clearhead.errors import ShapeError
from clearhead.nn import Mask, additive_mask, causal_mask, length_mask, padding_mask, window_mask

rules = st.builds(Mask, causal=st.booleans(), window=st.none() | st.integers(1, 5))


def rule_written_out(mask: Mask, queries: int, keys: int, offset: int) -> Tensor:
    """(T, S), cell by cell, without the mask's table."""
    gaps = [[i + offset - j for j in range(keys)] for i in range(queries)]
    window = math.inf if mask.window is None else mask.window
    return torch.tensor([[(gap >= 0 or not mask.causal) and abs(gap) < window for gap in row] for row in gaps])


@given(mask=rules, queries=st.integers(1, 7), keys=st.integers(1, 7), offset=st.integers(-5, 9))
def test_table_of_a_rule(mask, queries, keys, offset):
    assert_close(mask.table_of(queries, keys, offset), rule_written_out(mask, queries, keys, offset))


@given(mask=rules, queries=st.integers(1, 7), keys=st.integers(1, 7), offset=st.integers(-5, 9), data=st.data())
def test_reach_is_the_span_of_visible_keys(mask, queries, keys, offset, data):
    first = data.draw(st.integers(0, queries - 1))
    last = data.draw(st.integers(first + 1, queries))
    seen = rule_written_out(mask, queries, keys, offset)[first:last].any(0).nonzero().flatten().tolist()
    low, high = mask.reach(first, last, keys, offset)
    assert 0 <= low <= high <= keys
    assert list(range(low, high)) == seen


@given(
    mask=rules,
    shape=st.sampled_from(["none", "TS", "1S", "T1", "BTS", "B1S", "BT1"]),
    queries=st.integers(1, 7),
    keys=st.integers(1, 7),
    offset=st.integers(-5, 9),
    data=st.data(),
)
def test_rows_are_a_part_of_the_table(mask, shape, queries, keys, offset, data):
    first, low = data.draw(st.integers(0, queries - 1)), data.draw(st.integers(0, keys - 1))
    last, high = data.draw(st.integers(first + 1, queries)), data.draw(st.integers(low + 1, keys))
    whole = rule_written_out(mask, queries, keys, offset).expand(3, queries, keys)
    if shape != "none":
        size = {"B": 3, "T": queries, "S": keys, "1": 1}
        torch.default_generator.manual_seed(0)
        table = torch.rand([size[letter] for letter in shape]) > 0.4
        mask, whole = mask & table, whole & table
    rows = mask.rows(first, last, low, high, offset, torch.device("cpu"))
    rows = torch.tensor(True) if rows is None else rows
    wanted = whole[:, first:last, low:high]
    assert_close(rows.expand_as(wanted), wanted)


@given(left=rules, right=rules, tables=st.sampled_from(["", "left", "right", "both"]))
def test_and_is_visible_in_both(left, right, tables):
    torch.default_generator.manual_seed(0)
    if tables in ("left", "both"):
        left = left & (torch.rand(5, 7) > 0.3)
    if tables in ("right", "both"):
        right = right & (torch.rand(3, 1, 7) > 0.3)
    both = (left & right).table_of(5, 7, offset=1)
    wanted = left.table_of(5, 7, offset=1) & right.table_of(5, 7, offset=1)
    assert_close(both.expand(3, 5, 7), wanted.expand(3, 5, 7))


def test_mask_of_whatever_the_caller_has():
    mask, table = Mask(causal=True), torch.ones(2, 3, dtype=torch.bool)
    assert Mask.of(mask) is mask
    assert Mask.of(table).table is table
    nothing = Mask.of(None)
    assert (nothing.causal, nothing.window, nothing.table) == (False, None, None)


def test_and_takes_a_plain_table():
    table = torch.tensor([[True, False, True]])
    assert_close((Mask(causal=True) & table).table_of(3, 3), causal_mask(3) & table)


@pytest.mark.parametrize(
    ("mask", "only"),
    [
        (Mask(causal=True), True),
        (Mask(), False),
        (Mask(causal=True, window=3), False),
        (Mask(causal=True, table=torch.ones(2, 2, dtype=torch.bool)), False),
    ],
)
def test_is_only_causal(mask, only):
    assert mask.is_only_causal is only


def test_causal_mask_of_the_last_queries():
    assert_close(causal_mask(5), torch.ones(5, 5, dtype=torch.bool).tril())
    assert_close(causal_mask(2, 5), torch.tensor([[True] * 4 + [False], [True] * 5]))


def test_window_mask():
    wanted = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]], dtype=torch.bool)
    assert_close(window_mask(4, 2), wanted)
    assert_close(window_mask(3, 1), torch.eye(3, dtype=torch.bool))


def test_padding_mask():
    ids = torch.tensor([[5, 0, 9], [3, 3, 0]])
    assert_close(padding_mask(ids), torch.tensor([[[True, False, True]], [[True, True, False]]]))
    assert_close(padding_mask(ids, pad=3), torch.tensor([[[True, True, True]], [[False, False, True]]]))


def test_length_mask():
    lengths = torch.tensor([2, 0, 3])
    wanted = torch.tensor([[[True, True, False]], [[False] * 3], [[True] * 3]])
    assert_close(length_mask(lengths), wanted)
    assert_close(length_mask(lengths, 5), torch.cat([wanted, torch.zeros(3, 1, 2, dtype=torch.bool)], dim=-1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_additive(dtype):
    wanted = torch.tensor([[0.0, -math.inf], [-math.inf, 0.0]], dtype=dtype)
    assert_close(additive_mask(torch.eye(2, dtype=torch.bool), dtype), wanted)


def test_over_keeps_the_last_keys_of_the_table():
    table = torch.rand(2, 1, 7) > 0.5
    assert_close(Mask(causal=True, table=table).over(3).table, table[..., -3:])
    assert Mask(table=table).over(7).table is table
    assert Mask(window=2).over(3).table is None
    with pytest.raises(ShapeError, match="the mask covers 7 keys and there are 8"):
        Mask(table=table).over(8)

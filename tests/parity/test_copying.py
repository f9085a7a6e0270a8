"""The other tests can fail: a name left over, a weight that differs and a gradient that is lost are all noticed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from clearhead.nn import MultiHeadAttention

from .copying import Pair, Table, into, turned, within
from .setting import DIM, HEADS, INNER, tokens

ATTENTION: Table = {
    "in_proj_weight": into("query.weight", "key.weight", "value.weight"),
    "in_proj_bias": into("query.bias", "key.bias", "value.bias"),
    "out_proj": "output",
}
# A bias of the keys adds the same to every score of a query, and the softmax takes it out again.
NAMES = ["query.weight", "query.bias", "key.weight", "value.weight", "value.bias", "output.weight", "output.bias"]


@pytest.fixture
def pair() -> Pair:
    return Pair(MultiHeadAttention(DIM, HEADS), nn.MultiheadAttention(DIM, HEADS, batch_first=True), ATTENTION)


def agree(pair: Pair) -> None:
    x = tokens()
    pair.agree(pair.ours(x), pair.theirs(x, x, x)[0], x)


@pytest.mark.parametrize("name", NAMES)
def test_one_number_that_differs(pair, name):
    agree(pair)
    with torch.no_grad():
        pair.ours.get_parameter(name).view(-1)[3] += 1e-6
    with pytest.raises(AssertionError, match="output: Tensor-likes are not close"):
        agree(pair)


def test_a_gradient_that_is_lost_on_the_way_to_a_weight(pair):
    pair.ours.value.register_forward_hook(lambda *called: called[-1].detach())
    with pytest.raises(AssertionError, match=r"gradient of value\.weight"):
        agree(pair)


def test_a_gradient_that_is_lost_on_the_way_to_an_input(pair):
    x = tokens()
    with pytest.raises(AssertionError, match="gradient of input 0"):
        pair.agree(pair.ours(x.detach()), pair.theirs(x, x, x)[0], x)


def test_a_name_of_theirs_that_is_left_over():
    theirs = nn.MultiheadAttention(DIM, HEADS, add_bias_kv=True)
    with pytest.raises(LookupError, match="bias_k of theirs has no place in the table"):
        Pair(MultiHeadAttention(DIM, HEADS), theirs, ATTENTION)


def test_a_name_of_ours_that_is_left_over():
    theirs = nn.MultiheadAttention(DIM, HEADS, bias=False)
    with pytest.raises(LookupError, match=r"only on one side: \['key\.bias', 'output\.bias', 'query\.bias'"):
        Pair(MultiHeadAttention(DIM, HEADS), theirs, ATTENTION)


def test_a_table_that_names_what_ours_does_not_have():
    with pytest.raises(LookupError, match=r"only on one side: \['middle\.bias', 'middle\.weight'\]"):
        Pair(nn.Sequential(), nn.Sequential(nn.Linear(DIM, INNER)), {"0": "middle"})


def test_two_names_of_theirs_for_one_of_ours():
    theirs = nn.Sequential(nn.Linear(DIM, INNER), nn.Linear(DIM, INNER))
    with pytest.raises(LookupError, match=r"1\.weight of theirs goes where another went: \['linear\.weight'\]"):
        Pair(nn.ModuleDict({"linear": nn.Linear(DIM, INNER)}), theirs, {"0": "linear", "1": "linear"})


def test_a_matrix_that_should_have_been_turned():
    with pytest.raises(AssertionError, match="weight"):
        Pair(nn.Linear(DIM, INNER), nn.Linear(INNER, DIM), {"weight": "weight", "bias": "bias"})


def test_a_table_of_a_part_in_each_layer():
    table = within("h.*", "blocks.*", {"attn": into("query", "key", change=turned), "ln": "norm"})
    assert table == {"h.*.attn": into("blocks.*.query", "blocks.*.key", change=turned), "h.*.ln": "blocks.*.norm"}

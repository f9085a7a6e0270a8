from __future__ import annotations

import pytest
import torch

from clearhead.errors import ProbeError
from clearhead.look.probes import cell_states
from clearhead.nn import Recurrent, State

B, T, D, H = 3, 7, 5, 11
LENGTHS = torch.tensor([4, 7, 1])


def network(both_ways: bool = False) -> Recurrent:
    torch.manual_seed(1)
    return Recurrent("lstm", D, H, both_ways=both_ways).double()


def some_input() -> torch.Tensor:
    torch.manual_seed(2)
    return torch.randn(B, T, D, dtype=torch.float64)


def test_the_memory_is_that_of_the_network_token_by_token() -> None:
    layer, x = network(), some_input()
    start = State(torch.randn(1, B, H).double(), torch.randn(1, B, H).double())
    for before in (None, start):
        found, state = cell_states(layer, x, before=before), before
        for token in range(T):
            _, state = layer(x[:, token : token + 1], state=state)
            assert state.cell is not None
            torch.testing.assert_close(found[:, token], state.cell[0])


@pytest.mark.parametrize("both_ways", [False, True])
def test_padding_is_not_remembered(both_ways: bool) -> None:
    layer, x = network(both_ways), some_input()
    found = cell_states(layer, x, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = cell_states(layer, x[row : row + 1, :length])
        torch.testing.assert_close(found[row, :length], alone[0])
        assert found[row, length:].eq(0).all()


def test_a_network_that_reads_both_ways_has_two_memories() -> None:
    layer, x = network(both_ways=True), some_input()
    found = cell_states(layer, x, LENGTHS)
    _, last = layer(x, LENGTHS)
    assert last.cell is not None
    torch.testing.assert_close(found[torch.arange(B), LENGTHS - 1, :H], last.cell[0])
    torch.testing.assert_close(found[:, 0, H:], last.cell[1])


@pytest.mark.parametrize("cell", ["rnn", "gru"])
def test_only_an_lstm_has_one(cell: str) -> None:
    with pytest.raises(ProbeError, match=r"has no cell state beside its hidden state; only an LSTM has"):
        cell_states(Recurrent(cell, D, H), some_input())  # type: ignore[arg-type]

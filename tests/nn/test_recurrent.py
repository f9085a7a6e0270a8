import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from clearhead.errors import ShapeError
from clearhead.nn import Recurrent, State, sum_of_states

CELLS = ("rnn", "gru", "lstm")
every_network = pytest.mark.parametrize(
    ("cell", "layers", "both_ways"),
    [(cell, layers, ways) for cell in CELLS for layers in (1, 2) for ways in (False, True)],
)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def tensors(state: State) -> list[Tensor]:
    return [state.hidden] if state.cell is None else [state.hidden, state.cell]


@every_network
def test_padding_equals_row_by_row(cell, layers, both_ways):
    network = Recurrent(cell, 5, 3, layers, both_ways=both_ways).double()
    x, lengths = 3 * torch.randn(4, 7, 5, dtype=torch.float64), [5, 7, 1, 3]
    states, last = network(x, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        alone, after = network(x[row : row + 1, :length])
        assert_close(states[row, :length], alone[0])
        assert states[row, length:].eq(0).all()
        for of_batch, of_row in zip(tensors(last), tensors(after), strict=True):
            assert_close(of_batch[:, row], of_row[:, 0])


@every_network
def test_shapes(cell, layers, both_ways):
    network = Recurrent(cell, 5, 3, layers, both_ways=both_ways)
    states, last = network(torch.randn(2, 7, 5))
    ways = 2 if both_ways else 1
    assert network.hidden == 3 * ways
    assert states.shape == (2, 7, 3 * ways)
    assert [x.shape for x in tensors(last)] == [(layers * ways, 2, 3)] * (2 if cell == "lstm" else 1)
    assert_close(last.top, last.hidden[-1])


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("padded", [False, True])
def test_the_state_is_carried_over(cell, padded):
    network, x = Recurrent(cell, 5, 3, layers=2).double(), torch.randn(2, 7, 5, dtype=torch.float64)
    whole, end = network(x)
    state, parts = None, []
    for first, last in ((0, 3), (3, 4), (4, 7)):
        lengths = torch.tensor([last - first] * 2) if padded else None
        part, state = network(x[:, first:last], lengths, state)
        parts.append(part)
    assert_close(torch.cat(parts, dim=1), whole)
    assert_close(tensors(state), tensors(end))


@pytest.mark.parametrize("cell", CELLS)
def test_both_ways_is_a_second_network_on_the_reversed_text(cell):
    network = Recurrent(cell, 5, 3, both_ways=True)
    forward, backward = Recurrent(cell, 5, 3), Recurrent(cell, 5, 3)
    weights = network.network.state_dict()
    forward.network.load_state_dict({name: w for name, w in weights.items() if not name.endswith("_reverse")})
    backward.network.load_state_dict(
        {name.removesuffix("_reverse"): w for name, w in weights.items() if name.endswith("_reverse")}
    )
    x = torch.randn(2, 7, 5)
    wanted = torch.cat([forward(x)[0], backward(x.flip(1))[0].flip(1)], dim=-1)
    assert_close(network(x)[0], wanted)


@pytest.mark.parametrize("cell", CELLS)
def test_reordered_state_goes_on_as_the_reordered_rows(cell):
    network, x, rows = Recurrent(cell, 5, 3, layers=2), torch.randn(3, 7, 5), torch.tensor([2, 0, 0, 1])
    _, state = network(x[:, :4])
    continued, _ = network(x[rows, 4:], state=state.reorder(rows))
    assert_close(continued, network(x[rows])[0][:, 4:])


def test_only_the_lstm_has_a_cell_state():
    x = torch.randn(2, 7, 5)
    assert [Recurrent(cell, 5, 3)(x)[1].cell is None for cell in CELLS] == [True, True, False]


def test_sum_of_states_leaves_padding_out():
    network, x = Recurrent("lstm", 5, 3), torch.randn(2, 7, 5)
    states, _ = network(x, torch.tensor([4, 7]))
    assert_close(sum_of_states(states), torch.stack([states[0, :4].sum(0), states[1].sum(0)]))


def test_dropout_stands_between_layers_and_only_in_training():
    x = torch.randn(2, 7, 5)
    deep, one = Recurrent("gru", 5, 3, layers=2, dropout=0.5), Recurrent("gru", 5, 3, dropout=0.5)
    assert (deep(x)[0] - deep(x)[0]).abs().max() > 1e-3
    assert_close(one(x)[0], one(x)[0], rtol=0, atol=0)
    deep.eval()
    assert_close(deep(x)[0], deep(x)[0], rtol=0, atol=0)


def test_an_empty_row_is_refused():
    with pytest.raises(ShapeError, match="row 1 has no tokens"):
        Recurrent("gru", 5, 3)(torch.randn(2, 4, 5), torch.tensor([4, 0]))

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.look.networks import small_network
from torch import Tensor, nn

from clearhead.errors import ProbeError
from clearhead.look.views.relevance import RelevanceTables, explicit_attention, normalize_relevance, relevance
from clearhead.nn import MultiHeadAttention
from clearhead.nn.attention import share_heads

B, S, T, V = 2, 5, 3, 13


def make(task: str, **settings: Any) -> nn.Module:
    return small_network(task, **settings).double()


def sentences() -> tuple[Tensor, Tensor]:
    torch.manual_seed(5)
    return torch.randint(1, V, (B, S)), torch.randint(1, V, (B, T))


class Slow:
    """The rules of the paper, number by number, on weights and gradients found by leaning on each weight."""

    def __init__(self, model: nn.Module, inputs: tuple[Tensor, ...], row: int, position: int | None):
        self.model, self.inputs, self.row, self.position = model, inputs, row, position
        layers = [layer for layer in model.modules() if isinstance(layer, MultiHeadAttention)]
        self.kernels = [layer.kernel for layer in layers]
        self.choice = int(self.answers().argmax())

    def answers(self, lean: tuple[nn.Module, int, int, int] | None = None, much: float = 0.0) -> Tensor:
        """The logits of the row and position; `lean` adds a little to one weight of one layer."""
        self.weights: dict[nn.Module, Tensor] = {}

        def explicit(kernel: Any, given: tuple[Any, ...], _gave: Tensor) -> Tensor:
            q, k, v, mask, offset, bias = given
            weights = kernel.explicit().weights(q, k, mask, offset, bias)
            self.weights[kernel] = weights[self.row]
            if lean is not None and lean[0] is kernel:
                weights = weights.clone()
                weights[self.row, lean[1], lean[2], lean[3]] += much
            return weights @ share_heads(v, q.size(1))

        hooks = [kernel.register_forward_hook(explicit) for kernel in self.kernels]
        with torch.no_grad():
            logits = self.model(*self.inputs)[self.row]
        for hook in hooks:
            hook.remove()
        return logits if self.position is None else logits[self.position]

    def felt(self, kernel: nn.Module) -> Tensor:
        """Mean over heads of (slope × weight)⁺, (T, S)."""
        self.answers()
        weights = self.weights[kernel]
        out = torch.zeros(weights.shape[1:], dtype=torch.float64)
        for h, i, j in torch.cartesian_prod(*(torch.arange(size) for size in weights.shape)).tolist():
            up = self.answers((kernel, h, i, j), 1e-4)[self.choice]
            down = self.answers((kernel, h, i, j), -1e-4)[self.choice]
            out[i, j] += max(0.0, float(up - down) / 2e-4 * float(weights[h, i, j])) / len(weights)
        return out


def add_product(table: list[list[float]], by: Tensor) -> list[list[float]]:
    """R + Ā R."""
    rows, columns = len(table), len(table[0])
    return [
        [table[i][j] + sum(float(by[i, k]) * table[k][j] for k in range(rows)) for j in range(columns)]
        for i in range(rows)
    ]


def shares(table: list[list[float]]) -> list[list[float]]:
    """R̄."""
    out = []
    for i, row in enumerate(table):
        others = [cell - (i == j) for j, cell in enumerate(row)]
        total = sum(others)
        out.append([(cell / total if total else 0.0) + (i == j) for j, cell in enumerate(others)])
    return out


def identity(size: int) -> list[list[float]]:
    return [[float(i == j) for j in range(size)] for i in range(size)]


def close(table: Tensor, by_hand: list[list[float]]) -> None:
    torch.testing.assert_close(table, torch.tensor(by_hand, dtype=torch.float64), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(("task", "position"), [("lm", 2), ("classify", None)])
def test_relevance_of_one_stack_follows_the_paper(task: str, position: int | None) -> None:
    model, inputs = make(task), sentences()[:1]
    found = relevance(model, inputs, position=-1 if position is None else position)
    slow = Slow(model, inputs, 1, position)
    by_hand = identity(S)
    for kernel in slow.kernels:
        by_hand = add_product(by_hand, slow.felt(kernel))
    [kind] = found.tables
    assert kind == ("decoder.self" if task == "lm" else "encoder.self")
    assert int(found.choice[1]) == slow.choice
    close(found.tables[kind][1], by_hand)


def test_relevance_of_a_translator_follows_the_paper() -> None:
    model, inputs = make("translate"), sentences()
    found = relevance(model, inputs, position=1)
    slow = Slow(model, inputs, 0, 1)
    read, written = identity(S), identity(T)
    across = [[0.0] * S for _ in range(T)]
    for block in model.encoder.blocks:  # type: ignore[union-attr]
        read = add_product(read, slow.felt(block.self_attention.kernel))  # type: ignore[union-attr]
    for block in model.decoder.blocks:  # type: ignore[union-attr]
        own = slow.felt(block.self_attention.kernel)  # type: ignore[union-attr]
        written, across = add_product(written, own), add_product(across, own)
        looked = slow.felt(block.cross_attention.kernel)  # type: ignore[union-attr]
        left, right = shares(written), shares(read)
        for i in range(T):
            for j in range(S):
                for a in range(T):
                    across[i][j] += sum(left[a][i] * float(looked[a, b]) * right[b][j] for b in range(S))
    close(found.tables["encoder.self"][0], read)
    close(found.tables["decoder.self"][0], written)
    close(found.tables["decoder.cross"][0], across)


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("translate", {"positions": "t5"}),
        ("lm", {"positions": "rotary", "heads": 6, "kv_heads": 2}),
        ("lm", {"positions": "alibi", "window": 2}),
        ("tag", {"score": "additive"}),
        ("vision", {}),
        ("caption", {"architecture": "cross"}),
        ("caption", {"architecture": "sequence"}),
    ],
)
def test_the_written_out_model_answers_the_same_and_only_its_weights_feel(task: str, settings: dict[str, Any]) -> None:
    model = make(task, **settings)
    images, (source, target) = torch.randn(B, 1, 4, 6).double(), sentences()
    inputs = {"translate": (source, target), "vision": (images,), "caption": (images, target)}.get(task, (source,))
    with explicit_attention(model) as weights:
        answers = model(*inputs)
    torch.testing.assert_close(answers, model(*inputs))
    assert len(weights) == sum(isinstance(part, MultiHeadAttention) for part in model.modules())
    assert all(each.requires_grad for each in weights.values())
    assert not any(part._forward_hooks for part in model.modules())
    found = relevance(model, inputs)
    assert all(table.shape[0] == B and table.isfinite().all() for table in found.tables.values())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_one_answer_of_a_batch_does_not_depend_on_the_others() -> None:
    model, (source, target) = make("translate"), sentences()
    both = relevance(model, (source, target), position=0, choice=torch.tensor([3, 7]))
    alone = relevance(model, (source[1:], target[1:]), position=0, choice=7)
    for kind, table in alone.tables.items():
        torch.testing.assert_close(both.tables[kind][1:], table)


def test_a_token_that_heard_from_no_other_stays_itself() -> None:
    table = torch.tensor([[[1.0, 0, 0], [2, 1, 6], [0, 0, 3]]])
    torch.testing.assert_close(normalize_relevance(table), torch.tensor([[[1.0, 0, 0], [0.25, 1, 0.75], [0, 0, 2]]]))


def test_relevance_as_plain_data() -> None:
    found = RelevanceTables({"encoder.self": torch.tensor([[[1.0, 0.25], [0, 1]]])}, torch.tensor([3]))
    expected = {"encoder.self": [[[1.0, 0.25], [0.0, 1.0]]]}
    assert found.to_json() == {"format": "clearhead-relevance-1", "choice": [3], "relevance": expected}


def test_what_has_no_relevance_is_one_sentence() -> None:
    model, inputs = make("lm"), sentences()[:1]
    with pytest.raises(ProbeError, match=r"there is no answer at position 5; choose from 0 to 4"):
        relevance(model, inputs, position=5)
    with pytest.raises(ProbeError, match=r"there is no answer \[13, 13\]; choose from 0 to 12"):
        relevance(model, inputs, choice=13)
    with pytest.raises(
        ProbeError, match=r"this model has no \*\.mixed: it does not attend|belongs to a recurrent network"
    ):
        relevance(make("lm", architecture="rnn"), inputs)

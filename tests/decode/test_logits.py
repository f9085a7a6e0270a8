"""Every logits processor and sampling filter against its definition as loops over rows and tokens."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from clearhead.decode.logits import (
    ANY_TOKEN,
    FORCED_LOGIT,
    apply_processors,
    apply_temperature,
    ban_repeated_ngrams,
    ban_tokens,
    force_token,
    logits_processors,
    min_p_filter,
    penalise_generated,
    penalise_repetition,
    top_k_filter,
    top_p_filter,
)
from clearhead.decode.settings import Settings

B, T, V = 7, 11, 13
IMPOSSIBLE = -math.inf


@pytest.fixture
def logits() -> Tensor:
    torch.manual_seed(1)
    some = 2 * torch.randn(B, V, dtype=torch.float64)
    some[2, [3, 5]] = IMPOSSIBLE
    return some


@pytest.fixture
def so_far() -> Tensor:
    torch.manual_seed(2)
    return torch.randint(0, 4, (B, T))  # few tokens, so that runs come again


def by_loops(logits: Tensor, keep: Callable[[int, list[float], int], bool]) -> Tensor:
    """What is kept of each row, or the row as it was if that is nothing."""
    out = logits.clone()
    for row in range(len(logits)):
        values = logits[row].tolist()
        kept = [keep(row, values, token) for token in range(logits.size(-1))]
        if any(k and v > IMPOSSIBLE for k, v in zip(kept, values, strict=True)):
            out[row, [token for token, k in enumerate(kept) if not k]] = IMPOSSIBLE
    return out


def chances(values: list[float]) -> list[float]:
    total = sum(math.exp(value) for value in values)
    return [math.exp(value) / total for value in values]


def exactly(actual: Tensor, expected: Tensor) -> None:
    assert_close(actual, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7])
def test_temperature(logits: Tensor, temperature: float) -> None:
    wanted = [chances([value / temperature for value in row]) for row in logits.tolist()]
    exactly(apply_temperature(logits, temperature).softmax(-1), torch.tensor(wanted, dtype=torch.float64))


def test_a_temperature_near_zero_leaves_the_most_likely(logits: Tensor) -> None:
    assert apply_temperature(logits, 1e-300).softmax(-1).argmax(-1).equal(logits.argmax(-1))
    assert apply_temperature(logits, 1e-300).softmax(-1).amax(-1).eq(1).all()


@pytest.mark.parametrize("k", [1, 2, 5, V - 1, V, V + 10])
def test_top_k(logits: Tensor, k: int) -> None:
    wanted = by_loops(logits, lambda _, values, token: sum(other > values[token] for other in values) < k)
    exactly(top_k_filter(logits, k), wanted)


def test_without_k_all_stay(logits: Tensor) -> None:
    assert top_k_filter(logits, None) is logits


@pytest.mark.parametrize("p", [1e-9, 0.3, 0.6, 0.95, 1.0])
def test_top_p(logits: Tensor, p: float) -> None:
    def keep(_: int, values: list[float], token: int) -> bool:
        likelier = sum(chance for chance in chances(values) if chance > chances(values)[token])
        return likelier < p

    wanted = logits if p == 1 else by_loops(logits, keep)
    exactly(top_p_filter(logits, p), wanted)


@pytest.mark.parametrize("p", [0.0, 0.02, 0.4, 0.999])
def test_min_p(logits: Tensor, p: float) -> None:
    wanted = by_loops(logits, lambda _, values, token: chances(values)[token] >= p * max(chances(values)))
    exactly(min_p_filter(logits, p), wanted)


@pytest.mark.parametrize("penalty", [1.0, 1.3, 5.0])
def test_repetition_penalty(logits: Tensor, so_far: Tensor, penalty: float) -> None:
    wanted = logits.clone()
    for row in range(B):
        for token in set(so_far[row].tolist()):
            value = float(logits[row, token])
            wanted[row, token] = value / penalty if value > 0 else value * penalty
    exactly(penalise_repetition(logits, so_far, penalty), wanted)


@pytest.mark.parametrize(("presence", "frequency"), [(0.5, 0.0), (0.0, 0.3), (1.5, -0.7)])
def test_presence_and_frequency_count_what_was_generated(
    logits: Tensor, so_far: Tensor, presence: float, frequency: float
) -> None:
    prompts = torch.arange(B) % (T + 1)
    wanted = logits.clone()
    for row in range(B):
        generated = so_far[row, int(prompts[row]) :].tolist()
        for token in set(generated):
            wanted[row, token] -= presence + frequency * generated.count(token)
    assert_close(penalise_generated(logits, so_far, prompts, presence, frequency), wanted)


@pytest.mark.parametrize("tokens", [(0,), (3, 5, 12), tuple(range(1, V)), tuple(range(V))])
def test_banned_tokens(logits: Tensor, tokens: tuple[int, ...]) -> None:
    exactly(ban_tokens(logits, tokens), by_loops(logits, lambda _, __, token: token not in tokens))


@pytest.mark.parametrize("size", [1, 2, 3, T, T + 1])
def test_repeated_ngrams(logits: Tensor, so_far: Tensor, size: int) -> None:
    so_far[1] = torch.arange(T)  # nothing comes again

    def keep(row: int, _: list[float], token: int) -> bool:
        ids = [*so_far[row].tolist(), token]
        runs = [ids[i : i + size] for i in range(len(ids) - size + 1)]
        return not runs or runs[-1] not in runs[:-1]

    found = ban_repeated_ngrams(logits, so_far, size)
    exactly(found, by_loops(logits, keep))
    assert found.equal(logits) == (size >= T)


def test_a_processor_that_would_forbid_every_token_is_not_applied_to_that_row() -> None:
    logits = torch.tensor([[1.0, 2.0, IMPOSSIBLE], [1.0, 2.0, 3.0]])
    assert ban_tokens(logits, (0, 1)).tolist() == [[1.0, 2.0, IMPOSSIBLE], [IMPOSSIBLE, IMPOSSIBLE, 3.0]]
    so_far = torch.tensor([[0, 1], [2, 1]])
    assert ban_repeated_ngrams(logits, so_far, 1).tolist() == [[1.0, 2.0, IMPOSSIBLE], [1.0, IMPOSSIBLE, IMPOSSIBLE]]


def test_forced_tokens() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [IMPOSSIBLE, 2.0, 3.0]])
    found = force_token(logits, torch.tensor([1, ANY_TOKEN, 0]))
    assert found.tolist() == [[IMPOSSIBLE, 2.0, IMPOSSIBLE], [1.0, 2.0, 3.0], [FORCED_LOGIT, IMPOSSIBLE, IMPOSSIBLE]]
    assert force_token(logits, None) is logits


def test_processors_are_applied_in_order(logits: Tensor, so_far: Tensor) -> None:
    assert logits_processors(Settings()) == []
    rules = logits_processors(Settings(repetition_penalty=1.5, no_repeat_ngram=2, banned_tokens=(7, 1)))
    wanted = ban_tokens(ban_repeated_ngrams(penalise_repetition(logits, so_far, 1.5), so_far, 2), (7, 1))
    exactly(apply_processors(rules, logits, so_far, torch.zeros(B)), wanted)
    assert not wanted.equal(logits)


def test_logits_are_not_changed_in_place(logits: Tensor, so_far: Tensor) -> None:
    before = logits.clone()
    force_token(
        ban_repeated_ngrams(ban_tokens(penalise_repetition(logits, so_far, 2.0), (1,)), so_far, 1), so_far[:, 0]
    )
    min_p_filter(top_p_filter(top_k_filter(apply_temperature(logits, 0.5), 3), 0.5), 0.5)
    assert logits.equal(before)

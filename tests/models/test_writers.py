"""What every model that writes promises, whatever it is made of: it decodes as it was trained."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from .setting import MODELS, WRITERS, B, System, T, V, assert_every_parameter_learns, doubled, memorise, sentences

every_writer = pytest.mark.parametrize("system", WRITERS, ids=str)


def ready(system: System) -> tuple[Any, tuple[Tensor, ...], Tensor]:
    """A model in float64, what it reads and what it writes."""
    model = system.build().double().eval()
    return model, doubled(system.sources()), sentences(B, T)


@every_writer
def test_logits_for_every_token_and_a_gradient_for_every_parameter(system: System) -> None:
    model, sources, target = ready(system)
    logits = model(*sources, target)
    assert logits.shape == (B, T, V)
    (logits * torch.randn_like(logits)).sum().backward()
    assert_every_parameter_learns(model)


@every_writer
@pytest.mark.parametrize("cuts", [[1] * T, [2, 3], [T]], ids=["one by one", "two parts", "all at once"])
def test_writing_step_by_step_equals_writing_at_once(system: System, cuts: list[int]) -> None:
    model, sources, target = ready(system)
    state, parts = model.start(*sources), []
    for ids in target.split(cuts, dim=1):
        logits, state = model.step(ids, state)
        parts.append(logits)
    assert_close(torch.cat(parts, dim=1), model(*sources, target))


@every_writer
def test_rows_change_places_as_beams_do(system: System) -> None:
    model, sources, target = ready(system)
    rows, after = torch.tensor([2, 0, 0, 2, 1]), sentences(5, 3)
    _, state = model.step(target, model.start(*sources))
    logits, _ = model.step(after, model.reorder(state, rows))
    whole = torch.cat((target[rows], after), dim=1)
    assert_close(logits, model(*(source[rows] for source in sources), whole)[:, T:])


@every_writer
def test_rows_change_places_before_the_first_token(system: System) -> None:
    model, sources, target = ready(system)
    rows = torch.tensor([1, 2, 0])
    logits, _ = model.step(target, model.reorder(model.start(*sources), rows))
    assert_close(logits, model(*(source[rows] for source in sources), target))


@every_writer
@pytest.mark.parametrize("changed", [0, 2, T - 1])
def test_a_token_changes_nothing_before_it(system: System, changed: int) -> None:
    model, sources, target = ready(system)
    other = target.clone()
    other[:, changed] = target[:, changed] % (V - 1) + 1
    before, after = model(*sources, target), model(*sources, other)
    assert_close(after[:, :changed], before[:, :changed], rtol=0, atol=1e-12)
    assert (after[:, changed] - before[:, changed]).abs().amax(-1).gt(1e-6).all()


@pytest.mark.parametrize("system", [each for each in WRITERS if each.sources()], ids=str)
def test_what_was_read_changes_what_is_written(system: System) -> None:
    model, (source,), target = ready(system)
    source[1] = source[0]
    logits = model(source, target[:1].expand(B, T))
    assert_close(logits[1], logits[0])
    assert (logits[2] - logits[0]).abs().amax() > 1e-6


@every_writer
def test_rows_do_not_see_each_other(system: System) -> None:
    model, sources, target = ready(system)
    alone = [model(*(source[row : row + 1] for source in sources), target[row : row + 1]) for row in range(B)]
    assert_close(torch.cat(alone), model(*sources, target))


@pytest.mark.parametrize("system", MODELS, ids=str)
def test_a_few_examples_are_learned_by_heart(system: System) -> None:
    model, sources = system.build(), system.sources()
    target = torch.tensor([[1, 3, 2, 7, 5, 12], [2, 3, 6, 9, 4, 8], [6, 3, 11, 10, 1, 3]])
    written, following = target[:, :-1], target[:, 1:]
    left = memorise(model, lambda: F.cross_entropy(model(*sources, written).flatten(0, 1), following.flatten()))
    assert left < 0.1
    assert model.eval()(*sources, written).argmax(-1).equal(following)

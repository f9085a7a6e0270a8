"""Training examples are changed a little where that is asked for; validation examples never are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clearhead.data import builtin
from clearhead.tasks import TASKS, default_config, override_config
from clearhead.tasks.base.task import Workspace


@pytest.fixture(autouse=True)
def few_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = builtin.examples
    monkeypatch.setattr(builtin, "examples", lambda kind: whole(kind)[::19])


def made(task: str, folder: Path, augment: float) -> Any:
    words = [f"data.augment={augment}", "data.batch_tokens=2000"]
    return TASKS[task](override_config(default_config(task, "tiny"), words), Workspace(folder))


@pytest.mark.parametrize(("task", "inputs"), [("classify", "ids"), ("vision", "images")])
def test_training_changes_and_validation_stays(task: str, inputs: str, tmp_path: Path) -> None:
    plain, changed = made(task, tmp_path, 0.0), made(task, tmp_path, 0.3)
    examples = np.arange(17)
    before, after = plain.batch(examples), changed.batch(examples)
    assert before[inputs].shape == after[inputs].shape
    assert not torch.equal(before[inputs], after[inputs])
    assert torch.equal(before["labels"], after["labels"])
    for one, other in zip(plain.validation(), changed.validation(), strict=True):
        assert torch.equal(one[inputs], other[inputs])


def test_only_words_are_hidden_and_about_as_many_as_asked(tmp_path: Path) -> None:
    torch.manual_seed(3)
    task = made("classify", tmp_path, 0.3)
    before = made("classify", tmp_path, 0.0).batch(np.arange(101))["ids"]
    after = task.batch(np.arange(101))["ids"]
    special = (before == task.tokenizer.pad) | (before == task.tokenizer.cls)
    hidden = before != after
    assert not (hidden & special).any()
    assert (after[hidden] == task.tokenizer.unknown).all()
    assert hidden[~special].double().mean().item() == pytest.approx(0.3, abs=0.03)

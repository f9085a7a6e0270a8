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
from clearhead.tasks.vision import shifted


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


def test_images_are_moved_by_whole_pixels_up_to_a_limit() -> None:
    torch.manual_seed(5)
    images = torch.randn(211, 2, 7, 11)
    moved, found = shifted(images, 2), set()
    for before, after in zip(images, moved, strict=True):
        for down in range(-2, 3):
            for right in range(-2, 3):
                rows, columns = (torch.arange(7) + down).clamp(0, 6), (torch.arange(11) + right).clamp(0, 10)
                if torch.equal(before[:, rows][:, :, columns], after):
                    found.add((down, right))
                    break
            else:
                continue
            break
        else:
            pytest.fail("an image is not a moved one")
    assert len(found) == 25


def test_training_images_are_moved_and_validation_images_are_not(tmp_path: Path) -> None:
    config = override_config(default_config("vision", "tiny"), ["data.shift=2", "data.batch_tokens=2000"])
    task = TASKS["vision"](config, Workspace(tmp_path))
    before = made("vision", tmp_path, 0.0)
    examples = np.arange(17)
    assert not torch.equal(task.batch(examples)["images"], before.batch(examples)["images"])
    assert torch.equal(next(task.validation())["images"], next(before.validation())["images"])

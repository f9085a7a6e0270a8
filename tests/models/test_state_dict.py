"""The names and shapes of all tensors, as they were when the first models were saved: old runs must load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clearhead.config import CONFIGS
from clearhead.models.build import Sizes, build

RECORDED = json.loads((Path(__file__).parent / "state_dicts.json").read_text(encoding="utf-8"))
SIZES = Sizes(vocabulary=13, classes=11, channels=3, height=4, width=10)


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: f"{recorded['task']}-{recorded['model']}")
def test_no_tensor_changes_its_name_or_shape(recorded: dict[str, Any]) -> None:
    model = build(CONFIGS[recorded["task"]].model_validate({"model": recorded["model"]}), SIZES)  # type: ignore[index]
    assert {name: list(tensor.shape) for name, tensor in model.state_dict().items()} == recorded["tensors"]
    assert list(model.state_dict()) == list(recorded["tensors"])

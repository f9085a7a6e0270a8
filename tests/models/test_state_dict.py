"""The names and shapes of all tensors, as they were when the first models were saved: old runs must load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clearhead.run import Sizes
from clearhead.tasks import TASKS
from clearhead.tasks.base.network import build_network

RECORDED = json.loads((Path(__file__).parent / "state_dicts.json").read_text(encoding="utf-8"))
SIZES = Sizes(vocabulary=13, classes=11, channels=3, height=4, width=10)


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: f"{recorded['task']}-{recorded['model']}")
def test_no_tensor_changes_its_name_or_shape(recorded: dict[str, Any]) -> None:
    config = TASKS[recorded["task"]].config_type().model_validate({"model": recorded["model"]})
    model = build_network(config, SIZES)
    assert {name: list(tensor.shape) for name, tensor in model.state_dict().items()} == recorded["tensors"]
    assert list(model.state_dict()) == list(recorded["tensors"])

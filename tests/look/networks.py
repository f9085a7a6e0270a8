"""Small networks with random weights, whose sizes are all different."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from clearhead.run import Sizes
from clearhead.tasks import TASKS
from clearhead.tasks.base.network import build_network

SIZES = Sizes(vocabulary=13, classes=7, channels=1, height=4, width=6)


def small_network(task: str = "translate", sizes: Sizes = SIZES, seed: int = 1, **settings: Any) -> nn.Module:
    """The network of a task in evaluation mode, of two layers with three heads unless the settings say otherwise."""
    torch.manual_seed(seed)
    patch = {"patch": 2} if task in ("vision", "caption") else {}
    model = {"dim": 12, "heads": 3, "layers": 2, "inner": 17, "dropout": 0.0, **patch, **settings}
    config = TASKS[task].config_type().model_validate({"model": model})
    return build_network(config, sizes).eval()  # type: ignore[arg-type]

"""Small runs of every task, with weights that are not those of a fresh network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.run import ModelMeta, Run, Sizes
from clearhead.tasks import TASKS
from clearhead.tasks.base.network import build_network, save_weights
from clearhead.text import Tokenizer

TEXTS = ["the quick brown fox jumps over the lazy dog", "naïve café — “quoted” 123, 4567!", "línea\nnueva\ttab", "日本"]
SMALL: dict[str, Any] = {"dim": 24, "heads": 4, "layers": 3, "inner": 34}
MakeRun = Callable[..., Path]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    def make(task: str, kind: str = "bytes", size: int = 300, **settings: Any) -> Path:
        torch.manual_seed(11)
        model = {**SMALL, **settings}
        config = (
            TASKS[task]
            .config_type()
            .model_validate({"task": task, "model": model, "tokenizer": {"kind": kind, "size": size}})
        )
        run = Run.create(tmp_path / "run", config)
        labels: tuple[str, ...] = ()
        sizes = {}
        if task == "vision":
            labels, sizes = ("a", "b", "c", "d", "e"), {"channels": 3, "height": 12, "width": 12, "classes": 5}
        else:
            tokenizer = Tokenizer.train(kind, TEXTS * 3, size=size)  # type: ignore[arg-type]
            tokenizer.save(run.path / "tokenizer.json")
            sizes = {"vocabulary": len(tokenizer), "pad": tokenizer.pad}
        if task in ("classify", "tag"):
            labels = ("yes", "no", "maybe")
            sizes["classes"] = 3
        network = build_network(config, Sizes(**sizes))
        with torch.no_grad():
            for weight in network.parameters():
                weight.add_(0.15 * torch.randn_like(weight))
        save_weights(run, config, network.state_dict(), ModelMeta(Sizes(**sizes), labels))
        (run.path / "card.md").write_text("---\nlicence: 'demo: CC0'\n---\n# run\n\nA demo.\n", encoding="utf-8")
        return run.path

    return make

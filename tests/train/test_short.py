"""Training computes the attention of short sequences in native code, and learns the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.train.small_runs import make_config
from torch.testing import assert_close

from clearhead.engines.native import short
from clearhead.engines.native.library import load_library
from clearhead.train.start import run_training

pytestmark = pytest.mark.skipif(load_library() is None, reason="no native library: python tools/build_native.py")


def losses(run: Path) -> torch.Tensor:
    lines = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return torch.tensor([line["loss"] for line in lines])


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_losses_are_those_of_torchs_kernel(optimizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_config(tmp_path, "translate", f"train.optimizer={optimizer}")
    calls = []
    apply = short._ShortAttention.apply
    monkeypatch.setattr(short._ShortAttention, "apply", lambda *inputs: calls.append(1) or apply(*inputs))
    run_training(config, tmp_path / "native", "test")
    native = len(calls)
    monkeypatch.setattr(short, "load_library", lambda: None)
    run_training(config, tmp_path / "torch", "test")
    assert len(calls) == native > 6 * 10  # six layers, ten steps
    assert_close(losses(tmp_path / "native"), losses(tmp_path / "torch"), rtol=1e-4, atol=1e-5)

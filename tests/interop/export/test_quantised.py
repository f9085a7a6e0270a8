"""A quantised GGUF file keeps its blocks: on disk, and in the engine that computes with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.optional import optional

import clearhead
from clearhead.engines.native.library import load_library
from clearhead.errors import RunError
from clearhead.files import read_tensors, write_tensors
from clearhead.interop.checkpoint import read_checkpoint
from clearhead.interop.exporting import export
from clearhead.interop.formats.base.gguf_file import GgufFile
from clearhead.interop.importing import import_model
from clearhead.nn.quantised import FORMATS
from clearhead.run import Run

optional("gguf")
LLAMA: dict[str, Any] = {"positions": "rotary", "norm": "rms", "feed_forward": "swiglu", "bias": False, "dim": 64,
                         "heads": 4, "kv_heads": 2, "layers": 2, "inner": 96, "placement": "before",
                         "embedding_scale": 1.0}  # fmt: skip


@pytest.fixture
def imported(make_run: Any, tmp_path: Path) -> Path:
    """The run directory of an imported file in Q4_1."""
    export("gguf", make_run("lm", size=330, **LLAMA), tmp_path / "out", "Q4_1")
    import_model(tmp_path / "out" / "model.gguf", tmp_path / "imported")
    return tmp_path / "imported"


def test_an_import_keeps_the_blocks_and_their_meaning(imported: Path, tmp_path: Path) -> None:
    floats, quantised, _ = Run(imported).load_stored_weights()
    assert {each.format for each in quantised.values()} <= set(FORMATS)
    assert "Q4_1" in {each.format for each in quantised.values()}
    assert all(tensor.dim() == 1 for tensor in floats.values())
    theirs = read_checkpoint(tmp_path / "out" / "model.gguf").tensors
    ours = Run(imported).load_weights()[0]
    pairs = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}
    for part, name in pairs.items():  # queries and keys in another order of rows
        own = ours[f"stack.blocks.1.self_attention.{part}.weight"]
        assert torch.equal(own, theirs[f"model.layers.1.self_attn.{name}.weight"])
    assert torch.equal(ours["tokens.tokens.table.weight"], theirs["model.embed_tokens.weight"])


def test_an_import_expands_nothing_that_stays_in_blocks(
    make_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export("gguf", make_run("lm", size=330, **LLAMA), tmp_path / "out", "Q4_1")
    read, original = list[str](), GgufFile.read
    monkeypatch.setattr(GgufFile, "read", lambda file, name: (read.append(name), original(file, name))[1])
    import_model(tmp_path / "out" / "model.gguf", tmp_path / "again")
    assert "output_norm.weight" in read
    assert not [name for name in read if "norm" not in name]


@pytest.mark.skipif(load_library() is None, reason="the native library is not built")
def test_generating_does_not_expand_the_weights(imported: Path) -> None:
    torch_model, exact, fast = (clearhead.load(imported, engine) for engine in ("torch", "exact", "auto"))
    settings = {"max_tokens": 9, "temperature": 0.0}
    expected = torch_model.generate("the quick", **settings)
    assert exact.generate("the quick", **settings) == expected
    assert not exact._opened._full
    assert fast.generate("the quick", **settings).startswith("the quick")
    assert torch.equal(exact.network.state_dict()["output.linear.weight"], torch_model.network.output.linear.weight)
    assert exact._opened._full
    assert not exact.engines.network_changed


def test_a_quantised_model_is_not_quantised_again(imported: Path) -> None:
    with pytest.raises(
        clearhead.errors.ConfigError, match="quantise=q4: the weights of this model are quantised already"
    ):
        clearhead.load(imported, quantise="q4")


def test_blocks_that_are_no_blocks_are_damage(imported: Path) -> None:
    path = imported / "model.safetensors"
    tensors, metadata = read_tensors(path)
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    for formats in ({"nothing": "Q4_1"}, {"stack.norm.weight": "Q4_1"}, ["Q4_1"]):
        write_tensors(path, tensors, {**metadata, "quantised": json.dumps(formats)})
        with pytest.raises(RunError, match=r"model\.safetensors is damaged: its metadata has"):
            clearhead.load(imported)

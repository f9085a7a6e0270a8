from __future__ import annotations

import copy
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer as Library

from clearhead.engines import ct2_export
from clearhead.errors import RunError
from clearhead.interop.checkpoint import format_of, read_checkpoint
from clearhead.run import Sizes
from clearhead.tasks import TASKS
from clearhead.tasks.base.network import build_network

ctranslate2 = pytest.importorskip("ctranslate2")

V = 37
SMALL = {"dim": 28, "heads": 2, "layers": 2, "inner": 17, "positions": "learned", "max_length": 61, "tied": False}
TOKENS = ["<blank>", "<unk>", "<s>", "</s>", *(f"t{index}" for index in range(V - 4))]


def make(**settings: Any) -> Any:
    torch.manual_seed(3)
    config = TASKS["translate"].config_type().model_validate({"model": {**SMALL, **settings}})
    network = build_network(config, Sizes(vocabulary=V)).eval()
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return network


def write(folder: Path, network: Any, monkeypatch: pytest.MonkeyPatch, kind: str = "float32") -> None:
    specs = ctranslate2.specs.model_spec.LayerSpec
    optimize = specs.optimize
    monkeypatch.setattr(specs, "optimize", lambda self, **_: optimize(self, quantization=kind))
    folder.mkdir()
    ct2_export.export(copy.deepcopy(network), TOKENS, folder, start=2, stop=3)  # the library rounds in place


@pytest.mark.parametrize(("kind", "near"), [("float32", 0.0), ("float16", 2e-3), ("int16", 2e-3), ("int8", 2e-2)])
def test_every_precision(kind: str, near: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = make()
    write(tmp_path / "m", network, monkeypatch, kind)
    assert format_of(tmp_path / "m") == "ctranslate2"
    found = read_checkpoint(tmp_path / "m")
    assert kind in found.precision
    own, block = found.tensors, network.decoder.blocks[1]
    wanted = {
        "model.decoder.layers.1.self_attn.k_proj.weight": block.self_attention.key.weight,
        "model.decoder.layers.1.self_attn.v_proj.bias": block.self_attention.value.bias,
        "model.decoder.layers.1.encoder_attn.v_proj.weight": block.cross_attention.value.weight,
        "model.decoder.layers.1.encoder_attn_layer_norm.weight": block.residual2.norm.weight,
        "model.decoder.layers.1.fc2.weight": block.feed_forward.outer.weight,
        "model.encoder.embed_tokens.weight": network.source.tokens.table.weight,
        "model.decoder.embed_positions.weight": network.target.positions.table.weight,
        "model.encoder.layer_norm.bias": network.encoder.norm.bias,
        "lm_head.weight": network.output.linear.weight,
    }
    for name, weight in wanted.items():
        torch.testing.assert_close(own[name].float(), weight.detach(), rtol=0, atol=near or 1e-9, msg=name)
    assert found.config["embedding_scale"] == pytest.approx(28**0.5)
    assert found.config["normalize_before"] is True
    assert found.config["decoder_start_token_id"] == 2


def test_vocabularies_of_two_languages_become_one(published: Path) -> None:
    folder = published / "aren-transliteration"
    found = read_checkpoint(folder)
    assert found.config["encoder_attention_heads"] == 8
    assert found.tokenizer is not None
    library = Library.from_str(found.tokenizer.json)
    both = {*(folder / "source_vocabulary.txt").read_text().split("\n"), "<unk>"}
    both |= {*(folder / "target_vocabulary.txt").read_text().split("\n")}
    assert found.config["vocab_size"] == len(both - {""})
    absent = library.token_to_id("ي")
    assert found.tensors["final_logits_bias"][0, absent] < -1e8
    assert not found.tensors["model.decoder.embed_tokens.weight"][absent].any()
    assert found.tensors["model.encoder.embed_tokens.weight"][absent].any()
    assert library.decode(library.encode("azof").ids) == "azof"


@pytest.mark.parametrize("end", [9, 40, 700, -3])
def test_a_file_that_is_cut_off_is_one_sentence(end: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "m", make(), monkeypatch)
    content = (tmp_path / "m" / "model.bin").read_bytes()
    (tmp_path / "m" / "model.bin").write_bytes(content[:end])
    with pytest.raises(RunError, match=r"damaged or cut off|not a model in a format"):
        read_checkpoint(tmp_path / "m")


def test_what_is_not_supported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "t5", make(positions="t5"), monkeypatch)
    with pytest.raises(RunError, match="has relative positions, which Clearhead does not read"):
        read_checkpoint(tmp_path / "t5")
    (tmp_path / "other").mkdir()
    kind = b"WhisperSpec\0"
    (tmp_path / "other" / "model.bin").write_bytes(
        struct.pack("<IH", 6, len(kind)) + kind + struct.pack("<IIIII", *[0] * 5)
    )
    with pytest.raises(RunError, match="of the kind WhisperSpec; Clearhead reads translation Transformers"):
        read_checkpoint(tmp_path / "other")


def test_a_folder_without_vocabularies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "m", make(), monkeypatch)
    for file in (tmp_path / "m").glob("*vocabulary*"):
        file.unlink()
    with pytest.raises(RunError, match="has no vocabularies: shared_vocabulary"):
        read_checkpoint(tmp_path / "m")

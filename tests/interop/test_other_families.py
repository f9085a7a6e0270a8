"""Families whose models do not come in Hugging Face folders: from a Checkpoint that a format has read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as Library
from tokenizers import models, pre_tokenizers
from torch.testing import assert_close

import clearhead
from clearhead.interop import parity
from clearhead.interop.checkpoint import Checkpoint, TokenizerFiles
from clearhead.interop.family import FAMILIES, ForeignConfig
from clearhead.interop.importing import prepare_checkpoint, prepare_import, report_of, write_run
from clearhead.interop.reference import example_inputs

from .originals import ENCODER, GEMMA, ORIGINALS, SIZE, save_tokenizer

WORDS = ["<unk>", "king", "queen", "bread"]


def word_files() -> TokenizerFiles:
    library = Library(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    return TokenizerFiles(library.to_str(), {"unk_token": "<unk>"}, add_bos=False, add_eos=False, chat_template=None)


def test_word_vectors(tmp_path: Path) -> None:
    vectors = torch.tensor([[0.0, 0, 0], [1, 2, 0], [1, 2.5, 0], [0, 0, 3]])
    config = {"model_type": "word_vectors", "hidden_size": 3}
    imported = prepare_checkpoint(
        Checkpoint(tmp_path / "glove.txt", config, {"vectors": vectors}, word_files(), {}, "float32")
    )
    write_run(imported, tmp_path / "words", report_of(imported))
    loaded = clearhead.load(tmp_path / "words")
    assert loaded.neighbours("king", count=1)[0][0] == "queen"
    assert_close(torch.tensor(loaded.embed("bread")), vectors[3])


@pytest.mark.parametrize("ends", [True, False])
def test_opennmt_is_marian_with_two_tables(tmp_path: Path, ends: bool) -> None:
    pytest.importorskip("transformers", reason="the original is built by transformers")
    theirs = ORIGINALS["marian"].save(tmp_path / "theirs")
    marian = prepare_import(tmp_path / "theirs")
    tensors: dict[str, Any] = {
        **{name: each for name, each in theirs.state_dict().items() if ".layers." in name},
        "model.encoder.embed_tokens.weight": theirs.model.shared.weight.detach(),
        "model.decoder.embed_tokens.weight": theirs.model.shared.weight.detach(),
        "model.encoder.embed_positions.weight": theirs.model.encoder.embed_positions.weight.detach(),
        "model.decoder.embed_positions.weight": theirs.model.decoder.embed_positions.weight.detach(),
        "lm_head.weight": theirs.model.shared.weight.detach(),
        "final_logits_bias": theirs.final_logits_bias,
    }
    same = ("d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads", "decoder_attention_heads")
    same += ("encoder_ffn_dim", "decoder_ffn_dim", "activation_function", "max_position_embeddings", "eos_token_id")
    config = {name: getattr(theirs.config, name) for name in (*same, "decoder_start_token_id")}
    config |= {"model_type": "opennmt", "normalize_before": False, "positions": "learned", "embedding_scale": 42**0.5}
    files = marian.checkpoint.tokenizer
    assert files is not None
    if not ends:
        library = Library.from_str(files.json)
        library.post_processor = None
        files = TokenizerFiles(library.to_str(), files.special, False, False, None)
    imported = prepare_checkpoint(Checkpoint(tmp_path / "model.bin", config, tensors, files, {}, "float32"))
    write_run(imported, tmp_path / "ours", report_of(imported))
    ours = clearhead.load(tmp_path / "ours")
    source, target = example_inputs(marian)
    with torch.no_grad():
        expected = theirs(input_ids=source, decoder_input_ids=target).logits
        assert_close(ours.network(source, target), expected, atol=1e-4, rtol=1e-4)
    assert (ours.prepare("we are").sources[0][0, -1] == ours.tokenizer.stop) == ends
    text = "we are eating"
    source = torch.tensor([[*ours.tokenizer.encode(text), *([3] if ends else [])]])
    written = theirs.generate(source, max_new_tokens=9, do_sample=False, num_beams=1)[0].tolist()
    assert ours.translate(text, beam_width=1, max_tokens=9) == ours.tokenizer.decode(written)


def test_a_reference_that_cannot_be_loaded_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers", reason="the original is built by transformers")
    ORIGINALS["llama"].save(tmp_path / "theirs")

    def fail(*_: Any) -> Any:
        raise ValueError("unknown model\nand more")

    monkeypatch.setattr(parity, "load_reference", fail)
    report = parity.import_and_compare(tmp_path / "theirs", tmp_path / "ours")
    assert report.checks[-1] == "not compared: transformers cannot load it (unknown model)"


@pytest.mark.parametrize("older", [False, True])
def test_the_language_model_of_a_gemma_3_that_reads_images(tmp_path: Path, older: bool) -> None:
    """Older files have other names, and leave out what is usual."""
    transformers = pytest.importorskip("transformers", reason="the original is built by transformers")
    vision = {"hidden_size": 10, "intermediate_size": 14, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision |= {"image_size": 28, "patch_size": 14}
    text = {**GEMMA, "vocab_size": SIZE + 4, "tie_word_embeddings": True}
    torch.manual_seed(3)
    theirs = transformers.Gemma3ForConditionalGeneration(
        transformers.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4)
    ).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    save_tokenizer(tmp_path / "theirs")
    if older:
        file = tmp_path / "theirs" / "model.safetensors"
        renamed = {
            name.replace("model.language_model.", "language_model.model.").removeprefix("model."): each
            for name, each in load_file(file).items()
        }
        save_file(renamed, file, {"format": "pt"})
    imported = prepare_import(tmp_path / "theirs")
    assert set(imported.skipped.values()) <= {"only the language model is imported", "the output is the embedding"}
    assert any("vision_tower" in name for name in imported.skipped)
    write_run(imported, tmp_path / "ours", report_of(imported))
    ours, ids = clearhead.load(tmp_path / "ours"), torch.randint(5, SIZE, (1, 17))
    with torch.no_grad():
        assert_close(ours.network(ids), theirs(ids).logits, atol=1e-4, rtol=1e-4)


def test_what_electra_does_not_need_is_still_an_error_in_bert() -> None:
    """Plans do not share what they skip, whichever model was imported before."""
    config = {**ENCODER, "vocab_size": SIZE, "embedding_size": 23, "type_vocab_size": 2}
    settings = ForeignConfig(Checkpoint(Path("here"), config, {}, None, {}, "float32"))
    assert "discriminator_predictions.*" in FAMILIES["electra"]().embedder(settings).skipped
    assert "discriminator_predictions.*" not in FAMILIES["bert"]().embedder(settings).skipped

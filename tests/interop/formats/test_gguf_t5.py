"""T5 as GGUF: an encoder and a decoder in one file, and a tokenizer of SentencePiece unigrams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.optional import optional
from torch.testing import assert_close

from clearhead.errors import RunError
from clearhead.interop.importing import prepare_import, report_of, write_run
from clearhead.interop.reference import compare_tensors, load_reference
from clearhead.interop.sentencepiece import read_pieces
from clearhead.tasks.base.predictor import load

gguf = optional("gguf")
transformers = optional("transformers")
sentencepiece = optional("sentencepiece")

TEXTS = ["we are eating bread and the dog sees a small cat", "The animal didn't cross the street; it was tired."]
SETTINGS = {"d_model": 42, "d_kv": 5, "num_heads": 6, "num_layers": 3, "num_decoder_layers": 2, "d_ff": 53}
SETTINGS |= {"relative_attention_num_buckets": 10, "layer_norm_epsilon": 3e-4, "vocab_size": 83}
SETTINGS |= {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pieces")
    (folder / "text.txt").write_text("\n".join(TEXTS * 4), encoding="utf-8")
    ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text.txt"),
        model_prefix=str(folder / "spiece"),
        vocab_size=70,
        model_type="unigram",
        minloglevel=2,
        hard_vocab_limit=False,
        **ids,
    )
    return folder / "spiece.model"


def write(path: Path, model: Any, pieces: Path, arch: str = "t5", characters: bool = False) -> None:
    """What llama.cpp's converter writes; the table of characters takes a second."""
    config = model.config
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(512)
    writer.add_embedding_length(config.d_model)
    writer.add_feed_forward_length(config.d_ff)
    writer.add_block_count(config.num_layers)
    writer.add_head_count(config.num_heads)
    writer.add_key_length(config.d_kv)
    writer.add_value_length(config.d_kv)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)
    writer.add_layer_norm_rms_eps(config.layer_norm_epsilon)
    writer.add_relative_attn_buckets_count(config.relative_attention_num_buckets)
    if arch == "t5":
        writer.add_decoder_block_count(config.num_decoder_layers)
        writer.add_decoder_start_token_id(config.decoder_start_token_id)
    add_tokenizer(writer, pieces, config.vocab_size, characters)
    table = gguf.get_tensor_name_map(gguf.MODEL_ARCH[arch.upper()], config.num_layers)
    for name, tensor in model.state_dict().items():
        if name.endswith("embed_tokens.weight") or (name == "lm_head.weight" and config.scale_decoder_outputs):
            continue  # the output is the embedding
        writer.add_tensor(table.get_name(name, try_suffixes=(".weight",)), tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tokenizer(writer: Any, pieces: Path, size: int, characters: bool = False) -> None:
    read = read_pieces(pieces)
    unused = [(f"[PAD{number}]", -10000.0, 5) for number in range(len(read.pieces), size)]
    tokens, scores, kinds = zip(*read.pieces, *unused, strict=True)
    writer.add_tokenizer_model("t5")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    writer.add_add_space_prefix(read.space_before)
    writer.add_remove_extra_whitespaces(read.join_spaces)
    if characters:
        writer.add_precompiled_charsmap(read.characters)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(2)
    writer.add_pad_token_id(0)


def make(kind: str, **changes: Any) -> Any:
    torch.manual_seed(7)
    model = getattr(transformers, kind)(transformers.T5Config(**{**SETTINGS, **changes})).eval()
    if not model.config.scale_decoder_outputs:
        model.lm_head.weight = torch.nn.Parameter(0.1 * torch.randn(83, 42))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return model


@pytest.mark.parametrize("changes", [{}, {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}])
def test_a_translator_is_the_model_that_was_written(tmp_path: Path, pieces: Path, changes: dict[str, Any]) -> None:
    theirs = make("T5ForConditionalGeneration", **changes)
    write(tmp_path / "m.gguf", theirs, pieces, characters=not changes)
    imported = prepare_import(tmp_path / "m.gguf")
    write_run(imported, tmp_path / "ours", report_of(imported))
    ours = load(tmp_path / "ours")
    for reference in (theirs, load_reference(imported.checkpoint, "translate")):
        parity = compare_tensors(ours.network, imported, reference)
        assert len(parity.differences) == 3 + 2 + 1
        assert [each.name for each in parity.differences if each.largest > 1e-4] == []
    spm = sentencepiece.SentencePieceProcessor(model_file=str(pieces))
    for text in [*TEXTS, "The dog's bread  was small", "xyz 123", *([] if changes else ["Éé ﬁ"])]:
        assert ours.tokenizer.encode(text) == spm.encode(text), text
    source = torch.tensor([[*spm.encode(TEXTS[0]), 1]])
    written = theirs.generate(source, max_new_tokens=9, do_sample=False, num_beams=1)[0].tolist()
    assert ours.translate(TEXTS[0], beam_width=1, max_tokens=9) == ours.tokenizer.decode(written)


def test_an_encoder_is_the_model_that_was_written(tmp_path: Path, pieces: Path) -> None:
    theirs = make("T5EncoderModel")
    write(tmp_path / "m.gguf", theirs, pieces, "t5encoder")
    imported = prepare_import(tmp_path / "m.gguf")
    write_run(imported, tmp_path / "ours", report_of(imported))
    ours = load(tmp_path / "ours")
    parity = compare_tensors(ours.network, imported)
    assert len(parity.differences) == 3
    assert parity.first_drift is None
    with torch.no_grad():
        hidden = theirs(torch.tensor([[*ours.tokenizer.encode(TEXTS[1]), 1]])).last_hidden_state
    assert_close(torch.tensor(ours.embed(TEXTS[1])), hidden[0].mean(0), atol=1e-4, rtol=1e-4)


def test_a_multilingual_encoder_has_the_same_kind_of_tokenizer(tmp_path: Path, pieces: Path) -> None:
    """XLM-RoBERTa is a BERT there, whose positions begin at 0."""
    torch.manual_seed(7)
    sizes = {"hidden_size": 42, "num_attention_heads": 6, "num_hidden_layers": 2, "intermediate_size": 53}
    settings = sizes | {"vocab_size": 83, "max_position_embeddings": 62, "type_vocab_size": 1, "pad_token_id": 0}
    theirs = transformers.XLMRobertaModel(transformers.XLMRobertaConfig(**settings), add_pooling_layer=False).eval()
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "bert")
    writer.add_context_length(61)
    writer.add_embedding_length(42)
    writer.add_feed_forward_length(53)
    writer.add_block_count(2)
    writer.add_head_count(6)
    writer.add_layer_norm_eps(theirs.config.layer_norm_eps)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    add_tokenizer(writer, pieces, 83)
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(True)
    table = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, 2)
    for name, tensor in theirs.state_dict().items():
        numbers = tensor.numpy()[1:] if "position_embeddings" in name else tensor.numpy()  # begins after the padding
        writer.add_tensor(table.get_name(name, try_suffixes=(".weight", ".bias")), numbers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    imported = prepare_import(tmp_path / "m.gguf")
    write_run(imported, tmp_path / "ours", report_of(imported))
    ours = load(tmp_path / "ours")
    ids = torch.tensor([[*ours.tokenizer.encode(TEXTS[1]), 1]])
    with torch.no_grad():
        hidden = theirs(ids).last_hidden_state
    assert_close(torch.tensor(ours.embed(TEXTS[1])), hidden[0].mean(0), atol=1e-4, rtol=1e-4)


def test_scores_of_fewer_tokens_are_one_sentence() -> None:
    from clearhead.interop.formats.base.gguf_tokenizer import read_tokenizer

    metadata = {"tokenizer.ggml.model": "t5", "tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.scores": [0.0]}
    with pytest.raises(RunError, match="it has 2 tokens and the scores of 1"):
        read_tokenizer(metadata, Path("m.gguf"))

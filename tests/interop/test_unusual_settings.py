"""Settings that few models of a family have: each is imported exactly, or refused in one sentence that names it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.optional import optional
from torch.testing import assert_close

from clearhead.errors import RunError
from clearhead.interop.exporting import export
from clearhead.interop.importing import import_model, prepare_import, report_of, write_run
from clearhead.interop.parity import import_and_compare
from clearhead.interop.reference import compare_tensors, example_inputs
from clearhead.tasks.base.predictor import load

from .originals import (
    BLOOM,
    DECODER,
    ENCODER,
    EVEN,
    GEMMA,
    GPT2,
    GROUPED,
    IMAGE,
    LABELS,
    LONG,
    MODERN,
    OPT,
    SEQ2SEQ,
    SIZE,
    START,
    STOP,
    T5,
    YARN,
    Original,
)

optional("transformers", reason="the originals are built by transformers")

TEXT = "we are eating bread"
GENERATED = 7
LONG_GAIN = {name: LONG[name] for name in ("rope_type", "rope_theta")} | {"original_max_position_embeddings": 40}
LONG_GAIN |= {"short_factor": [1.0, 1.1, 1.5, 2.0, 3.0], "long_factor": [2.0, 3.0, 4.0, 5.0, 6.0]}
SCALED = {"rope_type": "linear", "rope_theta": 50.0, "factor": 2.0}
BOTH_SCALED = {"rope_parameters": {"full_attention": SCALED, "sliding_attention": SCALED}}
PHI = DECODER | {"hidden_size": 48}
BART = SEQ2SEQ | {"tie_word_embeddings": False}
NLLB = BART | {"pad_token_id": 1, "decoder_start_token_id": STOP}
UNSHARED = SEQ2SEQ | {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": SIZE + 4}


def language_model(name: str, config: str, settings: dict[str, Any]) -> Original:
    return Original(name, f"{config}Config", settings, "lm")


def translator(name: str, config: str, settings: dict[str, Any]) -> Original:
    return Original(name, f"{config}Config", settings, "translate")


def tagger(config: str, settings: dict[str, Any]) -> Original:
    return Original(f"{config}ForTokenClassification", f"{config}Config", settings | {"id2label": LABELS}, "tag")


def vision(settings: dict[str, Any], config: str = "ViT") -> Original:
    return Original(f"{config}ForImageClassification", f"{config}Config", IMAGE | settings, "vision")


DISTIL = {"dim": 42, "n_heads": 6, "n_layers": 3, "hidden_dim": 53, "max_position_embeddings": 61}


def masked(config: str, settings: dict[str, Any]) -> Original:
    untied = settings | {"tie_word_embeddings": False}
    return Original(f"{config}ForMaskedLM", f"{config}Config", untied, "masked_lm")


KNOWN = {
    "bert, untied": masked("Bert", ENCODER | {"type_vocab_size": 2}),
    "roberta, untied": masked("Roberta", ENCODER | {"type_vocab_size": 1, "max_position_embeddings": 63}),
    "distilbert, untied": masked("DistilBert", DISTIL | {"pad_token_id": 0}),
    "albert, untied": masked("Albert", ENCODER | {"embedding_size": 23}),
    "electra, untied": masked("Electra", ENCODER | {"embedding_size": 23}),
    "modernbert, untied": masked("ModernBert", MODERN),
    "longrope, length from the ratio": language_model(
        "LlamaForCausalLM", "Llama", GROUPED | {"max_position_embeddings": 160, "rope_parameters": LONG_GAIN}
    ),
    "longrope, factor given": language_model(
        "LlamaForCausalLM", "Llama", GROUPED | {"rope_parameters": LONG_GAIN | {"factor": 4.0}}
    ),
    "yarn, factor from the lengths": language_model(
        "MistralForCausalLM",
        "Mistral",
        GROUPED | {"sliding_window": None, "rope_parameters": YARN | {"factor": 61 / 20}},
    ),
    "gemma 3 with a cap that it does not apply": language_model(
        "Gemma3ForCausalLM", "Gemma3Text", GEMMA | {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 2.0}
    ),
    "gpt2, scores without a scale": language_model("GPT2LMHeadModel", "GPT2", GPT2 | {"scale_attn_weights": False}),
    "gpt2, scores divided by the layer": language_model(
        "GPT2LMHeadModel", "GPT2", GPT2 | {"scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True}
    ),
    "phi, normalised queries": language_model("PhiForCausalLM", "Phi", PHI | {"qk_layernorm": True}),
    "phi, tied with a bias": language_model("PhiForCausalLM", "Phi", PHI | {"tie_word_embeddings": True}),
    "opt 350m": language_model(
        "OPTForCausalLM", "OPT", OPT | {"word_embed_proj_dim": 24, "do_layer_norm_before": False}
    ),
    "opt without biases": language_model(
        "OPTForCausalLM", "OPT", OPT | {"enable_bias": False, "activation_function": "gelu"}
    ),
    "opt without gains": language_model("OPTForCausalLM", "OPT", OPT | {"layer_norm_elementwise_affine": False}),
    "llama tag": tagger("Llama", GROUPED),
    "gpt2 tag": tagger("GPT2", GPT2),
    "bloom tag": tagger("Bloom", BLOOM),
    "qwen3 tag": tagger("Qwen3", EVEN | {"head_dim": 10}),
    "marian, two tables": translator("MarianMTModel", "Marian", UNSHARED),
    "marian, three tables": translator("MarianMTModel", "Marian", BART),
    "bart, untied": translator("BartForConditionalGeneration", "Bart", BART),
    "mbart, untied": translator("MBartForConditionalGeneration", "MBart", BART),
    "pegasus, untied": translator("PegasusForConditionalGeneration", "Pegasus", BART),
    "m2m_100, untied": translator("M2M100ForConditionalGeneration", "M2M100", NLLB),
    "t5 encoder": Original("T5EncoderModel", "T5Config", T5, "embed"),
    "deit, distilled": Original("DeiTForImageClassificationWithTeacher", "DeiTConfig", IMAGE, "vision"),
    "vit, four channels": vision({"num_channels": 4}),
    "vit, several labels": vision({"problem_type": "multi_label_classification"}),
}


def imported_and_loaded(theirs: Path, ours: Path) -> tuple[Any, Any]:
    imported = prepare_import(theirs)
    write_run(imported, ours, report_of(imported))
    return imported, load(ours)


@torch.no_grad()
@pytest.mark.parametrize("name", KNOWN)
def test_an_unusual_setting_is_followed(name: str, tmp_path: Path) -> None:
    original = KNOWN[name]
    theirs = original.save(tmp_path / "theirs")
    imported, ours = imported_and_loaded(tmp_path / "theirs", tmp_path / "ours")
    assert imported.plan.task == original.task
    assert compare_tensors(ours.network, imported).first_drift is None
    if original.task != "embed":
        inputs = example_inputs(imported)
        expected = theirs(**imported.family.reference_inputs(imported.checkpoint, inputs)).logits
        assert_close(ours.network(*inputs), expected, atol=1e-4, rtol=1e-4)
    if original.task == "lm":
        ids = torch.tensor([ours.prompt_ids(TEXT)])
        written = theirs.generate(ids, max_new_tokens=GENERATED, do_sample=False, pad_token_id=0)[0].tolist()
        assert ours.generate(TEXT, max_tokens=GENERATED, temperature=0.0) == ours.tokenizer.decode(written)
    if original.task == "translate":
        source = ours.prepare(TEXT).sources[0]
        written = theirs.generate(source, max_new_tokens=GENERATED, do_sample=False, num_beams=1)[0].tolist()
        assert ours.translate(TEXT, beam_width=1, max_tokens=GENERATED) == ours.tokenizer.decode(written)
    if original.task == "tag":
        assert [word for word, _ in ours.tag(TEXT)] == TEXT.split()


REFUSED = {
    "partial_rotary_factor=0.4": language_model(
        "LlamaForCausalLM",
        "Llama",
        GROUPED | {"rope_parameters": {"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 0.4}},
    ),
    "hidden_act='quick_gelu'": language_model("LlamaForCausalLM", "Llama", GROUPED | {"hidden_act": "quick_gelu"}),
    "rope_parameters={.*": language_model("Gemma3ForCausalLM", "Gemma3Text", GEMMA | BOTH_SCALED),
    "rope_parameters={.*'factor'.*": Original(
        "ModernBertForMaskedLM", "ModernBertConfig", MODERN | BOTH_SCALED, "masked_lm"
    ),
    "problem_type='regression'": vision({"problem_type": "regression"}),
    "use_swiglu_ffn=True": Original(
        "Dinov2ForImageClassification", "Dinov2Config", IMAGE | {"use_swiglu_ffn": True}, "vision"
    ),
    "clip_qkv=3.0": language_model("OlmoForCausalLM", "Olmo", GROUPED | {"clip_qkv": 3.0}),
    "num_channels=4": vision({"num_channels": 4}, "DeiT"),
    "share_encoder_decoder_embeddings=False": translator(
        "MarianMTModel", "Marian", UNSHARED | {"decoder_vocab_size": SIZE}
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_setting_that_ours_lacks_is_named(message: str, tmp_path: Path) -> None:
    REFUSED[message].save(tmp_path)
    with pytest.raises(RunError, match=f"config.json has {message}, which Clearhead cannot import"):
        prepare_import(tmp_path)


def changed(file: Path, **values: Any) -> None:
    """Set values of a JSON file; None removes one."""
    have = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    kept = {name: value for name, value in {**have, **values}.items() if value is not None}
    file.write_text(json.dumps(kept), encoding="utf-8")


def test_the_scaling_of_old_files_is_not_for_blocks_with_a_window(tmp_path: Path) -> None:
    language_model("Gemma3ForCausalLM", "Gemma3Text", GEMMA).save(tmp_path / "theirs")
    old = {"rope_theta": 700.0, "rope_local_base_freq": 50.0, "rope_scaling": {"rope_type": "linear", "factor": 3.0}}
    changed(tmp_path / "theirs" / "config.json", rope_parameters=None, **old)
    imported, ours = imported_and_loaded(tmp_path / "theirs", tmp_path / "ours")
    assert compare_tensors(ours.network, imported).first_drift is None


def test_mbart_begins_with_bos_where_nothing_says_what_with(tmp_path: Path) -> None:
    settings = {name: value for name, value in SEQ2SEQ.items() if name != "decoder_start_token_id"}
    theirs = translator("MBartForConditionalGeneration", "MBart", settings).save(tmp_path / "theirs")
    _, ours = imported_and_loaded(tmp_path / "theirs", tmp_path / "ours")
    assert ours.tokenizer.start == START
    written = theirs.generate(ours.prepare(TEXT).sources[0], max_new_tokens=GENERATED, do_sample=False, num_beams=1)
    assert ours.translate(TEXT, beam_width=1, max_tokens=GENERATED) == ours.tokenizer.decode(written[0].tolist())


def test_a_target_vocabulary_of_its_own_is_refused(tmp_path: Path) -> None:
    translator("MarianMTModel", "Marian", UNSHARED).save(tmp_path)
    (tmp_path / "target_vocab.json").write_text("{}", encoding="utf-8")
    with pytest.raises(RunError, match="share_encoder_decoder_embeddings=False"):
        prepare_import(tmp_path)


@pytest.mark.parametrize(
    "processor",
    [
        {"do_normalize": False, "rescale_factor": 1 / 127.5},
        {"do_rescale": False, "image_mean": [100.0, 120.0, 90.0], "image_std": [50.0, 60.0, 70.0]},
        {"image_mean": 0.4, "image_std": 0.3},
    ],
)
def test_pixels_are_scaled_as_the_processor_says(processor: dict[str, Any], tmp_path: Path) -> None:
    theirs = vision({}).save(tmp_path / "theirs")
    changed(tmp_path / "theirs" / "preprocessor_config.json", **processor)
    _, ours = imported_and_loaded(tmp_path / "theirs", tmp_path / "ours")
    pixels = torch.randint(256, (1, 3, 21, 21), generator=torch.Generator().manual_seed(1)).float()
    read = pixels * (processor.get("rescale_factor", 1 / 255) if processor.get("do_rescale", True) else 1.0)
    if processor.get("do_normalize", True):
        mean, deviation = (torch.tensor(processor[name]).view(-1, 1, 1) for name in ("image_mean", "image_std"))
        read = (read - mean) / deviation
    with torch.no_grad():
        assert_close(ours.network(pixels / 127.5 - 1), theirs(read).logits, atol=1e-3, rtol=1e-4)


def test_each_label_of_an_image_has_a_probability_of_its_own(tmp_path: Path) -> None:
    vision({"problem_type": "multi_label_classification"}).save(tmp_path / "theirs")
    _, ours = imported_and_loaded(tmp_path / "theirs", tmp_path / "ours")
    image = torch.randint(256, (21, 21, 3), generator=torch.Generator().manual_seed(1)).to(torch.uint8).numpy()
    with torch.no_grad():
        expected = ours.network(ours.prepare(image).sources[0]).sigmoid()[0].tolist()
    assert list(ours.classify(image).probabilities.values()) == pytest.approx(expected, abs=1e-5)


def test_tokens_that_were_added_without_a_vector_are_left_out(tmp_path: Path) -> None:
    import transformers

    language_model("LlamaForCausalLM", "Llama", GROUPED).save(tmp_path / "theirs")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    tokenizer.add_tokens([f"<new{number}>" for number in range(9)])  # the model has room for 4
    tokenizer.save_pretrained(tmp_path / "theirs")
    import_model(tmp_path / "theirs", tmp_path / "ours")
    ours = load(tmp_path / "ours")
    assert ours.tokenizer.max_id == SIZE + 3
    assert ours.tokenizer.decode(ours.tokenizer.encode("a <new8> b")) == "a <new8> b"


def test_a_tokenizer_larger_than_the_model_is_refused(tmp_path: Path) -> None:
    Original("LlamaForCausalLM", "LlamaConfig", GROUPED, "lm", vocabulary=SIZE - 5).save(tmp_path)
    with pytest.raises(RunError, match="its tokenizer has 307 tokens, and the model has vectors for 302"):
        prepare_import(tmp_path)


def test_weights_that_another_library_quantised_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    language_model("LlamaForCausalLM", "Llama", GROUPED).save(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name = "model.layers.0.mlp.up_proj"
    tensors[f"{name}.qweight"] = tensors.pop(f"{name}.weight").to(torch.int32)
    save_file(tensors, tmp_path / "model.safetensors")
    changed(tmp_path / "config.json", quantization_config={"quant_method": "gptq", "bits": 4})
    with pytest.raises(RunError, match=r"stored by quantization_config \(gptq\), which Clearhead cannot read"):
        prepare_import(tmp_path)


def test_a_model_that_transformers_cannot_run_is_imported_and_not_compared(tmp_path: Path) -> None:
    """Its distances are counted in buckets of which transformers, that always counts 32, has too few."""
    settings = ENCODER | {"max_position_embeddings": 63, "pad_token_id": 1, "relative_attention_num_buckets": 12}
    Original("MPNetModel", "MPNetConfig", settings, "embed").save(tmp_path / "theirs")
    report = import_and_compare(tmp_path / "theirs", tmp_path / "ours")
    assert any(each.startswith("not compared: transformers cannot run it (") for each in report.checks)


@pytest.mark.parametrize(("name", "form"), [("bert, untied", "hf"), ("marian, three tables", "ct2")])
def test_what_is_exported_is_what_was_imported(name: str, form: str, tmp_path: Path) -> None:
    """An output of its own, and a decoder with other layers than its encoder."""
    if form == "ct2":
        pytest.importorskip("ctranslate2")
    KNOWN[name].save(tmp_path / "theirs")
    imported, ours = imported_and_loaded(tmp_path / "theirs", tmp_path / "ours")
    export(form, tmp_path / "ours", tmp_path / "exported")
    _, again = imported_and_loaded(tmp_path / "exported", tmp_path / "again")
    inputs = example_inputs(imported)
    with torch.no_grad():
        assert_close(again.network(*inputs), ours.network(*inputs), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "config", "settings"),
    [
        ("LlamaForCausalLM", "Llama", GROUPED),
        ("GemmaForCausalLM", "Gemma", GROUPED | {"pad_token_id": 0}),
        ("GPT2LMHeadModel", "GPT2", GPT2),
        ("BloomForCausalLM", "Bloom", BLOOM),
    ],
)
def test_an_output_that_differs_from_the_embedding_is_kept(
    name: str, config: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    """Some fine-tuned models have both, and a config.json that says that they are one."""
    language_model(name, config, settings | {"tie_word_embeddings": False}).save(tmp_path / "theirs")
    changed(tmp_path / "theirs" / "config.json", tie_word_embeddings=True)
    imported, ours = imported_and_loaded(tmp_path / "theirs", tmp_path / "ours")
    assert compare_tensors(ours.network, imported).first_drift is None


def test_mistral_may_have_windows_in_some_blocks(tmp_path: Path) -> None:
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    language_model("MistralForCausalLM", "Mistral", GROUPED | {"sliding_window": 5}).save(tmp_path / "theirs")
    changed(tmp_path / "theirs" / "config.json", layer_types=kinds)
    imported, ours = imported_and_loaded(tmp_path / "theirs", tmp_path / "ours")
    assert compare_tensors(ours.network, imported).first_drift is None
    changed(tmp_path / "theirs" / "config.json", layer_types=["chunked_attention", *kinds[1:]])
    with pytest.raises(RunError, match=r"layer_types=.*, which Clearhead cannot import"):
        prepare_import(tmp_path / "theirs")

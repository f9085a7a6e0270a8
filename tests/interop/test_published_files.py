"""Files as people publish them: of older versions, of sentence-transformers, with more than one stop token."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from clearhead.errors import RunError
from clearhead.interop import parity
from clearhead.interop.importing import import_model, prepare_import, report_of, write_run
from clearhead.interop.parity import import_and_compare
from clearhead.interop.reference import example_inputs
from clearhead.tasks.base.predictor import load

from .originals import ENCODER, GROUPED, ORIGINALS, PAD, STOP, T5, Original, save_tokenizer

pytest.importorskip("transformers", reason="the originals are built by transformers")

TEXTS = ["We are eating Bread", "The animal didn't cross the street; it was tired. " * 6, "a"]
BERT = Original("BertModel", "BertConfig", ENCODER | {"type_vocab_size": 2}, "embed")


def edit(file: Path, *dropped: str, **changed: Any) -> None:
    """Change some values of a JSON file."""
    values = json.loads(file.read_text())
    file.write_text(json.dumps({name: each for name, each in values.items() if name not in dropped} | changed))


# --- sentence-transformers ---


def sentence_model(original: Original, folder: Path, *modules: str) -> Any:
    """A model of sentence-transformers with these modules after the Transformer, saved in a folder."""
    library = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer import modules as parts

    original.save(folder / "body")
    torch.manual_seed(3)
    made = {
        "mean": lambda: parts.Pooling(42, "mean"),
        "class": lambda: parts.Pooling(42, "cls"),
        "max": lambda: parts.Pooling(42, "max"),
        "last": lambda: parts.Pooling(42, "lasttoken"),
        "weighted": lambda: parts.Pooling(42, "weightedmean"),
        "root": lambda: parts.Pooling(42, "mean_sqrt_len_tokens"),
        "dense": lambda: parts.Dense(42, 17),
        "linear": lambda: parts.Dense(42, 19, bias=False, activation_function=torch.nn.Identity()),
        "unit": parts.Normalize,
    }
    body = parts.Transformer(str(folder / "body"), max_seq_length=48)
    model = library.SentenceTransformer(modules=[body, *(made[name]() for name in modules)], device="cpu")
    model.save(str(folder / "theirs"))
    return model


def assert_same_vectors(theirs: Any, folder: Path) -> None:
    import_model(folder / "theirs", folder / "ours")
    vectors = load(folder / "ours").embed(TEXTS)
    np.testing.assert_allclose(vectors, theirs.encode(TEXTS), atol=1e-5)


@pytest.mark.parametrize(
    "modules",
    [
        *(("mean", "unit"), ("class",), ("max",), ("weighted",), ("root",)),
        *(("class", "dense", "unit"), ("mean", "linear")),
    ],
)
def test_every_way_to_one_vector(tmp_path: Path, modules: tuple[str, ...]) -> None:
    assert_same_vectors(sentence_model(BERT, tmp_path, *modules), tmp_path)


def test_a_decoder_and_an_encoder_of_t5_give_vectors(tmp_path: Path) -> None:
    """The padding token of the decoder ends its texts, as Qwen's does."""
    qwen = Original("Qwen3Model", "Qwen3Config", GROUPED | {"pad_token_id": STOP}, "embed")
    theirs = sentence_model(qwen, tmp_path / "qwen3", "last", "unit")
    edit(tmp_path / "qwen3" / "theirs" / "tokenizer_config.json", pad_token="</s>")
    assert_same_vectors(theirs, tmp_path / "qwen3")
    encoder = Original("T5EncoderModel", "T5Config", T5, "embed")
    theirs = sentence_model(encoder, tmp_path / "t5", "mean", "linear", "unit")
    assert_same_vectors(theirs, tmp_path / "t5")


def test_a_folder_of_an_older_version(tmp_path: Path) -> None:
    """The Transformer has a folder of its own, and every pooling a switch; texts are in small letters."""
    library = pytest.importorskip("sentence_transformers")
    sentence_model(BERT, tmp_path, "mean")
    folder, body = tmp_path / "theirs", tmp_path / "theirs" / "0_Transformer"
    names = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    switches = {f"pooling_mode_{name}": name == "mean_tokens" for name in names}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 42, **switches}))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 16, "do_lower_case": True}))
    kinds = [("0_Transformer", "Transformer"), ("1_Pooling", "Pooling")]
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(kinds)
    ]
    body.mkdir()
    for file in [each for each in folder.iterdir() if each.is_file() and "sentence_transformers" not in each.name]:
        file.rename(body / file.name)
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "config.json").write_text(json.dumps({"__version__": "0.2.6"}))
    assert_same_vectors(library.SentenceTransformer(str(folder), device="cpu"), tmp_path)


def test_the_default_prompt_stands_before_every_text(tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    sentence_model(BERT, tmp_path, "mean", "unit")
    folder = tmp_path / "theirs"
    prompts = {"prompts": {"query": "eating: ", "passage": ""}, "default_prompt_name": "query"}
    edit(folder / "config_sentence_transformers.json", **prompts)
    theirs = library.SentenceTransformer(str(folder), device="cpu")
    assert not np.allclose(theirs.encode("a"), theirs.encode("a", prompt_name="passage"))
    assert_same_vectors(theirs, tmp_path)
    report = import_and_compare(folder, tmp_path / "compared")
    assert any(each.startswith("cuts") and each.endswith("as transformers does") for each in report.checks)
    edit(folder / "1_Pooling" / "config.json", include_prompt=False)
    with pytest.raises(RunError, match="has include_prompt=False, which Clearhead cannot import"):
        prepare_import(folder)


def test_modules_that_are_unknown_are_named(tmp_path: Path) -> None:
    sentence_model(BERT, tmp_path, "mean")
    folder = tmp_path / "theirs"
    edit(folder / "1_Pooling" / "config.json", pooling_mode=["mean", "max"])
    with pytest.raises(RunError, match=r"has the pooling mean, max; Clearhead has cls, mean, lasttoken, max,"):
        prepare_import(folder)
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([*modules, {"type": "x.LSTM", "path": "2_LSTM"}]))
    edit(folder / "1_Pooling" / "config.json", pooling_mode="mean")
    with pytest.raises(RunError, match="has a module LSTM, which Clearhead cannot import"):
        prepare_import(folder)
    (folder / "modules.json").write_text(json.dumps([{**modules[0], "path": "../body"}]))
    with pytest.raises(RunError, match=r"leads out of the folder: \.\./body"):
        prepare_import(folder)


# --- config.json of other years ---


def test_heads_and_families_that_config_json_does_not_name(tmp_path: Path) -> None:
    """The files of BERT's small models have no architectures, and those of 2019 no model_type."""
    theirs = Original("BertForPreTraining", "BertConfig", ENCODER | {"type_vocab_size": 2}, "masked_lm")
    theirs.save(tmp_path / "theirs")
    config = tmp_path / "theirs" / "config.json"
    edit(config, "model_type")
    assert prepare_import(tmp_path / "theirs").plan.task == "masked_lm"
    edit(config, "architectures")
    with pytest.raises(RunError, match=r"config\.json has no model_type; say --as FAMILY \(albert, bart, bert"):
        prepare_import(tmp_path / "theirs")
    assert prepare_import(tmp_path / "theirs", "bert").plan.task == "masked_lm"


def test_an_encoder_with_the_tensors_of_a_head(tmp_path: Path) -> None:
    masked = ORIGINALS["bert masked"]
    masked.save(tmp_path / "theirs")
    edit(tmp_path / "theirs" / "config.json", architectures=["BertModel"])
    imported = prepare_import(tmp_path / "theirs")
    assert imported.plan.task == "embed"
    assert imported.skipped["cls.predictions.bias"] == "a sentence vector needs no head"


def test_gemma_s_first_files_mean_the_gelu_by_tanh(tmp_path: Path) -> None:
    ORIGINALS["gemma"].save(tmp_path / "theirs")
    edit(tmp_path / "theirs" / "config.json", "rope_parameters", hidden_act="gelu", rope_theta=10000.0)
    report = import_and_compare(tmp_path / "theirs", tmp_path / "ours")
    assert report.checks[-1].startswith("equal to transformers in 4 tensors")


def test_buffers_of_older_versions_are_no_weights(tmp_path: Path) -> None:
    theirs = ORIGINALS["gpt_neo"].save(tmp_path / "theirs")
    file = tmp_path / "theirs" / "model.safetensors"
    mask = {f"transformer.h.{layer}.attn.attention.bias": torch.ones(1, 1, 61, 61) for layer in range(3)}
    save_file({**load_file(file), **mask}, file, {"format": "pt"})
    import_model(tmp_path / "theirs", tmp_path / "ours")
    ids = torch.tensor([[71, 83, 97, 101, 103, 107, 109]])
    with torch.no_grad():
        assert_close(load(tmp_path / "ours").network(ids), theirs(ids).logits, atol=1e-4, rtol=1e-4)


def test_a_tokenizer_that_transformers_cannot_load_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ORIGINALS["llama"].save(tmp_path / "theirs")

    def fail(*_: Any) -> Any:
        raise ImportError("it needs sentencepiece")

    monkeypatch.setattr(parity, "compare_tokens", fail)
    report = parity.import_and_compare(tmp_path / "theirs", tmp_path / "ours")
    said = "tokens not compared: transformers cannot load its tokenizer (it needs sentencepiece)"
    assert report.checks[0] == said


# --- stop tokens ---


@pytest.mark.parametrize("width", [1, 2])
def test_any_of_several_stop_tokens_ends_a_text(tmp_path: Path, width: int) -> None:
    """As generation_config.json of Gemma and Phi-3 lists them: the end of the text, and of a turn."""
    theirs = ORIGINALS["llama"].save(tmp_path / "theirs")
    ids = torch.tensor([[2, 71, 83, 97]])
    free = theirs.generate(ids, max_new_tokens=9, do_sample=False, pad_token_id=PAD)[0, 4:].tolist()
    ends = next(number for number, token in enumerate(free) if number > 2 and token not in free[:number])
    edit(tmp_path / "theirs" / "generation_config.json", eos_token_id=[STOP, free[ends]])
    import_model(tmp_path / "theirs", tmp_path / "ours")
    ours = load(tmp_path / "ours")
    assert (ours.tokenizer.stop, ours.tokenizer.stops) == (STOP, (free[ends],))
    prompt = ours.tokenizer.decode(ids[0, 1:].tolist())
    search: dict[str, Any] = {"temperature": 0.0} if width == 1 else {"beam_width": 2, "temperature": 0.0}
    text = ours.generate(prompt, max_tokens=9, **search)
    same = theirs.generate(
        torch.tensor([ours.prompt_ids(prompt)]),
        max_new_tokens=9,
        do_sample=False,
        num_beams=width,
        pad_token_id=PAD,
        eos_token_id=[STOP, free[ends]],
    )[0].tolist()
    assert text == ours.tokenizer.decode([each for each in same if each not in (PAD, free[ends])])


def test_what_ends_every_text_is_not_its_padding(tmp_path: Path) -> None:
    ORIGINALS["bert"].save(tmp_path / "theirs")
    save_tokenizer(tmp_path / "theirs", ended=True)
    edit(tmp_path / "theirs" / "tokenizer_config.json", pad_token="</s>")
    tokenizer = prepare_import(tmp_path / "theirs").tokenizer
    assert tokenizer is not None
    assert tokenizer.suffix == (STOP,)
    assert tokenizer.pad not in tokenizer.suffix


# --- labels ---


@pytest.mark.parametrize("count", [1, 3])
def test_labels_with_probabilities_of_their_own(tmp_path: Path, count: int) -> None:
    """As problem_type says, or as a single label has; Hugging Face's pipeline gives the same."""
    settings = ENCODER | {"type_vocab_size": 2, "num_labels": count}
    kind = {} if count == 1 else {"problem_type": "multi_label_classification"}
    theirs = Original("BertForSequenceClassification", "BertConfig", settings | kind, "classify")
    model = theirs.save(tmp_path / "theirs")
    import_model(tmp_path / "theirs", tmp_path / "ours")
    ours = load(tmp_path / "ours")
    ids = torch.tensor([ours.tokenizer.framed(ours.tokenizer.encode(TEXTS[0]), 61)])
    with torch.no_grad():
        expected = model(ids).logits.sigmoid()[0].tolist()
    found = ours.classify(TEXTS[0])
    np.testing.assert_allclose([found.probabilities[f"LABEL_{number}"] for number in range(count)], expected, atol=1e-5)


def test_labels_of_one_name_keep_their_probabilities(tmp_path: Path) -> None:
    """As ImageNet has two cranes."""
    theirs = ORIGINALS["bert classify"].save(tmp_path / "theirs")
    edit(tmp_path / "theirs" / "config.json", id2label={"0": "crane", "1": "dog", "2": "crane"})
    import_model(tmp_path / "theirs", tmp_path / "ours")
    ours = load(tmp_path / "ours")
    ids = torch.tensor([ours.tokenizer.framed(ours.tokenizer.encode(TEXTS[0]), 61)])
    with torch.no_grad():
        expected = theirs(ids).logits.softmax(-1)[0].tolist()
    found = ours.classify(TEXTS[0]).probabilities
    assert list(found) == ["crane (0)", "dog", "crane (2)"]
    np.testing.assert_allclose(list(found.values()), expected, atol=1e-5)


def test_a_regression_is_refused(tmp_path: Path) -> None:
    ORIGINALS["bert classify"].save(tmp_path / "theirs")
    edit(tmp_path / "theirs" / "config.json", problem_type="regression")
    with pytest.raises(
        RunError, match="has problem_type='regression', which Clearhead cannot import; it imports single"
    ):
        prepare_import(tmp_path / "theirs")


# --- images ---


@torch.no_grad()
@pytest.mark.parametrize("crop", [28, 21])
def test_images_smaller_than_those_of_training(tmp_path: Path, crop: int) -> None:
    """DINOv2 is trained with images of 518 pixels, and its processor gives images of 224."""
    original = ORIGINALS["dinov2"]
    theirs = replace(original, settings=original.settings | {"image_size": 35}).save(tmp_path / "theirs")
    size = {"size": {"shortest_edge": 30}, "crop_size": {"height": crop, "width": crop}, "do_center_crop": True}
    (tmp_path / "theirs" / "preprocessor_config.json").write_text(json.dumps(size))
    imported = prepare_import(tmp_path / "theirs")
    write_run(imported, tmp_path / "ours", report_of(imported))
    ours, inputs = load(tmp_path / "ours"), example_inputs(imported)
    assert inputs[0].shape == (1, 3, crop, crop)
    expected = theirs(**imported.family.reference_inputs(imported.checkpoint, inputs)).logits
    np.testing.assert_allclose(ours.network(*inputs), expected, atol=1e-4, rtol=1e-4)


def test_a_crop_of_broken_patches_is_refused(tmp_path: Path) -> None:
    ORIGINALS["dinov2"].save(tmp_path / "theirs")
    (tmp_path / "theirs" / "preprocessor_config.json").write_text(json.dumps({"size": 30, "crop_size": 20}))
    with pytest.raises(RunError, match=r"preprocessor_config=\{'size': 30, 'crop_size': 20\}, which Clearhead cannot"):
        prepare_import(tmp_path / "theirs")


WHOLE = {"image_processor_type": "ViTImageProcessor", "size": {"height": 21, "width": 21}, "resample": 2}
PROCESSORS: dict[str, tuple[str, dict[str, Any]]] = {
    "the whole image": ("vit", WHOLE),
    "as older files say it": ("vit", {"feature_extractor_type": "ViTFeatureExtractor", "size": 21, "resample": 0}),
    "a square, then its centre": (
        "deit",
        {"image_processor_type": "DeiTImageProcessor", "size": 26, "crop_size": 21, "do_center_crop": True}
        | {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]},
    ),
    "the centre": (
        "vit",
        {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 25}, "crop_size": 21, "resample": 3}
        | {"do_center_crop": True, "image_mean": [0.48, 0.45, 0.4], "image_std": [0.26, 0.26, 0.27]},
    ),
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_images_come_to_the_model_s_size_as_its_processor_says(tmp_path: Path, name: str) -> None:
    transformers, library = pytest.importorskip("transformers"), pytest.importorskip("PIL.Image")
    family, settings = PROCESSORS[name]
    settings = {"do_resize": True, "do_normalize": True, "do_rescale": True, "rescale_factor": 1 / 255, **settings}
    theirs = ORIGINALS[family].save(tmp_path / "theirs")
    (tmp_path / "theirs" / "preprocessor_config.json").write_text(json.dumps(settings))
    noise = np.random.default_rng(5).integers(0, 255, (37, 53, 3)).astype(np.uint8)
    image = library.fromarray(noise)
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "theirs", backend="pil")
    with torch.no_grad():
        expected = theirs(**processor(image, return_tensors="pt")).logits.softmax(-1)[0].tolist()
    import_model(tmp_path / "theirs", tmp_path / "ours")
    found = load(tmp_path / "ours").classify(image)
    np.testing.assert_allclose(list(found.probabilities.values()), expected, atol=1e-5)

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.optional import optional

import clearhead
from clearhead.errors import ConfigError, RunError
from clearhead.interop.exporting import export

transformers = optional("transformers")

IDS = torch.tensor([[7, 31, 11, 5, 23, 60, 113, 9, 40, 8, 17], [19, 3, 90, 41, 6, 6, 70, 55, 12, 99, 4]])
LLAMA = {"norm": "rms", "feed_forward": "swiglu", "positions": "rotary", "bias": False, "length": 53}
NEOX = {"norm": "layer", "positions": "rotary", "position_base": 500.0, "length": 53}
GPT2 = {"positions": "learned", "max_length": 53, "length": 53}
MARIAN = {"positions": "sinusoidal", "placement": "after", "feed_forward": "gelu"}
PEGASUS = {"positions": "sinusoidal", "placement": "before", "feed_forward": "relu"}
T5 = {"norm": "rms", "positions": "t5", "bias": False, "feed_forward": "relu"}
BERT = {"placement": "after", "positions": "learned", "feed_forward": "gelu", "embedding_norm": True, "max_length": 53}

LANGUAGE_MODELS: list[tuple[str, dict[str, Any]]] = [
    ("llama", LLAMA),
    ("llama", {**LLAMA, "kv_heads": 2, "tied": False, "bias": True, "position_base": 777.0}),
    ("llama", {**LLAMA, "embedding_scale": 1.0, "norm_eps": 1e-4}),
    ("gpt_neox", {**NEOX, "feed_forward": "relu"}),
    ("gpt_neox", {**NEOX, "feed_forward": "gelu", "bias": False, "tied": False}),
    ("gpt2", {**GPT2, "feed_forward": "gelu"}),
    ("gpt2", {**GPT2, "feed_forward": "gelu_tanh", "embedding_scale": 1.0}),
    ("gpt2", {"positions": "sinusoidal", "feed_forward": "relu", "bias": False, "length": 53}),
]
TRANSLATORS: list[tuple[str, dict[str, Any]]] = [
    ("marian", MARIAN),
    ("marian", {**MARIAN, "bias": False, "embedding_scale": 1.0}),
    ("pegasus", PEGASUS),
    ("pegasus", {**PEGASUS, "tied": False}),
    ("t5", T5),
    ("t5", {**T5, "score": "dot", "feed_forward": "swiglu"}),
    ("t5", {**T5, "embedding_scale": 1.0, "feed_forward": "geglu_tanh"}),
]


def loaded(kind: str, folder: Path) -> Any:
    model, found = getattr(transformers, kind).from_pretrained(folder, output_loading_info=True)
    assert not found["missing_keys"]
    assert not found["unexpected_keys"]
    assert not found["mismatched_keys"]
    return model.eval()


def named(case: Any) -> str | None:
    return case if isinstance(case, str) else ",".join(f"{k}={v}" for k, v in case.items())


@pytest.mark.parametrize(("family", "settings"), LANGUAGE_MODELS, ids=named)
def test_a_language_model(family: str, settings: dict[str, Any], make_run: Any, tmp_path: Path) -> None:
    run = make_run("lm", **settings)
    export("hf", run, tmp_path / "hf")
    theirs = loaded("AutoModelForCausalLM", tmp_path / "hf")
    assert theirs.config.model_type == family
    with torch.no_grad():
        ours = clearhead.load(run).network(IDS)
        torch.testing.assert_close(theirs(IDS).logits, ours, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("family", "settings"), TRANSLATORS, ids=named)
def test_a_translator(family: str, settings: dict[str, Any], make_run: Any, tmp_path: Path) -> None:
    run = make_run("translate", kind="bpe", size=140, **settings)
    export("hf", run, tmp_path / "hf")
    theirs = loaded("AutoModelForSeq2SeqLM", tmp_path / "hf")
    assert theirs.config.model_type == family
    model = clearhead.load(run)
    source, target = IDS[:, :7] % 100 + 6, IDS % 100 + 6
    with torch.no_grad():
        ours = model.network(source, target)
        logits = theirs(input_ids=source, decoder_input_ids=target).logits
        torch.testing.assert_close(logits, ours, rtol=0, atol=2e-5)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    text = "the lazy fox"
    ids = tokenizer(text).input_ids
    assert ids == [*model.tokenizer.encode(text), model.tokenizer.stop]
    written = theirs.generate(torch.tensor([ids]), max_new_tokens=9, num_beams=1, do_sample=False)[0].tolist()
    ours_text = model.translate(text, beam_width=1, max_tokens=9)
    assert tokenizer.decode(written, skip_special_tokens=True) == ours_text


@pytest.mark.parametrize("feed_forward", ["relu", "gelu"])
def test_a_vit(feed_forward: str, make_run: Any, tmp_path: Path) -> None:
    run = make_run("vision", feed_forward=feed_forward, positions="learned", pool="class", patch=4)
    export("hf", run, tmp_path / "hf")
    theirs = loaded("AutoModelForImageClassification", tmp_path / "hf")
    assert theirs.config.id2label == {0: "a", 1: "b", 2: "c", 3: "d", 4: "e"}
    images = torch.rand(2, 3, 12, 12)
    with torch.no_grad():
        torch.testing.assert_close(theirs(images).logits, clearhead.load(run).network(images), rtol=0, atol=1e-5)
    pixels = np.random.default_rng(1).integers(0, 255, (12, 12, 3), dtype=np.uint8)
    pytest.importorskip("PIL")
    read = transformers.AutoImageProcessor.from_pretrained(tmp_path / "hf")(pixels, return_tensors="pt").pixel_values
    torch.testing.assert_close(read[0], torch.from_numpy(pixels).permute(2, 0, 1) / 127.5 - 1, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("task", "head", "settings"),
    [
        ("classify", "AutoModelForSequenceClassification", {"pool": "class", "pool_transform": "tanh"}),
        ("tag", "AutoModelForTokenClassification", {"segments": 2}),
        (
            "masked_lm",
            "AutoModelForMaskedLM",
            {"output_transform": "gelu", "output_bias": True, "embedding_scale": 1.0},
        ),
    ],
)
def test_a_bert(task: str, head: str, settings: dict[str, Any], make_run: Any, tmp_path: Path) -> None:
    run = make_run(task, kind="wordpiece", size=150, **BERT, **settings)
    export("hf", run, tmp_path / "hf")
    model, ids = clearhead.load(run), IDS % 100 + 6
    with torch.no_grad():
        logits = loaded(head, tmp_path / "hf")(ids, attention_mask=torch.ones_like(ids)).logits
        torch.testing.assert_close(logits, model.network(ids), rtol=0, atol=1e-5)


def test_the_folder_has_the_tokenizer_the_card_and_the_licence(make_run: Any, tmp_path: Path) -> None:
    run = make_run("lm", **LLAMA)
    done = export("hf", run, tmp_path / "hf")
    assert set(done.files) == {
        *("README.md", "config.json", "generation_config.json", "model.safetensors"),
        *("tokenizer.json", "tokenizer_config.json"),
    }
    assert "licence: 'demo: CC0'" in (tmp_path / "hf" / "README.md").read_text(encoding="utf-8")
    own, theirs = clearhead.load(run).tokenizer, transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    for text in ("the quick  brown\nfox", "naïve 日本 🙂", "don't 123"):
        assert theirs(text).input_ids == own.encode(text)
        assert theirs.decode(theirs(text).input_ids) == text
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["eos_token_id"] == own.stop


def test_the_bundled_models(tmp_path: Path) -> None:
    """Of the models in the package: one is a GPT-NeoX, one a ViT, and one has no class of theirs."""
    export("hf", "invented", tmp_path / "neox")
    theirs = loaded("AutoModelForCausalLM", tmp_path / "neox")
    own = clearhead.load("invented")
    ids = torch.tensor([own.tokenizer.encode("the cat sat on the mat")])
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits, own.network(ids), rtol=0, atol=1e-4)
    with pytest.raises(RunError, match=r"cannot express model\.positions=rotary.*or export to onnx or ct2"):
        export("hf", "en-es", tmp_path / "no")
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        ("lm", {**LLAMA, "window": 5}, r"a Llama model cannot express model\.window=5; train with --preset llama"),
        ("lm", {**GPT2, "placement": "after"}, r"a GPT-2 model cannot express model\.placement=after"),
        ("lm", {**LLAMA, "hard": True}, r"a Llama model cannot express model\.hard=true"),
        ("vision", {"pool": "mean"}, r"a ViT model cannot express model\.pool=mean"),
        ("words", {}, "table of word vectors, for which this format has no model"),
    ],
)
def test_what_cannot_be_expressed_is_one_sentence(
    task: str, settings: dict[str, Any], message: str, make_run: Any, tmp_path: Path
) -> None:
    run = "words" if task == "words" else make_run(task, **settings)
    with pytest.raises(RunError, match=message):
        export("hf", run, tmp_path / "hf")
    assert not (tmp_path / "hf").exists()


def test_an_unknown_format_and_a_full_folder(make_run: Any, tmp_path: Path) -> None:
    run = make_run("lm", **LLAMA)
    with pytest.raises(ConfigError, match="unknown export ggu; did you mean gguf"):
        export("ggu", run, tmp_path / "hf")
    with pytest.raises(ConfigError, match="--quantise Q8_0 is not known to the format hf; hf takes none"):
        export("hf", run, tmp_path / "hf", "Q8_0")
    with pytest.raises(ConfigError, match="is not an empty folder"):
        export("hf", run, run)

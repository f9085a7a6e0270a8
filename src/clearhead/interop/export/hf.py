"""A Hugging Face folder: `AutoModel…from_pretrained(folder)` loads it offline, with its tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from clearhead.files import write_tensors, write_text
from clearhead.interop.export.base.hf_form import HfForm, to_huggingface
from clearhead.interop.exporting import EXPORTS, ExportFormat, Write
from clearhead.tasks.base.predictor import Predictor
from clearhead.text import Tokenizer

ROLES = {"pad": "pad_token", "unknown": "unk_token", "start": "bos_token", "stop": "eos_token", "mask": "mask_token"}
GENERATION = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
LONGEST = 1 << 30  # tokens of a text that the tokenizer cuts to: never


@EXPORTS.register("hf")
class HuggingFace(ExportFormat):
    """config.json, model.safetensors, tokenizer.json and what belongs to them."""

    def plan(self, model: Predictor, quantise: str | None) -> Write:
        form = to_huggingface(model)

        def write(folder: Path) -> None:
            _write_json(folder / "config.json", form.config | {"dtype": "float32"})
            write_tensors(folder / "model.safetensors", form.tensors, {"format": "pt"})
            if model.reads == "image":
                _write_json(folder / "preprocessor_config.json", _image_processor(form))
                return
            _write_json(folder / "generation_config.json", {k: form.config[k] for k in GENERATION if k in form.config})
            write_tokenizer(folder, model)

        return write


def write_tokenizer(folder: Path, model: Predictor) -> None:
    """tokenizer.json, with what is put around a text, and tokenizer_config.json."""
    own = model.tokenizer
    values = json.loads((model.folder / "tokenizer.json").read_text(encoding="utf-8"))
    foreign = model.folder / "tokenizer_config.json"  # of a model that was imported
    if foreign.is_file():
        settings = {k: v for k, v in json.loads(foreign.read_text(encoding="utf-8")).items() if k != "clearhead"}
    else:
        first = own.cls if getattr(model.config.model, "pool", "") == "class" else None
        before, after = [] if first is None else [own.token(first)], [own.token(own.stop)] * (model.task == "translate")
        if before or after:
            values["post_processor"] = _template(before, after, own)
        settings = {role: own.token(getattr(own, name)) for name, role in ROLES.items()}
        settings |= {} if first is None else {"cls_token": own.token(first)}
    usual = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": LONGEST,
        "clean_up_tokenization_spaces": False,
        "padding_side": "right",
        "model_input_names": ["input_ids", "attention_mask"],
    }
    _write_json(folder / "tokenizer.json", values)
    _write_json(folder / "tokenizer_config.json", usual | settings)


def _template(before: list[str], after: list[str], own: Tokenizer) -> dict[str, Any]:
    """A post-processor of the `tokenizers` library that puts tokens around one text or two."""

    def piece(token: str, part: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": token, "type_id": part}}

    def text(name: str, part: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": part}}

    single = [*(piece(token, 0) for token in before), text("A", 0), *(piece(token, 0) for token in after)]
    pair = [*single, text("B", 1), *(piece(token, 1) for token in after)]
    special = {token: {"id": token, "ids": [own.id(token)], "tokens": [token]} for token in (*before, *after)}
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}


def _image_processor(form: HfForm) -> dict[str, Any]:
    side, channels = form.config["image_size"], form.config["num_channels"]
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": side, "width": side},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.5] * channels,
        "image_std": [0.5] * channels,
    }


def _write_json(path: Path, values: dict[str, Any]) -> None:
    write_text(path, json.dumps(values, ensure_ascii=False, indent=2) + "\n")

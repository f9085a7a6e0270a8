"""GGUF, for llama.cpp and everything built on it: language models like Llama and GPT-2, encoders like BERT.

The tensors are those of the Hugging Face form, renamed by the same tables that read GGUF, in the layouts that llama.cpp
wants. The tokenizer is turned into llama.cpp's words, read back, and compared with the model's own on a corpus of
difficult texts: one that would cut a text differently is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library
from torch import Tensor

from clearhead.errors import RunError
from clearhead.interop.export.base.hf_form import HfForm, to_huggingface
from clearhead.interop.exporting import EXPORTS, ExportFormat, Write
from clearhead.interop.formats.base.gguf_architectures import ARCHITECTURES, Layout
from clearhead.interop.formats.base.gguf_tokenizer import (
    ALPHABET,
    CONTROL,
    PRE_TOKENIZERS,
    SPACE,
    USER_DEFINED,
    as_bytes,
    read_tokenizer,
)
from clearhead.interop.table import restored
from clearhead.tasks.base.predictor import Predictor
from clearhead.text import Tokenizer

CLASSES = ("Llama", "GPT-2", "BERT")  # of `hf_form` that llama.cpp computes
BYTE = 6  # the type of a token that is one byte
_BYTE_TOKEN = re.compile("<0x[0-9A-F]{2}>")
DIFFICULT = (
    "The quick brown fox; it's 12:45, isn't it? I'LL say 1234567 (3.14)…",
    "naïve café Ünïcödé ß ﬁ — “quoted” ‘single’ «guillemets»",
    "tabs\tand\nlines\r\n\n  two spaces   three    ",
    "中文日本語한국어 العربية हिन्दी русский 🙂👩‍👩‍👧 \u0301",
    "def f(x):\n    return x**2  # comment\n",
    " leading space, trailing space ",
    "a",
    "",
)


@EXPORTS.register("gguf")
class Gguf(ExportFormat):
    """One file, model.gguf."""

    quantisations = ("Q8_0", "Q4_0", "Q4_1")

    def plan(self, model: Predictor, quantise: str | None) -> Write:
        library = _library()
        form = to_huggingface(model, CLASSES)
        if form.family == "gpt2" and form.config["activation_function"] != "gelu_new":
            raise RunError(
                f"{model.name}: llama.cpp computes GPT-2 with model.feed_forward=gelu_tanh only, and this model has "
                f"{model.config.model.feed_forward}; train with --preset gpt2 or llama"
            )
        if form.family == "bert" and model.task != "embed":
            raise RunError(f"{model.name} is {model.description}; of BERT's heads GGUF has the sentence vector alone")
        metadata = {**_settings(model, form), **_tokenizer(model, form)}

        def write(folder: Path) -> None:
            writer = library.GGUFWriter(folder / "model.gguf", form.family)
            for key, value in metadata.items():
                writer.add_key_value(key, value, _value_type(library, value))
            for name, tensor in _tensors(form):
                kind = library.GGMLQuantizationType[_stored_as(name, tensor, quantise)]
                writer.add_tensor(name, library.quants.quantize(tensor.numpy(), kind), raw_dtype=kind)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()

        return write


def _library() -> Any:
    try:
        return import_module("gguf")
    except ImportError:
        raise RunError("writing GGUF needs the package gguf; pip install 'clearhead[interop]'") from None


def _value_type(library: Any, value: Any) -> Any:
    kinds = library.GGUFValueType
    if isinstance(value, int) and not isinstance(value, bool):
        return kinds.UINT32
    return kinds.ARRAY if isinstance(value, list) else kinds.get_type(value)


def _stored_as(name: str, tensor: Tensor, quantise: str | None) -> str:
    """Matrices whose rows are whole blocks are quantised; norms, biases and positions never."""
    is_matrix = tensor.dim() == 2 and not name.startswith(("position_embd", "token_types"))
    return quantise if quantise and is_matrix and tensor.shape[1] % 32 == 0 else "F32"


# --- tensors ---


def _tensors(form: HfForm) -> Iterator[tuple[str, Tensor]]:
    """GGUF's names and layouts."""
    config: dict[str, Any] = form.config
    names = ("n_head", "n_layer") if form.family == "gpt2" else ("num_attention_heads", "num_hidden_layers")
    heads, layers = (config[name] for name in names)
    layout = Layout(heads, config.get("num_key_value_heads", heads), form.tensors)
    yield from restored(form.tensors, ARCHITECTURES[form.family].names(layout), layers).items()


# --- settings ---


def _settings(model: Predictor, form: HfForm) -> dict[str, Any]:
    config, name = form.config, form.family
    common = {"general.name": model.name, "general.file_type": 0}
    if model.about is not None and model.about.licence:
        common["general.license"] = model.about.licence
    if name == "llama":
        own = {
            "block_count": config["num_hidden_layers"],
            "context_length": config["max_position_embeddings"],
            "embedding_length": config["hidden_size"],
            "feed_forward_length": config["intermediate_size"],
            "attention.head_count": config["num_attention_heads"],
            "attention.head_count_kv": config["num_key_value_heads"],
            "attention.key_length": config["head_dim"],
            "attention.value_length": config["head_dim"],
            "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
            "rope.freq_base": config["rope_theta"],
            "rope.dimension_count": config["head_dim"],
            "vocab_size": config["vocab_size"],
        }
    elif name == "gpt2":
        own = {
            "block_count": config["n_layer"],
            "context_length": config["n_positions"],
            "embedding_length": config["n_embd"],
            "feed_forward_length": config["n_inner"],
            "attention.head_count": config["n_head"],
            "attention.layer_norm_epsilon": config["layer_norm_epsilon"],
        }
    else:
        own = {
            "block_count": config["num_hidden_layers"],
            "context_length": config["max_position_embeddings"],
            "embedding_length": config["hidden_size"],
            "feed_forward_length": config["intermediate_size"],
            "attention.head_count": config["num_attention_heads"],
            "attention.layer_norm_epsilon": config["layer_norm_eps"],
            "attention.causal": False,
            "pooling_type": 2 if model.config.model.pool == "class" else 1,
        }
    return common | {f"{name}.{key}": value for key, value in own.items()}


# --- tokenizer ---


def _tokenizer(model: Predictor, form: HfForm) -> dict[str, Any]:
    """The tokenizer in llama.cpp's words, which cut the texts of `DIFFICULT` as ours does."""
    own = model.tokenizer
    values = json.loads((model.folder / "tokenizer.json").read_text(encoding="utf-8"))
    for candidate in _candidates(values, own, form.config["vocab_size"]):
        roles = {"bos": own.start, "eos": own.stop, "unknown": own.unknown, "padding": own.pad}
        if form.family == "bert":
            roles |= {"bos": own.cls, "eos": own.stop, "seperator": own.stop, "cls": own.cls, "mask": own.mask}
        ends = {"add_bos_token": False, "add_eos_token": False}
        metadata = {f"tokenizer.ggml.{key}": value for key, value in {**candidate, **ends}.items()}
        metadata |= {f"tokenizer.ggml.{role}_token_id": index for role, index in roles.items()}
        found = read_tokenizer(metadata, model.folder / "tokenizer.json")
        if found is not None and _same(Library.from_str(found.json), own):
            template = own.config.get("chat_template")
            return metadata | ({"tokenizer.chat_template": template} if template else {})
    known = "an encoder needs BERT's own" if form.family == "bert" else "train with tokenizer.kind=bytes or char"
    raise RunError(f"{model.name}: llama.cpp would cut texts differently than its tokenizer ({own.kind}); {known}")


def _same(theirs: Library, own: Tokenizer) -> bool:
    """Whether two tokenizers cut all difficult texts alike, as far as ours knows the letters."""
    texts = [_known(text, own) for text in DIFFICULT]
    return all(theirs.encode(text, add_special_tokens=False).ids == own.encode(text) for text in texts)


def _known(text: str, own: Tokenizer) -> str:
    return "".join(letter for letter in text if own.unknown not in own.encode(letter))


def _candidates(values: dict[str, Any], own: Tokenizer, size: int) -> Iterator[dict[str, Any]]:
    """Ways to say a tokenizer to llama.cpp that may be right."""
    kind, tokens = values["model"]["type"], [own.token(index) for index in range(size)]
    special = {each["id"]: CONTROL if each["special"] else USER_DEFINED for each in values["added_tokens"]}
    types = [special.get(index, 1) for index in range(size)]
    merges = [" ".join(pair) if isinstance(pair, list) else pair for pair in values["model"].get("merges", [])]
    if kind == "BPE" and '"ByteLevel"' in json.dumps(values["decoder"]):
        for pre in dict.fromkeys(("gpt-2", *PRE_TOKENIZERS)):
            yield {"model": "gpt2", "pre": pre, "tokens": tokens, "token_type": types, "merges": merges}
    elif kind == "BPE" and not merges:
        letters = [token if index in special else as_bytes(token) for index, token in enumerate(tokens)]
        spelled = [token for index, token in enumerate(letters) if index not in special]
        joined = list(dict.fromkeys(pair for token in spelled for pair in prefixes(token)))
        # llama.cpp wants merges: of letters that are one byte there are none, and this pair occurs in no text.
        joined = joined or [f"{ALPHABET[0xFF]} {ALPHABET[0xFE]}"]
        yield {"model": "gpt2", "pre": "gpt-2", "tokens": letters, "token_type": types, "merges": joined}
    elif kind == "BPE" and "<0x00>" in tokens:
        rank = {pair.replace(" ", ""): -float(index) for index, pair in reversed(list(enumerate(merges)))}
        scores = [rank.get(token, -float(len(merges))) for token in tokens]
        types = [BYTE if _BYTE_TOKEN.fullmatch(token) else types[index] for index, token in enumerate(tokens)]
        said = {"model": "llama", "tokens": tokens, "token_type": types, "scores": scores}
        yield from ({**said, "add_space_prefix": prefix} for prefix in (True, False))
    elif kind == "WordPiece":
        words = [token if index in special else _as_gguf(token) for index, token in enumerate(tokens)]
        yield {"model": "bert", "pre": "jina-v2-en", "tokens": words, "token_type": types}


def _as_gguf(token: str) -> str:
    return token[2:] if token.startswith("##") else SPACE + token


def prefixes(token: str) -> list[str]:
    """The merges that join the bytes of one letter from the left.

    >>> prefixes("abc")
    ['a b', 'ab c']
    """
    return [f"{token[:end]} {token[end]}" for end in range(1, len(token))]

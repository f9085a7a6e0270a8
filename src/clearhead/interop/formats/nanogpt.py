"""Checkpoints of nanoGPT (`ckpt.pt`) and minGPT (`model.pt` with its config.json, or JSON with base64 weights).

Both are GPT-2 with ordinary linear maps, whose matrices are transposed for GPT-2's (in, out). nanoGPT's activation is
the exact GELU, minGPT's the tanh one; a `"activation_function"` in config.json beside the file decides otherwise.
A model without biases gets zeros in their place.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers
from torch import Tensor

from clearhead.errors import RunError
from clearhead.interop.checkpoint import FORMATS, Checkpoint, Format, TokenizerFiles
from clearhead.interop.formats.base.lazy import LazyTensors
from clearhead.interop.formats.base.torch_file import (
    is_torch_file,
    load_torch,
    precision_of,
    settings_beside,
    state_dict_of,
    stored,
)

FIRST = "transformer.h.0.attn.c_attn.weight"
MATRICES = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
BUFFERS = (".attn.bias", ".attn.masked_bias")  # the causal mask
MAX_JSON = 1 << 31  # bytes
HEAD = 4096  # bytes of a JSON file that are looked at to recognise it


@FORMATS.register("nanogpt")
class NanoGpt(Format):
    """A checkpoint of nanoGPT or minGPT."""

    def can_read(self, path: Path) -> bool:
        if is_json(path):
            return True
        if not is_torch_file(path):
            return False
        try:
            first = state_dict_of(load_torch(path), "model").get(FIRST)
        except RunError:
            return True  # so that reading it says what is wrong
        return first is not None and first.dim() == 2 and first.shape[0] == 3 * first.shape[1]

    def read(self, path: Path) -> Checkpoint:
        if is_json(path):
            return _read_json(path)
        content = load_torch(path)
        tensors = state_dict_of(content, "model")
        nano = isinstance(content, Mapping) and isinstance(content.get("model_args"), Mapping)
        beside = settings_beside(path)
        settings = dict(content["model_args"]) if nano else {**beside, **beside.get("model", {})}
        activation = beside.get("activation_function", "gelu" if nano else "gelu_new")
        return _checkpoint(path, tensors, settings, activation, tokenizer=None)


def is_json(path: Path) -> bool:
    """Whether a file is minGPT's weights as JSON."""
    if not path.is_file() or path.stat().st_size > MAX_JSON:
        return False
    with path.open("rb") as file:
        head = file.read(HEAD)
    return head.lstrip().startswith(b"{") and b'"transformer.wte.weight"' in head


def _read_json(path: Path) -> Checkpoint:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        settings = values.pop("config")
        tensors = {name: _decoded(value) for name, value in values.items()}
        numbers = _numbers(int(settings["vocab_size"]))
    except (ValueError, KeyError, TypeError, RecursionError, RuntimeError) as problem:
        raise RunError(f"{path} is damaged: it is not minGPT's weights as JSON ({problem})") from None
    return _checkpoint(path, tensors, settings, "gelu_new", numbers)


def _decoded(value: Mapping[str, Any]) -> Tensor:
    content = bytearray(base64.b64decode(value["data"], validate=True))
    if value["dtype"] != "torch.float32":
        raise ValueError(f"a tensor has the type {value['dtype']}")
    return torch.frombuffer(content, dtype=torch.float32).reshape(value["shape"])


def _numbers(size: int) -> TokenizerFiles:
    """Tokens without a text are written as numbers: `2 0 1`."""
    library = Library(models.WordLevel({str(index): index for index in range(size)}, unk_token="0"))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.decoder = decoders.WordPiece(prefix="##", cleanup=False)  # joins tokens by spaces
    return TokenizerFiles(library.to_str(), {}, add_bos=False, add_eos=False, chat_template=None)


def _checkpoint(
    path: Path,
    tensors: dict[str, Tensor],
    settings: Mapping[str, Any],
    activation: str,
    tokenizer: TokenizerFiles | None,
) -> Checkpoint:
    heads = settings.get("n_head")
    if not isinstance(heads, int) or heads < 1:
        raise RunError(f'{path} does not say how many heads it has; write {{"n_head": …}} into config.json beside it')
    table, positions = _shape(path, tensors, "transformer.wte.weight"), _shape(path, tensors, "transformer.wpe.weight")
    layers = 1 + max(int(name.split(".")[2]) for name in tensors if name.startswith("transformer.h."))
    output = tensors.get("lm_head.weight")
    tied = output is None or torch.equal(output, tensors["transformer.wte.weight"])
    config = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": table[0],
        "n_embd": table[1],
        "n_positions": positions[0],
        "n_layer": layers,
        "n_head": heads,
        "n_inner": _shape(path, tensors, "transformer.h.0.mlp.c_fc.weight")[0],
        "activation_function": activation,
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": tied,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    found: dict[str, Callable[[], Tensor]] = {}
    skipped: dict[str, str] = {}
    for name, tensor in tensors.items():
        if name.endswith(BUFFERS):
            skipped[name] = "the causal mask, which is computed"
        elif name == "lm_head.weight" and tied:
            skipped[name] = "equal to the embedding"
        else:
            found[name] = stored(tensor.T if name.endswith(MATRICES) else tensor)
    for name in [name for name in found if name.endswith(MATRICES) or (".ln_" in name and name.endswith("weight"))]:
        bias = name.removesuffix("weight") + "bias"
        size = tensors[name].shape[0]  # of a linear map's output, or of a norm
        found.setdefault(bias, lambda size=size: torch.zeros(size))  # type: ignore[misc]
    return Checkpoint(path, config, LazyTensors(found), tokenizer, skipped, precision_of(tensors))


def _shape(path: Path, tensors: Mapping[str, Tensor], name: str) -> tuple[int, ...]:
    if name not in tensors:
        raise RunError(f"{path} is damaged: it has no tensor {name}")
    return tuple(tensors[name].shape)

from __future__ import annotations

import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.optional import optional
from tokenizers import Tokenizer as Library
from tokenizers import models

from clearhead.errors import RunError
from clearhead.interop.checkpoint import TokenizerFiles, format_of, read_checkpoint
from clearhead.interop.formats.base.gguf_file import GgufFile, block_size
from clearhead.interop.formats.base.gguf_model import Model
from clearhead.interop.importing import prepare_checkpoint, prepare_import, report_of, write_run
from clearhead.interop.reference import compare_tensors
from clearhead.tasks.base.predictor import load

gguf = optional("gguf")
transformers = optional("transformers")

V, LAYERS = 53, 3
DENSE: dict[str, Any] = {"vocab_size": V, "num_hidden_layers": LAYERS, "intermediate_size": 44}
HEADS: dict[str, Any] = {"num_attention_heads": 6, "num_key_value_heads": 2}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {**DENSE, **HEADS, "hidden_size": 60, "rope_theta": 777.0, "rms_norm_eps": 3e-4}),
    "qwen2": ("Qwen2Config", {**DENSE, **HEADS, "hidden_size": 60, "rope_theta": 777.0, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3Config", {**DENSE, **HEADS, "hidden_size": 34, "head_dim": 14}),
    "gemma3": (
        "Gemma3TextConfig",
        {**DENSE, **HEADS, "num_hidden_layers": 7, "hidden_size": 66, "head_dim": 14, "sliding_window": 5}
        | {"query_pre_attn_scalar": 14, "pad_token_id": 0},
    ),
    "gemma": ("GemmaConfig", {**DENSE, **HEADS, "hidden_size": 66, "head_dim": 14, "pad_token_id": 0}),
    "gemma2": (
        "Gemma2Config",
        {**DENSE, **HEADS, "hidden_size": 66, "head_dim": 14, "sliding_window": 5, "query_pre_attn_scalar": 14}
        | {"pad_token_id": 0, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 2.0},
    ),
    "gpt2": ("GPT2Config", {"vocab_size": V, "n_layer": LAYERS, "n_embd": 60, "n_head": 6, "n_positions": 41}),
    "phi3": ("Phi3Config", {**DENSE, **HEADS, "hidden_size": 60, "pad_token_id": 0}),
    "bert": (
        "BertConfig",
        {**DENSE, "hidden_size": 60, "num_attention_heads": 6, "max_position_embeddings": 41, "layer_norm_eps": 1e-7},
    ),
}
ROTATED: dict[str, Any] = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
PARTLY: dict[str, Any] = {
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.4}
}
SIDES: dict[str, Any] = {**DENSE, **HEADS, "hidden_size": 60, "layer_norm_eps": 3e-4, **PARTLY}
FALCON: dict[str, Any] = {"vocab_size": V, "num_hidden_layers": LAYERS, "hidden_size": 60, "num_attention_heads": 6}
FALCON |= {"ffn_hidden_size": 44, "layer_norm_epsilon": 3e-4, **ROTATED}
MODELS |= {
    "gptneox": ("GPTNeoXConfig", {**SIDES, "num_key_value_heads": 6, "max_position_embeddings": 41}),
    "gptneox in turn": (
        "GPTNeoXConfig",
        {**SIDES, "num_key_value_heads": 6, "use_parallel_residual": False, "max_position_embeddings": 41},
    ),
    "phi2": ("PhiConfig", {**SIDES, "num_key_value_heads": 6}),
    "starcoder": ("GPTBigCodeConfig", {"vocab_size": V, "n_layer": LAYERS, "n_embd": 60, "n_head": 6, "n_inner": 44}),
    "starcoder2": (
        "Starcoder2Config",
        {**DENSE, **HEADS, "hidden_size": 60, "norm_epsilon": 3e-4, "rope_theta": 777.0, "sliding_window": 5},
    ),
    "stablelm": ("StableLmConfig", {**SIDES, "use_qkv_bias": True}),
    "stablelm side by side": ("StableLmConfig", {**SIDES, "use_parallel_residual": True}),
    "falcon": ("FalconConfig", FALCON),
    "falcon 40b": ("FalconConfig", {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon 11b": (
        "FalconConfig",
        {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1},
    ),
    "bloom": ("BloomConfig", {"vocab_size": V, "n_layer": LAYERS, "hidden_size": 60, "n_head": 6}),
    "olmo": ("OlmoConfig", {**DENSE, **HEADS, "hidden_size": 60, "rope_theta": 777.0}),
    "olmo2": ("Olmo2Config", {**DENSE, **HEADS, "hidden_size": 60, "rope_theta": 777.0, "rms_norm_eps": 3e-4}),
    "granite": (
        "GraniteConfig",
        {**DENSE, **HEADS, "hidden_size": 60, "rope_theta": 777.0, "embedding_multiplier": 3.0, "logits_scaling": 5.0}
        | {"residual_multiplier": 0.7, "attention_multiplier": 0.3, "tie_word_embeddings": True},
    ),
}
TIED = {"qwen2", "gemma", "gemma2", "gemma3", "gpt2", "starcoder", "starcoder2", "falcon", "bloom", "granite"}
IDS = torch.tensor([[5, 11, 2, 47, 31, 7, 13, 29, 3, 17, 19]])


def make(name: str, **changes: Any) -> Any:
    """A model whose biases and norms are not those of a fresh one, which would hide errors."""
    kind, settings = MODELS[name]
    torch.manual_seed(7)
    config = getattr(transformers, kind)(**{**settings, **changes})
    auto = transformers.AutoModel if name == "bert" else transformers.AutoModelForCausalLM
    model = auto.from_config(config, **({"add_pooling_layer": False} if name == "bert" else {})).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return model


def pairs_from_halves(weight: np.ndarray, heads: int) -> np.ndarray:
    """How llama.cpp orders the rows of queries and keys."""
    return weight.reshape(heads, 2, -1, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def all_queries_first(weight: np.ndarray, groups: int, queries: int) -> np.ndarray:
    """Groups of some queries, a key and a value, as llama.cpp orders them."""
    rows = weight.reshape(groups, queries + 2, -1, *weight.shape[1:])
    parts = (rows[:, :queries], rows[:, queries], rows[:, queries + 1])
    return np.concatenate([part.reshape(-1, *weight.shape[1:]) for part in parts])


def stored(arch: str, name: str, weight: np.ndarray, config: Any) -> np.ndarray:
    """A tensor of Hugging Face as llama.cpp's converter writes it."""
    if "query_key_value" in name:
        groups = key_value_heads(config) if arch == "falcon" else config.num_attention_heads
        return all_queries_first(weight, groups, config.num_attention_heads // groups)
    if arch in ("llama", "granite", "olmo") and "q_proj" in name:
        return pairs_from_halves(weight, config.num_attention_heads)
    if arch in ("llama", "granite", "olmo") and "k_proj" in name:
        return pairs_from_halves(weight, config.num_key_value_heads)
    if arch.startswith("gemma") and name.endswith("norm.weight"):
        return weight + 1
    if arch == "gpt2" and ".c_" in name and name.endswith("weight"):
        return np.ascontiguousarray(weight.T)
    return weight


def key_value_heads(config: Any) -> int:
    if config.model_type == "falcon":
        return config.num_kv_heads if config.new_decoder_architecture else 1
    if getattr(config, "multi_query", False):
        return 1
    return getattr(config, "num_key_value_heads", config.num_attention_heads)


def add_settings(writer: Any, arch: str, config: Any) -> None:
    """What the converter writes of some architectures only."""
    head_dim = config.hidden_size // config.num_attention_heads
    if arch in ("gptneox", "phi2", "stablelm"):
        writer.add_rope_dimension_count(int(config.rope_parameters["partial_rotary_factor"] * head_dim))
    if arch in ("gptneox", "stablelm"):
        writer.add_parallel_residual(config.use_parallel_residual)
    if arch in ("olmo", "starcoder2"):
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if arch in ("gemma2", "gemma3", "starcoder2") and config.sliding_window:
        writer.add_sliding_window(config.sliding_window)
    if arch == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if arch == "granite":
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)


def write(
    path: Path,
    arch: str,
    model: Any,
    kinds: dict[str, str] | None = None,
    buffers: dict[str, np.ndarray] | None = None,
    metadata: dict[str, int | float | str] | None = None,
) -> None:
    """A GGUF file of a model, by the package's own table of names; `metadata` of its architecture."""
    config = model.config
    layers = config.num_hidden_layers
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(layers)
    writer.add_context_length(getattr(config, "max_position_embeddings", 41))
    writer.add_embedding_length(config.hidden_size)
    inner = getattr(config, "intermediate_size", None) or getattr(config, "n_inner", None)
    writer.add_feed_forward_length(inner or 4 * config.hidden_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(key_value_heads(config))
    if hasattr(config, "rms_norm_eps"):
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        rope = config.rope_parameters
        writer.add_rope_freq_base((rope.get("full_attention") or rope)["rope_theta"])
        writer.add_key_length(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    else:
        names = ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon")
        writer.add_layer_norm_eps(next((getattr(config, name) for name in names if hasattr(config, name)), 1e-5))
    add_settings(writer, arch, config)
    add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    for name, value in (metadata or {}).items():
        add[type(value)](name if name.startswith("tokenizer.") else f"{arch}.{name}", value)
    for name, buffer in (buffers or {}).items():
        writer.add_tensor(name, buffer)
    table = gguf.get_tensor_name_map(gguf.MODEL_ARCH[arch.upper()], layers)
    tied = getattr(config, "tie_word_embeddings", False)
    for name, tensor in model.state_dict().items():
        if (tied and name == "lm_head.weight") or name.endswith((".attn.bias", ".attn.masked_bias", "position_ids")):
            continue
        short = name.removeprefix("transformer.") if arch == "bloom" else name  # as the converter has it
        theirs = table.get_name(short, try_suffixes=(".weight", ".bias"))
        assert theirs is not None, name
        numbers = stored(arch, name, tensor.float().numpy(), config)
        kind = (kinds or {}).get(theirs.split(".")[-2], "F32")
        quantised = gguf.quants.quantize(numbers, gguf.GGMLQuantizationType[kind])
        writer.add_tensor(theirs, quantised, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def words() -> TokenizerFiles:
    """A tokenizer of as many words as the models know."""
    library = Library(models.WordLevel({f"w{number}": number for number in range(V)}, unk_token="w0"))
    return TokenizerFiles(library.to_str(), {"unk_token": "w0"}, add_bos=False, add_eos=False, chat_template=None)


@pytest.mark.parametrize("name", MODELS)
def test_every_architecture_is_the_model_that_was_written(name: str, tmp_path: Path, to_transformers: Any) -> None:
    model, arch = make(name), name.split()[0]
    write(tmp_path / "m.gguf", arch, model)
    assert format_of(tmp_path / "m.gguf") == "gguf"
    found = read_checkpoint(tmp_path / "m.gguf")
    assert found.precision == "float32"
    assert found.config["tie_word_embeddings"] is (arch in TIED or arch == "bert")
    kind = "BertModel" if arch == "bert" else "AutoModelForCausalLM"
    missing = ("pooler.dense.weight", "pooler.dense.bias") if arch == "bert" else ()
    again = to_transformers(found, kind, missing)
    with torch.no_grad():
        ours, theirs = (each(IDS, output_hidden_states=True).hidden_states for each in (again, model))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
    imported = prepare_checkpoint(replace(found, tokenizer=words()))
    write_run(imported, tmp_path / "ours", report_of(imported))
    parity = compare_tensors(load(tmp_path / "ours").network, imported, model)
    assert len(parity.differences) == model.config.num_hidden_layers + (arch != "bert")
    assert [each.name for each in parity.differences if each.largest > 1e-4] == []


def test_a_tensor_of_an_older_name_is_compared_too(tmp_path: Path) -> None:
    """GPT-NeoX has another name of its output in memory than in files."""
    write(tmp_path / "m.gguf", "gptneox", make("gptneox"))
    imported = prepare_checkpoint(replace(read_checkpoint(tmp_path / "m.gguf"), tokenizer=words()))
    write_run(imported, tmp_path / "ours", report_of(imported))
    assert compare_tensors(load(tmp_path / "ours").network, imported).first_drift is None


def test_joined_queries_keys_and_values_are_cut(tmp_path: Path) -> None:
    """As the files of Phi-2 of 2023 have them."""
    write(tmp_path / "m.gguf", "phi2", make("phi2"))
    apart = read_checkpoint(tmp_path / "m.gguf").tensors
    writer = gguf.GGUFWriter(tmp_path / "joined.gguf", "phi2")
    writer.add_block_count(1)
    writer.add_context_length(41)
    writer.add_embedding_length(60)
    writer.add_head_count(6)
    writer.add_feed_forward_length(44)
    parts = [apart[f"model.layers.0.self_attn.{name}_proj.weight"].numpy() for name in "qkv"]
    writer.add_tensor("token_embd.weight", apart["model.embed_tokens.weight"].numpy())
    writer.add_tensor("blk.0.ffn_up.weight", apart["model.layers.0.mlp.fc1.weight"].numpy())
    writer.add_tensor("blk.0.attn_qkv.weight", np.concatenate(parts))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = read_checkpoint(tmp_path / "joined.gguf").tensors
    for name, part in zip("qkv", parts, strict=True):
        np.testing.assert_array_equal(found[f"model.layers.0.self_attn.{name}_proj.weight"].numpy(), part)


def test_joined_heads_stay_in_blocks(tmp_path: Path) -> None:
    """Only rows change their places."""
    model = make("falcon 40b", hidden_size=96)
    write(tmp_path / "m.gguf", "falcon", model, {"attn_qkv": "Q8_0"})
    name = "transformer.h.1.self_attention.query_key_value.weight"
    found = read_checkpoint(tmp_path / "m.gguf")
    expected = gguf.quants.quantize(model.state_dict()[name].numpy(), gguf.GGMLQuantizationType.Q8_0)
    np.testing.assert_array_equal(found.quantised[name]().rows.numpy(), expected)


def test_a_part_of_a_head_is_never_rounded_down(tmp_path: Path) -> None:
    """30 of 44: 44 × (30 / 44) is below 30."""
    write(tmp_path / "m.gguf", "phi2", make("phi2", hidden_size=264), metadata={})
    file = GgufFile(tmp_path / "m.gguf")
    file.metadata["phi2.rope.dimension_count"] = 30
    assert int(44 * Model(file, "phi2").rotated_share) == 30


def test_a_quantised_model_is_what_transformers_reads(tmp_path: Path, to_transformers: Any) -> None:
    model = make("llama", hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2)
    kinds = {
        "attn_q": "Q4_1",
        "attn_k": "Q8_0",
        "ffn_up": "Q5_0",
        "ffn_down": "Q4_0",
        "attn_v": "Q5_1",
        "output": "F16",
    }
    write(tmp_path / "m.gguf", "llama", model, kinds)
    found = read_checkpoint(tmp_path / "m.gguf")
    assert found.precision == "Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 dequantised to float32"
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="m.gguf").eval()
    for name, weight in theirs.state_dict().items():
        torch.testing.assert_close(found.tensors[name].float(), weight.float(), rtol=0, atol=0)


def test_llama3_scaling_is_found_in_the_frequencies(tmp_path: Path, to_transformers: Any) -> None:
    scaling = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}  # fmt: skip
    model = make("llama", hidden_size=96, rope_parameters=scaling, rope_theta=500000.0, max_position_embeddings=131072)
    frequencies = 1 / 500000.0 ** (torch.arange(0, 16, 2).double() / 16)
    divisors = (frequencies / model.model.rotary_emb.inv_freq.double()).float().numpy()
    write(tmp_path / "m.gguf", "llama", model, buffers={"rope_freqs.weight": divisors})
    found = read_checkpoint(tmp_path / "m.gguf")
    assert found.config["rope_scaling"] == {key: value for key, value in scaling.items() if key != "rope_theta"}
    assert list(found.skipped) == ["rope_freqs.weight"]
    again = to_transformers(found)
    torch.testing.assert_close(again.model.rotary_emb.inv_freq, model.model.rotary_emb.inv_freq, rtol=1e-6, atol=0)


def hidden(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS, output_hidden_states=True).hidden_states[-1]


YARN = {"rope_type": "yarn", "rope_theta": 777.0, "factor": 4.0, "original_max_position_embeddings": 16}


@pytest.mark.parametrize(
    ("rope", "metadata"),
    [
        ({"rope_type": "linear", "factor": 2.5}, {"rope.scaling.type": "linear", "rope.scaling.factor": 2.5}),
        ({"rope_type": "linear", "factor": 2.5}, {"rope.scaling.factor": 2.5}),
        ({"rope_type": "linear", "factor": 2.5}, {"rope.scale_linear": 2.5}),
        ({"rope_type": "default"}, {"rope.scaling.type": "none", "rope.scaling.factor": 2.5}),
        (
            YARN | {"beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 1.3},
            {
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": 4.0,
                "rope.scaling.original_context_length": 16,
                "rope.scaling.yarn_beta_fast": 16.0,
                "rope.scaling.yarn_beta_slow": 2.0,
                "rope.scaling.attn_factor": 1.3 / (0.1 * np.log(4.0).item() + 1.0),
            },
        ),
    ],
)
def test_scaling_is_read_under_each_of_its_names(
    rope: dict[str, Any], metadata: dict[str, Any], tmp_path: Path, to_transformers: Any
) -> None:
    model = make("llama", rope_parameters={"rope_theta": 777.0, **rope}, max_position_embeddings=64)
    write(tmp_path / "m.gguf", "llama", model, metadata=metadata)
    again = to_transformers(read_checkpoint(tmp_path / "m.gguf"))
    torch.testing.assert_close(hidden(again), hidden(model), rtol=0, atol=1e-5)


@pytest.mark.parametrize("names", [("rope_freqs",), ("rope_factors_long", "rope_factors_short")])
def test_any_divisors_of_the_frequencies_are_followed(
    names: tuple[str, ...], tmp_path: Path, to_transformers: Any
) -> None:
    divisors = [1.0, 1.5, 1.75, 2.0, 3.5]
    scaling = {"rope_type": "longrope", "rope_theta": 777.0, "attention_factor": 1.0 if len(names) == 1 else 1.25}
    scaling |= {"short_factor": divisors, "long_factor": divisors, "original_max_position_embeddings": 32}
    model = make("llama", rope_parameters=scaling, max_position_embeddings=64)
    buffers = {f"{name}.weight": np.array(divisors, np.float32) for name in names}
    metadata = {"rope.scaling.original_context_length": 32, "rope.scaling.attn_factor": 1.25}
    write(tmp_path / "m.gguf", "llama", model, buffers=buffers, metadata=metadata)
    again = to_transformers(read_checkpoint(tmp_path / "m.gguf"))
    torch.testing.assert_close(hidden(again), hidden(model), rtol=0, atol=1e-5)


def test_a_part_that_is_rotated_is_not_lost(tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", "llama", make("llama"), metadata={"rope.dimension_count": 4})
    with pytest.raises(RunError, match=r"partial_rotary_factor=0\.4, which Clearhead cannot import"):
        prepare_import(tmp_path / "m.gguf")


def test_the_end_of_a_turn_ends_a_text_too(tmp_path: Path) -> None:
    ids = {"tokenizer.ggml.eos_token_id": 3, "tokenizer.ggml.eot_token_id": 7}
    write(tmp_path / "m.gguf", "llama", make("llama"), metadata=ids)
    assert read_checkpoint(tmp_path / "m.gguf").config["eos_token_id"] == [3, 7]


# --- types ---

TYPES = [kind.name for kind in gguf.GGMLQuantizationType]


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_is_read(kind: str, tmp_path: Path) -> None:
    """Rows of random blocks, with scales that are finite; compared with the package where it knows the type."""
    numbers, size = block_size(kind)
    rows, blocks = 5, 3
    raw = np.random.default_rng(3).integers(0, 60, (rows, blocks * size), dtype=np.uint8)
    header = gguf_header([("t", (blocks * numbers, rows), gguf.GGMLQuantizationType[kind].value, 0)])
    (tmp_path / "m.gguf").write_bytes(header + raw.tobytes())
    found = GgufFile(tmp_path / "m.gguf").read("t")
    assert tuple(found.shape) == (rows, blocks * numbers)
    if gguf.GGMLQuantizationType[kind] in gguf.quants._type_traits:
        np.testing.assert_array_equal(found.numpy(), gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind]))
    elif kind == "Q8_1":
        cut = raw.reshape(rows, blocks, size)
        scale = cut[..., :2].copy().view("<f2").astype(np.float32)
        np.testing.assert_array_equal(found.numpy(), (scale * cut[..., 4:].view(np.int8)).reshape(rows, -1))
    elif kind == "Q8_K":
        cut = raw.reshape(rows, blocks, size)
        scale = cut[..., :4].copy().view("<f4")
        np.testing.assert_array_equal(found.numpy(), (scale * cut[..., 4:260].view(np.int8)).reshape(rows, -1))
    elif kind == "Q1_0":
        first = raw[0, :2].copy().view("<f2").astype(np.float32)[0]
        bits = [(int(raw[0, 2 + place // 8]) >> place % 8) & 1 for place in range(128)]
        np.testing.assert_array_equal(found[0, :128].numpy(), [first if bit else -first for bit in bits])
    else:
        assert found.element_size() * found.numel() == raw.size


def gguf_header(
    tensors: list[tuple[str, tuple[int, ...], int, int]], counts: tuple[int, int] | None = None, version: int = 3
) -> bytes:
    """A header without metadata; sizes are given as the file has them, fastest first."""
    told = (len(tensors), 0) if counts is None else counts
    header = b"GGUF" + struct.pack("<IQQ", version, *told)
    for name, shape, kind, offset in tensors:
        header += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", len(shape))
        header += struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", kind, offset)
    return header.ljust(-(-len(header) // 32) * 32, b"\0")


# --- tokenizers ---

TEXTS = [
    "Hello, world!  123 4567",
    "naïve  café\n\n\tx",
    "北京 🙂 isn't I'LL",
    " leading",
    "a" * 30,
    "<|im_start|>user",
]


@pytest.mark.slow  # transformers takes half a minute to read the tokenizer
def test_smollm2_is_cut_as_transformers_cuts_it(smollm2: Path) -> None:
    found = read_checkpoint(smollm2)
    assert found.tokenizer is not None
    ours = Library.from_str(found.tokenizer.json)
    theirs = transformers.AutoTokenizer.from_pretrained(smollm2.parent, gguf_file=smollm2.name)
    assert (found.tokenizer.add_bos, found.tokenizer.add_eos) == (False, False)
    assert "<|im_start|>" in str(found.tokenizer.chat_template)
    for text in TEXTS:
        # transformers leaves out the separation of digits that `pre=smollm` asks for.
        if not any(letter.isdigit() for letter in text):
            assert ours.encode(text).ids == theirs(text, add_special_tokens=False).input_ids, text
        assert ours.decode(ours.encode(text).ids, skip_special_tokens=False) == text


def test_smollm2_writes_as_the_floats_do(smollm2: Path, to_transformers: Any) -> None:
    found = read_checkpoint(smollm2)
    assert found.precision == "Q4_1, Q8_0 dequantised to float32"
    model = to_transformers(found)
    assert sum(each.numel() for each in model.parameters()) == 134_515_008
    ids = Library.from_str(found.tokenizer.json).encode("The capital of France is").ids
    with torch.no_grad():
        last = model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
    assert Library.from_str(found.tokenizer.json).decode([int(last.argmax())]) == " Paris"
    assert float(last.max()) == pytest.approx(-0.2581, abs=2e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer.ggml.model": "plamo2"}, "of the kind plamo2; Clearhead reads gpt2, llama, bert"),
        ({"tokenizer.ggml.pre": "gpt-3"}, "rules called gpt-3.*did you mean gpt-2"),
        ({"tokenizer.ggml.bos_token_id": 99}, "its bos_token is token 99 of 4"),
        ({"tokenizer.ggml.token_type": [1, 1]}, "4 tokens and the types of 2"),
        ({"tokenizer.ggml.tokens": ["a", "a", "b", "c"]}, "1 of its tokens occur twice"),
    ],
)
def test_a_damaged_tokenizer_is_one_sentence(changes: dict[str, Any], message: str) -> None:
    from clearhead.interop.formats.base.gguf_tokenizer import read_tokenizer

    usual = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": list("abcd")}
    with pytest.raises(RunError, match=message):
        read_tokenizer({**usual, **changes}, Path("m.gguf"))


def test_word_pieces_and_their_ends() -> None:
    from clearhead.interop.formats.base.gguf_tokenizer import read_tokenizer

    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁play", "ing", "▁,"]
    roles = {"unknown": 1, "bos": 2, "eos": 3, "padding": 0, "seperator": 3, "cls": 2}
    found = read_tokenizer(
        {
            "tokenizer.ggml.model": "bert",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [3] * 4 + [1] * 3,
        }
        | {f"tokenizer.ggml.{role}_token_id": index for role, index in roles.items()},
        Path("m.gguf"),
    )
    assert found is not None
    library = Library.from_str(found.json)
    assert library.encode("Playing, xyz").tokens == ["[CLS]", "play", "##ing", ",", "[UNK]", "[SEP]"]
    assert library.encode("play", "play").tokens == ["[CLS]", "play", "[SEP]", "play", "[SEP]"]
    assert found.special["cls_token"] == "[CLS]"


# --- bad files ---


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"GGUF", "its header needs 4 bytes at 4"),
        (gguf_header([], version=1), "has version 1"),
        (gguf_header([], version=3 << 24), "byte order of another processor"),
        (gguf_header([], counts=(2**62, 0)), "it claims 4,611,686,018,427,387,904 tensors"),
        (gguf_header([], counts=(0, 2**40)), "it claims 1,099,511,627,776 metadata entries"),
        (gguf_header([("t", (2**40, 2**20), 0, 0)]), "the tensor t ends at byte"),
        (gguf_header([("t", (4,), 0, 2**60)]), "the tensor t ends at byte"),
        (gguf_header([("t", (1,) * 9, 0, 0)]), "the tensor t has 9 dimensions"),
        (gguf_header([("t", (33,), 2, 0)]), "the tensor t of Q4_0 has the shape"),
        (gguf_header([("t", (4,), 99, 0)]), "stored as type 99"),
        (gguf_header([]), "of the architecture None; Clearhead reads llama, qwen2"),
    ],
)
def test_a_lying_header_costs_no_memory(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(RunError, match=message):
        read_checkpoint(tmp_path / "m.gguf")
    tracemalloc.start()  # after the first reading, which imports what it needs
    with pytest.raises(RunError, match=message):
        read_checkpoint(tmp_path / "m.gguf")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_a_file_cut_anywhere_is_one_sentence(tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", "llama", make("llama", num_hidden_layers=1))
    content = (tmp_path / "m.gguf").read_bytes()
    for end in [*range(4, 1500, 37), len(content) - 33]:
        (tmp_path / "cut.gguf").write_bytes(content[:end])
        with pytest.raises(RunError, match="cut off"):
            read_checkpoint(tmp_path / "cut.gguf")


def test_a_tensor_that_the_architecture_lacks_is_named(tmp_path: Path) -> None:
    model = make("llama", num_hidden_layers=1)
    model.model.layers[0].mlp.gate = torch.nn.Linear(60, 3, bias=False)
    write(tmp_path / "m.gguf", "llama", model)
    with pytest.raises(RunError, match=r"tensor blk\.0\.ffn_gate_inp\.weight, which a llama model"):
        read_checkpoint(tmp_path / "m.gguf")


def test_a_part_of_a_model_is_one_sentence(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_uint16("split.count", 3)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(RunError, match="is one of 3 parts of a model; join them with `llama-gguf-split --merge`"):
        read_checkpoint(tmp_path / "m.gguf")

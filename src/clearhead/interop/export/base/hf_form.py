"""A model of ours as one of Hugging Face's: its config.json, and its tensors under their names.

Each target says which settings it needs and which it can express whatever they are; any other setting that is not its
default is refused by name. What differs only in form is changed exactly: the scale of the embedding is multiplied into
it, missing biases are zeros, sines that alternate are sorted into halves with every matrix that reads them.

    D width, H heads, G key-value heads, K head size, V vocabulary, P patch size, C channels
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor, nn

from clearhead.errors import RunError
from clearhead.interop.families import bert, marian, vit
from clearhead.interop.families.gpt_neox import fused_block
from clearhead.interop.table import Table
from clearhead.nn.scores import dot_scale
from clearhead.tasks.base.predictor import Predictor

Tensors = dict[str, Tensor]
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new", "silu": "silu", "quick_gelu": "quick_gelu"}
PLAIN = tuple(ACTIVATIONS)  # feed-forward networks of two matrices
POSITIONS = 1024  # rows of a position table that is computed
SIZES = {"dim", "heads", "layers", "inner", "bias", "attention_bias", "tied", "norm_eps", "embedding_scale"}
TRAINING = {"dropout", "attention_dropout", "inner_dropout", "max_length", "length", "objective", "mask_share"}
UNUSED = {"cell", "context", "architecture"}  # of recurrent networks; a Transformer's is the default


@dataclass(frozen=True)
class HfForm:
    """What `transformers` loads."""

    config: dict[str, Any]
    tensors: Tensors

    @property
    def family(self) -> str:
        return str(self.config["model_type"])


@dataclass(frozen=True)
class Target:
    """A class of `transformers`, and which of our models it can express."""

    name: str
    preset: str  # of `clearhead train --preset`
    tasks: tuple[str, ...]
    requires: Mapping[str, tuple[Any, ...]]  # setting: the values that it has a form of
    takes: frozenset[str]  # settings that it can express whatever they are
    build: Callable[[Predictor], HfForm]

    def obstacles(self, settings: BaseModel) -> list[str]:
        """The settings of a model that this class cannot express."""
        found = []
        for name, field in type(settings).model_fields.items():
            value = getattr(settings, name)
            if name in self.requires:
                fits = value in self.requires[name]
            else:
                fits = name in self.takes | SIZES | TRAINING | UNUSED or value == field.get_default()
            if not fits:
                found.append(f"model.{name}={str(value).lower() if isinstance(value, bool) else value}")
        return found


def to_huggingface(model: Predictor, allowed: Sequence[str] = ()) -> HfForm:
    """The first class that can express a model, of all or of those `allowed`; else one sentence says what stops it."""
    targets = [each for each in TARGETS if model.task in each.tasks and (not allowed or each.name in allowed)]
    if not targets or getattr(model.config.model, "architecture", "transformer") != "transformer":
        raise RunError(f"{model.name} is {model.description}, for which this format has no model")
    tried = [(each.obstacles(model.config.model), each) for each in targets]
    obstacles, best = min(tried, key=lambda pair: len(pair[0]))
    if obstacles:
        raise RunError(
            f"{model.name}: a {best.name} model cannot express {', '.join(obstacles)}; "
            f"train with --preset {best.preset}, or export to onnx or ct2"
        )
    form = best.build(model)
    return HfForm(form.config, {name: each.detach().float().contiguous() for name, each in form.tensors.items()})


# --- parts ---


def _linear(name: str, *parts: nn.Linear, bias: bool = True) -> Tensors:
    """One matrix of several, their outputs side by side; a missing bias is zeros where the class has one."""
    found = {f"{name}.weight": torch.cat([part.weight.data for part in parts])}
    if bias:
        shifts = [torch.zeros(part.out_features) if part.bias is None else part.bias.data for part in parts]
        found[f"{name}.bias"] = torch.cat(shifts)
    return found


def _norm(name: str, norm: Any) -> Tensors:
    shift = getattr(norm, "bias", None)
    return {f"{name}.weight": norm.weight} | ({} if shift is None else {f"{name}.bias": shift})


def _block(name: str, block: nn.Module, table: Table) -> Tensors:
    """The linear maps and norms of a block by the table that imports them; what is cut there is joined elsewhere."""
    found: Tensors = {}
    for theirs, ours in table.items():
        if isinstance(ours, str):
            part, place = block.get_submodule(ours), f"{name}.{theirs}"
            found |= _linear(place, part) if isinstance(part, nn.Linear) else _norm(place, part)
    return found


def _turned(tensors: Tensors) -> Tensors:
    """Matrices as GPT-2 has them: (in, out)."""
    return {name: each.T if each.dim() == 2 else each for name, each in tensors.items()}


def _eps(stack: Any) -> float:
    return float(stack.blocks[0].residual1.norm.eps)


def _activation(stack: Any) -> str:
    return ACTIVATIONS[stack.blocks[0].feed_forward.native_form().activation]


def _inner(stack: Any) -> int:
    return int(stack.blocks[0].feed_forward.outer.in_features)


def _has_bias(part: nn.Linear) -> bool:
    return part.bias is not None


def _token_ids(model: Predictor) -> dict[str, int | None]:
    own = model.tokenizer
    return {"bos_token_id": own.start, "eos_token_id": own.end, "pad_token_id": own.pad}


def _embedding(table: Any, output: nn.Linear) -> tuple[Tensor, bool]:
    """The scaled embedding (V, D), and whether the output is still the same matrix."""
    return table.table.weight * table.scale, table.scale == 1 and output.weight is table.table.weight


def _position_table(model: Predictor, positions: Any) -> Tensor:
    """(positions, D): learned, or computed for as many positions as the model was trained with."""
    vectors = positions.vectors(getattr(model.config.model, "length", None) or POSITIONS)
    return torch.zeros(POSITIONS, model.config.model.dim) if vectors is None else vectors


# --- decoder-only models ---


def _llama(model: Predictor) -> HfForm:
    network: Any = model.network
    first = network.stack.blocks[0].self_attention
    embedding, tied = _embedding(network.tokens.tokens, network.output.linear)
    biased, gated_bias = _has_bias(first.query), _has_bias(network.stack.blocks[0].feed_forward.outer)
    tensors = {"model.embed_tokens.weight": embedding, **_norm("model.norm", network.stack.norm)}
    tensors |= {} if tied else {"lm_head.weight": network.output.linear.weight}
    for number, block in enumerate(network.stack.blocks):
        attention, forward, name = block.self_attention, block.feed_forward, f"model.layers.{number}"
        maps = {"q": attention.query, "k": attention.key, "v": attention.value, "o": attention.output}
        gated = {"gate": forward.gate, "up": forward.inner, "down": forward.outer}
        for part, linear in maps.items():
            tensors |= _linear(f"{name}.self_attn.{part}_proj", linear, bias=biased)
        for part, linear in gated.items():
            tensors |= _linear(f"{name}.mlp.{part}_proj", linear, bias=gated_bias)
        tensors |= _norm(f"{name}.input_layernorm", block.residual1.norm)
        tensors |= _norm(f"{name}.post_attention_layernorm", block.residual2.norm)
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": embedding.shape[1],
        "intermediate_size": _inner(network.stack),
        "num_hidden_layers": len(network.stack.blocks),
        "num_attention_heads": first.heads,
        "num_key_value_heads": first.kv_heads,
        "head_dim": first.key_dim,
        "hidden_act": "silu",
        "rms_norm_eps": _eps(network.stack),
        "rope_theta": float(model.config.model.position_base),
        "max_position_embeddings": getattr(model.config.model, "length", POSITIONS),
        "attention_bias": biased,
        "mlp_bias": gated_bias,
        "vocab_size": len(embedding),
        "tie_word_embeddings": tied,
        **_token_ids(model),
    }
    return HfForm(config, tensors)


def _neox(model: Predictor) -> HfForm:
    network: Any = model.network
    embedding, tied = _embedding(network.tokens.tokens, network.output.linear)
    tensors = {"gpt_neox.embed_in.weight": embedding, **_norm("gpt_neox.final_layer_norm", network.stack.norm)}
    tensors |= {} if tied else {"embed_out.weight": network.output.linear.weight}
    for number, block in enumerate(network.stack.blocks):
        attention, name = block.self_attention, f"gpt_neox.layers.{number}"
        fused = _linear("qkv", attention.query, attention.key, attention.value)
        for kind, each in fused.items():  # (3 × H × K, …) -> each head's query, key and value side by side
            sorted_by_head = each.view(3, attention.heads, -1, *each.shape[1:]).transpose(0, 1).reshape(each.shape)
            tensors[f"{name}.attention.query_key_value.{kind.removeprefix('qkv.')}"] = sorted_by_head
        tensors |= _block(name, block, fused_block("attention", attention.heads))
    config = {
        "model_type": "gpt_neox",
        "architectures": ["GPTNeoXForCausalLM"],
        "hidden_size": embedding.shape[1],
        "intermediate_size": _inner(network.stack),
        "num_hidden_layers": len(network.stack.blocks),
        "num_attention_heads": network.stack.blocks[0].self_attention.heads,
        "hidden_act": _activation(network.stack),
        "layer_norm_eps": _eps(network.stack),
        "rotary_pct": 1.0,
        "rotary_emb_base": float(model.config.model.position_base),
        "rope_theta": float(model.config.model.position_base),
        "use_parallel_residual": False,
        "attention_bias": True,
        "max_position_embeddings": getattr(model.config.model, "length", POSITIONS),
        "vocab_size": len(embedding),
        "tie_word_embeddings": tied,
        **_token_ids(model),
    }
    return HfForm(config, tensors)


def _gpt2(model: Predictor) -> HfForm:
    network: Any = model.network
    embedding, tied = _embedding(network.tokens.tokens, network.output.linear)
    positions = _position_table(model, network.tokens.positions)
    tensors = {"transformer.wte.weight": embedding, "transformer.wpe.weight": positions}
    tensors |= _norm("transformer.ln_f", network.stack.norm)
    tensors |= {} if tied else {"lm_head.weight": network.output.linear.weight}
    for number, block in enumerate(network.stack.blocks):
        attention, forward, name = block.self_attention, block.feed_forward, f"transformer.h.{number}"
        tensors |= _turned(_linear(f"{name}.attn.c_attn", attention.query, attention.key, attention.value))
        tensors |= _turned(_linear(f"{name}.attn.c_proj", attention.output))
        tensors |= _turned(_linear(f"{name}.mlp.c_fc", forward.inner))
        tensors |= _turned(_linear(f"{name}.mlp.c_proj", forward.outer))
        tensors |= _norm(f"{name}.ln_1", block.residual1.norm) | _norm(f"{name}.ln_2", block.residual2.norm)
    config = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": embedding.shape[1],
        "n_layer": len(network.stack.blocks),
        "n_head": network.stack.blocks[0].self_attention.heads,
        "n_inner": _inner(network.stack),
        "n_positions": len(positions),
        "activation_function": _activation(network.stack),
        "layer_norm_epsilon": _eps(network.stack),
        "vocab_size": len(embedding),
        "tie_word_embeddings": tied,
        **_token_ids(model),
    }
    return HfForm(config, tensors)


# --- encoder-decoders ---


def _halves(dim: int) -> Tensor:
    """(D,): where the numbers of a vector come from whose sines stand first and whose cosines follow."""
    return torch.cat((torch.arange(0, dim, 2), torch.arange(1, dim, 2)))


def _sorted(tensors: Tensors, order: Tensor) -> Tensors:
    """The same model with the numbers of the residual stream in another order; biases of inner layers stay."""
    inner = (".q_proj.bias", ".k_proj.bias", ".v_proj.bias", ".fc1.bias", "final_logits_bias")
    writes = (".out_proj.weight", ".fc2.weight")  # (D, …)
    changed = {}
    for name, each in tensors.items():
        if name.endswith(inner):
            changed[name] = each
        elif each.dim() == 1 or name.endswith(writes):
            changed[name] = each[order]
        else:  # (…, D): what reads the stream, and the embedding
            changed[name] = each[:, order]
    return changed


def _sinusoidal_translator(model: Predictor) -> HfForm:
    """Marian has its norms after, Pegasus before; both have all sines before all cosines."""
    network: Any = model.network
    before = model.config.model.placement == "before"
    embedding, tied = _embedding(network.target.tokens, network.output.linear)
    # These classes can multiply by √D themselves, and then the output may stay the same matrix.
    scaled = bool(model.config.model.tied) and network.target.tokens.scale == embedding.shape[1] ** 0.5
    embedding, tied = (network.target.tokens.table.weight, True) if scaled else (embedding, tied)
    tensors: Tensors = {"model.shared.weight": embedding}
    tensors |= {} if tied else _untied(network, "model.")
    sides = (("encoder", network.encoder, marian.ENCODER), ("decoder", network.decoder, marian.DECODER))
    for side, stack, table in sides:
        for number, block in enumerate(stack.blocks):
            tensors |= _block(f"model.{side}.layers.{number}", block, table)
        tensors |= _norm(f"model.{side}.layer_norm", stack.norm) if before else {}
        tensors[f"model.{side}.embed_positions.weight"] = network.target.positions.vectors(POSITIONS)
    dim = embedding.shape[1]
    if model.config.model.positions == "sinusoidal":
        tensors = _sorted(tensors, _halves(dim))
    tensors["final_logits_bias"] = torch.zeros(1, len(embedding))
    heads = network.encoder.blocks[0].self_attention.heads
    sizes = {
        "layers": len(network.encoder.blocks),
        "attention_heads": heads,
        "ffn_dim": _inner(network.encoder),
    }
    config = {
        "model_type": "pegasus" if before else "marian",
        "architectures": ["PegasusForConditionalGeneration" if before else "MarianMTModel"],
        "d_model": dim,
        **{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()},
        "activation_function": _activation(network.encoder),
        "scale_embedding": scaled,
        "max_position_embeddings": POSITIONS,
        "vocab_size": len(embedding),
        "decoder_vocab_size": len(embedding),
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": tied,
        "is_encoder_decoder": True,
        **_token_ids(model),
        "decoder_start_token_id": model.tokenizer.start,
        "forced_eos_token_id": None,
    }
    return HfForm(config, tensors)


def _untied(network: Any, prefix: str) -> Tensors:
    """The embeddings of both sides and the output, where these are not one matrix."""
    sides = (("encoder", network.source.tokens), ("decoder", network.target.tokens))
    found = {f"{prefix}{side}.embed_tokens.weight": each.table.weight * each.scale for side, each in sides}
    return {**found, "lm_head.weight": network.output.linear.weight}


def _t5(model: Predictor) -> HfForm:
    """T5 does not divide its scores: the factor is multiplied into the queries."""
    network: Any = model.network
    embedding, _ = _embedding(network.target.tokens, network.output.linear)
    dim = embedding.shape[1]
    # T5 multiplies the output of the decoder by 1/√D where its output is the embedding.
    tied = bool(model.config.model.tied) and network.target.tokens.scale == dim**0.5
    tensors: Tensors = {"shared.weight": embedding}
    tensors |= {} if tied else _untied(network, "")
    gated = network.encoder.blocks[0].feed_forward.native_form().gate is not None
    for side, stack in (("encoder", network.encoder), ("decoder", network.decoder)):
        relative = stack.blocks[0].self_attention.relative
        tensors[f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = relative.table.weight
        tensors |= _norm(f"{side}.final_layer_norm", stack.norm)
        for number, block in enumerate(stack.blocks):
            name, crosses = f"{side}.block.{number}.layer", side == "decoder"
            last, residual = (2, block.residual3) if crosses else (1, block.residual2)
            tensors |= _t5_attention(f"{name}.0.SelfAttention", block.self_attention)
            tensors |= _norm(f"{name}.0.layer_norm", block.residual1.norm)
            if crosses:
                tensors |= _t5_attention(f"{name}.1.EncDecAttention", block.cross_attention)
                tensors |= _norm(f"{name}.1.layer_norm", block.residual2.norm)
            first = {"wi_0": "gate", "wi_1": "inner"} if gated else {"wi": "inner"}
            for theirs, ours in {**first, "wo": "outer"}.items():
                part = getattr(block.feed_forward, ours)
                tensors |= _linear(f"{name}.{last}.DenseReluDense.{theirs}", part, bias=False)
            tensors |= _norm(f"{name}.{last}.layer_norm", residual.norm)
    attention, relative = network.encoder.blocks[0].self_attention, network.encoder.blocks[0].self_attention.relative
    activation = _activation(network.encoder)
    config = {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "d_model": dim,
        "d_kv": attention.key_dim,
        "d_ff": _inner(network.encoder),
        "num_layers": len(network.encoder.blocks),
        "num_decoder_layers": len(network.decoder.blocks),
        "num_heads": attention.heads,
        "feed_forward_proj": f"gated-{activation}" if gated else activation,
        "relative_attention_num_buckets": relative.buckets,
        "relative_attention_max_distance": relative.longest,
        "layer_norm_epsilon": _eps(network.encoder),
        "vocab_size": len(embedding),
        "tie_word_embeddings": tied,
        "is_encoder_decoder": True,
        **_token_ids(model),
        "decoder_start_token_id": model.tokenizer.start,
    }
    return HfForm(config, tensors)


def _t5_attention(name: str, attention: Any) -> Tensors:
    scale = dot_scale(attention.kernel.score, attention.key_dim)
    maps = {"k": attention.key, "v": attention.value, "o": attention.output}
    found = {f"{name}.{part}.weight": linear.weight for part, linear in maps.items()}
    return {f"{name}.q.weight": attention.query.weight * scale, **found}


# --- encoders ---


def _bert(model: Predictor) -> HfForm:
    network: Any = model.network
    body: Any = getattr(network, "encoder", network)  # a masked language model is its own body
    if model.task != "masked_lm" and model.config.model.output_transform is not None:
        raise RunError(f"{model.name} has a dense layer with a norm before its output, which a BERT {model.task} lacks")
    heads = {"classify": "ForSequenceClassification", "tag": "ForTokenClassification", "masked_lm": "ForMaskedLM"}
    head = heads.get(model.task, "Model")
    prefix = "bert." if head != "Model" else ""
    first: Any = body.tokens
    segments = getattr(first.segments, "table", None)
    table = first.tokens.table.weight * first.tokens.scale
    tensors = {
        f"{prefix}embeddings.word_embeddings.weight": table,
        f"{prefix}embeddings.position_embeddings.weight": first.positions.table.weight,
        f"{prefix}embeddings.token_type_embeddings.weight": table.new_zeros(2, table.shape[1])
        if segments is None
        else segments.weight,
        **_norm(f"{prefix}embeddings.LayerNorm", first.norm),
    }
    for number, block in enumerate(body.stack.blocks):
        tensors |= _block(f"{prefix}encoder.layer.{number}", block, bert.BLOCK)
    tensors |= _bert_head(head, network, table)
    config: dict[str, Any] = {
        "model_type": "bert",
        "architectures": [f"Bert{head}"],
        "hidden_size": table.shape[1],
        "intermediate_size": _inner(body.stack),
        "num_hidden_layers": len(body.stack.blocks),
        "num_attention_heads": body.stack.blocks[0].self_attention.heads,
        "hidden_act": _activation(body.stack),
        "layer_norm_eps": _eps(body.stack),
        "max_position_embeddings": len(first.positions.table.weight),
        "type_vocab_size": 2 if segments is None else len(segments.weight),
        "vocab_size": len(table),
        "pad_token_id": model.tokenizer.pad,
        "tie_word_embeddings": head != "ForMaskedLM" or _embedding(first.tokens, network.output.linear)[1],
    }
    return HfForm(config | _labels(model), tensors)


def _bert_head(head: str, network: Any, table: Tensor) -> Tensors:
    output = network.output
    if head == "ForSequenceClassification":
        return _linear("bert.pooler.dense", output.transform.linear) | _linear("classifier", output.linear)
    if head == "ForTokenClassification":
        return _linear("classifier", output.linear)
    if head == "ForMaskedLM":
        bias = table.new_zeros(len(table)) if output.linear.bias is None else output.linear.bias
        found = _linear("cls.predictions.transform.dense", output.transform.linear)
        found |= _norm("cls.predictions.transform.LayerNorm", output.transform.norm) | {"cls.predictions.bias": bias}
        _, tied = _embedding(network.tokens.tokens, output.linear)
        return found if tied else found | _linear("cls.predictions.decoder", output.linear)
    return {}


def _labels(model: Predictor) -> dict[str, Any]:
    if not model.meta.labels:
        return {}
    numbered = list(enumerate(model.meta.labels))
    several = getattr(model.config.model, "several", False)
    return {
        "id2label": {str(i): name for i, name in numbered},
        "label2id": {name: i for i, name in numbered},
        **({"problem_type": "multi_label_classification"} if several else {}),
    }


def _vit(model: Predictor) -> HfForm:
    network: Any = model.network
    body, sizes = network.encoder, model.meta.sizes
    if sizes.height != sizes.width:
        raise RunError(f"{model.name} reads images of {sizes.height} × {sizes.width}; a ViT model reads squares")
    patch, channels = body.patches.patch, body.patches.channels
    matrix = body.patches.linear.weight.unflatten(1, (patch, patch, channels)).permute(0, 3, 1, 2)  # (D, C, P, P)
    dim = len(matrix)
    count = 1 + (sizes.height // patch) ** 2
    positions = body.positions.vectors(count)
    tensors = {
        "vit.embeddings.cls_token": body.class_token.vector.view(1, 1, dim),
        "vit.embeddings.position_embeddings": (torch.zeros(count, dim) if positions is None else positions)[None],
        "vit.embeddings.patch_embeddings.projection.weight": matrix,
        "vit.embeddings.patch_embeddings.projection.bias": _linear("patches", body.patches.linear)["patches.bias"],
        **_norm("vit.layernorm", body.stack.norm),
        **_linear("classifier", network.output.linear),
    }
    for number, block in enumerate(body.stack.blocks):
        tensors |= _block(f"vit.encoder.layer.{number}", block, {**vit.OLD, **vit.NORMS})
    config = {
        "model_type": "vit",
        "architectures": ["ViTForImageClassification"],
        "hidden_size": dim,
        "intermediate_size": _inner(body.stack),
        "num_hidden_layers": len(body.stack.blocks),
        "num_attention_heads": body.stack.blocks[0].self_attention.heads,
        "hidden_act": _activation(body.stack),
        "layer_norm_eps": _eps(body.stack),
        "image_size": sizes.height,
        "patch_size": patch,
        "num_channels": channels,
        "qkv_bias": True,
        **_labels(model),
    }
    return HfForm(config, tensors)


# --- the classes, and what they can express ---

BEFORE = {"placement": ("before",)}
SINES = ("sinusoidal", "sinusoidal_halves")
WHOLE_HEADS = {"kv_heads": (None,), "key_dim": (None,), "value_dim": (None,)}
SUMMED = {"positions": ("learned", "sinusoidal", "none"), "position_base": (10000.0,)}  # position vectors are added
TARGETS = (
    Target(
        "Llama",
        "llama",
        ("lm",),
        {"norm": ("rms",), "feed_forward": ("swiglu",), "positions": ("rotary",), **BEFORE},
        frozenset({"kv_heads", "position_base", "key_dim", "value_dim"}),
        _llama,
    ),
    Target(
        "GPT-NeoX",
        "neox",
        ("lm",),
        {"norm": ("layer",), "feed_forward": PLAIN, "positions": ("rotary",), **BEFORE, **WHOLE_HEADS},
        frozenset({"position_base"}),
        _neox,
    ),
    Target(
        "GPT-2",
        "gpt2",
        ("lm",),
        {"norm": ("layer",), "feed_forward": PLAIN, "positions": SUMMED["positions"], **BEFORE, **WHOLE_HEADS},
        frozenset({"position_base"}),
        _gpt2,
    ),
    Target(
        "Marian",
        "marian",
        ("translate",),
        {"norm": ("layer",), "feed_forward": PLAIN, "placement": ("after",), "norm_eps": (None, 1e-5)}
        | {"positions": SINES, "position_base": (10000.0,), **WHOLE_HEADS},
        frozenset(),
        _sinusoidal_translator,
    ),
    Target(
        "Pegasus",
        "marian",
        ("translate",),
        {"norm": ("layer",), "feed_forward": PLAIN, **BEFORE, "norm_eps": (None, 1e-5)}
        | {"positions": SINES, "position_base": (10000.0,), **WHOLE_HEADS},
        frozenset(),
        _sinusoidal_translator,
    ),
    Target(
        "T5",
        "t5",
        ("translate",),
        {"norm": ("rms",), "feed_forward": ("relu", "geglu_tanh", "swiglu"), "positions": ("t5",), "bias": (False,)}
        | {"score": ("scaled_dot", "dot"), "kv_heads": (None,), **BEFORE},
        frozenset({"position_buckets", "position_longest", "attention_scale", "key_dim", "value_dim"}),
        _t5,
    ),
    Target(
        "BERT",
        "bert",
        ("classify", "tag", "embed", "masked_lm"),
        {"norm": ("layer",), "feed_forward": PLAIN, "placement": ("after",), "positions": ("learned",)}
        | {"embedding_norm": (True,), "pool": ("class", "mean"), **WHOLE_HEADS},
        frozenset({"segments", "separator", "output_bias", "output_transform", "pool_transform", "unit_length"})
        | frozenset({"labelled_piece", "several"}),
        _bert,
    ),
    Target(
        "ViT",
        "vit",
        ("vision",),
        {"norm": ("layer",), "feed_forward": PLAIN, "positions": SUMMED["positions"], "pool": ("class",), **BEFORE}
        | WHOLE_HEADS,
        frozenset({"patch", "position_base", "several"}),
        _vit,
    ),
)

"""The MarianMT model of transformers with the weights of our Seq2Seq: both are the paper's Transformer.

B batch, S source tokens, T steps
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from clearhead.decode import SpecialTokens
from clearhead.models.seq2seq import Seq2Seq

# Marian's names of our parts.
INSIDE = {
    "self_attention": "self_attn",
    "cross_attention": "encoder_attn",
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "output": "out_proj",
    "feed_forward": "",
    "inner": "fc1",
    "outer": "fc2",
    "blocks": "layers",
    "norm": "",
}
NORMS = {
    "encoder": {"residual1": "self_attn_layer_norm", "residual2": "final_layer_norm"},
    "decoder": {
        "residual1": "self_attn_layer_norm",
        "residual2": "encoder_attn_layer_norm",
        "residual3": "final_layer_norm",
    },
}


def marian(network: Seq2Seq, special: SpecialTokens, positions: int) -> Any:
    """A MarianMT model with the network's weights and outputs, for texts of up to `positions` tokens.

    The network must be the paper's: tied, with biases, sinusoidal positions, post-norm and ReLU.
    """
    transformers, own = import_module("transformers"), network.config
    sides = ("encoder", "decoder")
    config = transformers.MarianConfig(
        vocab_size=network.output.linear.out_features,
        max_position_embeddings=positions,
        d_model=own.dim,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=special.pad,
        decoder_start_token_id=special.start,
        eos_token_id=None,
        forced_eos_token_id=None,
        attn_implementation="sdpa",
        **{f"{side}_layers": own.layers for side in sides},
        **{f"{side}_attention_heads": own.heads for side in sides},
        **{f"{side}_ffn_dim": own.inner or 4 * own.dim for side in sides},
    )
    model = transformers.MarianMTModel(config).eval()
    _copy(network, model)
    with torch.no_grad():
        for side in (model.model.encoder, model.model.decoder):
            side.embed_positions.weight.copy_(network.target.positions.encode(positions))
    return model


def _copy(network: Seq2Seq, model: Any) -> None:
    """Copy every weight; one without a counterpart on either side is an error."""
    ours = {_their_name(name): weight for name, weight in network.named_parameters()}
    theirs = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    if leftover := ours.keys() ^ theirs.keys():
        raise LookupError(f"only on one side: {sorted(leftover)}")
    with torch.no_grad():
        for name, weight in theirs.items():
            assert weight.shape == ours[name].shape, name  # `copy_` would broadcast
            weight.copy_(ours[name])


def _their_name(name: str) -> str:
    """encoder.blocks.0.self_attention.query.weight -> model.encoder.layers.0.self_attn.q_proj.weight."""
    side, *parts = name.split(".")
    if side not in NORMS:
        return "model.shared.weight"
    names = INSIDE | NORMS[side]
    return ".".join(["model", side, *(named for part in parts if (named := names.get(part, part)))])


@torch.inference_mode()
def translate(model: Any, source: Tensor, beams: int, steps: int) -> Tensor:
    """source (B, S) -> ids (B, T + 1) after the start token: exactly `steps` of them, since no token ends a text."""
    ids: Tensor = model.generate(
        source,
        attention_mask=torch.ones_like(source),
        max_new_tokens=steps,
        num_beams=beams,
        do_sample=False,
    )
    return ids

"""The models of other packages that ours are compared with.

transformers_gpt, x_transformers_gpt      a small GPT, trained as nanoGPT trains it
marian                                    MarianMT of transformers with the weights of our Seq2Seq: both are the
                                          paper's Transformer

B batch, S source tokens, T tokens or steps, V vocabulary
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW

from clearhead.decode import SpecialTokens
from clearhead.models.seq2seq import Seq2Seq

RATE, BETAS, WEIGHT_DECAY, CLIP = 1e-3, (0.9, 0.99), 0.1, 1.0


@dataclass(frozen=True)
class Gpt:
    """Sizes of a GPT and of its batches."""

    layers: int
    dim: int
    heads: int
    block: int  # T, tokens in a window
    batch: int  # B, windows
    vocabulary: int = 65

    def __str__(self) -> str:
        return f"GPT {self.layers} × {self.dim}"


class Peer:
    """Another package's model and its optimiser."""

    def __init__(self, model: nn.Module, logits: Callable[[Tensor], Tensor]):
        self.model, self.logits = model, logits
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        matrices = [parameter for parameter in trained if parameter.ndim >= 2]
        others = [parameter for parameter in trained if parameter.ndim < 2]
        groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = AdamW(groups, lr=RATE, betas=BETAS, fused=True)

    def loss(self, rows: Tensor) -> Tensor:
        """Mean loss of predicting the next token of windows (B, T + 1)."""
        return F.cross_entropy(self.logits(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())

    def update(self, rows: Tensor) -> None:
        """One optimiser step on windows (B, T + 1)."""
        self.loss(rows).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate


def transformers_gpt(size: Gpt) -> Peer:
    """`GPT2LMHeadModel` with torch's attention kernel and GELU, in training mode."""
    model = transformers_gpt2(size, "sdpa")
    return Peer(model.train(), lambda ids: model(input_ids=ids).logits)


def transformers_gpt2(size: Gpt, attention: str) -> nn.Module:
    """`GPT2LMHeadModel` with torch's GELU; attention is sdpa or eager."""
    transformers = import_module("transformers")
    config = transformers.GPT2Config(
        vocab_size=size.vocabulary,
        n_positions=size.block,
        n_embd=size.dim,
        n_layer=size.layers,
        n_head=size.heads,
        activation_function="gelu",
        embd_pdrop=0.0,
        resid_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation=attention,
    )
    model: nn.Module = transformers.GPT2LMHeadModel(config)
    return model


def x_transformers_gpt(size: Gpt) -> Peer:
    """`TransformerWrapper` of a `Decoder` with torch's attention kernel; its linear layers have no biases."""
    x_transformers = import_module("x_transformers")
    stack = x_transformers.Decoder(
        dim=size.dim,
        depth=size.layers,
        heads=size.heads,
        attn_dim_head=size.dim // size.heads,
        attn_flash=True,
        ff_no_bias=True,  # its attention has none either
    )
    model = x_transformers.TransformerWrapper(
        num_tokens=size.vocabulary, max_seq_len=size.block, attn_layers=stack, tie_embedding=True
    )
    return Peer(model.train(), model)


PEERS: dict[str, Callable[[Gpt], Peer]] = {"transformers": transformers_gpt, "x-transformers": x_transformers_gpt}


def reset_torch() -> None:
    """Undo the global settings of our trainer, so that a peer computes as it would by itself."""
    torch.use_deterministic_algorithms(False)


# --- MarianMT ---

# Marian's names of our parts.
MARIAN_PARTS = {
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
MARIAN_NORMS = {
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
    if side not in MARIAN_NORMS:
        return "model.shared.weight"
    names = MARIAN_PARTS | MARIAN_NORMS[side]
    return ".".join(["model", side, *(named for part in parts if (named := names.get(part, part)))])


@torch.inference_mode()
def translate(model: Any, source: Tensor, beams: int, steps: int) -> Tensor:
    """source (B, S) -> ids (B, T + 1) after the start token: exactly `steps` of them, since no token ends a text."""
    ids: Tensor = model.generate(
        source, attention_mask=torch.ones_like(source), max_new_tokens=steps, num_beams=beams, do_sample=False
    )
    return ids

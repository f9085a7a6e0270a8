"""A small GPT as other packages build it, trained as nanoGPT trains it.

B batch, T tokens, V vocabulary
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW

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
        matrices = [parameter for parameter in model.parameters() if parameter.ndim >= 2]
        others = [parameter for parameter in model.parameters() if parameter.ndim < 2]
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


PEERS: dict[str, Callable[[Gpt], Peer]] = {
    "transformers": transformers_gpt,
    "x-transformers": x_transformers_gpt,
}


def reset_torch() -> None:
    """Undo the global settings of our trainer, so that a peer computes as it would by itself."""
    torch.use_deterministic_algorithms(False)

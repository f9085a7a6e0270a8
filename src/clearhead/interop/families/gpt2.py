"""GPT-2: learned positions, LayerNorm before, GELU by tanh; matrices are stored (in, out), and q, k, v as one."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from clearhead.interop.checkpoint import Checkpoint
from clearhead.interop.family import FAMILIES, Family, ForeignConfig, Plan, decoder_plan
from clearhead.interop.table import TURNED, Change, Into, into, within

QKV = ("self_attention.query", "self_attention.key", "self_attention.value")
BLOCK: dict[str, str | Into] = {
    "attn.c_attn": into(*QKV, change=TURNED),
    "attn.c_proj": into("self_attention.output", change=TURNED),
    "mlp.c_fc": into("feed_forward.inner", change=TURNED),
    "mlp.c_proj": into("feed_forward.outer", change=TURNED),
    "ln_1": "residual1.norm",
    "ln_2": "residual2.norm",
}
UNUSED = {"multiple_choice_head.*": "which of several texts goes on is not predicted"}
ENDS = {"wte": "tokens.tokens.table", "wpe": "tokens.positions.table", "ln_f": "stack.norm"}


@FAMILIES.register("gpt2")
class Gpt2(Family):
    """Decoder-only models with the parts of GPT-2."""

    prefix = "transformer"
    causal_lm: ClassVar[str] = "LMHeadModel"  # the head of a language model
    usual_activation: ClassVar[str] = "gelu_new"
    buffers = {"h.*.attn.bias": "the causal mask is computed", "h.*.attn.masked_bias": "the causal mask is computed"}

    def plan(self, checkpoint: Checkpoint) -> Plan:
        settings = ForeignConfig(checkpoint)
        settings.check_decoder(self.causal_lm)
        settings.require("add_cross_attention", False)
        model = self.model(settings)
        output = {} if model["tied"] else {"lm_head": "output.linear"}
        language_model = Plan(
            task="lm",
            model=model,
            table={**self.blocks(settings), **ENDS, **output},
            blocks={"decoder": ("h",)},
            data={"max_length": model["max_length"]},
            skipped=UNUSED | ({"lm_head.weight": "the output is the embedding"} if model["tied"] else {}),
            vocabulary="tokens.tokens.table.weight",
        )
        return decoder_plan(settings, language_model)

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        """The `model` section."""
        longest = settings.size("n_positions", "n_ctx")
        return {
            "dim": settings.size("n_embd"),
            "heads": settings.size("n_head"),
            "layers": settings.size("n_layer"),
            "inner": settings.get("n_inner"),
            "norm": "layer",
            "norm_eps": settings.get("layer_norm_epsilon", 1e-5),
            "placement": "before",
            "feed_forward": settings.activation("activation_function", self.usual_activation),
            "positions": "learned",
            "max_length": longest,
            "length": longest,
            "dropout": settings.get("resid_pdrop", 0.1),
            "embedding_scale": 1.0,
            "attention_scale": None if settings.get("scale_attn_weights", True) else 1.0,
            "tied": settings.tied("lm_head.weight", "wte.weight", True),
        }

    def blocks(self, settings: ForeignConfig) -> dict[str, str | Into]:
        """Where the tensors of the blocks go; scores that are divided by the block's number have it in the queries."""
        rows = within("h.*.", "stack.blocks.*.", self.block(settings))
        if not settings.get("scale_attn_by_inverse_layer_idx", False):
            return rows
        divided = {
            f"h.{layer}.attn.c_attn": into(
                *(f"stack.blocks.{layer}.{name}" for name in QKV), change=divided_queries(layer + 1)
            )
            for layer in range(settings.size("n_layer"))
        }
        return {**divided, **rows}

    def block(self, settings: ForeignConfig) -> dict[str, str | Into]:
        """Where the tensors of one block go."""
        return BLOCK


def divided_queries(number: int) -> Change:
    """A turned matrix or a bias of queries, keys and values, whose queries are divided by a number."""

    def times(x: Tensor, factor: float) -> Tensor:
        queries, *others = x.float().chunk(3)
        return torch.cat((queries * factor, *others))

    return Change(lambda x: times(x.t(), 1 / number), lambda x: times(x, number).t())

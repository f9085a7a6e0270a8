"""GPT-J: attention and feed-forward side by side after one LayerNorm; neighbouring numbers of a head are rotated.

Ours rotates a number with the one half the rotated part away: the rows of queries and keys are put in that order.
"""

from __future__ import annotations

from clearhead.interop.checkpoint import Checkpoint
from clearhead.interop.families.marian import ATTENTION
from clearhead.interop.families.phi import BOTH_NORMS
from clearhead.interop.family import FAMILIES, Family, ForeignConfig, Plan, decoder_plan
from clearhead.interop.table import Into, into, rotary_halves, within


@FAMILIES.register("gptj")
class Gptj(Family):
    """Decoder-only models with the parts of GPT-J."""

    prefix = "transformer"
    buffers = {
        "h.*.attn.bias": "the causal mask is computed",
        "h.*.attn.masked_bias": "the causal mask is computed",
        "h.*.attn.embed_positions": "rotary angles are computed",
    }

    def plan(self, checkpoint: Checkpoint) -> Plan:
        settings = ForeignConfig(checkpoint)
        settings.check_decoder()
        dim, heads = settings.size("n_embd"), settings.size("n_head")
        rotated, longest = settings.size("rotary_dim"), settings.size("n_positions")
        model = {
            "dim": dim,
            "heads": heads,
            "layers": settings.size("n_layer"),
            "inner": settings.get("n_inner"),
            "norm": "layer",
            "norm_eps": settings.get("layer_norm_epsilon", 1e-5),
            "placement": "before",
            "parallel": True,
            "feed_forward": settings.activation("activation_function", "gelu_new"),
            "attention_bias": "neither",
            "positions": "rotary",
            "rotary_dim": None if rotated == dim // heads else rotated,
            "max_length": longest,
            "length": longest,
            "dropout": settings.get("resid_pdrop", 0.0),
            "embedding_scale": 1.0,
            "tied": bool(settings.get("tie_word_embeddings", False)),
            "output_bias": True,
        }
        halves = rotary_halves(heads, rotated)
        block: dict[str, str | Into] = {
            **within("attn.", "self_attention.", ATTENTION),
            "attn.q_proj": into("self_attention.query", change=halves),
            "attn.k_proj": into("self_attention.key", change=halves),
            "mlp.fc_in": "feed_forward.inner",
            "mlp.fc_out": "feed_forward.outer",
            "ln_1": BOTH_NORMS,
        }
        ends = {"wte": "tokens.tokens.table", "ln_f": "stack.norm", "lm_head": "output.linear"}
        language_model = Plan(
            task="lm",
            model=model,
            table={**within("h.*.", "stack.blocks.*.", block), **ends},
            blocks={"decoder": ("h",)},
            data={"max_length": longest},
            vocabulary="tokens.tokens.table.weight",
        )
        return decoder_plan(settings, language_model)

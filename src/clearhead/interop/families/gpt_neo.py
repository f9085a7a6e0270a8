"""GPT-Neo (TinyStories): GPT-2 with scores that have no scale, a window in every second block, no biases of q, k, v."""

from __future__ import annotations

from clearhead.interop.checkpoint import Checkpoint
from clearhead.interop.families.gpt2 import ENDS
from clearhead.interop.families.marian import ATTENTION
from clearhead.interop.family import FAMILIES, Family, ForeignConfig, Plan, decoder_plan
from clearhead.interop.table import Into, within

BLOCK: dict[str, str | Into] = {
    **within("attn.attention.", "self_attention.", ATTENTION),
    "mlp.c_fc": "feed_forward.inner",
    "mlp.c_proj": "feed_forward.outer",
    "ln_1": "residual1.norm",
    "ln_2": "residual2.norm",
}


@FAMILIES.register("gpt_neo")
class GptNeo(Family):
    """Decoder-only models with the parts of GPT-Neo."""

    prefix = "transformer"
    buffers = {
        "h.*.attn.attention.bias": "the causal mask is computed",
        "h.*.attn.attention.masked_bias": "the causal mask is computed",
    }

    def plan(self, checkpoint: Checkpoint) -> Plan:
        settings = ForeignConfig(checkpoint)
        settings.check_decoder()
        layers, longest = settings.size("num_layers"), settings.size("max_position_embeddings")
        kinds = [kind for names, count in settings("attention_types") for _ in range(count) for kind in names]
        if len(kinds) != layers or not set(kinds) <= {"global", "local"}:
            raise settings.refuse("attention_types")
        tied = bool(settings.get("tie_word_embeddings", True)) or "lm_head.weight" not in checkpoint.tensors
        model = {
            "dim": settings.size("hidden_size"),
            "heads": settings.size("num_heads"),
            "layers": layers,
            "inner": settings.get("intermediate_size"),
            "score": "dot",
            "attention_bias": "output",
            "layer_windows": tuple(settings.get("window_size", 256) if kind == "local" else None for kind in kinds),
            "norm": "layer",
            "norm_eps": settings.get("layer_norm_epsilon", 1e-5),
            "placement": "before",
            "feed_forward": settings.activation("activation_function", "gelu_new"),
            "positions": "learned",
            "max_length": longest,
            "length": longest,
            "dropout": settings.get("resid_dropout", 0.0),
            "embedding_scale": 1.0,
            "tied": tied,
        }
        output = {} if tied else {"lm_head": "output.linear"}
        language_model = Plan(
            task="lm",
            model=model,
            table={**within("h.*.", "stack.blocks.*.", BLOCK), **ENDS, **output},
            blocks={"decoder": ("h",)},
            data={"max_length": longest},
            skipped={"lm_head.weight": "the output is the embedding"} if tied else {},
            vocabulary="tokens.tokens.table.weight",
        )
        return decoder_plan(settings, language_model)

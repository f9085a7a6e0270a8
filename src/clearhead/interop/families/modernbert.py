"""ModernBERT: LayerNorm before, rotary positions, a gated feed-forward network, and a window in two of three blocks.

Blocks with a window have a rotary base of their own. The first block reads the normalised embedding as it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clearhead.interop.families.bert import Bert
from clearhead.interop.families.gpt2 import QKV
from clearhead.interop.family import FAMILIES, ForeignConfig, Plan
from clearhead.interop.rope import local_base, rotary_settings
from clearhead.interop.table import Into, Table, into, within

BLOCK: dict[str, str | Into] = {
    "attn.Wqkv": into(*QKV),
    "attn.Wo": "self_attention.output",
    "attn_norm": "residual1.norm",
    "mlp.Wi": into("feed_forward.gate", "feed_forward.inner"),
    "mlp.Wo": "feed_forward.outer",
    "mlp_norm": "residual2.norm",
}
HEAD = {"head.dense": "output.transform.linear", "head.norm": "output.transform.norm"}


@FAMILIES.register("modernbert")
class ModernBert(Bert):
    """Encoders with the parts of ModernBERT."""

    prefix = "model"
    masked_lm_part = "decoder."
    decoder = "decoder"
    blocks = "layers"
    heads = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")

    def masked_lm(self, settings: ForeignConfig) -> Plan:
        tied = bool(settings.get("tie_word_embeddings", True)) or "decoder.weight" not in settings.checkpoint.tensors
        biased = bool(settings.get("decoder_bias", True))
        model = {**self._dense(settings), "output_bias": biased, "tied": tied, "length": self.longest(settings)}
        table = {**HEAD, "decoder.bias" if tied else "decoder": "output.linear.bias" if tied else "output.linear"}
        skipped = {"decoder.weight": "the output is the embedding"} if tied else {}
        return self._plan(settings, "masked_lm", "", table, model, skipped)

    def classifier(self, settings: ForeignConfig) -> Plan:
        pool = {"cls": "class", "mean": "mean"}[settings.get("classifier_pooling", "cls")]
        model = {**self._dense(settings), "pool": pool}
        table = {**HEAD, "classifier": "output.linear"}
        return self._plan(settings, "classify", "encoder.", table, model, labels=settings.labels)

    def tagger(self, settings: ForeignConfig) -> Plan:
        model = {**self._dense(settings), "labelled_piece": "first"}
        table = {**HEAD, "classifier": "output.linear"}
        return self._plan(settings, "tag", "encoder.", table, model, labels=settings.labels)

    def _dense(self, settings: ForeignConfig) -> dict[str, Any]:
        return {"output_transform": settings.activation("classifier_activation", "gelu")}

    def _plan(self, settings: ForeignConfig, task: str, encoder: str, head: Table, *args: Any, **more: Any) -> Plan:
        """With zeros for the biases that its norms and its dense layer do without."""
        plan = super()._plan(settings, task, encoder, head, *args, **more)
        layers, norms = settings.size("num_hidden_layers"), [f"{encoder}tokens.norm", f"{encoder}stack.norm"]
        norms += [f"{encoder}stack.blocks.{layer}.residual1.norm" for layer in range(1, layers)]
        norms += [f"{encoder}stack.blocks.{layer}.residual2.norm" for layer in range(layers)]
        norms += ["output.transform.norm"] if "head.norm" in head else []
        without = [] if settings.get("norm_bias", False) else norms
        if "head.dense" in head and not settings.get("classifier_bias", False):
            without.append("output.transform.linear")
        return replace(plan, zeros=tuple(f"{name}.bias" for name in without))

    def table(self, settings: ForeignConfig) -> dict[str, str | Into]:
        return {**within("layers.*.", "stack.blocks.*.", BLOCK), "final_norm": "stack.norm"}

    def embeddings(self, settings: ForeignConfig) -> dict[str, str | Into]:
        return {"embeddings.tok_embeddings": "tokens.tokens.table", "embeddings.norm": "tokens.norm"}

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        dim, heads, layers = (
            settings.size(f"{name}") for name in ("hidden_size", "num_attention_heads", "num_hidden_layers")
        )
        every, reach = settings.get("global_attn_every_n_layers", 3), settings.get("local_attention", 128) // 2
        usual = ["sliding_attention" if layer % every else "full_attention" for layer in range(layers)]
        kinds = settings.layer_kinds(usual)
        base, local = settings.get("global_rope_theta", 160_000.0), settings.get("local_rope_theta", 10_000.0)
        return {
            "dim": dim,
            "heads": heads,
            "layers": layers,
            "inner": settings.size("intermediate_size"),
            "norm": "layer",
            "norm_eps": settings.get("norm_eps", 1e-5),
            "placement": "before",
            "first_norm": False,
            "feed_forward": settings.gated("hidden_activation", "gelu"),
            "bias": bool(settings.get("mlp_bias", False)),
            "attention_bias": "all" if settings.get("attention_bias", False) else "neither",
            "max_length": self.longest(settings),
            "dropout": settings.get("mlp_dropout", 0.0),
            "embedding_scale": 1.0,
            "embedding_norm": True,
            **rotary_settings(settings, dim // heads, "full_attention", base),
            "layer_windows": tuple(reach + 1 if kind == "sliding_attention" else None for kind in kinds),
            "local_base": local_base(settings, dim // heads, local),
        }

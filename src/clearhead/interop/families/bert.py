"""BERT: learned positions, segments and a norm at the input, LayerNorm after, GELU; read both ways.

Its heads become tasks: masked_lm, classify, tag, and embed for a model without a head. RoBERTa, ELECTRA, ALBERT and
DistilBERT are variations of it: their files change settings and names.
"""

from __future__ import annotations

from typing import Any, ClassVar

from clearhead.interop.checkpoint import Checkpoint
from clearhead.interop.family import FAMILIES, Family, ForeignConfig, Plan, sentence_plan
from clearhead.interop.table import Into, Table, within

ATTENTION = {
    "attention.self.query": "self_attention.query",
    "attention.self.key": "self_attention.key",
    "attention.self.value": "self_attention.value",
    "attention.output.dense": "self_attention.output",
}
BLOCK = {
    **ATTENTION,
    "attention.output.LayerNorm": "residual1.norm",
    "intermediate.dense": "feed_forward.inner",
    "output.dense": "feed_forward.outer",
    "output.LayerNorm": "residual2.norm",
}
EMBEDDINGS: dict[str, str | Into] = {
    "embeddings.word_embeddings": "tokens.tokens.table",
    "embeddings.position_embeddings": "tokens.positions.table",
    "embeddings.token_type_embeddings": "tokens.segments.table",
    "embeddings.LayerNorm": "tokens.norm",
}
UNUSED_POOLER = {"pooler.*": "sentence vectors are pooled in another way"}
UNUSED_HEADS = {
    f"{name}.*": "a sentence vector needs no head"
    for name in ("cls", "lm_head", "classifier", "qa_outputs", "predictions", "vocab_transform", "vocab_layer_norm")
}


@FAMILIES.register("bert")
class Bert(Family):
    """Encoders with the parts of BERT, with any of their heads."""

    prefix = "bert"
    buffers = {
        "*embeddings.position_ids": "positions are counted",
        "*embeddings.token_type_ids": "segments are counted",
    }
    blocks: ClassVar[str] = "encoder.layer"
    masked_lm_part: ClassVar[str] = "cls.predictions."  # of the names of what only a masked language model has
    decoder: ClassVar[str] = "cls.predictions.decoder"  # a masked language model's output, if not its embedding
    heads: ClassVar[tuple[str, ...]] = (
        *("Model", "ForMaskedLM", "ForPreTraining", "ForSequenceClassification", "ForTokenClassification"),
    )

    def plan(self, checkpoint: Checkpoint) -> Plan:
        settings = ForeignConfig(checkpoint)
        settings.require("is_decoder", False)
        settings.require("position_embedding_type", "absolute")
        head = settings.head
        if not settings.get("architectures") and any(self.masked_lm_part in name for name in checkpoint.tensors):
            head = "ForMaskedLM"
        if settings.get("sentence_embedding"):
            head = "Model"
        if head not in self.heads:
            raise settings.wrong_head(*self.heads)
        plans = {
            "Model": self.embedder,
            "ForMaskedLM": self.masked_lm,
            "ForPreTraining": self.masked_lm,
            "ForSequenceClassification": self.classifier,
            "ForTokenClassification": self.tagger,
        }
        return plans[head](settings)

    # --- heads ---

    def embedder(self, settings: ForeignConfig) -> Plan:
        """One vector for a text, by the pooling that sentence-transformers says, or the mean."""
        return sentence_plan(settings, self._plan(settings, "embed", "encoder.", {}, {}, UNUSED_POOLER | UNUSED_HEADS))

    def masked_lm(self, settings: ForeignConfig) -> Plan:
        """The dense layer and norm before the output, and its bias."""
        table = {
            "cls.predictions.transform.dense": "output.transform.linear",
            "cls.predictions.transform.LayerNorm": "output.transform.norm",
            "cls.predictions.bias": "output.linear.bias",
        }
        skipped = {
            "cls.predictions.decoder.*": "the output is the embedding",
            "cls.seq_relationship.*": "whether two sentences follow each other is not predicted",
            **UNUSED_POOLER,
        }
        return self._masked(settings, table, skipped)

    def _masked(self, settings: ForeignConfig, table: Table, skipped: dict[str, str], activation: str = "") -> Plan:
        tied = (
            bool(settings.get("tie_word_embeddings", True))
            or f"{self.decoder}.weight" not in settings.checkpoint.tensors
        )
        activation = activation or settings.activation("hidden_act", "gelu")
        model = {"output_transform": activation, "output_bias": True, "tied": tied}
        if not tied:
            table, skipped = self._untied(settings, table, skipped)
        longest = {"length": self.longest(settings)}
        return self._plan(settings, "masked_lm", "", table, {**model, **longest}, skipped)

    def _untied(
        self, settings: ForeignConfig, table: Table, skipped: dict[str, str]
    ) -> tuple[dict[str, str | Into], dict[str, str]]:
        """The table of a head whose output has a matrix of its own, and perhaps a bias of its own beside the head's."""
        rows = {name: place for name, place in table.items() if place != "output.linear.bias"}
        biases = [name for name, place in table.items() if place == "output.linear.bias"]
        unused = {name: why for name, why in skipped.items() if not name.startswith(self.decoder)}
        if f"{self.decoder}.bias" in settings.checkpoint.tensors:
            others = [name for name in biases if name != f"{self.decoder}.bias"]
            unused |= dict.fromkeys(others, "the output has a bias of its own")
            return {**rows, self.decoder: "output.linear"}, unused
        return {**table, f"{self.decoder}.weight": "output.linear.weight"}, unused

    def classifier(self, settings: ForeignConfig) -> Plan:
        """BERT's pooler, then a linear map of the class token."""
        table = {"pooler.dense": "output.transform.linear", "classifier": "output.linear"}
        model = {"pool": "class", "pool_transform": "tanh"}
        return self._plan(settings, "classify", "encoder.", table, model, labels=settings.labels)

    def tagger(self, settings: ForeignConfig) -> Plan:
        """A linear map of every token; a word has the tag of its first piece."""
        model = {"labelled_piece": "first"}
        table = {"classifier": "output.linear"}
        return self._plan(settings, "tag", "encoder.", table, model, UNUSED_POOLER, labels=settings.labels)

    # --- the body ---

    def _plan(
        self,
        settings: ForeignConfig,
        task: str,
        encoder: str,
        head: Table,
        model: dict[str, Any],
        skipped: dict[str, str] | None = None,
        labels: tuple[str, ...] = (),
    ) -> Plan:
        own = {"several": settings.several} if task == "classify" else {}
        body = within("", encoder, {**self.table(settings), **self.embeddings(settings)})
        return Plan(
            task=task,
            model={**self.model(settings), **model, **own},
            table={**body, **head},
            blocks={"encoder": (self.blocks,)},
            data={"max_length": self.longest(settings)},
            labels=labels,
            sizes={"classes": len(labels)},
            skipped=dict(skipped or {}),
            vocabulary=f"{encoder}tokens.tokens.table.weight",
        )

    def longest(self, settings: ForeignConfig) -> int:
        """Tokens of the longest text."""
        return settings.size("max_position_embeddings")

    def table(self, settings: ForeignConfig) -> dict[str, str | Into]:
        """Where the tensors of the blocks go."""
        return within("encoder.layer.*.", "stack.blocks.*.", BLOCK)

    def embeddings(self, settings: ForeignConfig) -> dict[str, str | Into]:
        """Where the tensors of the input go."""
        return EMBEDDINGS

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        """The `model` section."""
        return {
            "dim": settings.size("hidden_size"),
            "heads": settings.size("num_attention_heads"),
            "layers": settings.size("num_hidden_layers"),
            "inner": settings.size("intermediate_size"),
            "norm": "layer",
            "norm_eps": settings.get("layer_norm_eps", 1e-12),
            "placement": "after",
            "feed_forward": settings.activation("hidden_act", "gelu"),
            "positions": "learned",
            "max_length": self.longest(settings),
            "dropout": settings.get("hidden_dropout_prob", 0.1),
            "embedding_scale": 1.0,
            "embedding_norm": True,
            "segments": self.segments(settings),
            "separator": self.separator(settings),
        }

    def segments(self, settings: ForeignConfig) -> int:
        """How many segments have a vector."""
        return settings.size("type_vocab_size")

    def separator(self, settings: ForeignConfig) -> int | None:
        """The token that ends a segment."""
        files = settings.checkpoint.tokenizer
        return None if files is None else files.token_id("sep_token")

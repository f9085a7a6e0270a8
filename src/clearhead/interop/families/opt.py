"""OPT: learned positions, which begin at 2, LayerNorm before, ReLU; its output is the embedding."""

from __future__ import annotations

import torch

from clearhead.interop.checkpoint import Checkpoint
from clearhead.interop.families.bart import FIRST
from clearhead.interop.families.marian import ENCODER
from clearhead.interop.family import FAMILIES, LABELLERS, Family, ForeignConfig, Plan, decoder_plan
from clearhead.interop.table import Change, Into, into, within, without_rows

OUTPUT = {"lm_head.weight": "the output is the embedding"}
PROJECTIONS = {f"decoder.project_{way}.weight": "it is multiplied into the token vectors" for way in ("in", "out")}


@FAMILIES.register("opt")
class Opt(Family):
    """Decoder-only models with the parts of OPT."""

    prefix = "model"

    def plan(self, checkpoint: Checkpoint) -> Plan:
        settings = ForeignConfig(checkpoint)
        settings.check_decoder()
        dim, longest = settings.size("hidden_size"), settings.size("max_position_embeddings")
        before = bool(settings.get("do_layer_norm_before", True))
        settings.require("_remove_final_layer_norm", False, *(() if before else (True,)))
        tied = settings.tied("lm_head.weight", "embed_tokens.weight", True)
        narrow = settings.get("word_embed_proj_dim", dim) != dim
        if narrow and (settings.head in LABELLERS or settings.get("sentence_embedding") or not tied):
            raise settings.refuse("word_embed_proj_dim")
        model = {
            "dim": dim,
            "heads": settings.size("num_attention_heads"),
            "layers": settings.size("num_hidden_layers"),
            "inner": settings.size("ffn_dim"),
            "norm": "layer",
            "norm_eps": 1e-5,
            "placement": "before" if before else "after",
            "feed_forward": settings.activation("activation_function", "relu"),
            "positions": "learned",
            "max_length": longest,
            "length": longest,
            "dropout": settings.get("dropout", 0.1),
            "bias": bool(settings.get("enable_bias", True)),
            "embedding_scale": 1.0,
            "tied": tied and not narrow,
        }
        ends: dict[str, str | Into] = {
            "embed_tokens": widened(settings) if narrow else "tokens.tokens.table",
            "embed_positions": into("tokens.positions.table", change=without_rows(FIRST)),
            **({"final_layer_norm": "stack.norm"} if before else {}),
        }
        output = {} if tied else {"lm_head": "output.linear"}
        body = {**within("layers.*.", "stack.blocks.*.", ENCODER), **ends}
        language_model = Plan(
            task="lm",
            model=model,
            table={**within("decoder.", "", body), **output},
            blocks={"decoder": ("decoder.layers",)},
            data={"max_length": longest},
            skipped={**OUTPUT, **PROJECTIONS} if tied else {},
            ones=() if settings.get("layer_norm_elementwise_affine", True) else self.norms(settings, before),
            vocabulary="tokens.tokens.table.weight",
        )
        return decoder_plan(settings, language_model)

    def norms(self, settings: ForeignConfig, before: bool) -> tuple[str, ...]:
        """The names of all norms, in a model that learns none of them."""
        layers = range(settings.size("num_hidden_layers"))
        inside = [f"stack.blocks.{layer}.residual{part}.norm" for layer in layers for part in (1, 2)]
        return (*inside, *(["stack.norm"] if before else []))


def widened(settings: ForeignConfig) -> Into:
    """Token vectors (V, W) that are narrower than the blocks -> what the blocks read, and what their output meets.

    One matrix widens them, and another narrows the output: both are multiplied into the vectors.
    """
    tensors = settings.checkpoint.tensors
    wide, narrow = (
        next(tensors[name].float() for name in (f"model.decoder.{part}", f"decoder.{part}") if name in tensors)
        for part in ("project_in.weight", "project_out.weight")
    )  # (D, W), (W, D)
    change = Change(
        lambda x: torch.cat((x.float() @ wide.t(), x.float() @ narrow)),
        lambda x: x.chunk(2)[0] @ torch.linalg.pinv(wide.t()),
    )
    return into("tokens.tokens.table", "output.linear", change=change)

"""The ideas of the lectures in teaching order, each with its equation, its code and a view that shows it.

The code is the source of the functions and classes of this package that compute it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

from fastapi import APIRouter

from clearhead.decode.beam import beam_search
from clearhead.decode.logits import sample
from clearhead.look.views.rollout import rollout
from clearhead.models.word2vec import analogy
from clearhead.nn.attention import MultiHeadAttention, attention
from clearhead.nn.block import DecoderBlock, EncoderBlock
from clearhead.nn.embedding import PatchEmbedding, TokenEmbedding
from clearhead.nn.feedforward import FeedForward
from clearhead.nn.masks import causal_mask
from clearhead.nn.norm import layer_norm
from clearhead.nn.positions import SinCosTable, SinusoidalPositions
from clearhead.nn.scores import scaled_dot
from clearhead.serve.errors import ERROR_RESPONSES

router = APIRouter(responses=ERROR_RESPONSES)

PACKAGE = Path(__file__).parents[1]
BREAD = "we are eating bread"
CAR = "She has a red car."
TEA = "She likes coffee but he likes tea."  # its translation depends on the scale
KEYS = "I gave my friend the keys of the house."  # and that of this one on layers and single heads


@dataclass(frozen=True)
class Lesson:
    """One idea of the lectures."""

    title: str
    lectures: str
    equation: str
    summary: str
    code: Any  # a function or class
    view: str  # the Studio view that shows it
    state: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        code = inspect.unwrap(self.code)
        lines, first = inspect.getsourcelines(code)
        file = Path(inspect.getsourcefile(code) or "").relative_to(PACKAGE)
        return {
            "title": self.title,
            "lectures": self.lectures,
            "equation": self.equation,
            "says": self.summary,
            "file": file.as_posix(),
            "line": first,
            "source": dedent("".join(lines)).rstrip(),
            "view": self.view,
            "state": dict(self.state),
        }


LESSONS = (
    Lesson(
        "Token embeddings",
        "MIT, EPFL",
        "X = onehot(ids) W_emb",
        "A text is split into tokens, and each token is replaced by a vector: a row of a learned matrix.",
        TokenEmbedding,
        "words",
        {"words": "king, river, bread, ship"},
    ),
    Lesson(
        "Words as vectors",
        "MIT",
        "king − man + woman ≈ queen",
        "Words used in similar contexts have similar vectors, and differences between vectors carry meaning.",
        analogy,
        "words",
        {"sum": "king man woman"},
    ),
    Lesson(
        "Score and scale",
        "Brown, MIT, EPFL",
        "s_j = q · k_j / √d_k",
        "A query is compared with every key by a dot product. Without the factor 1/√dₖ the products of long vectors "
        "are so large that the softmax saturates: it picks one key, and its gradient vanishes.",
        scaled_dot,
        "what-if",
        {"text": TEA, "off": '{"scale": true}'},
    ),
    Lesson(
        "Attention of one query",
        "Brown, MIT, Georgia Tech, EPFL",
        "z = Σ_j softmax(s)_j v_j",
        "The softmax turns scores into weights that sum to one; the output is the weighted sum of the values.",
        attention,
        "steps",
        {"text": BREAD, "kind": "decoder.cross", "layer": "1", "head": "2", "query": "1"},
    ),
    Lesson(
        "Masks",
        "MIT, Valdés, EPFL",
        "M = Q K^T / √d_k + L",
        "A decoder must not see later tokens: the look-ahead matrix adds −∞ to their scores, so their weight is 0.",
        causal_mask,
        "heads",
        {"text": CAR, "at": '{"kind": "decoder.self", "shape": "matrix", "layer": 1, "head": 0}'},
    ),
    Lesson(
        "Cross-attention",
        "Brown, Georgia Tech",
        "softmax(Q_decoder K_encoder^T / √d_k) V_encoder",
        "The decoder provides the queries, the encoder the keys and values: “red car” and “coche rojo” cross over.",
        DecoderBlock,
        "heads",
        {"text": CAR, "at": '{"kind": "decoder.cross", "layer": 1, "head": 2}'},
    ),
    Lesson(
        "Many heads",
        "MIT, Valdés, EPFL",
        "[Z_1 … Z_H] W_O = Σ_h Z_h W_h",
        "Several heads attend in parallel, each with its own projections, and their outputs are added.",
        MultiHeadAttention,
        "what-if",
        {"text": KEYS, "off": '{"heads": ["decoder.2.cross:0"]}'},
    ),
    Lesson(
        "Positions",
        "all five",
        "PE(pos, 2i) = sin(pos / N^{2i/D})",
        "Attention ignores order. Sine waves of many lengths, added to the embeddings, encode each position.",
        SinusoidalPositions,
        "positions",
    ),
    Lesson(
        "Base and width",
        "Georgia Tech, Valdés",
        "PE(i) · PE(j) falls with |i − j|",
        "The base N sets the longest wavelength; the dot product of two positions falls with their distance.",
        SinCosTable,
        "positions",
        {"base": "100", "width": "128"},
    ),
    Lesson(
        "Add and norm",
        "MIT, Valdés, EPFL",
        "γ (z − μ)/σ + β",
        "The output of each sub-layer is added to its input and normalised, so that deep stacks can be trained.",
        layer_norm,
        "steps",
        {"text": BREAD, "kind": "encoder.self", "step": "7"},
    ),
    Lesson(
        "Feed-forward",
        "MIT, Valdés, EPFL",
        "max(0, y W_1 + b_1) W_2 + b_2",
        "After attention mixes the tokens, this network transforms each alone; some of its units are interpretable.",
        FeedForward,
        "cells",
    ),
    Lesson(
        "The block",
        "all five",
        "x + Attention(Norm(x)), then x + FeedForward(Norm(x))",
        "Attention and feed-forward, each with its residual connection: stacked, this is the Transformer.",
        EncoderBlock,
        "what-if",
        {"text": KEYS, "off": '{"layers": ["encoder.1"]}'},
    ),
    Lesson(
        "Generating token by token",
        "MIT, Georgia Tech",
        "y_t ~ softmax(f(y_1 … y_{t−1}, x))",
        "A text is generated by predicting the next token again and again: the most probable one, or a sample.",
        sample,
        "play",
        {"text": BREAD},
    ),
    Lesson(
        "Beam search",
        "Georgia Tech",
        "argmax_y Σ_t log p(y_t | y_1 … y_{t−1}, x)",
        "The most probable next token does not always lead to the most probable sentence: a beam keeps several.",
        beam_search,
        "beam",
        {"text": CAR},
    ),
    Lesson(
        "Image patches as tokens",
        "EPFL",
        "z_0 = [x_class; x_p E] + E_pos",
        "An image is split into patches, each patch becomes a vector, and the rest is the same as for a sentence.",
        PatchEmbedding,
        "image",
    ),
    Lesson(
        "Attention rollout",
        "EPFL",
        "R = Â_L … Â_2 Â_1",
        "Attention multiplied through all layers: how much each patch contributes to the final representation.",
        rollout,
        "image",
    ),
)


@router.get("/ideas")
def lessons() -> list[dict[str, Any]]:
    """Every idea, in teaching order."""
    return _documents()


@cache
def _documents() -> list[dict[str, Any]]:
    return [lesson.document() for lesson in LESSONS]

"""The ideas of the lectures, in the order in which one needs them: equation, code, and where to see each at work.

The code is the package's own, read from the functions and classes that compute it.
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
from clearhead.decode.sampling import draw
from clearhead.look.views.rollout import rollout
from clearhead.models.word_vectors import analogy
from clearhead.nn.attention import MultiHeadAttention, attention
from clearhead.nn.block import DecoderBlock, EncoderBlock
from clearhead.nn.embedding import TokenEmbedding
from clearhead.nn.feedforward import FeedForward
from clearhead.nn.masks import causal_mask
from clearhead.nn.norm import layer_norm
from clearhead.nn.patches import PatchEmbedding
from clearhead.nn.positions import SinusoidalPositions, Waves
from clearhead.nn.scores import scaled_dot
from clearhead.serve.failures import FAILURES

router = APIRouter(responses=FAILURES)

PACKAGE = Path(__file__).parents[2]
BREAD = "we are eating bread"
CAR = "She has a red car."


@dataclass(frozen=True)
class Idea:
    """One idea."""

    title: str
    lectures: str
    equation: str
    says: str
    code: Any  # a function or class
    view: str  # of the Studio, where it can be seen
    state: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As the page reads it."""
        code = inspect.unwrap(self.code)
        lines, first = inspect.getsourcelines(code)
        file = Path(inspect.getsourcefile(code) or "").relative_to(PACKAGE)
        return {
            "title": self.title,
            "lectures": self.lectures,
            "equation": self.equation,
            "says": self.says,
            "file": file.as_posix(),
            "line": first,
            "source": dedent("".join(lines)).rstrip(),
            "view": self.view,
            "state": dict(self.state),
        }


IDEAS = (
    Idea(
        "Token embeddings",
        "MIT, EPFL",
        "X = onehot(ids) W_emb",
        "A text is cut into tokens, and each token becomes a vector: its row of a matrix that is learned.",
        TokenEmbedding,
        "words",
        {"words": "king, river, bread, ship"},
    ),
    Idea(
        "Words as vectors",
        "MIT",
        "king − man + woman ≈ queen",
        "Words that are used alike have vectors that lie side by side, and differences between them have a meaning.",
        analogy,
        "words",
        {"sum": "king man woman"},
    ),
    Idea(
        "Score and scale",
        "Brown, MIT, EPFL",
        "s_j = q · k_j / √d_k",
        "A query is compared with every key by their dot product. Without 1/√dₖ the products of long vectors are so "
        "large that the softmax picks one key and learns slowly.",
        scaled_dot,
        "what-if",
        {"text": CAR, "off": '{"scale": true}'},
    ),
    Idea(
        "Attention of one query",
        "Brown, MIT, Georgia Tech, EPFL",
        "z = Σ_j softmax(s)_j v_j",
        "The softmax turns scores into shares of one, and what the query takes is the values in these shares.",
        attention,
        "steps",
        {"text": BREAD, "kind": "decoder.cross", "layer": "1", "head": "2", "query": "1"},
    ),
    Idea(
        "Masks",
        "MIT, Valdés, EPFL",
        "M = Q K^T / √d_k + L",
        "Who writes must not see what comes later: the look-ahead matrix puts −∞ there, and the softmax makes it 0.",
        causal_mask,
        "heads",
        {"text": CAR, "at": '{"kind": "decoder.self", "shape": "matrix", "layer": 1, "head": 0}'},
    ),
    Idea(
        "Cross-attention",
        "Brown, Georgia Tech",
        "softmax(Q_decoder K_encoder^T / √d_k) V_encoder",
        "The words that are written ask, and the words that were read answer: “red car” and “coche rojo” cross over.",
        DecoderBlock,
        "heads",
        {"text": CAR, "at": '{"kind": "decoder.cross", "layer": 1, "head": 2}'},
    ),
    Idea(
        "Many heads",
        "MIT, Valdés, EPFL",
        "[Z_1 … Z_H] W_O = Σ_h Z_h W_h",
        "Several heads look at once, each for something of its own, and what they found is added up.",
        MultiHeadAttention,
        "what-if",
        {"text": CAR, "off": '{"heads": ["decoder.1.cross:2"]}'},
    ),
    Idea(
        "Positions",
        "all five",
        "PE(pos, 2i) = sin(pos / N^{2i/D})",
        "Attention sees a bag of words. Waves of many lengths, added to the words, tell it their order.",
        SinusoidalPositions,
        "positions",
    ),
    Idea(
        "Base and width",
        "Georgia Tech, Valdés",
        "PE(i) · PE(j) falls with |i − j|",
        "The base N sets how long the longest wave is; the product of two positions falls with their distance.",
        Waves,
        "positions",
        {"base": "100", "width": "128"},
    ),
    Idea(
        "Add and norm",
        "MIT, Valdés, EPFL",
        "γ (z − μ)/σ + β",
        "What a part computes is added to what it read, and brought to a common size, so that many layers can follow.",
        layer_norm,
        "steps",
        {"text": BREAD, "kind": "encoder.self", "step": "7"},
    ),
    Idea(
        "Feed-forward",
        "MIT, Valdés, EPFL",
        "max(0, y W_1 + b_1) W_2 + b_2",
        "After the words have talked to each other, each thinks for itself; some inner units follow what one can name.",
        FeedForward,
        "cells",
    ),
    Idea(
        "The block",
        "all five",
        "x + Attention(Norm(x)), then x + FeedForward(Norm(x))",
        "Attention and feed-forward, each with its residual connection: stacked, this is the Transformer.",
        EncoderBlock,
        "what-if",
        {"text": CAR, "off": '{"layers": ["encoder.1"]}'},
    ),
    Idea(
        "Writing token by token",
        "MIT, Georgia Tech",
        "y_t ~ softmax(f(y_1 … y_{t−1}, x))",
        "A text is written by asking again and again which token comes next: the likeliest, or one drawn at random.",
        draw,
        "play",
        {"text": BREAD},
    ),
    Idea(
        "Beam search",
        "Georgia Tech",
        "argmax_y Σ_t log p(y_t | y_1 … y_{t−1}, x)",
        "The likeliest next word is not always the beginning of the likeliest sentence: a search keeps several.",
        beam_search,
        "beam",
        {"text": CAR},
    ),
    Idea(
        "Image patches as tokens",
        "EPFL",
        "z_0 = [x_class; x_p E] + E_pos",
        "An image is cut into patches, each becomes a vector, and from there on it is a sentence like any other.",
        PatchEmbedding,
        "image",
    ),
    Idea(
        "Attention rollout",
        "EPFL",
        "R = Â_L … Â_2 Â_1",
        "Through all layers: how much of each patch is in what the model knows at the end.",
        rollout,
        "image",
    ),
)


@router.get("/ideas")
def ideas() -> list[dict[str, Any]]:
    """Every idea, in the order in which one needs them."""
    return _documents()


@cache
def _documents() -> list[dict[str, Any]]:
    return [idea.document() for idea in IDEAS]

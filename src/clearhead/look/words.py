"""Word vectors on a plane: words that are used alike should lie side by side.

pca     the two directions in which the vectors are spread most: distances far and near are kept as well as can be
tsne    near words stay near; how far apart groups lie, and how large they are, means nothing

V words, D width
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from clearhead.errors import ConfigError, ShapeError, nearest
from clearhead.look.components import principal_components
from clearhead.look.storing import rounded
from clearhead.models.word_vectors import neighbours

FORMAT = "clearhead-words-1"
PERPLEXITY = 30.0  # how many neighbours t-SNE thinks of, where there are enough words

Method = Literal["pca", "tsne"]


@dataclass(frozen=True, eq=False)
class WordMap:
    """A place for each word."""

    words: list[str]
    points: Tensor  # (V, 2)
    method: str

    def to_json(self) -> dict[str, Any]:
        """As plain lists."""
        return {"format": FORMAT, "method": self.method, "words": self.words, "points": rounded(self.points)}


def word_map(vectors: Tensor, words: Sequence[str], method: Method = "pca") -> WordMap:
    """vectors (V, D), the word of each -> where it lies; the same every time."""
    if method not in METHODS:
        raise ConfigError(f"unknown kind of map {method!r}; {nearest(method, METHODS)}")
    if vectors.dim() != 2 or len(vectors) != len(words):
        raise ShapeError(f"{len(words)} words do not fit vectors of shape {tuple(vectors.shape)}")
    if len(words) < 3:
        raise ShapeError(f"a map of {len(words)} words shows nothing; give it at least 3")
    return WordMap(list(words), METHODS[method](vectors.detach().double()), method)


def and_neighbours(vectors: Tensor, words: Sequence[str], wanted: Sequence[str], count: int = 5) -> list[int]:
    """The rows of some words and of those nearest to each: what makes a map that can be read."""
    row = {word: number for number, word in enumerate(words)}
    near = [[word, *(each for each, _ in neighbours(vectors, words, word, count))] for word in wanted]
    return list(dict.fromkeys(row[word] for group in near for word in group))


def _pca(vectors: Tensor) -> Tensor:
    """(V, D) -> (V, 2)."""
    return principal_components(vectors, 2).project(vectors)


def _tsne(vectors: Tensor) -> Tensor:
    """(V, D) -> (V, 2), begun from the principal components."""
    try:
        from sklearn.manifold import TSNE  # type: ignore[import-untyped]
    except ImportError:
        raise ConfigError("a t-SNE map needs scikit-learn: pip install 'clearhead[look]'; or choose pca") from None
    perplexity = min(PERPLEXITY, (len(vectors) - 1) / 3)
    mapped = TSNE(init="pca", metric="cosine", perplexity=perplexity, random_state=0).fit_transform(vectors.numpy())
    return torch.from_numpy(mapped).double()


METHODS: dict[str, Callable[[Tensor], Tensor]] = {"pca": _pca, "tsne": _tsne}

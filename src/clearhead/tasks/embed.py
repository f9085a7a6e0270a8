"""Embedding: one vector for a text, near those of texts that mean the same; and the embedder.

It learns from pairs of texts that belong together: of all second texts in a batch, the right one must be nearest.

    loss = -log softmax(c cos(a_i, b_j))_i        over the texts b_j of the batch

    B pairs, T tokens, D width
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.config import Config
from clearhead.data import Pair
from clearhead.data.batches import Batches, pad
from clearhead.look.inputs import PreparedInput
from clearhead.models.classifier import Embedder as EmbedderNetwork
from clearhead.models.config import EncoderConfig, UnitConfig
from clearhead.run import ModelMeta, Sizes
from clearhead.tasks.base.labels import padded_batches
from clearhead.tasks.base.losses import class_loss
from clearhead.tasks.base.metrics import Score, accuracy
from clearhead.tasks.base.predictor import BATCH, Predictor, Vectors
from clearhead.tasks.base.task import Batch, Examples, Task, Workspace, device_of, read_dataset, train_tokenizer
from clearhead.tasks.base.text import sorted_batches
from clearhead.text import Tokenizer

SHARPNESS = 20.0  # c: a cosine alone, from -1 to 1, could never make a softmax sharp
SHOWN = 8  # numbers of a vector in an answer that people read


class EmbedModel(UnitConfig, EncoderConfig):
    """An embedder of texts."""


@dataclass(frozen=True)
class PairIds:
    """Both texts of every pair as ids."""

    sources: list[list[int]]
    targets: list[list[int]]


class Embed(Task[EmbedModel]):
    """Give texts that belong together vectors that are near."""

    name = "embed"
    title = "An embedder of texts"
    data_kind = "pairs"
    model_type = EmbedModel
    rank = 8
    defaults = {"model": {"positions": "learned", "feed_forward": "gelu"}}
    unit = "pairs"
    metric = "accuracy"
    text_encoder = "encoder."
    tokenizer: Tokenizer

    @classmethod
    def build(cls, model: EmbedModel, sizes: Sizes) -> nn.Module:
        return EmbedderNetwork(model, sizes.vocabulary, sizes.pad, model.ngrams, model.causal)

    def __init__(self, config: Config[EmbedModel], workspace: Workspace):
        dataset = read_dataset(config, "pairs", workspace)
        train: list[Pair] = list(dataset.train)
        self.config = config
        texts = (text for pair in train for text in (pair.source, pair.target))
        self.tokenizer = train_tokenizer(config, workspace, texts)
        self.train, self.held_out = self._part(train), self._part(list(dataset.validation))
        self.meta = ModelMeta(Sizes(vocabulary=len(self.tokenizer), pad=self.tokenizer.pad))

    def _part(self, pairs: Sequence[Pair]) -> PairIds:
        longest, causal = self.config.data.max_length, self.config.model.causal
        return PairIds(
            frame_texts(self.tokenizer, [pair.source for pair in pairs], longest, causal),
            frame_texts(self.tokenizer, [pair.target for pair in pairs], longest, causal),
        )

    def cursor(self) -> Batches:
        return Batches(_lengths(self.train), budget=self.config.data.batch_tokens, seed=self.config.train.seed)

    def batch(self, examples: Examples) -> Batch:
        return self._tensors(self.train, examples.tolist())

    def validation(self) -> Iterator[Batch]:
        for indices in sorted_batches(_lengths(self.held_out), self.config.data.batch_tokens):
            yield self._tensors(self.held_out, indices)

    def _tensors(self, part: PairIds, indices: list[int]) -> Batch:
        """Both sides (B, T)."""
        sides = {"source": part.sources, "target": part.targets}
        rows = {name: pad([ids[i] for i in indices], self.tokenizer.pad) for name, ids in sides.items()}
        return {name: torch.from_numpy(each) for name, each in rows.items()}

    def loss(self, model: Any, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        scores = self._scores(model, batch)
        return class_loss(scores, torch.arange(len(scores), device=scores.device), smoothing=smoothing)

    def _scores(self, model: Any, batch: Batch) -> Tensor:
        """(B, B): how near each second text is to each first."""
        a, b = (F.normalize(model(batch[side]), dim=-1) for side in ("source", "target"))  # (B, D)
        return SHARPNESS * a @ b.T

    def scores(self, model: Any) -> tuple[tuple[Score, ...], str]:
        """The share of first texts whose nearest second text, in its batch, is the right one."""
        predicted: list[int] = []
        right: list[int] = []
        for batch in self.validation():
            moved = {name: each.to(device_of(model)) for name, each in batch.items()}
            predicted += self._scores(model, moved).argmax(-1).tolist()
            right += range(len(batch["source"]))
        return (accuracy(predicted, right),), ""

    def example(self) -> PreparedInput:
        """The first held-out text."""
        ids = self.held_out.sources[0]
        return PreparedInput((torch.tensor([ids]),), encoder=self.tokenizer.pieces(ids))


def _lengths(part: PairIds) -> list[int]:
    return [max(len(a), len(b)) for a, b in zip(part.sources, part.targets, strict=True)]


def frame_texts(tokenizer: Tokenizer, texts: Sequence[str], longest: int, causal: bool = False) -> list[list[int]]:
    """The ids of texts, cut to their beginning, each between what the model expects around a text."""
    return frame_ids(tokenizer, tokenizer.encode_batch(list(texts)), longest, causal)


def frame_ids(
    tokenizer: Tokenizer, rows: Sequence[Sequence[int]], longest: int, causal: bool = False
) -> list[list[int]]:
    """The same of texts as ids; a causal model, or one whose texts only end with something, has no class token."""
    first = () if causal or tokenizer.suffix else (tokenizer.cls,)
    return [tokenizer.framed(ids, longest, first) or [tokenizer.stop] for ids in rows]


class Embedder(Predictor, task=Embed):
    """Gives a text a vector."""

    config: Config[EmbedModel]
    verb = "embed"
    example_inputs = ("a warm, funny film", "the film made me laugh")

    @torch.inference_mode()
    def embed_ids(self, rows: Sequence[Sequence[int]]) -> Vectors:
        """(N, D) for texts as token ids, cut to their beginning; similar lengths are computed together."""
        framed = self._framed(rows)
        found = np.empty((len(framed), self._width), np.float32)
        groups = list(padded_batches(framed, BATCH))
        batches = (torch.from_numpy(pad([framed[i] for i in group], self.tokenizer.pad)) for group in groups)
        for group, vectors in zip(groups, self.engines.apply_all(batches), strict=True):
            found[group] = vectors.numpy()
        return found

    @property
    def _width(self) -> int:
        return self.config.model.vector_dim or self.config.model.dim

    def _framed(self, rows: Sequence[Sequence[int]]) -> list[list[int]]:
        return frame_ids(self.tokenizer, rows, self.max_read, self.config.model.causal)

    def embedding_parts(self, ids: Sequence[int]) -> list[list[int]]:
        return self._framed([ids])

    def prepare(self, item: str) -> PreparedInput:
        [ids] = self._framed(self.tokenizer.encode_batch([item]))
        return PreparedInput((torch.tensor([ids]),), encoder=self.token_strings(ids), text=item)

    def output_of(self, logits: Tensor) -> str:
        """The first numbers of the vector."""
        return " ".join(f"{number:.4f}" for number in logits[:SHOWN].tolist()) + " …"

    def predict_batch(self, items: list[str]) -> list[dict[str, Any]]:
        return [{"vector": vector} for vector in self.embed(items).tolist()]

    def answer(self, item: str, max_tokens: int | None = None) -> str:
        return self.output_of(torch.from_numpy(self.embed(item)))

    def token_vectors(self, inputs: Tensor) -> Tensor:
        return self.engines.encode(inputs)

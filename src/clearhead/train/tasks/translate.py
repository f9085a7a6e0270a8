"""Translation: pairs of sentences, teacher forcing, BLEU.

B pairs, S source tokens, T target tokens
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from clearhead.config import Config
from clearhead.data import Pair
from clearhead.data.collate import pad
from clearhead.decode import Settings, SpecialTokens, generate_batch
from clearhead.engines.torchscript import torchscript_engine
from clearhead.errors import DataError
from clearhead.models.build import Sizes
from clearhead.run import ModelMeta
from clearhead.train.metrics import Score, bleu, chrf, exact_match
from clearhead.train.task import Batch, Workspace
from clearhead.train.tasks.common import read_kind, trained_tokenizer
from clearhead.train.tasks.writing import WritingTask
from clearhead.train.watch import LONGEST, Example


@dataclass(frozen=True)
class Part:
    """Pairs as text and as ids."""

    pairs: list[Pair]
    sources: list[list[int]]
    targets: list[list[int]]


class Translate(WritingTask):
    """Read a sentence in one language, write it in another; one vocabulary serves both."""

    scored = 1000  # pairs that are translated at each evaluation

    def __init__(self, config: Config, workspace: Workspace):
        dataset = read_kind(config, "pairs", workspace)
        train: Sequence[Pair] = list(dataset.train)
        texts = (text for pair in train for text in (pair.source, pair.target))
        self.config = config
        self.tokenizer = self.vocabulary = trained_tokenizer(config, workspace, texts)
        self.train, self.held_out = self._part(train), self._part(list(dataset.validation))
        p99 = math.ceil(np.quantile([len(ids) for ids in self.train.sources], 0.99))
        self.meta = ModelMeta(Sizes(vocabulary=len(self.vocabulary), pad=self.vocabulary.pad), p99_source_length=p99)
        if dropped := len(train) - len(self.train.pairs):
            self.notes = (f"{dropped:,} pairs of {config.data.max_length} tokens or more are left out",)

    def scores(self, model: Any) -> tuple[tuple[Score, ...], str]:
        """BLEU, chrF and the share of exact translations of the held-out pairs, all or some evenly spaced."""
        count = len(self.held_out.pairs)
        some = slice(None, None, -(-count // min(self.scored or count, count)))
        pairs = self.held_out.pairs[some]
        written = self.translate(model, self.held_out.sources[some])
        references = [pair.target for pair in pairs]
        sample = f"{pairs[0].source} → {written[0]}"
        return (bleu(written, references), chrf(written, references), exact_match(written, references)), sample

    def translate(self, model: Any, sources: Sequence[list[int]]) -> list[str]:
        """The best translation that is found of each source."""
        vocabulary = self.vocabulary
        special = SpecialTokens(vocabulary.pad, vocabulary.start, vocabulary.stop)
        found = generate_batch(torchscript_engine(model), sources, special, Settings(beam_width=self.beams))
        return vocabulary.decode_batch([hypotheses[0].ids for hypotheses in found])

    def example(self) -> Example:
        """The first held-out pair."""
        batch, words = self.tensors(self.held_out, [0]), self.vocabulary.pieces
        source, target = batch["source"][:, :LONGEST], batch["target"][:, : LONGEST + 1]
        read, written = target[:, :-1], target[:, 1:]
        return Example((source, read), encoder=words(source[0]), decoder=words(read[0]), written=words(written[0]))

    def _part(self, pairs: Sequence[Pair]) -> Part:
        """Encode, and keep the pairs that are short enough."""
        longest = self.config.data.max_length
        sources = self.vocabulary.encode_batch([pair.source for pair in pairs])
        targets = self.vocabulary.encode_batch([pair.target for pair in pairs])
        kept = [i for i in range(len(pairs)) if max(len(sources[i]), len(targets[i])) < longest]
        if not kept:
            raise DataError(f"has no pair shorter than {longest} tokens in a part", path=self.config.data.path)
        return Part([pairs[i] for i in kept], [sources[i] for i in kept], [targets[i] for i in kept])

    def lengths(self, part: Part) -> list[tuple[int, int]]:
        """Tokens with the stop of the source, and the start or the stop of the target."""
        return [(len(source) + 1, len(target) + 1) for source, target in zip(part.sources, part.targets, strict=True)]

    def tensors(self, part: Part, indices: list[int]) -> Batch:
        """source (B, S) with its stop; target (B, 1 + T + 1) between start and stop."""
        vocabulary = self.vocabulary
        source = pad([part.sources[i] for i in indices], vocabulary.pad, stop=vocabulary.stop)
        target = pad([part.targets[i] for i in indices], vocabulary.pad, vocabulary.start, vocabulary.stop)
        return {"source": torch.from_numpy(source), "target": torch.from_numpy(target)}

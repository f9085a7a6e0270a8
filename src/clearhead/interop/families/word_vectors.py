"""Word vectors: a table, and a word for each of its rows. The vectors of contexts are not published: zeros."""

from __future__ import annotations

import torch

from clearhead.interop.checkpoint import Checkpoint
from clearhead.interop.family import FAMILIES, Family, ForeignConfig, Plan
from clearhead.interop.table import Change, into

WITH_CONTEXT = Change(lambda x: torch.cat((x, torch.zeros_like(x))), lambda x: x[: len(x) // 2])


@FAMILIES.register("word_vectors")
class WordVectors(Family):
    """word2vec, GloVe and fastText."""

    def plan(self, checkpoint: Checkpoint) -> Plan:
        return Plan(
            task="words",
            model={"dim": ForeignConfig(checkpoint).size("hidden_size")},
            table={"vectors": into("center.weight", "context.weight", change=WITH_CONTEXT)},
            blocks={},
            vocabulary="center.weight",
        )

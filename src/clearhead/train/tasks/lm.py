"""Language modelling: windows of running text, the next token or masked ones, perplexity.

B windows, T tokens
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.config import Config, TextModel
from clearhead.data.windows import TokenFile, Windows, write_tokens
from clearhead.decode import Prompts, Settings, generate
from clearhead.models.build import Sizes
from clearhead.run import ModelMeta
from clearhead.train.losses import mask_tokens, token_loss
from clearhead.train.metrics import Score, bits_per_character, perplexity
from clearhead.train.sampling import mix_targets
from clearhead.train.task import Batch, Evaluation, Examples, Task, Workspace
from clearhead.train.tasks.common import device_of, read_kind, trained_tokenizer
from clearhead.train.watch import LONGEST, Example

IGNORED = -100  # a target that is not asked for
SAMPLE = 120  # tokens written at each evaluation


class Lm(Task):
    """Predict the next token of running text, or tokens that were masked."""

    def __init__(self, config: Config, workspace: Workspace):
        dataset = read_kind(config, "text", workspace)
        self.config, self.model = config, config.model
        assert isinstance(self.model, TextModel)
        self.tokenizer = self.vocabulary = trained_tokenizer(config, workspace, dataset.train)
        self.train = _tokens(dataset.train, self, workspace, "train")
        self.held_out = _tokens(dataset.validation, self, workspace, "validation")
        self.characters = sum(len(block) for block in dataset.validation)
        self.meta = ModelMeta(Sizes(vocabulary=len(self.vocabulary), pad=self.vocabulary.pad))

    def cursor(self) -> Windows:
        """Windows in a new order, from another first token, in each epoch."""
        rows = max(1, self.config.data.batch_tokens // self.model.length)
        return Windows(self.train, length=self.model.length, batch=rows, seed=self.config.train.seed)

    def batch(self, examples: Examples) -> Batch:
        """ids (B, T) and, one place on or masked, targets (B, T)."""
        return self._tensors(torch.from_numpy(examples))

    def loss(self, model: Any, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """All positions at once; of masked text those that are hidden."""
        ids, targets = batch["ids"], batch["targets"]
        if self.model.objective == "next":
            return token_loss(model(ids), targets, pad=IGNORED, smoothing=smoothing)
        hidden = targets != IGNORED
        return token_loss(model(ids, hidden), targets[hidden], pad=IGNORED, smoothing=smoothing)

    def own_words(self, model: Any, batch: Batch, share: float) -> Batch:
        """Some of the tokens before each one are what the model itself would have written there."""
        if self.model.objective == "masked":
            return super().own_words(model, batch, share)
        with torch.no_grad():
            said = model(batch["ids"]).argmax(-1)
        return {**batch, "ids": mix_targets(batch["ids"], said, share, pad=IGNORED)}

    def validation(self) -> Iterator[Batch]:
        """The whole validation text, window after window; every token but the first is predicted once."""
        length, count = self.model.length, len(self.held_out)
        rows = max(1, self.config.data.batch_tokens // length)
        starts = np.arange(0, count - 1, length)
        whole = starts[starts + length < count]
        for first in range(0, len(whole), rows):
            yield self._tensors(torch.from_numpy(self.held_out.read(whole[first : first + rows], length + 1)))
        if len(whole) < len(starts):
            last = starts[-1:]
            yield self._tensors(torch.from_numpy(self.held_out.read(last, count - int(last[0]))))

    def evaluate(self, model: Any, device: torch.device) -> Evaluation:
        """The loss, and what it says about tokens and characters."""
        found = super().evaluate(model, device)
        scores = (perplexity(found.loss), bits_per_character(found.loss, len(self.held_out) - 1, self.characters))
        return Evaluation(found.loss, scores if self.model.objective == "next" else scores[:1], found.sample)

    def scores(self, model: Any) -> tuple[tuple[Score, ...], str]:
        """A sample that goes on from the first words of the validation text."""
        if self.model.objective == "masked":
            return (), ""
        prompt = self.held_out.read(np.array([0]), min(16, len(self.held_out)))[0].tolist()
        settings = Settings(max_tokens=max(0, min(SAMPLE, self.model.length - len(prompt))), temperature=0.8, seed=1)
        [[written]] = generate(model, model.start(), Prompts([prompt], device=device_of(model)), settings)
        return (), self.vocabulary.decode(prompt + written.ids)

    def example(self) -> Example:
        """The first tokens of the validation text."""
        ids = next(self.validation())["ids"][:1, :LONGEST]
        words = self.vocabulary.pieces(ids[0])
        return Example((ids,), decoder=words) if self.model.objective == "next" else Example((ids,), encoder=words)

    def _tensors(self, rows: Tensor) -> Batch:
        """(B, T + 1) -> ids and targets."""
        if self.model.objective == "next":
            return {"ids": rows[:, :-1], "targets": rows[:, 1:]}
        # The masks follow from the tokens themselves, so that they are the same after a resume.
        generator = torch.Generator().manual_seed(int(rows.sum()) + self.config.train.seed)
        special = [self.vocabulary.pad, self.vocabulary.start, self.vocabulary.stop, self.vocabulary.cls]
        ids, targets = mask_tokens(
            rows[:, :-1], self.vocabulary.mask, len(self.vocabulary), generator=generator, special_ids=special
        )
        return {"ids": ids, "targets": targets}


def _tokens(blocks: Any, task: Lm, workspace: Workspace, part: str) -> TokenFile:
    """The token file of a part, written once for a run."""
    path = workspace.folder / f"{part}.npy"
    return TokenFile.open(path) if path.exists() else write_tokens(blocks, task.vocabulary, path)

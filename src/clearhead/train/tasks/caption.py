"""Captions: a sentence about an image.

B captions, C channels, T tokens
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from clearhead.config import Config
from clearhead.data import Captioned
from clearhead.data.collate import pad
from clearhead.decode import Prompts, Settings, generate
from clearhead.run import ModelMeta
from clearhead.train.metrics import Score, caption_bleu
from clearhead.train.pixels import Pixels, expected, load_pixels, normalised, sizes_of
from clearhead.train.task import Batch, Workspace
from clearhead.train.tasks.common import device_of, read_kind, trained_tokenizer
from clearhead.train.tasks.writing import WritingTask
from clearhead.train.watch import LONGEST, Example, patch_names


@dataclass(frozen=True)
class Part:
    """Images, and all their captions as ids; `image` says which image each caption is about."""

    images: Pixels  # (N, height, width, C)
    captions: list[list[int]]
    image: np.ndarray[Any, Any]  # one for each caption


class Caption(WritingTask):
    """Describe an image; every caption of an image is an example of its own."""

    scored = 500  # images that are described at each evaluation

    def __init__(self, config: Config, workspace: Workspace):
        dataset = read_kind(config, "captions", workspace)
        train: list[Captioned] = list(dataset.train)
        self.described: list[Captioned] = list(dataset.validation)
        texts = (caption for each in train for caption in each.captions)
        self.config = config
        self.tokenizer = self.vocabulary = trained_tokenizer(config, workspace, texts)
        self.train = self._part(train, like=expected(workspace.meta))
        self.held_out = self._part(self.described, like=self.train.images)
        sizes = sizes_of(self.train.images, vocabulary=len(self.vocabulary), pad=self.vocabulary.pad)
        self.meta = ModelMeta(sizes)

    def scores(self, model: Any) -> tuple[tuple[Score, ...], str]:
        """BLEU against all captions of an image, by greedy search."""
        written = self.describe(model, self.held_out.images[: self.scored])
        references = [list(each.captions) for each in self.described[: self.scored]]
        return (caption_bleu(written, references),), written[0]

    def describe(self, model: Any, images: Pixels, rows: int = 64) -> list[str]:
        """Greedy captions, in the order of the images."""
        device, vocabulary, written = device_of(model), self.vocabulary, []
        settings = Settings(max_tokens=self.config.data.max_length)
        for first in range(0, len(images), rows):
            seen = normalised(images[first : first + rows]).to(device)
            prompts = Prompts([[vocabulary.start]] * len(seen), vocabulary.stop, device=device)
            written += generate(model, model.start(seen), prompts, settings)
        return vocabulary.decode_batch([hypotheses[0].ids for hypotheses in written])

    def example(self) -> Example:
        """The first held-out caption and its image."""
        batch, words = self.tensors(self.held_out, [0]), self.vocabulary.pieces
        images, target = batch["source"], batch["target"][:, : LONGEST + 1]
        read, written = target[:, :-1], words(target[0, 1:])
        patches = patch_names(images, self.config.model.patch)
        if self.config.model.architecture == "sequence":
            return Example((images, read), decoder=[*patches, *words(read[0])])
        return Example((images, read), encoder=["class", *patches], decoder=words(read[0]), written=written)

    def _part(self, examples: Sequence[Captioned], like: Pixels | None) -> Part:
        """Load the images and encode the captions."""
        images = load_pixels([each.image for each in examples], like)
        texts = [(number, caption) for number, each in enumerate(examples) for caption in each.captions]
        ids = self.vocabulary.encode_batch([caption for _, caption in texts])
        room = self.config.data.max_length - 1
        return Part(images, [each[:room] for each in ids], np.array([number for number, _ in texts]))

    def lengths(self, part: Part) -> list[int]:
        """Patches and tokens, with the start or the stop."""
        patch = self.config.model.patch
        patches = (part.images.shape[1] // patch) * (part.images.shape[2] // patch)
        return [patches + len(ids) + 1 for ids in part.captions]

    def tensors(self, part: Part, indices: list[int]) -> Batch:
        """source (B, C, height, width) and target (B, 1 + T + 1) between start and stop."""
        vocabulary = self.vocabulary
        target = pad([part.captions[i] for i in indices], vocabulary.pad, vocabulary.start, vocabulary.stop)
        return {"source": normalised(part.images[part.image[indices]]), "target": torch.from_numpy(target)}

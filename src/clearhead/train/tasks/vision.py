"""Classification of images.

B images, C channels
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.config import Config
from clearhead.data import Picture
from clearhead.data.batches import Batches
from clearhead.run import ModelMeta
from clearhead.train.losses import class_loss
from clearhead.train.pixels import Pixels, expected, load_pixels, moved, normalised, sizes_of
from clearhead.train.task import Batch, Examples, Workspace
from clearhead.train.tasks.common import LabelTask, device_of, known_labels, numbered, read_kind
from clearhead.train.watch import Example, patch_names


class Vision(LabelTask):
    """Choose one of a few labels for an image."""

    def __init__(self, config: Config, workspace: Workspace):
        dataset = read_kind(config, "images", workspace)
        train: list[Picture] = list(dataset.train)
        held_out: list[Picture] = list(dataset.validation)
        self.config = config
        self.images = load_pixels([each.image for each in train], like=expected(workspace.meta))
        self.held_out_images = load_pixels([each.image for each in held_out], like=self.images)
        labels = known_labels((each.label for each in train), workspace, config.data.path)
        self.labels = numbered((each.label for each in train), labels, config.data.path)
        self.held_out_labels = numbered((each.label for each in held_out), labels, config.data.path)
        self.meta = ModelMeta(sizes_of(self.images, classes=len(labels)), labels)

    def cursor(self) -> Batches:
        """As many images as their patches fit the token budget."""
        patches = (self.images.shape[1] // self.config.model.patch) * (self.images.shape[2] // self.config.model.patch)
        lengths = np.full(len(self.images), 1 + patches)
        return Batches(lengths, budget=self.config.data.batch_tokens, seed=self.config.train.seed)

    def batch(self, examples: Examples) -> Batch:
        """images (B, C, height, width), moved a little where that is asked for, and labels (B,)."""
        batch = _tensors(self.images, self.labels, examples)
        amount = self.config.data.augment
        return {**batch, "images": moved(batch["images"], amount)} if amount else batch

    def loss(self, model: Any, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """One loss for each image."""
        return class_loss(model(batch["images"]), batch["labels"], smoothing=smoothing)

    def validation(self) -> Iterator[Batch]:
        """The held-out images in their order."""
        for first in range(0, len(self.held_out_images), 256):
            indices = np.arange(first, min(first + 256, len(self.held_out_images)))
            yield _tensors(self.held_out_images, self.held_out_labels, indices)

    def answers(self, model: Any) -> Iterator[tuple[Tensor, Tensor]]:
        """One label for each image."""
        for batch in self.validation():
            yield model(batch["images"].to(device_of(model))).argmax(-1), batch["labels"]

    def example(self) -> Example:
        """The first held-out image."""
        image = normalised(self.held_out_images[:1])
        return Example((image,), encoder=["class", *patch_names(image, self.config.model.patch)])


def _tensors(images: Pixels, labels: Any, indices: Any) -> Batch:
    return {"images": normalised(images[indices]), "labels": torch.from_numpy(labels[indices])}

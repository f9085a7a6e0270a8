"""Classification of images; and the image classifier.

B images, C channels
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.config import Config
from clearhead.data import Picture
from clearhead.data.batches import Batches
from clearhead.data.examples import AnyDataset
from clearhead.look.inputs import PreparedInput, patch_names
from clearhead.models.config import PooledPatchConfig, PoolName
from clearhead.models.vision import VisionTransformer
from clearhead.run import ModelMeta, Sizes
from clearhead.tasks.base.images import (
    ImagePredictor,
    Images,
    ImageT,
    check_patches,
    expected,
    image_facts,
    load_images,
    normalise,
    scaled_size,
    scaling_note,
    scaling_of,
    sizes_of,
)
from clearhead.tasks.base.labels import Classification, LabelTask, classifications, known_labels, numbered
from clearhead.tasks.base.losses import class_loss, label_loss
from clearhead.tasks.base.predictor import BATCH, Vectors
from clearhead.tasks.base.recipe import MUON, Budget, DataFacts, Recipe, shape
from clearhead.tasks.base.task import Batch, Examples, Workspace, device_of, read_dataset

if TYPE_CHECKING:
    from clearhead.data.images import ImageLike

# How far `augment` goes with amount 1.
TURN = 0.5  # radians
GROW = 0.3  # of the size; the same for shear
SHIFT = 0.3  # of half the image


class VisionModel(PooledPatchConfig):
    """A classifier of images."""

    pool: PoolName = Field("class", description="which vector speaks for the image")
    several: bool = Field(False, description="each label has a probability of its own: an image may have several")


class Vision(LabelTask[VisionModel]):
    """Choose one of a few labels for an image."""

    name = "vision"
    title = "A classifier of images"
    data_kind = "images"
    model_type = VisionModel
    rank = 4
    defaults = {"model": {"positions": "learned", "feed_forward": "gelu"}}
    unit = "examples"
    metric, score_names = "accuracy", ("accuracy", "macro F1")
    takes_word_vectors = False

    @classmethod
    def build(cls, model: VisionModel, sizes: Sizes) -> nn.Module:
        check_patches(model.patch, sizes)
        return VisionTransformer(model, sizes.channels, sizes.height, sizes.width, sizes.classes)

    @classmethod
    def facts(cls, dataset: AnyDataset) -> DataFacts:
        return image_facts(dataset)

    @classmethod
    def default_minutes(cls, facts: DataFacts) -> float:
        return min(60.0, max(2.0, round(facts.examples / 2000)))

    @classmethod
    def recipe(cls, facts: DataFacts, budget: Budget) -> Recipe:  # noqa: ARG003
        """Residual patches, which learn from far fewer images than linear ones."""
        size, scaling = scaled_size(facts)
        patch = next((each for each in (4, 8, 7, 5, 6, 3, 2, 1) if size % each == 0 and size // each <= 10), 1)
        return {
            **MUON,
            **shape(128, 3),
            **scaling,
            "data.batch_tokens": 3200,
            "data.augment": 0.4,
            "model.patch": patch,
            "model.patches": "residual" if patch in (2, 4, 8) else "linear",
            "train.learning_rate": 0.003,
            "train.matrix_rate": 0.02,
            "train.weight_decay": 0.05,
            "train.label_smoothing": 0.1,
            "train.average": 0.99,
        }

    def __init__(self, config: Config[VisionModel], workspace: Workspace):
        dataset = read_dataset(config, "images", workspace)
        train: list[Picture] = list(dataset.train)
        held_out: list[Picture] = list(dataset.validation)
        self.config = config
        files = [each.image for each in train]
        workspace.on_phase("loading the images")
        how: dict[str, Any] = {"counted": workspace.counted, "scaling": scaling_of(config.data)}
        self.images = load_images(files, like=expected(workspace.meta), size=config.data.image_size, **how)
        self.notes = scaling_note(files, self.images)
        self.held_out_images = load_images([each.image for each in held_out], self.images, **how)
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
        """images (B, C, height, width), changed by `data.mirror`, `shift` and `augment`, and labels (B,)."""
        batch, data = _tensors(self.images, self.labels, examples), self.config.data
        images = batch["images"]
        if data.mirror:
            images = torch.where(torch.rand(len(images), 1, 1, 1) < 0.5, images.flip(-1), images)
        if data.shift:
            images = shifted(images, data.shift)
        return {**batch, "images": augment(images, data.augment) if data.augment else images}

    def loss(self, model: Any, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        loss = label_loss if self.config.model.several else class_loss
        return loss(model(batch["images"]), batch["labels"], smoothing=smoothing)

    def validation(self) -> Iterator[Batch]:
        for first in self.share.mine(range(0, len(self.held_out_images), 256)):
            indices = np.arange(first, min(first + 256, len(self.held_out_images)))
            yield _tensors(self.held_out_images, self.held_out_labels, indices)

    def predicted_and_right(self, model: Any) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self.validation():
            yield model(batch["images"].to(device_of(model))).argmax(-1), batch["labels"]

    def example(self) -> PreparedInput:
        """The first held-out image."""
        image = normalise(self.held_out_images[:1])
        return PreparedInput((image,), encoder=token_names(image, self.config.model))


def token_names(images: Tensor, model: VisionModel) -> list[str]:
    """The class token, any extra ones, and the patches."""
    extra = [f"extra {number}" for number in range(1, model.extra_tokens + 1)]
    return ["class", *extra, *patch_names(images, model.patch)]


def _tensors(images: Images, labels: Any, indices: Any) -> Batch:
    return {"images": normalise(images[indices]), "labels": torch.from_numpy(labels[indices])}


def shifted(images: Tensor, most: int) -> Tensor:
    """(B, C, height, width), each image moved by up to `most` whole pixels; what comes in repeats the border."""
    count, _, height, width = images.shape
    down, right = torch.randint(-most, most + 1, (2, count, 1))
    rows = (torch.arange(height) + down).clamp(0, height - 1)  # (B, height)
    columns = (torch.arange(width) + right).clamp(0, width - 1)  # (B, width)
    pixels = images.permute(0, 2, 3, 1)[torch.arange(count)[:, None, None], rows[:, :, None], columns[:, None]]
    return pixels.permute(0, 3, 1, 2)


def augment(images: Tensor, amount: float) -> Tensor:
    """(B, C, height, width), each image rotated, scaled, sheared and shifted a little at random."""
    turn, shear, wide, high, right, down = torch.empty(6, len(images)).uniform_(-amount, amount)
    cos, sin = torch.cos(TURN * turn), torch.sin(TURN * turn)
    wide, high = 1 + GROW * wide, 1 + GROW * high
    across = torch.stack([wide * cos, -wide * sin + GROW * shear, SHIFT * right], -1)  # (B, 3)
    along = torch.stack([high * sin, high * cos, SHIFT * down], -1)
    grid = F.affine_grid(torch.stack([across, along], 1), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


class ImageClassifier(ImagePredictor, task=Vision):
    """Chooses a label for an image."""

    config: Config[VisionModel]
    verb = "classify"

    @overload
    def classify(self, item: list[ImageT]) -> list[Classification]: ...
    @overload
    def classify(self, item: ImageLike) -> Classification: ...
    @torch.inference_mode()
    def classify(self, item: ImageLike | list[ImageT]) -> Classification | list[Classification]:
        """The label of an image, with the probability of each; a list gives a list."""
        images = self.image_arrays(item if isinstance(item, list) else [item])
        found: list[Classification] = []
        for first in range(0, len(images), BATCH):
            logits = self.network(normalise(images[first : first + BATCH]))
            probabilities = logits.sigmoid() if self.config.model.several else logits.softmax(-1)
            found += classifications(probabilities, self.meta.labels)
        return found if isinstance(item, list) else found[0]

    def prepare(self, item: ImageLike) -> PreparedInput:
        prepared = self.prepare_image(item)
        names = token_names(prepared.sources[0], self.config.model)
        return replace(prepared, encoder=names, choices=self.choices, class_token=True)

    def predict_batch(self, items: list[Any]) -> list[dict[str, Any]]:
        return [{"label": each.label, "probabilities": each.probabilities} for each in self.classify(items)]

    def answer(self, item: ImageLike, max_tokens: int | None = None) -> str:
        return self.classify([item])[0].label

    def token_vectors(self, inputs: Tensor) -> Tensor:
        vectors: Tensor = self.network.encoder(inputs)  # type: ignore[operator]
        return vectors

    def embed(self, item: ImageLike | list[Any]) -> Vectors:
        """One vector (D,) for an image: the mean over its patches. A list of N gives (N, D)."""
        if isinstance(item, list | tuple):
            return self._mean_vectors([normalise(self.pixels(each)[None])] for each in item)
        vector: Vectors = self.embed([item])[0]
        return vector

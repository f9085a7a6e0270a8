"""Captions: a sentence about an image; and the captioner.

B captions, C channels, T tokens
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import torch
from pydantic import Field
from torch import nn

from clearhead.config import Config
from clearhead.data import Captioned
from clearhead.data.batches import pad
from clearhead.data.examples import AnyDataset
from clearhead.data.images import Counted
from clearhead.decode import Prompts, Settings, generate
from clearhead.look.inputs import MAX_LOGGED, PreparedInput, patch_names
from clearhead.models.config import RecurrentPatchConfig
from clearhead.models.rnn import RnnCaptioner
from clearhead.models.vision import CrossCaptioner, SequenceCaptioner
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
    sizes_of,
)
from clearhead.tasks.base.metrics import Score, caption_bleu, cider
from clearhead.tasks.base.predictor import BATCH, GeneratingPredictor
from clearhead.tasks.base.recipe import MUON, Budget, DataFacts, Recipe, shape
from clearhead.tasks.base.task import Batch, Workspace, device_of, read_dataset, train_tokenizer
from clearhead.tasks.base.text import SourceToTextTask
from clearhead.text import Tokenizer

if TYPE_CHECKING:
    from clearhead.data.images import ImageLike

LONGEST = 1000  # tokens of a caption, whatever the configuration of a model says


class CaptionModel(RecurrentPatchConfig):
    """A model that describes an image."""

    architecture: Literal["cross", "sequence", "rnn"] = Field(
        "cross", description="a decoder that looks at patches, patches and text as one sequence, or image + rnn"
    )
    patch: int = Field(8, ge=1, description="side of a square patch, in pixels")


@dataclass(frozen=True)
class CaptionPart:
    """Images, and all their captions as ids; `image` says which image each caption is about."""

    images: Images  # (N, height, width, C)
    captions: list[list[int]]
    image: np.ndarray[Any, Any]  # one for each caption


class Caption(SourceToTextTask[CaptionModel, CaptionPart]):
    """Describe an image; every caption of an image is an example of its own."""

    name = "caption"
    title = "A writer of captions"
    data_kind = "captions"
    model_type = CaptionModel
    rank = 5
    defaults = {"model": {"positions": "learned", "feed_forward": "gelu"}, "tokenizer": {"kind": "word"}}
    max_scored = 500  # images described at each evaluation
    metric, score_names = "BLEU", ("BLEU", "CIDEr")

    @classmethod
    def build(cls, model: CaptionModel, sizes: Sizes) -> nn.Module:
        check_patches(model.patch, sizes)
        image = (sizes.channels, sizes.height, sizes.width)
        match model.architecture:
            case "cross":
                return CrossCaptioner(model, sizes.vocabulary, *image, sizes.pad)
            case "sequence":
                return SequenceCaptioner(model, sizes.vocabulary, sizes.channels, sizes.pad)
            case "rnn":
                return RnnCaptioner(model, sizes.vocabulary, *image, sizes.pad)

    @classmethod
    def facts(cls, dataset: AnyDataset) -> DataFacts:
        return image_facts(dataset)

    @classmethod
    def default_minutes(cls, facts: DataFacts) -> float:
        return min(60.0, max(3.0, round(facts.examples / 500)))

    @classmethod
    def recipe(cls, facts: DataFacts, budget: Budget) -> Recipe:  # noqa: ARG003
        size, scaling = scaled_size(facts)
        return {
            **MUON,
            **shape(128, 2),
            **scaling,
            "data.batch_tokens": 4096,
            "model.patch": 8 if size % 8 == 0 else 4 if size % 4 == 0 else 1,
            "train.learning_rate": 0.004,
        }

    def __init__(self, config: Config[CaptionModel], workspace: Workspace):
        dataset = read_dataset(config, "captions", workspace)
        train: list[Captioned] = list(dataset.train)
        self.described: list[Captioned] = list(dataset.validation)
        texts = (caption for each in train for caption in each.captions)
        self.config = config
        self.tokenizer = train_tokenizer(config, workspace, texts)
        workspace.on_phase("loading the images")
        self.train = self._part(train, expected(workspace.meta), workspace.counted)
        self.notes = scaling_note([each.image for each in train], self.train.images)
        self.held_out = self._part(self.described, self.train.images, workspace.counted)
        self.meta = ModelMeta(sizes_of(self.train.images, vocabulary=len(self.tokenizer), pad=self.tokenizer.pad))

    def _part(self, examples: Sequence[Captioned], like: Images | None, counted: Counted) -> CaptionPart:
        """Load the images and tokenize the captions."""
        images = load_images([each.image for each in examples], like, self.config.data.image_size, counted)
        texts = [(number, caption) for number, each in enumerate(examples) for caption in each.captions]
        ids = self.tokenizer.encode_batch([caption for _, caption in texts])
        room = self.config.data.max_length - 1
        return CaptionPart(images, [each[:room] for each in ids], np.array([number for number, _ in texts]))

    def lengths(self, part: CaptionPart) -> list[int]:
        """Patches and tokens, with the start or the stop."""
        patch = self.config.model.patch
        patches = (part.images.shape[1] // patch) * (part.images.shape[2] // patch)
        return [patches + len(ids) + 1 for ids in part.captions]

    def tensors(self, part: CaptionPart, indices: list[int]) -> Batch:
        """source (B, C, height, width) and target (B, 1 + T + 1) between start and stop."""
        tokenizer = self.tokenizer
        target = pad([part.captions[i] for i in indices], tokenizer.pad, tokenizer.start, tokenizer.stop)
        return {"source": normalise(part.images[part.image[indices]]), "target": torch.from_numpy(target)}

    def scores(self, model: Any) -> tuple[tuple[Score, ...], str]:
        """BLEU and CIDEr against all captions of an image, by greedy search."""
        images = self.held_out.images[: self.max_scored]
        mine = images[self.share.rank :: self.share.world_size]
        settings = Settings(max_tokens=self.config.data.max_length)
        written = self.share.merge(describe(model, mine, self.tokenizer, settings))
        references = [list(each.captions) for each in self.described[: self.max_scored]]
        return (caption_bleu(written, references), cider(written, references)), written[0]

    def full_evaluation_cost(self) -> float:
        count = len(self.described)
        return count / min(self.max_scored or count, count)

    def example(self) -> PreparedInput:
        """The first held-out caption and its image."""
        batch, strings = self.tensors(self.held_out, [0]), self.tokenizer.pieces
        images, target = batch["source"], batch["target"][0, : MAX_LOGGED + 1].tolist()
        read, written = target[:-1], target[1:]
        patches = patch_names(images, self.config.model.patch)
        prepared = PreparedInput((images,), tuple(read), decoder=strings(read), output=strings(written))
        if self.config.model.architecture == "sequence":
            return replace(prepared, decoder=[*patches, *prepared.decoder])
        return replace(prepared, encoder=["class", *patches])


def describe(model: Any, images: Images, tokenizer: Tokenizer, settings: Settings, rows: int = BATCH) -> list[str]:
    """The captions that a network generates, in the order of the images."""
    device, written = device_of(model), []
    for first in range(0, len(images), rows):
        sources = normalise(images[first : first + rows]).to(device)
        prompts = Prompts([[tokenizer.start]] * len(sources), tokenizer.stop, device=device)
        with torch.inference_mode():
            state = model.start(sources)
        written += generate(model, state, prompts, settings)
    return tokenizer.decode_batch([hypotheses[0].ids for hypotheses in written])


class Captioner(ImagePredictor, GeneratingPredictor, task=Caption):
    """Writes a sentence about an image."""

    config: Config[CaptionModel]
    verb = "caption"

    @overload
    def caption(self, image: list[ImageT]) -> list[str]: ...
    @overload
    def caption(self, image: ImageLike) -> str: ...
    def caption(self, image: ImageLike | list[ImageT]) -> str | list[str]:
        """A sentence about an image; a list gives a list."""
        images = self.image_arrays(image if isinstance(image, list) else [image])
        settings = Settings(max_tokens=min(self.config.data.max_length, LONGEST))
        written = describe(self.network, images, self.tokenizer, settings)
        return written if isinstance(image, list) else written[0]

    def prepare(self, item: ImageLike) -> PreparedInput:
        """An image: read by an encoder, or as the first tokens of the text."""
        prepared = self.prepare_image(item)
        patches = patch_names(prepared.sources[0], self.config.model.patch)
        one_sequence = self.config.model.architecture == "sequence"
        start = self.tokenizer.start
        return replace(
            prepared,
            prompt=(start,),
            encoder=() if one_sequence else ["class", *patches],
            decoder=[*(patches if one_sequence else ()), *self.token_strings([start])],
            stop=self.tokenizer.stop,
            max_tokens=min(self.config.data.max_length, LONGEST),
            choices=self.choices,
            class_token=not one_sequence,
        )

    def predict_batch(self, items: list[Any]) -> list[dict[str, Any]]:
        return [{"caption": text} for text in self.caption(items)]

    def answer(self, item: ImageLike, max_tokens: int | None = None) -> str:
        return self.caption([item])[0]

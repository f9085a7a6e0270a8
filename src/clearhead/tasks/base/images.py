"""What tasks share that read images.

N images, C channels
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead.config import DataConfig
from clearhead.data import images
from clearhead.data.examples import AnyDataset, Pixels
from clearhead.errors import ConfigError
from clearhead.look.inputs import PreparedInput
from clearhead.run import ModelMeta, Sizes
from clearhead.tasks.base.predictor import Predictor
from clearhead.tasks.base.recipe import DataFacts, Recipe

if TYPE_CHECKING:
    from clearhead.data.images import ImageLike

Images = NDArray[np.uint8]  # (N, height, width, C)
ImageT = TypeVar("ImageT", bound="ImageLike")  # a list of any one kind of image


class ImagePredictor(Predictor):
    """A model that reads images."""

    reads: ClassVar[Literal["text", "image", "words"]] = "image"
    usage = "image.png"

    def pixels(self, image: ImageLike) -> Pixels:
        """An image (Pillow image, pixels, bytes or path) in the size that the model reads: (height, width, C) bytes."""
        sizes = self.meta.sizes
        size = (sizes.height, sizes.width)
        return images.pixels(image, size=size, channels=sizes.channels, scaling=scaling_of(self.config.data))

    def image_arrays(self, items: Sequence[ImageLike]) -> Images:
        """(N, height, width, C) of images in any form."""
        sizes = self.meta.sizes
        empty = np.empty((0, sizes.height, sizes.width, sizes.channels), np.uint8)
        return np.stack([self.pixels(item) for item in items]) if items else empty

    def prepare_image(self, image: ImageLike) -> PreparedInput:
        """An image as the network reads it."""
        array = self.pixels(image)
        patch = self.config.model.patch
        return PreparedInput(
            (normalise(array[None]),),
            text=Path(image).name if isinstance(image, str | Path) else "image",
            image=torch.from_numpy(array.copy()),
            grid=(array.shape[0] // patch, array.shape[1] // patch),
        )


def normalise(pixels: Images) -> Tensor:
    """(B, height, width, C) bytes -> (B, C, height, width) between -1 and 1."""
    return torch.from_numpy(images.normalize(pixels))


def scaling_of(data: DataConfig) -> images.Scaling:
    """How the images of a model come to its size."""
    return images.Scaling(data.image_fit, data.image_edge, data.image_filter)


def load_images(
    files: Sequence[Any | Path],
    like: Images | None = None,
    size: int | None = None,
    counted: images.Counted = images.uncounted,
    scaling: images.Scaling | None = None,
) -> Images:
    """All images in one array, of the shape of those in `like`, or of squares of `size`, or of their common shape."""
    shape = images.common_shape(files, size) if like is None else like.shape[1:]
    return images.load_pixels(files, shape, counted, scaling)


def image_facts(dataset: AnyDataset) -> DataFacts:
    """How many images there are, and their size if it is one."""
    examples = list(dataset.train)
    return DataFacts(len(examples), "images", image_size=common_size(each.image for each in examples))


def scaled_size(facts: DataFacts) -> tuple[int, Recipe]:
    """The side of the images that a model reads, and the setting that scales them to it."""
    size = facts.image_size if 0 < facts.image_size <= images.MAX_SIZE else images.MAX_SIZE
    return size, {"data.image_size": None if size == facts.image_size else size}


def common_size(files: Iterable[Any | Path]) -> int:
    """The side of square images that are all of one size; 0 for others."""
    sizes = {images.image_shape(file)[:2] for file in files}
    height, width = next(iter(sizes), (0, 0))
    return height if len(sizes) == 1 and height == width else 0


def scaling_note(files: Sequence[Any | Path], loaded: Images) -> tuple[str, ...]:
    """A sentence about images that were not of the shape in which the model reads them."""
    height, width, _ = loaded.shape[1:]
    shapes = Counter(images.image_shape(file)[:2] for file in files)
    if set(shapes) == {(height, width)}:
        return ()
    (most, _), *others = shapes.most_common()
    several = f"of {len(shapes)} sizes" if others else f"of {most[0]} × {most[1]} pixels"
    return (f"images {several} are cut to their centre and scaled to {height} × {width} (data.image_size)",)


def expected(meta: ModelMeta | None) -> Images | None:
    """An empty array of the size that a finished model reads; None for a new one."""
    if meta is None:
        return None
    return np.empty((0, meta.sizes.height, meta.sizes.width, meta.sizes.channels), np.uint8)


def sizes_of(pixels: Images, **others: int) -> Sizes:
    """The sizes of a model that reads these images."""
    _, height, width, channels = pixels.shape
    return Sizes(channels=channels, height=height, width=width, **others)


def check_patches(patch: int, sizes: Sizes) -> None:
    """Refuse patches that do not cover the image."""
    if sizes.height % patch or sizes.width % patch:
        raise ConfigError(
            f"patch={patch} does not divide images of {sizes.height} × {sizes.width}; choose another model.patch"
        )

"""Images as arrays: decoding and resizing with Pillow, IDX and npz files, and the floats that a model reads.

    pixels("cat.jpg", size=32, channels=3)      (32, 32, 3) bytes; also takes bytes, arrays, Pillow images, open files
    load_pixels(images)                         (N, height, width, C) bytes, all of one size
    normalize(batch)                            (B, C, height, width) float32 between -1 and 1

Only those who have image files need Pillow: pip install 'clearhead[vision]'.
"""

from __future__ import annotations

import hashlib
import io
import math
import struct
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from clearhead.data.archives import BROKEN
from clearhead.data.examples import Pixels
from clearhead.data.files import BLOCK, bare_name, files_in, opened
from clearhead.errors import DataError, nearest

if TYPE_CHECKING:
    from PIL.Image import Image

    ImageLike = Pixels | NDArray[Any] | Image | Path | str | bytes | IO[bytes]

Counted = Callable[[Sequence[Any], int], Iterable[Any]]  # passes images through, and sees how many of how many

MAX_PIXELS = 64_000_000  # more is a decompression bomb, or not meant for a small model

MAX_SIZE = 64  # the side that images of several sizes are scaled to, at most

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_GREY = frozenset({"1", "L", "LA", "La", "I", "F", "I;16", "I;16B", "I;16L", "I;16N"})
_ORIENTATION = 0x0112  # the EXIF tag for how a camera was held
_HASHED = 1 << 16  # bytes of a file hashed at a time

# ---- One image


@dataclass(frozen=True)
class Scaling:
    """How an image comes to the size that a model reads."""

    fit: Literal["cut", "stretch"] = "cut"  # keep its proportions and cut, or make it a square
    edge: int | None = None  # its shorter side before the centre is cut out; none = no more is cut than must be
    filter: Literal["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"] = "bicubic"

    def apply(self, picture: Image, height: int, width: int) -> Image:
        """A picture of this size."""
        from PIL import Image, ImageOps

        method = Image.Resampling[self.filter.upper()]
        if self.fit == "cut" and self.edge is None:
            return ImageOps.fit(picture, (width, height), method)
        sides = (width, height) if self.edge is None else (self.edge, self.edge)
        if self.fit == "cut":
            shortest = min(picture.size)
            sides = (int(picture.width * sides[0] / shortest), int(picture.height * sides[0] / shortest))
        scaled = picture.resize(sides, method)
        left, top = (scaled.width - width) // 2, (scaled.height - height) // 2
        return scaled.crop((left, top, left + width, top + height))


def pixels(
    image: ImageLike,
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    scaling: Scaling | None = None,
) -> Pixels:
    """An image as (height, width, channels) bytes; `size`, a side or (height, width), cuts out and scales the centre.

    `image` is a path, the bytes of an image file, an open binary file, a Pillow image, or an array (height, width) or
    (height, width, channels). An array that fits is returned as it is.
    """
    size = (size, size) if isinstance(size, int) else size
    if isinstance(image, np.ndarray):
        image = image[:, :, None] if image.ndim == 2 else image
        if _fits(image, size, channels):
            return image
    with _opened_image(image) as picture:
        from PIL import ImageOps

        upright = ImageOps.exif_transpose(picture)
        upright = _eight_bits(upright).convert(_MODES[channels or _channels(upright)])
        if size is not None:
            upright = (scaling or Scaling()).apply(upright, *size)
        array: Pixels = np.array(upright, dtype=np.uint8)
    return array[:, :, None] if array.ndim == 2 else array


def image_shape(image: Pixels | Path) -> tuple[int, int, int]:
    """(height, width, channels) of an image; only the beginning of a file is read."""
    if isinstance(image, np.ndarray):
        height, width, channels = image.shape
        return height, width, channels
    with _opened_image(image) as picture:
        turned = picture.getexif().get(_ORIENTATION, 1) > 4  # by a quarter
        height, width = (picture.width, picture.height) if turned else (picture.height, picture.width)
        return height, width, _channels(picture)


def image_digest(image: Pixels | Path) -> bytes:
    """A hash of the content of an image; a file is read in pieces."""
    if isinstance(image, Path):
        with opened(image) as stream:
            digest = hashlib.blake2b()
            while piece := stream.read(_HASHED):
                digest.update(piece)
            return digest.digest()
    header = repr((image.shape, str(image.dtype))).encode()
    return hashlib.blake2b(header + np.ascontiguousarray(image).tobytes()).digest()


# ---- Images of one size


def common_shape(images: Sequence[Pixels | Path], size: int | None = None) -> tuple[int, int, int]:
    """(height, width, channels) that images are brought to: their own if all have one shape and no `size` is given.

    Otherwise a square: of `size`, else of the median of their shorter sides, rounded down to a multiple of 8, but at
    most 64. Grey images among coloured ones become coloured.
    """
    shapes = Counter(image_shape(image) for image in images)
    channels = max(shape[2] for shape in shapes)
    if size is None and len(shapes) == 1:
        return next(iter(shapes))
    if size is None:
        sides = sorted(min(shape[:2]) for shape in shapes.elements())
        size = max(8, min(MAX_SIZE, sides[len(sides) // 2] // 8 * 8))
    return size, size, channels


def uncounted(images: Sequence[Any], total: int) -> Iterable[Any]:  # noqa: ARG001
    """The images as they are."""
    return images


def load_pixels(
    images: Sequence[Pixels | Path],
    shape: tuple[int, ...] | None = None,
    counted: Counted = uncounted,
    scaling: Scaling | None = None,
) -> Pixels:
    """All images in one array, (N, height, width, C), of the given (height, width, C) or of their common shape.

    An image of another shape is scaled: its centre is cut out in the proportions of the others. `counted` passes the
    images through, and sees how many were loaded.
    """
    height, width, channels = common_shape(images) if shape is None else shape
    array = np.empty((len(images), height, width, channels), np.uint8)
    for number, image in enumerate(counted(images, len(images))):
        array[number] = pixels(image, size=(height, width), channels=channels, scaling=scaling)
    return array


def normalize(images: Pixels) -> NDArray[np.float32]:
    """(B, height, width, C) bytes -> (B, C, height, width) float32 between -1 and 1, in the same memory layout."""
    floats = images.transpose(0, 3, 1, 2).astype(np.float32)
    floats /= np.float32(127.5)
    floats -= np.float32(1.0)
    return floats


# ---- Files of many images


def read_idx(path: Path) -> tuple[Pixels, list[str]]:
    """Images (N, H, W, 1) and labels from the two IDX files that belong together; `path` is either of them."""
    images, labels = map(_idx_array, [_idx_partner(path, "images"), _idx_partner(path, "labels")])
    if images.ndim != 3 or labels.ndim != 1:
        raise DataError(
            f"has {images.ndim} dimensions, and its labels have {labels.ndim}; 3 and 1 are expected", path=path
        )
    return _of_equal_length(images, [str(label) for label in labels], path)


def read_npz(path: Path) -> tuple[Pixels, list[str]]:
    """Images (N, H, W, C) and labels from the arrays `images`, `labels` and perhaps `names` of an npz file."""
    try:
        with opened(path) as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in ("images", "labels", "names") if name in file}
            known = list(file)
    except DataError:
        raise
    except (*BROKEN, MemoryError, TypeError):
        raise DataError("is not an npz file of plain arrays, or is damaged", path=path) from None
    for name in ("images", "labels"):
        if name not in arrays:
            raise DataError(f"has no array {name}; {nearest(name, known)}", path=path)
    images = arrays["images"]
    if images.dtype != np.uint8 or images.ndim not in (3, 4):
        found = f"{images.dtype} {images.shape}"
        raise DataError(f"has images of {found}; uint8 (N, H, W) or (N, H, W, C) is expected", path=path)
    return _of_equal_length(images, _label_names(arrays["labels"], arrays.get("names"), path), path)


def _idx_partner(path: Path, side: str) -> Path:
    """The images or the labels file of the pair that `path` belongs to."""
    wanted = bare_name(path)
    for images, labels in (("images", "labels"), ("idx3", "idx1")):
        wanted = wanted.replace(labels, images) if side == "images" else wanted.replace(images, labels)
    for entry in files_in(path.parent):
        if bare_name(entry) == wanted:
            return entry
    raise DataError(f"has no {wanted} beside it; IDX images and labels come as two files", path=path)


def _idx_array(path: Path) -> Pixels:
    """The array of an IDX file: two zeros, a type, the number of sizes, the sizes, then the bytes."""
    with opened(path) as stream:
        start = stream.read(4)
        if len(start) < 4 or start[:3] != b"\0\0\x08":
            raise DataError("is not an IDX file of bytes", path=path)
        sizes = stream.read(4 * start[3])
        if len(sizes) < 4 * start[3]:
            raise EOFError
        shape = struct.unpack(f">{start[3]}I", sizes)
        content = bytearray()
        while piece := stream.read(BLOCK):
            content += piece
            if len(content) > math.prod(shape):
                raise DataError(f"holds more bytes than its header says, {shape}", path=path)
        if len(content) < math.prod(shape):
            raise EOFError
    return np.frombuffer(content, np.uint8).reshape(shape)


def _label_names(labels: NDArray[Any], names: NDArray[Any] | None, path: Path) -> list[str]:
    """Labels as text, by their names if there are any."""
    values = labels.ravel().tolist()
    if names is None:
        return [value.decode() if isinstance(value, bytes) else str(value) for value in values]
    if not all(value in range(len(names)) for value in values):
        raise DataError(f"has a label that is not one of its {len(names)} names", path=path)
    return [str(names[value]) for value in values]


def _of_equal_length(images: Pixels, labels: list[str], path: Path) -> tuple[Pixels, list[str]]:
    if len(images) != len(labels):
        raise DataError(f"has {len(images):,} images and {len(labels):,} labels", path=path)
    return images.reshape(*images.shape[:3], -1), labels  # (N, H, W, C)


# ---- Pillow


@contextmanager
def _opened_image(image: ImageLike) -> Iterator[Image]:
    """A Pillow image; bytes that are no image, or far too large, are an error that names the file."""
    library = _pillow()
    if isinstance(image, np.ndarray):
        yield library.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
    elif isinstance(image, library.Image):
        yield image
    elif isinstance(image, str | Path):
        with opened(Path(image)) as file, _decoded(library, file, str(image)) as picture:
            yield picture
    else:
        stream: Any = io.BytesIO(image) if isinstance(image, bytes | bytearray | memoryview) else image
        with _decoded(library, stream, "image") as picture:
            yield picture


@contextmanager
def _decoded(library: Any, stream: IO[bytes], name: str) -> Iterator[Image]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", library.DecompressionBombWarning)
            picture = library.open(stream)
        if picture.width * picture.height > MAX_PIXELS:
            raise _too_large(name, f"{picture.width:,} × {picture.height:,} pixels")
        yield picture
    except DataError:
        raise
    except (library.DecompressionBombError, library.DecompressionBombWarning):
        raise _too_large(name, "far more pixels") from None
    except library.UnidentifiedImageError:
        raise DataError("is not an image", path=name) from None
    except (OSError, SyntaxError, ValueError, EOFError, struct.error) as problem:
        raise DataError(f"is a damaged image ({problem})", path=name) from None


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise DataError("pictures need Pillow: pip install 'clearhead[vision]'") from None
    return Image


def _too_large(name: str, found: str) -> DataError:
    return DataError(f"has {found}, over the limit of {MAX_PIXELS // 10**6} million; scale it down", path=name)


def _fits(image: Pixels, size: tuple[int, int] | None, channels: int | None) -> bool:
    return size in (None, image.shape[:2]) and channels in (None, image.shape[2])


def _channels(picture: Image) -> int:
    return 1 if picture.mode in _GREY else 3


def _eight_bits(picture: Image) -> Image:
    """Sixteen-bit grey values scaled to eight bits; Pillow's conversion would clip them to white."""
    if not picture.mode.startswith("I;16"):
        return picture
    return _pillow().fromarray((np.asarray(picture) >> 8).astype(np.uint8))  # type: ignore[no-any-return]

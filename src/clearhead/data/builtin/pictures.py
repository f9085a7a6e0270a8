"""The built-in pictures: geometric shapes on noisy backgrounds, drawn when they are needed.

images()     6,000 pictures of one of ten shapes, 28 × 28; the label is the shape
captioned()  4,000 pictures of one or two shapes, 32 × 32, with three captions each

The noise hardly compresses (17 MB as .xz), so the package carries the code that draws them, which takes a second.
Everything is a pure function of fixed seeds: the order of the random draws below is part of the data.

A shape is a signed distance in pixels, negative inside, and its edge is one pixel wide. Coordinates are (x to the
right, y down) from the centre of the shape: a shape is rotated and moved by transforming the pixels' coordinates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from clearhead.data.examples import Captioned, Picture, Pixels

Field = NDArray[np.float64]  # one number for each pixel, (height, width)
Colour = tuple[float, float, float]  # red, green, blue from 0 to 255
Distance = Callable[[Field, Field], Field]  # of a shape about 1 in size, at the origin

# ---- Shapes


@dataclass(frozen=True, slots=True)
class PlacedShape:
    """A shape with its colour and its place in the picture."""

    shape: str
    colour: Colour
    x: float
    y: float
    radius: float  # of the circle around the shape, in pixels
    rotation: float = 0.0  # radians


def _circle(x: Field, y: Field) -> Field:
    return np.hypot(x, y) - 0.9


def _ring(x: Field, y: Field) -> Field:
    return np.abs(np.hypot(x, y) - 0.72) - 0.2


def _moon(x: Field, y: Field) -> Field:
    crescent: Field = np.maximum(np.hypot(x, y) - 0.95, 0.72 - np.hypot(x - 0.5, y))
    return crescent


def _rectangle(x: Field, y: Field, half_width: float, half_height: float) -> Field:
    across, down = np.abs(x) - half_width, np.abs(y) - half_height
    distance: Field = np.hypot(np.maximum(across, 0), np.maximum(down, 0)) + np.minimum(np.maximum(across, down), 0)
    return distance


def _square(x: Field, y: Field) -> Field:
    return _rectangle(x, y, 0.72, 0.72)


def _bar(x: Field, y: Field) -> Field:
    return _rectangle(x, y, 1.0, 0.2)


def _cross(x: Field, y: Field) -> Field:
    both: Field = np.minimum(_rectangle(x, y, 0.95, 0.26), _rectangle(x, y, 0.26, 0.95))
    return both


def _heart(x: Field, y: Field) -> Field:
    """Two arcs that meet in a point below."""
    scale = 1.7
    x, up = np.abs(x) / scale, (0.95 - y) / scale
    arc = np.hypot(x - 0.25, up - 0.75) - np.sqrt(2) / 4
    half = np.maximum(x + up, 0) / 2
    side = np.minimum(np.hypot(x, up - 1), np.hypot(x - half, up - half)) * np.sign(x - up)
    distance: Field = np.where(x + up > 1, arc, side) * scale
    return distance


def _polygon(corners: NDArray[np.float64]) -> Distance:
    """The distance to a polygon with these corners, (corners, 2)."""
    ends = np.roll(corners, -1, axis=0)
    edges = ends - corners

    def distance(x: Field, y: Field) -> Field:
        from_x, from_y = x - corners[:, :1, None], y - corners[:, 1:, None]  # (corners, height, width)
        edge_x, edge_y = edges[:, :1, None], edges[:, 1:, None]
        along = np.clip((from_x * edge_x + from_y * edge_y) / (edge_x**2 + edge_y**2), 0, 1)
        nearest = np.hypot(from_x - along * edge_x, from_y - along * edge_y).min(axis=0)
        crosses = (from_y >= 0) != (from_y - edge_y >= 0)
        left = (edge_x * from_y - edge_y * from_x) * np.sign(edge_y) > 0
        inside = np.logical_xor.reduce(crosses & left, axis=0)
        signed: Field = np.where(inside, -nearest, nearest)
        return signed

    return distance


def _corners(radii: list[float]) -> NDArray[np.float64]:
    """Corners at equal angles, the first one at the top."""
    angles = 2 * np.pi * np.arange(len(radii)) / len(radii)
    corners: NDArray[np.float64] = np.stack([np.sin(angles), -np.cos(angles)], axis=1) * np.array(radii)[:, None]
    return corners


_ARROW = np.array([(0, -1), (0.75, -0.1), (0.28, -0.1), (0.28, 0.95), (-0.28, 0.95), (-0.28, -0.1), (-0.75, -0.1)])

SHAPES: dict[str, Distance] = {
    "circle": _circle,
    "square": _square,
    "triangle": _polygon(_corners([1.0, 1.0, 1.0])),
    "cross": _cross,
    "ring": _ring,
    "star": _polygon(_corners([1.0, 0.42] * 5)),
    "bar": _bar,
    "heart": _heart,
    "moon": _moon,
    "arrow": _polygon(_ARROW),
}

# ---- Drawing


@cache
def _pixel_centres(size: int) -> tuple[Field, Field]:
    middle = np.arange(size) + 0.5
    across, down = np.meshgrid(middle, middle)
    return across, down


def coverage(placed: PlacedShape, size: int) -> Field:
    """How much of each pixel the shape covers, from 0 to 1, (size, size)."""
    across, down = _pixel_centres(size)
    x, y = (across - placed.x) / placed.radius, (down - placed.y) / placed.radius
    cosine, sine = np.cos(placed.rotation), np.sin(placed.rotation)
    distance = SHAPES[placed.shape](x * cosine + y * sine, y * cosine - x * sine) * placed.radius
    covered: Field = np.clip(0.5 - distance, 0, 1)
    return covered


def draw(background: Field, shapes: list[PlacedShape]) -> Pixels:
    """Paint shapes one over the other on a background, (size, size, 3) from 0 to 255."""
    canvas = background
    for placed in shapes:
        covered = coverage(placed, len(background))[..., None]
        canvas = canvas * (1 - covered) + np.array(placed.colour) * covered
    pixels: Pixels = np.clip(canvas + 0.5, 0, 255).astype(np.uint8)
    return pixels


def make_background(random: np.random.Generator, colour: Colour, size: int, noise: float) -> Field:
    """One colour with a gradient of light across it and normal noise, (size, size, 3)."""
    across, down = _pixel_centres(size)
    angle = random.uniform(0, 2 * np.pi)
    gradient = (across * np.cos(angle) + down * np.sin(angle)) / size * random.uniform(0, 25)
    grain = random.normal(0, noise, (size, size, 3))
    lit: Field = np.array(colour) + gradient[..., None] - gradient.mean() + grain
    return lit


# ---- Pictures of one shape, with its name as the label

IMAGES = 6_000
IMAGE_SIZE = 28  # pixels on a side
IMAGE_SEED = 3
MIN_CONTRAST = 120.0  # distance between the colours of the shape and of the background


def images() -> tuple[Picture, ...]:
    """The labelled pictures; the classes take turns, so that any part of them is balanced."""
    random = np.random.default_rng(IMAGE_SEED)
    names = list(SHAPES)
    return tuple(_image(random, names[number % len(names)]) for number in range(IMAGES))


def _image(random: np.random.Generator, shape: str) -> Picture:
    """One shape of a random colour, size, place and rotation."""
    colour, ground = _contrasting_colours(random)
    radius = random.uniform(6.0, 11.5)
    x, y = random.uniform(radius, IMAGE_SIZE - radius, size=2)
    placed = PlacedShape(shape, colour, float(x), float(y), float(radius), float(random.uniform(0, 2 * np.pi)))
    return Picture(draw(make_background(random, ground, IMAGE_SIZE, random.uniform(2, 14)), [placed]), shape)


def _contrasting_colours(random: np.random.Generator) -> tuple[Colour, Colour]:
    while True:
        first, second = random.uniform(10, 245, size=(2, 3))
        if np.linalg.norm(first - second) > MIN_CONTRAST:
            (red, green, blue), (r, g, b) = first.tolist(), second.tolist()
            return (red, green, blue), (r, g, b)


# ---- Pictures of one or two shapes, with captions

CAPTIONED = 4_000
CAPTIONED_SIZE = 32  # pixels on a side
CAPTIONED_SEED = 4

COLOURS: dict[str, Colour] = {
    "red": (215, 40, 40),
    "green": (45, 165, 60),
    "blue": (50, 85, 225),
    "yellow": (240, 215, 45),
    "purple": (150, 55, 185),
    "orange": (245, 135, 30),
}
GROUNDS: dict[str, Colour] = {"black": (20, 20, 24), "white": (238, 238, 232), "grey": (128, 128, 128)}
CAPTIONED_SHAPES = ("circle", "square", "triangle", "cross", "ring", "star", "heart", "moon")
SMALL, BIG = (4.0, 4.8), (6.6, 7.6)  # smallest and largest radius, in pixels
MAX_TILT = 0.3  # radians to either side

LEFT, RIGHT = "to the left of", "to the right of"
OPPOSITES = {"above": "below", "below": "above", LEFT: RIGHT, RIGHT: LEFT}
SPOTS = {
    "at the top": (16, 9),
    "at the bottom": (16, 23),
    "on the left": (9, 16),
    "on the right": (23, 16),
    "in the middle": (16, 16),
}


@dataclass(frozen=True, slots=True)
class Thing:
    """What a caption says about a shape."""

    size: str
    colour: str
    shape: str

    def describe(self, *, with_size: bool) -> str:
        """`a small red circle` with the size, `an orange star` without."""
        words = f"{self.size} {self.colour} {self.shape}" if with_size else f"{self.colour} {self.shape}"
        return f"{'an' if words[0] == 'o' else 'a'} {words}"


def captioned() -> tuple[Captioned, ...]:
    """The captioned pictures: every third has a single shape, the others have two."""
    random = np.random.default_rng(CAPTIONED_SEED)
    return tuple(_one_shape(random) if number % 3 == 0 else _two_shapes(random) for number in range(CAPTIONED))


def _one_shape(random: np.random.Generator) -> Captioned:
    """A shape in one of five places."""
    thing, spot, ground = _thing(random), _choice(random, tuple(SPOTS)), _choice(random, tuple(GROUNDS))
    x, y = SPOTS[spot]
    background = make_background(random, GROUNDS[ground], CAPTIONED_SIZE, noise=4)
    image = draw(background, [_place(random, thing, x, y)])
    captions = (
        f"{thing.describe(with_size=True)} {spot}",
        f"{thing.describe(with_size=True)} on a {ground} background",
        f"there is {thing.describe(with_size=False)} {spot}",
    )
    return Captioned(image, captions)


def _two_shapes(random: np.random.Generator) -> Captioned:
    """Two different shapes, one above or beside the other, described from both sides."""
    first, second = _thing(random), _thing(random)
    while first.shape == second.shape or first.colour == second.colour:
        second = _thing(random)
    relation, ground = _choice(random, tuple(OPPOSITES)), _choice(random, tuple(GROUNDS))
    shapes = [_place(random, thing, *spot) for thing, spot in zip((first, second), _spots(relation), strict=True)]
    image = draw(make_background(random, GROUNDS[ground], CAPTIONED_SIZE, noise=4), shapes)
    captions = (
        f"{first.describe(with_size=True)} {relation} {second.describe(with_size=False)}",
        f"{second.describe(with_size=True)} {OPPOSITES[relation]} {first.describe(with_size=False)}",
        f"{first.describe(with_size=False)} and {second.describe(with_size=False)} on a {ground} background",
    )
    return Captioned(image, captions)


def _spots(relation: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Where two shapes stand so that the first is in this relation to the second."""
    near, far, middle = 8, 24, CAPTIONED_SIZE // 2
    return {
        "above": ((middle, near), (middle, far)),
        "below": ((middle, far), (middle, near)),
        LEFT: ((near, middle), (far, middle)),
        RIGHT: ((far, middle), (near, middle)),
    }[relation]


def _thing(random: np.random.Generator) -> Thing:
    return Thing(_choice(random, ("small", "big")), _choice(random, tuple(COLOURS)), _choice(random, CAPTIONED_SHAPES))


def _place(random: np.random.Generator, thing: Thing, x: int, y: int) -> PlacedShape:
    """The shape as it is drawn: its colour, place and tilt vary a little."""
    red, green, blue = np.clip(np.array(COLOURS[thing.colour]) + random.uniform(-12, 12, 3), 0, 255).tolist()
    radius = random.uniform(*(SMALL if thing.size == "small" else BIG))
    off_x, off_y = random.uniform(-0.6, 0.6, 2)
    tilt = random.uniform(-MAX_TILT, MAX_TILT)
    return PlacedShape(thing.shape, (red, green, blue), x + off_x, y + off_y, radius, tilt)


def _choice(random: np.random.Generator, options: tuple[str, ...]) -> str:
    return options[random.integers(len(options))]

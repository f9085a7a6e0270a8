"""Shapes drawn on small pictures: each is a signed distance in pixels, and its edge is one pixel wide.

A distance is negative inside and positive outside. Coordinates are (x to the right, y down) from the middle of the
shape, so that turning and moving a shape is turning and moving the pixels' coordinates before the distance is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from clearhead.data.examples import Pixels

Field = NDArray[np.float64]  # one number for each pixel, (height, width)
Colour = tuple[float, float, float]  # red, green, blue from 0 to 255
Distance = Callable[[Field, Field], Field]  # of a shape about 1 in size, at the origin


@dataclass(frozen=True, slots=True)
class Placed:
    """A shape with its place on the picture."""

    shape: str
    colour: Colour
    x: float
    y: float
    radius: float  # of the circle around the shape, in pixels
    turn: float = 0.0  # radians


def circle(x: Field, y: Field) -> Field:
    """A disc."""
    return np.hypot(x, y) - 0.9


def ring(x: Field, y: Field) -> Field:
    """A disc with a hole."""
    return np.abs(np.hypot(x, y) - 0.72) - 0.2


def moon(x: Field, y: Field) -> Field:
    """A disc that another has bitten."""
    disc: Field = np.maximum(np.hypot(x, y) - 0.95, 0.72 - np.hypot(x - 0.5, y))
    return disc


def rectangle(x: Field, y: Field, half_width: float, half_height: float) -> Field:
    """A box around the origin."""
    across, down = np.abs(x) - half_width, np.abs(y) - half_height
    distance: Field = np.hypot(np.maximum(across, 0), np.maximum(down, 0)) + np.minimum(np.maximum(across, down), 0)
    return distance


def square(x: Field, y: Field) -> Field:
    """Four equal sides."""
    return rectangle(x, y, 0.72, 0.72)


def bar(x: Field, y: Field) -> Field:
    """A thick line."""
    return rectangle(x, y, 1.0, 0.2)


def cross(x: Field, y: Field) -> Field:
    """Two bars at right angles."""
    both: Field = np.minimum(rectangle(x, y, 0.95, 0.26), rectangle(x, y, 0.26, 0.95))
    return both


def heart(x: Field, y: Field) -> Field:
    """Two arcs that meet in a point below."""
    scale = 1.7
    x, up = np.abs(x) / scale, (0.95 - y) / scale
    arc = np.hypot(x - 0.25, up - 0.75) - np.sqrt(2) / 4
    half = np.maximum(x + up, 0) / 2
    side = np.minimum(np.hypot(x, up - 1), np.hypot(x - half, up - half)) * np.sign(x - up)
    distance: Field = np.where(x + up > 1, arc, side) * scale
    return distance


def polygon(corners: NDArray[np.float64]) -> Distance:
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


def around(radii: list[float]) -> NDArray[np.float64]:
    """Corners at equal angles, the first one on top."""
    angles = 2 * np.pi * np.arange(len(radii)) / len(radii)
    corners: NDArray[np.float64] = np.stack([np.sin(angles), -np.cos(angles)], axis=1) * np.array(radii)[:, None]
    return corners


ARROW = np.array([(0, -1), (0.75, -0.1), (0.28, -0.1), (0.28, 0.95), (-0.28, 0.95), (-0.28, -0.1), (-0.75, -0.1)])

SHAPES: dict[str, Distance] = {
    "circle": circle,
    "square": square,
    "triangle": polygon(around([1.0, 1.0, 1.0])),
    "cross": cross,
    "ring": ring,
    "star": polygon(around([1.0, 0.42] * 5)),
    "bar": bar,
    "heart": heart,
    "moon": moon,
    "arrow": polygon(ARROW),
}


@cache
def _grid(size: int) -> tuple[Field, Field]:
    """The middle of every pixel."""
    middle = np.arange(size) + 0.5
    across, down = np.meshgrid(middle, middle)
    return across, down


def coverage(placed: Placed, size: int) -> Field:
    """How much of each pixel the shape covers, from 0 to 1."""
    across, down = _grid(size)
    x, y = (across - placed.x) / placed.radius, (down - placed.y) / placed.radius
    cosine, sine = np.cos(placed.turn), np.sin(placed.turn)
    distance = SHAPES[placed.shape](x * cosine + y * sine, y * cosine - x * sine) * placed.radius
    share: Field = np.clip(0.5 - distance, 0, 1)
    return share


def picture(background: Field, shapes: list[Placed]) -> Pixels:
    """Shapes painted one over the other on a background, (size, size, 3) from 0 to 255."""
    canvas = background
    for placed in shapes:
        share = coverage(placed, len(background))[..., None]
        canvas = canvas * (1 - share) + np.array(placed.colour) * share
    pixels: Pixels = np.clip(canvas + 0.5, 0, 255).astype(np.uint8)
    return pixels


def paper(random: np.random.Generator, colour: Colour, size: int, grain: float) -> Field:
    """A background of one colour, with a slope of light across it and a grain."""
    across, down = _grid(size)
    angle = random.uniform(0, 2 * np.pi)
    slope = (across * np.cos(angle) + down * np.sin(angle)) / size * random.uniform(0, 25)
    noise = random.normal(0, grain, (size, size, 3))
    lit: Field = np.array(colour) + slope[..., None] - slope.mean() + noise
    return lit

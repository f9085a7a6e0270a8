"""Pictures of one shape each; the class is the name of the shape, and all else is left to chance."""

from __future__ import annotations

import numpy as np

from clearhead.data.builtin.drawing import SHAPES, Colour, Placed, paper, picture
from clearhead.data.examples import Picture

COUNT = 6_000
SIZE = 28  # pixels on a side
SEED = 3
CONTRAST = 120.0  # least distance between the shape's colour and the background's


def pictures() -> tuple[Picture, ...]:
    """The dataset: the classes take turns, so that any part of it is balanced."""
    random = np.random.default_rng(SEED)
    names = list(SHAPES)
    return tuple(draw(random, names[place % len(names)]) for place in range(COUNT))


def draw(random: np.random.Generator, shape: str) -> Picture:
    """One shape of any colour, size, place and turn."""
    colour, ground = contrasting(random)
    radius = random.uniform(6.0, 11.5)
    x, y = random.uniform(radius, SIZE - radius, size=2)
    placed = Placed(shape, colour, float(x), float(y), float(radius), float(random.uniform(0, 2 * np.pi)))
    return Picture(picture(paper(random, ground, SIZE, grain=random.uniform(2, 14)), [placed]), shape)


def contrasting(random: np.random.Generator) -> tuple[Colour, Colour]:
    """Two colours that can be told apart."""
    while True:
        first, second = random.uniform(10, 245, size=(2, 3))
        if np.linalg.norm(first - second) > CONTRAST:
            return _colour(first), _colour(second)


def _colour(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Colour:
    red, green, blue = values.tolist()
    return red, green, blue

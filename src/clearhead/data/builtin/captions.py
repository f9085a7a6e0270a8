"""Pictures of one or two shapes, and sentences that say what is where."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clearhead.data.builtin.drawing import Colour, Placed, paper, picture
from clearhead.data.examples import Captioned

COUNT = 4_000
SIZE = 32  # pixels on a side
SEED = 4

COLOURS: dict[str, Colour] = {
    "red": (215, 40, 40),
    "green": (45, 165, 60),
    "blue": (50, 85, 225),
    "yellow": (240, 215, 45),
    "purple": (150, 55, 185),
    "orange": (245, 135, 30),
}
GROUNDS: dict[str, Colour] = {"black": (20, 20, 24), "white": (238, 238, 232), "grey": (128, 128, 128)}
SHAPES = ("circle", "square", "triangle", "cross", "ring", "star", "heart", "moon")
SMALL, BIG = (4.0, 4.8), (6.6, 7.6)  # radius from and to, in pixels
TILT = 0.3  # radians to either side that a shape leans at most

# What the first shape is to the second, and the second to the first.
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
    """What a caption says of a shape; the size is only told where it is said."""

    size: str
    colour: str
    shape: str

    def told(self, with_size: bool) -> str:
        """`a small red circle`, `an orange star`."""
        words = f"{self.size} {self.colour} {self.shape}" if with_size else f"{self.colour} {self.shape}"
        return f"{'an' if words[0] == 'o' else 'a'} {words}"


def captioned() -> tuple[Captioned, ...]:
    """The dataset: one picture in three has a single shape, the others have two."""
    random = np.random.default_rng(SEED)
    return tuple(one_shape(random) if place % 3 == 0 else two_shapes(random) for place in range(COUNT))


def one_shape(random: np.random.Generator) -> Captioned:
    """A shape in one of five places."""
    thing, spot, ground = _thing(random), _choice(random, tuple(SPOTS)), _choice(random, tuple(GROUNDS))
    x, y = SPOTS[spot]
    image = picture(paper(random, GROUNDS[ground], SIZE, grain=4), [_placed(random, thing, x, y)])
    captions = (
        f"{thing.told(True)} {spot}",
        f"{thing.told(True)} on a {ground} background",
        f"there is {thing.told(False)} {spot}",
    )
    return Captioned(image, captions)


def two_shapes(random: np.random.Generator) -> Captioned:
    """Two different shapes, one above or beside the other, told from both sides."""
    first, second = _thing(random), _thing(random)
    while first.shape == second.shape or first.colour == second.colour:
        second = _thing(random)
    relation, ground = _choice(random, tuple(OPPOSITES)), _choice(random, tuple(GROUNDS))
    shapes = [_placed(random, thing, *spot) for thing, spot in zip((first, second), _apart(relation), strict=True)]
    image = picture(paper(random, GROUNDS[ground], SIZE, grain=4), shapes)
    captions = (
        f"{first.told(True)} {relation} {second.told(False)}",
        f"{second.told(True)} {OPPOSITES[relation]} {first.told(False)}",
        f"{first.told(False)} and {second.told(False)} on a {ground} background",
    )
    return Captioned(image, captions)


def _apart(relation: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """The places of two shapes of which the first is so to the second."""
    near, far, middle = 8, 24, SIZE // 2
    return {
        "above": ((middle, near), (middle, far)),
        "below": ((middle, far), (middle, near)),
        LEFT: ((near, middle), (far, middle)),
        RIGHT: ((far, middle), (near, middle)),
    }[relation]


def _thing(random: np.random.Generator) -> Thing:
    return Thing(_choice(random, ("small", "big")), _choice(random, tuple(COLOURS)), _choice(random, SHAPES))


def _placed(random: np.random.Generator, thing: Thing, x: int, y: int) -> Placed:
    """The thing as it is drawn: its colour, place and lean vary a little."""
    red, green, blue = np.clip(np.array(COLOURS[thing.colour]) + random.uniform(-12, 12, 3), 0, 255).tolist()
    radius = random.uniform(*(SMALL if thing.size == "small" else BIG))
    off_x, off_y = random.uniform(-0.6, 0.6, 2)
    return Placed(thing.shape, (red, green, blue), x + off_x, y + off_y, radius, random.uniform(-TILT, TILT))


def _choice(random: np.random.Generator, options: tuple[str, ...]) -> str:
    return options[random.integers(len(options))]

"""Running text: stories, letters, diaries, scenes, interviews, verses, recipes, guidebooks, portraits and fables.

It gives a model something to keep track of: quotations, brackets, speakers, ends of lines, and names that stay the same
through a text.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from builtin_data.prose.kinds import (
    description,
    diary,
    fable,
    interview,
    landscape,
    letter,
    notice,
    poem,
    portrait,
    recipe,
    scene,
    tale,
)

COUNT = 800
SEED = 2

# Relative frequency of each kind of text.
SHARES: tuple[tuple[Callable[[Random], str], int], ...] = (
    (tale, 7),
    (letter, 4),
    (scene, 4),
    (description, 2),
    (poem, 2),
    (diary, 1),
    (interview, 1),
    (recipe, 1),
    (notice, 1),
    (portrait, 2),
    (landscape, 1),
    (fable, 1),
)
KINDS = tuple(kind for kind, share in SHARES for _ in range(share))


def texts() -> tuple[str, ...]:
    """The dataset: distinct texts of every kind, mixed."""
    random = Random(SEED)
    chosen: dict[str, None] = {}
    while len(chosen) < COUNT:
        chosen.setdefault(random.choice(KINDS)(random))
    return tuple(chosen)

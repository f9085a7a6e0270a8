"""Running text: stories, letters, diaries, scenes, interviews, verses, recipes, guidebooks, portraits and fables.

It is written so that a model has something to keep track of: quotations, brackets, who is speaking, where a line ends,
and names that stay the same from the first sentence of a text to the last.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from builtin_data.prose.letters import diary, letter, notice
from builtin_data.prose.scenes import interview, scene
from builtin_data.prose.sketches import fable, landscape, portrait
from builtin_data.prose.tales import tale
from builtin_data.prose.verses import description, poem, recipe

COUNT = 800
SEED = 2

# How often each kind of text is written.
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

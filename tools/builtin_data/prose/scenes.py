"""Scenes of a play: a name in capitals begins each speech, and directions stand in square brackets."""

from __future__ import annotations

from random import Random

from builtin_data.prose.templates import dialogue, lines
from builtin_data.prose.world import fill, world


def scene(random: Random) -> str:
    """Five to nine exchanges between two people."""
    names = world(random)
    first, second = names["hero"].upper(), names["friend"].upper()
    speeches = []
    for said, answered in random.sample(dialogue("scenes", "exchanges"), random.randint(5, 9)):
        speeches += [f"{first}: {fill(random, said, names)}", f"{second}: {fill(random, answered, names)}"]
    setting, curtain = (fill(random, random.choice(lines("scenes", part)), names) for part in ("settings", "curtains"))
    return "\n".join([setting, "", *speeches, "", curtain])


def interview(random: Random) -> str:
    """Questions and answers, marked Q and A."""
    names = world(random)
    asked = random.sample(dialogue("scenes", "questions"), random.randint(3, 6))
    heading = f"An interview with {names['hero']}, {names['trade']} in {names['town']}"
    talk = [f"Q: {fill(random, said, names)}\nA: {fill(random, answered, names)}" for said, answered in asked]
    return "\n\n".join([heading, *talk])

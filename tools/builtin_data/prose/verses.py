"""Verses, recipes and descriptions: texts in which the end of a line means something."""

from __future__ import annotations

from random import Random

from builtin_data.prose.templates import lines
from builtin_data.prose.world import fill, world


def poem(random: Random) -> str:
    """Stanzas of two couplets, with or without a refrain."""
    names = world(random)
    refrain = [fill(random, random.choice(lines("verses", "refrains")), names)] if random.random() < 0.5 else []
    couplets = random.sample(lines("verses", "couplets"), random.choice((4, 6, 8)))
    stanzas = []
    for first, second in zip(couplets[::2], couplets[1::2], strict=True):
        told = fill(random, first, names), fill(random, second, names).rstrip(",") + "."
        stanzas.append("\n".join([*told, *refrain]))
    return "\n\n".join(stanzas)


def recipe(random: Random) -> str:
    """A title and numbered steps in their order."""
    names, steps = world(random), lines("verses", "steps")
    chosen = sorted(random.sample(range(len(steps)), random.randint(5, len(steps))))
    told = []
    for number, place in enumerate(chosen, start=1):
        fresh = {**names, "number": world(random)["number"]}
        told.append(f"{number}. {fill(random, steps[place], fresh)}")
    return "\n".join([f"{names['elder']}'s {names['food']}", "", *told])


def description(random: Random) -> str:
    """A page of a guidebook, which begins with where the town is."""
    names = world(random)
    where, *sights = lines("verses", "sights")
    return "\n\n".join(fill(random, sight, names) for sight in [where, *random.sample(sights, random.randint(3, 6))])

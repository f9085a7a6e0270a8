"""Short stories: a plot is a list of steps, and a step a list of ways to tell it."""

from __future__ import annotations

from random import Random

from builtin_data.prose.templates import sections
from builtin_data.prose.world import fill, world

PLOTS = ("lost", "journey", "feast", "storm", "stranger", "market", "door")
TITLES = (
    "{hero} and the {thing}",
    "the {weather} in {town}",
    "{friend}'s <walk|day|friend>",
    "at {place}",
    "one {season} in {town}",
    "the {trade} of {town}",
)


def tale(random: Random) -> str:
    """A title in capitals and a story, told step by step."""
    names, parts = world(random), sections("tales")
    steps = [*parts["openings"], *parts[random.choice(PLOTS)], *(parts["closings"] if random.random() < 0.6 else ())]
    told = [fill(random, random.choice(step), names) for step in steps]
    return "\n\n".join([fill(random, random.choice(TITLES), names).upper(), *told])

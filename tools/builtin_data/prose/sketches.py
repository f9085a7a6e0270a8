"""Portraits, landscapes and fables: description rather than plot, and words that the stories do not use."""

from __future__ import annotations

from random import Random

from builtin_data.prose.templates import sections
from builtin_data.prose.world import World, fill, world


def portrait(random: Random) -> str:
    """Somebody's face, habits, past, and what people think."""
    names = world(random)
    told = _told(random, ("faces", "habits", "pasts", "praise"), names)
    if names["elder"] in told[0]:  # then the rest is about the elder too
        names = {**names, **{slot: names[f"e_{slot}"] for slot in ("he", "him", "his", "himself")}}
        told[1:] = _told(random, ("habits", "pasts", "praise"), names)
    return "\n\n".join(told)


def landscape(random: Random) -> str:
    """A day in the country, in one paragraph."""
    return " ".join(_told(random, ("dawn", "noon", "dusk", "night"), world(random)))


def fable(random: Random) -> str:
    """A short fable and what it teaches."""
    return "\n\n".join(_told(random, ("fables", "morals"), world(random)))


def _told(random: Random, parts: tuple[str, ...], names: World) -> list[str]:
    """One template of each part."""
    found = sections("sketches")
    return [fill(random, random.choice(found[part][0]), names) for part in parts]

"""Letters, diaries and notices: short lines at the edges, running text between them, asides in brackets."""

from __future__ import annotations

from random import Random

from builtin_data.prose.templates import lines
from builtin_data.prose.world import fill, world

CHANGING = ("day", "number", "place", "food", "weather")  # what is another every day


def letter(random: Random) -> str:
    """A letter with its place and date, its greeting, two to four pieces of news and its signature."""
    names = world(random)
    head = f"{names['town']}, {random.randint(1, 28)} {names['month']}"
    greeting, ending = random.choice(lines("letters", "greetings")), random.choice(lines("letters", "endings"))
    news = random.sample(lines("letters", "news"), random.randint(2, 4))
    parts = [head, greeting, *news, ending, random.choice(lines("letters", "signatures"))]
    return "\n\n".join(fill(random, part, names) for part in parts)


def diary(random: Random) -> str:
    """Some days of somebody's life, each under its date."""
    names, day = dict(world(random)), random.randint(1, 15)
    days = []
    for entry in random.sample(lines("letters", "entries"), random.randint(3, 5)):
        fresh = world(random)
        names |= {slot: fresh[slot] for slot in CHANGING}
        days.append(f"{day} {names['month']}. {fill(random, entry, names)}")
        day += random.randint(1, 3)
    return "\n\n".join(days)


def notice(random: Random) -> str:
    """A notice on a board."""
    names = world(random)
    return fill(random, random.choice(lines("letters", "notices")), {**names, "town": names["town"].upper()})

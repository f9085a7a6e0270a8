"""The kinds of text, one function for each; their templates are in the `.txt` files of this folder."""

from __future__ import annotations

from random import Random

from builtin_data.prose.templates import World, dialogue, fill, lines, sections, world

# --- stories ---

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
    """A title in capitals, and a story: one template for each step of its plot."""
    names, parts = world(random), sections("tales")
    steps = [*parts["openings"], *parts[random.choice(PLOTS)], *(parts["closings"] if random.random() < 0.6 else ())]
    told = [fill(random, random.choice(step), names) for step in steps]
    return "\n\n".join([fill(random, random.choice(TITLES), names).upper(), *told])


# --- letters, diaries and notices: short lines at the edges, running text between them, asides in brackets ---

CHANGING = ("day", "number", "place", "food", "weather")  # slots that change from day to day


def letter(random: Random) -> str:
    """A letter: place and date, greeting, two to four pieces of news, signature."""
    names = world(random)
    head = f"{names['town']}, {random.randint(1, 28)} {names['month']}"
    greeting, ending = random.choice(lines("letters", "greetings")), random.choice(lines("letters", "endings"))
    news = random.sample(lines("letters", "news"), random.randint(2, 4))
    parts = [head, greeting, *news, ending, random.choice(lines("letters", "signatures"))]
    return "\n\n".join(fill(random, part, names) for part in parts)


def diary(random: Random) -> str:
    """Three to five dated entries."""
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


# --- scenes: a name in capitals begins each speech, and directions stand in square brackets ---


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


# --- verses, recipes and descriptions: texts in which the end of a line matters ---


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
    """A title and numbered steps."""
    names, steps = world(random), lines("verses", "steps")
    chosen = sorted(random.sample(range(len(steps)), random.randint(5, len(steps))))
    told = []
    for number, place in enumerate(chosen, start=1):
        fresh = {**names, "number": world(random)["number"]}
        told.append(f"{number}. {fill(random, steps[place], fresh)}")
    return "\n".join([f"{names['elder']}'s {names['food']}", "", *told])


def description(random: Random) -> str:
    """A page of a guidebook: where the town is, then its sights."""
    names = world(random)
    where, *sights = lines("verses", "sights")
    return "\n\n".join(fill(random, sight, names) for sight in [where, *random.sample(sights, random.randint(3, 6))])


# --- portraits, landscapes and fables: description rather than plot, with words that the stories do not use ---


def portrait(random: Random) -> str:
    """A person's face, habits, past and reputation."""
    names = world(random)
    told = _fill_parts(random, ("faces", "habits", "pasts", "praise"), names)
    if names["elder"] in told[0]:  # the rest is about the elder, too
        names = {**names, **{slot: names[f"e_{slot}"] for slot in ("he", "him", "his", "himself")}}
        told[1:] = _fill_parts(random, ("habits", "pasts", "praise"), names)
    return "\n\n".join(told)


def landscape(random: Random) -> str:
    """A day in the country, in one paragraph."""
    return " ".join(_fill_parts(random, ("dawn", "noon", "dusk", "night"), world(random)))


def fable(random: Random) -> str:
    """A short fable and its moral."""
    return "\n\n".join(_fill_parts(random, ("fables", "morals"), world(random)))


def _fill_parts(random: Random, parts: tuple[str, ...], names: World) -> list[str]:
    """One filled template of each section."""
    found = sections("sketches")
    return [fill(random, random.choice(found[part][0]), names) for part in parts]

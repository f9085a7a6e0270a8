"""The templates of the texts, and how they are filled.

Templates are plain text files beside this one: one to a line, in sections. `# name` begins a section and an empty line
a new step of it; the lines of a step are alternatives. ` / ` is the end of a line and ` // ` the end of a paragraph. In
a template `<a|b>` is one of its alternatives and `{hero}` a name from the world: the people, places and things of one
text, which stay the same from its first sentence to its last.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from random import Random

WOMEN = (
    "Ada", "Beth", "Clara", "Dora", "Edith", "Flora", "Greta", "Hazel", "Iris", "Jane", "Lucy", "Mabel", "Nora",
    "Ruth", "Olga", "Paula", "Rosa", "Selma", "Vera",
)  # fmt: skip
MEN = (
    "Albert", "Bruno", "Carl", "Dan", "Edgar", "Felix", "George", "Henry", "Ivan", "Jack", "Leo", "Martin", "Oscar",
    "Paul", "Ralph", "Simon", "Tom", "Victor", "Walter",
)  # fmt: skip
ELDERS = (
    "Mrs Hale", "Mr Brook", "Mrs Finch", "Mr Stone", "Mrs Marsh", "Mr Reed", "Mrs Lamb", "Mr Wood", "Mrs Quill",
    "Mr Pike", "Mrs Thorne", "Mr Gray",
)  # fmt: skip
TOWNS = (
    "Larkham", "Dunmere", "Oakford", "Westbay", "Hillston", "Greywick", "Fernley", "Saltmarsh", "Eastgate",
    "Millbrook", "Ashdown", "Birchfield", "Coldwater", "Redcliff", "Thornbury",
)  # fmt: skip
PLACES = (
    "the old mill", "the harbour", "the market square", "the railway station", "the library", "the north wood",
    "the stone bridge", "the church tower", "the boat house", "the orchard", "the lighthouse", "the schoolhouse",
    "the windmill", "the vineyard", "the toll house", "the quarry", "the old theatre", "the bandstand",
)  # fmt: skip
THINGS = (
    "brass key", "silver ring", "red notebook", "wooden flute", "blue lantern", "pocket watch", "small map",
    "green umbrella", "letter from the sea", "box of paints", "glass marble", "copper bell", "pair of spectacles",
    "tin whistle", "music box", "leather diary", "walking stick", "china doll", "compass", "paper crown", "horseshoe",
    "snuff box",
)  # fmt: skip
ANIMALS = ("dog", "cat", "goat", "pony", "parrot", "goose", "donkey", "crow", "tortoise", "hen", "ferret", "sheepdog")
FOODS = (
    "apple cake", "onion soup", "plum jam", "honey bread", "fish stew", "cheese pie", "pear tart", "bean soup",
    "mushroom pie", "ginger biscuit", "lentil soup", "walnut cake",
)  # fmt: skip
CAKES = ("apple cake", "cheese pie", "pear tart", "plum cake", "honey cake", "onion tart")
WEATHERS = ("rain", "fog", "snow", "wind", "frost", "mist", "hail", "thunder")
SEASONS = ("spring", "summer", "autumn", "winter")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = ("January", "March", "April", "June", "August", "September", "November", "December")
COLOURS = ("red", "blue", "green", "yellow", "white", "grey", "brown", "black", "purple")
NUMBERS = (
    "three", "four", "five", "six", "seven", "eight", "nine", "ten", "twelve", "twenty", "eleven", "thirty", "forty",
)  # fmt: skip
TRADES = (
    "baker", "carpenter", "fisherman", "gardener", "postman", "blacksmith", "miller", "schoolteacher", "tailor",
    "clockmaker", "cobbler", "weaver", "sailor", "printer", "watchman", "beekeeper", "locksmith",
)  # fmt: skip

DEALERS = ("dealer", "pedlar", "soldier", "bookseller", "merchant")
HOURS = ("five", "six", "seven", "eight", "nine", "ten")

SHE = {"he": "she", "him": "her", "his": "her", "himself": "herself"}
HE = {"he": "he", "him": "him", "his": "his", "himself": "himself"}
STARTS = re.compile(r'(?:^|(?<=[.!?] )|(?<=\." )|(?<=[.!?]\) )|(?<=\] )|(?<=\n\n))["\[(]?[a-z]')
ALTERNATIVES = re.compile(r"<([^<>]*)>")

World = Mapping[str, str]


def world(random: Random) -> World:
    """The names for all slots of the templates: three people, a town, a place, a thing and more."""
    hero, friend = random.choice(WOMEN + MEN), random.choice(WOMEN + MEN)
    while friend == hero:
        friend = random.choice(WOMEN + MEN)
    elder, thing, food = random.choice(ELDERS), random.choice(THINGS), random.choice(FOODS)
    (here, there), (town, other_town) = random.sample(PLACES, 2), random.sample(TOWNS, 2)
    cake = random.choice(CAKES)
    return {
        "hero": hero, "friend": friend, "elder": elder, **_pronouns("", hero), **_pronouns("f_", friend),
        **_pronouns("e_", elder), "town": town, "other_town": other_town, "place": here,
        "other_place": there, "thing": thing, "animal": random.choice(ANIMALS), "food": food,
        "weather": random.choice(WEATHERS), "season": random.choice(SEASONS), "day": random.choice(DAYS),
        "month": random.choice(MONTHS), "colour": random.choice(COLOURS), "number": random.choice(NUMBERS),
        "trade": random.choice(TRADES), "a_thing": with_article(thing), "a_food": with_article(food),
        "dealer": random.choice(DEALERS), "hour": random.choice(HOURS), "cake": cake, "a_cake": with_article(cake),
    }  # fmt: skip


def with_article(noun: str) -> str:
    """The noun with `a` or `an`, or with `some` if it cannot be counted."""
    if noun.split()[-1] in ("soup", "jam", "bread", "stew"):
        return f"some {noun}"
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def fill(random: Random, template: str, names: World) -> str:
    """Choose among the alternatives, insert the names, and capitalise sentences.

    >>> fill(Random(0), "<{he}|{he}> slept.", {"he": "she"})
    'She slept.'
    """
    chosen = ALTERNATIVES.sub(lambda match: random.choice(match.group(1).split("|")), template)
    return capitals(chosen.format_map(names))


def capitals(text: str) -> str:
    """Capitalise every sentence and paragraph, but not after `?"`: `"Why?" he asked.`"""
    return STARTS.sub(lambda match: match.group().upper(), text)


def _pronouns(prefix: str, name: str) -> dict[str, str]:
    forms = SHE if name in WOMEN or name.startswith("Mrs") else HE
    return {prefix + slot: form for slot, form in forms.items()}


# --- reading templates ---

Steps = tuple[tuple[str, ...], ...]


@cache
def sections(name: str) -> dict[str, Steps]:
    """The sections of a file, each a sequence of steps."""
    text = files("builtin_data.prose").joinpath(f"{name}.txt").read_text(encoding="utf-8")
    found: dict[str, Steps] = {}
    for section in text.strip().removeprefix("# ").split("\n# "):
        title, _, body = section.partition("\n")
        found[title.strip()] = tuple(tuple(map(_breaks, step.splitlines())) for step in body.strip().split("\n\n"))
    return found


def lines(name: str, section: str) -> tuple[str, ...]:
    """The templates of a section with a single step."""
    (step,) = sections(name)[section]
    return step


def dialogue(name: str, section: str) -> tuple[tuple[str, str], ...]:
    """The exchanges of a section whose lines read `said = answered`."""
    pairs = (line.split(" = ") for line in lines(name, section))
    return tuple((said, answered) for said, answered in pairs)


def _breaks(line: str) -> str:
    return line.replace(" // ", "\n\n").replace(" / ", "\n")

"""Topics of reviews, and the words of praise and blame."""

from __future__ import annotations

from dataclasses import dataclass

from builtin_data.table import rows

# part | positive adjectives | negative adjectives
FILM = """
the acting was          | moving, superb, natural, convincing       | wooden, clumsy, lifeless, embarrassing
the story was           | gripping, clever, original, touching      | predictable, silly, confusing, tiresome
the music was           | beautiful, thrilling, haunting            | loud, annoying, forgettable
the ending was          | perfect, surprising, moving               | ridiculous, sad for no reason, rushed
the dialogue was        | witty, sharp, funny                       | flat, clumsy, silly
the first half was      | exciting, charming, fast                  | slow, boring, chaotic
the camera work was     | brilliant, elegant, stunning              | shaky, dull, careless
the jokes were          | clever, fresh, hilarious                  | old, tasteless, painful
the costumes were       | gorgeous, splendid, delightful            | cheap, ugly, ridiculous
the leading actress was | radiant, superb, convincing               | weak, bored, annoying
the villain was         | frightening, brilliant, fascinating       | laughable, dull, weak
"""
RESTAURANT = """
the food was            | delicious, fresh, excellent, superb       | tasteless, greasy, cold, dreadful
the service was         | quick, friendly, attentive, warm          | slow, rude, careless, chaotic
the soup was            | rich, hot, wonderful                      | watery, cold, salty
the bread was           | warm, fresh, crisp                        | stale, dry, burnt
the wine was            | excellent, smooth, splendid               | sour, warm, overpriced
the waiters were        | helpful, cheerful, charming               | arrogant, clumsy, unfriendly
the prices were         | fair, reasonable, low                     | absurd, high, shameless
the dining room was     | cosy, bright, elegant                     | noisy, cramped, gloomy
the dessert was         | heavenly, light, delightful               | heavy, tasteless, disappointing
the fish was            | tender, fresh, perfect                    | dry, overcooked, bland
the coffee was          | strong, fragrant, superb                  | weak, bitter, cold
"""
BOOK = """
the plot was            | gripping, clever, surprising              | thin, confused, predictable
the writing was         | elegant, vivid, witty                     | clumsy, pompous, lifeless
the characters were     | lively, memorable, lovable                | wooden, flat, annoying
the first chapter was   | thrilling, funny, promising               | dull, slow, tedious
the ending was          | satisfying, touching, brilliant           | rushed, silly, disappointing
the dialogue was        | sharp, natural, funny                     | stiff, endless, false
the pictures were       | beautiful, charming, bold                 | ugly, blurred, childish
the hero was            | brave, fascinating, lovable               | tiresome, shallow, boring
the last chapters were  | exciting, tender, unforgettable           | dreary, chaotic, tedious
the style was           | fresh, graceful, warm                     | dry, heavy, lazy
"""
HOTEL = """
the room was            | spotless, spacious, bright                | dirty, cramped, damp
the bed was             | comfortable, soft, perfect                | hard, lumpy, broken
the staff were          | helpful, kind, welcoming                  | rude, unhelpful, slow
the breakfast was       | generous, fresh, delicious                | meagre, stale, cold
the view was            | stunning, lovely, magnificent             | depressing, ugly, blocked
the bathroom was        | clean, modern, spotless                   | filthy, tiny, mouldy
the garden was          | peaceful, charming, beautiful             | neglected, noisy, bare
the pool was            | warm, clean, inviting                     | freezing, dirty, crowded
the lift was            | fast, quiet, modern                       | broken, slow, frightening
the reception was       | friendly, efficient, cheerful             | unfriendly, closed, chaotic
the street outside was  | quiet, pretty, lively                     | noisy, dark, dangerous
"""

# topic | positive adjectives | negative adjectives
WHOLE = """
film       | moving, gripping, funny, clever, charming, thrilling | boring, predictable, silly, shallow, tiresome, slow
restaurant | friendly, cosy, charming, welcoming, lively          | gloomy, unfriendly, overpriced, noisy, chaotic
book       | wise, touching, witty, fascinating, memorable        | dull, pompous, tedious, forgettable, dreary
hotel      | comfortable, quiet, charming, welcoming, spotless    | shabby, noisy, dirty, miserable, gloomy
"""

# topic | what to do again | what satisfied reviewers did
GLAD = """
film       | watch it again   | laughed from start to finish; told all my friends; was in tears of joy; forgot the time
restaurant | eat there again  | ordered a second plate; left a large tip; booked a table for next week; asked for more
book       | read it again    | read it in one night; missed my stop because of it; bought a copy for my sister
hotel      | stay there again | slept like a child; stayed for a second week; sent them a card of thanks
"""
# topic | what disappointed reviewers did
SORRY = """
film       | walked out after an hour; fell asleep; looked at my watch the whole time; asked for my money back
restaurant | left half of it on the plate; sent the soup back; went home hungry; paid far too much
book       | gave up after fifty pages; skipped whole chapters; gave my copy away; had to force myself to go on
hotel      | did not sleep at all; left a day early; asked for another room twice; wrote a letter of complaint
"""

PRAISE = (
    "good",
    "great",
    "wonderful",
    "lovely",
    "marvellous",
    "splendid",
    "pleasant",
    "impressive",
    "fine",
    "excellent",
)
BLAME = ("bad", "terrible", "awful", "poor", "dreadful", "disappointing", "weak", "unpleasant", "feeble", "dismal")
STRONGER = ("very", "really", "truly", "quite", "rather", "surprisingly", "remarkably", "unusually")
EXPERTS = ("my sister", "the critics", "everyone", "my neighbours", "the newspapers", "my friends", "a colleague")
COMPANIONS = ("my husband", "my wife", "my brother", "my friend", "our guests", "the children", "my parents")

# Extreme adjectives, which take no intensifier.
UTMOST = frozenset({
    "excellent", "superb", "perfect", "terrible", "awful", "dreadful", "wonderful", "splendid", "spotless", "delicious",
    "brilliant", "marvellous", "miserable", "heavenly", "magnificent", "stunning", "hilarious", "gorgeous", "filthy",
    "freezing", "broken", "closed", "blocked", "unforgettable", "sad for no reason", "overcooked", "endless", "burnt",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the topic, and adjectives for it."""

    name: str
    good: tuple[str, ...]
    bad: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """What a review is about."""

    name: str
    parts: tuple[Part, ...]
    good: tuple[str, ...]
    bad: tuple[str, ...]
    again: str
    good_deeds: tuple[str, ...]
    bad_deeds: tuple[str, ...]


def _listed(cell: str, mark: str = ",") -> tuple[str, ...]:
    return tuple(word.strip() for word in cell.split(mark))


def _topics() -> tuple[Topic, ...]:
    glad = {name: (again, _listed(deeds, ";")) for name, again, deeds in rows(GLAD, 3)}
    sorry = {name: _listed(deeds, ";") for name, deeds in rows(SORRY, 2)}
    parts = {"film": FILM, "restaurant": RESTAURANT, "book": BOOK, "hotel": HOTEL}
    return tuple(
        Topic(name, _parts(parts[name]), _listed(good) + PRAISE, _listed(bad) + BLAME, *glad[name], sorry[name])
        for name, good, bad in rows(WHOLE, 3)
    )


def _parts(table: str) -> tuple[Part, ...]:
    return tuple(Part(name, _listed(good), _listed(bad)) for name, good, bad in rows(table, 3))


TOPICS = _topics()

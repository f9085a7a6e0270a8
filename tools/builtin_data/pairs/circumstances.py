"""Adverbial phrases: places, times, companions and frequencies."""

from __future__ import annotations

from functools import cache

from builtin_data.pairs.clauses import ALMOST_ALWAYS, ALMOST_NEVER, ALREADY, ALSO, ALWAYS, NEVER, STILL, Adverb, Form
from builtin_data.pairs.nouns import noun
from builtin_data.pairs.phrases import Phrase, noun_phrase, with_preposition
from builtin_data.table import rows

# theme | places; verbs name the themes that they take
THEMES = """
meal     | at home; in the kitchen; in the dining room; in the garden; in the park; at the restaurant
dine     | at the restaurant; at the hotel; at home
cook     | at home; in the kitchen
home     | at home; in the living room; in the kitchen
market   | at the market; at the shop
shopping | at the market; at the shop; at the airport
reading  | at home; in the library; in the park; in the garden; on the beach; in the living room; in the classroom
study    | at home; at school; in the library; at the university; in the classroom
leisure  | at home; at school; in the park; in the square; in the garden; on the beach
outdoors | in the park; in the square; in the street; on the beach; in the garden; in the forest
rest     | at home; in the living room; in the garden; at the hotel; on the beach; under the tree
swim     | in the sea; in the river; in the lake
work     | at home; in the office; at the hospital; at the bank; at the airport; at the museum; at the hotel
out      | in the park; in the street; at the market; at the station; in the square; at the museum
waiting  | at the station; at the airport; in the square; at the restaurant; in front of the cinema
daily    | at home; at the hospital
"""
FIXED_PLACES = {"at home": "en casa", "at school": "en la escuela", "at work": "en el trabajo"}
RELATIONS = {
    "in": "en", "at": "en", "on": "en", "under": "debajo de", "behind": "detrás de", "near": "cerca de",
    "next to": "al lado de", "in front of": "frente a", "far from": "lejos de", "inside": "dentro de",
}  # fmt: skip

COUNTRIES = (
    ("Mexico", "México"), ("Spain", "España"), ("Peru", "Perú"), ("Chile", "Chile"), ("Colombia", "Colombia"),
    ("Argentina", "Argentina"), ("Canada", "Canadá"), ("France", "Francia"), ("Italy", "Italia"),
    ("Germany", "Alemania"), ("Japan", "Japón"), ("Brazil", "Brasil"), ("London", "Londres"), ("Madrid", "Madrid"),
    ("Lima", "Lima"), ("Paris", "París"),
)  # fmt: skip

HABITS = """
every day           | todos los días
every morning       | todas las mañanas
every night         | todas las noches
every week          | todas las semanas
in the morning      | por la mañana
in the afternoon    | por la tarde
at night            | por la noche
on weekends         | los fines de semana
on Mondays          | los lunes
on Tuesdays         | los martes
on Wednesdays       | los miércoles
on Thursdays        | los jueves
on Fridays          | los viernes
on Saturdays        | los sábados
on Sundays          | los domingos
"""
PASTS = """
yesterday           | ayer
last night          | anoche
last week           | la semana pasada
last month          | el mes pasado
this morning        | esta mañana
last Monday         | el lunes pasado
last Friday         | el viernes pasado
last Sunday         | el domingo pasado
two days ago        | hace dos días
three weeks ago     | hace tres semanas
an hour ago         | hace una hora
"""
FUTURES = """
tomorrow            | mañana
tomorrow morning    | mañana por la mañana
tomorrow night      | mañana por la noche
tonight             | esta noche
this afternoon      | esta tarde
next week           | la próxima semana
next month          | el próximo mes
on Monday           | el lunes
on Wednesday        | el miércoles
on Saturday         | el sábado
next Sunday         | el próximo domingo
"""
PRESENTS = """
now                 | ahora
right now           | ahora mismo
at this moment      | en este momento
"""
RECENT = """
today               | hoy
this week           | esta semana
this afternoon      | esta tarde
"""
WISHES = """
today               | hoy
now                 | ahora
tomorrow            | mañana
tonight             | esta noche
this afternoon      | esta tarde
"""


def phrases(table: str) -> tuple[Phrase, ...]:
    """The lines `english | spanish` of a table."""
    return tuple(Phrase(english, spanish) for english, spanish in rows(table, 2))


_HABITS, _PASTS, _FUTURES, _WISHES = phrases(HABITS), phrases(PASTS), phrases(FUTURES), phrases(WISHES)
TIMES: dict[Form, tuple[Phrase, ...]] = {
    Form.PRESENT: _HABITS,
    Form.CONTINUOUS: phrases(PRESENTS),
    Form.PAST: _PASTS,
    Form.WAS: _PASTS[:2],
    Form.USED: _HABITS,
    Form.PERFECT: phrases(RECENT),
    Form.JUST: (),
    Form.FUTURE: _FUTURES,
    Form.GOING: _FUTURES,
} | dict.fromkeys((Form.CAN, Form.MUST, Form.SHOULD, Form.HAVE_TO, Form.WANT, Form.NEED, Form.PREFER), _WISHES)

ADVERBS: dict[Form, tuple[Adverb, ...]] = {
    Form.PRESENT: (ALWAYS, NEVER, ALMOST_ALWAYS, ALMOST_NEVER, ALSO),
    Form.CONTINUOUS: (STILL, ALSO),
    Form.USED: (ALWAYS, ALSO),
    Form.PERFECT: (ALREADY, NEVER, ALREADY),
    Form.PAST: (ALSO,),
    Form.GOING: (ALSO,),
    Form.WANT: (ALSO,),
}


@cache
def place(english: str) -> Phrase:
    """A place in both languages: `under the tree` is `debajo del árbol`."""
    if english in FIXED_PLACES:
        return Phrase(english, FIXED_PLACES[english])
    relation, _, name = english.rpartition(" the ")
    return located(relation, name)


@cache
def located(relation: str, name: str) -> Phrase:
    """A preposition of place and a noun with its article."""
    landmark = noun_phrase("the", noun(name))
    return Phrase(f"{relation} {landmark.english}", with_preposition(RELATIONS[relation], landmark.spanish))


PLACES = {theme: tuple(place(name.strip()) for name in names.split(";")) for theme, names in rows(THEMES, 2)}
HOURS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
SPANISH_HOURS = ("dos", "tres", "cuatro", "cinco", "seis", "siete", "ocho", "nueve", "diez", "once", "doce")


@cache
def clock() -> tuple[Phrase, ...]:
    """Times of day as pairs: `two o'clock` and `las dos`, `half past two` and `las dos y media`."""
    full = [Phrase(f"{hour} o'clock", f"las {hora}") for hour, hora in zip(HOURS, SPANISH_HOURS, strict=True)]
    half = [Phrase(f"half past {hour}", f"las {hora} y media") for hour, hora in zip(HOURS, SPANISH_HOURS, strict=True)]
    return (Phrase("one o'clock", "la una"), Phrase("half past one", "la una y media"), *full, *half)


@cache
def at_the_hour() -> tuple[Phrase, ...]:
    """`at three o'clock`, `a las tres`."""
    return tuple(Phrase(f"at {hour.english}", f"a {hour.spanish}") for hour in clock())

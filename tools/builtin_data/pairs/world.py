"""Weather, time, timetables, prices and opinions."""

from __future__ import annotations

from random import Random

from builtin_data.pairs.adjectives import adjective
from builtin_data.pairs.choices import chance, pick
from builtin_data.pairs.circumstances import COUNTRIES, TIMES, at_the_hour, clock, phrases
from builtin_data.pairs.clauses import Clause, Form, Predicate
from builtin_data.pairs.likes import pastime
from builtin_data.pairs.nouns import noun, of_kinds
from builtin_data.pairs.phrases import Phrase, join_words, noun_phrase
from builtin_data.pairs.subjects import Subject, subject
from builtin_data.pairs.verbs import Verb, plain_verb

WEATHER = phrases("""
    it is cold         | hace frío
    it is hot          | hace calor
    it is very cold    | hace mucho frío
    it is very hot     | hace mucho calor
    it is sunny        | hace sol
    it is windy        | hace viento
    it is raining      | está lloviendo
    it is snowing      | está nevando
    it is not cold     | no hace frío
    it is not hot      | no hace calor
    it is not raining  | no está lloviendo
    it is not snowing  | no está nevando
    it was cold        | hacía frío
    it was hot         | hacía calor
    it was raining     | estaba lloviendo
""")
RAIN = {
    Form.PAST: Phrase("it rained", "llovió"),
    Form.FUTURE: Phrase("it will rain", "lloverá"),
    Form.GOING: Phrase("it is going to rain", "va a llover"),
}
SNOW = {
    Form.PAST: Phrase("it snowed", "nevó"),
    Form.FUTURE: Phrase("it will snow", "nevará"),
    Form.GOING: Phrase("it is going to snow", "va a nevar"),
}
LEAVE, ARRIVE = plain_verb("leave", "salir"), plain_verb("arrive", "llegar")
BEGIN, END = plain_verb("start", "empezar"), plain_verb("finish", "terminar")
OPEN, CLOSE = plain_verb("open", "abrir"), plain_verb("close", "cerrar")
COST = plain_verb("cost", "costar")
PRICES = (
    ("five", "cinco"), ("ten", "diez"), ("twelve", "doce"), ("fifteen", "quince"), ("twenty", "veinte"),
    ("thirty", "treinta"), ("fifty", "cincuenta"), ("ninety", "noventa"), ("two hundred", "doscientos"),
)  # fmt: skip
OPINIONS = ("important", "easy", "difficult", "interesting", "boring")


def weather(random: Random) -> Phrase:
    """`it is cold in Canada`, `hace frío en Canadá`; `it rained yesterday`, `llovió ayer`."""
    if chance(random, 0.6):
        told = pick(random, WEATHER)
        where = _somewhere(random)
        if told.english.startswith("it is") and chance(random, 0.3):
            where = pick(random, (Phrase("today", "hoy"), Phrase("now", "ahora"), Phrase("here", "aquí")))
        return Phrase(join_words(told.english, where.english), join_words(told.spanish, where.spanish))
    form = pick(random, (Form.PAST, Form.FUTURE, Form.GOING))
    kind, when = pick(random, (RAIN, RAIN, SNOW)), pick(random, TIMES[form])
    told, where = kind[form], _somewhere(random) if kind is RAIN and chance(random, 0.5) else Phrase("", "")
    return Phrase(
        join_words(told.english, where.english, when.english), join_words(told.spanish, where.spanish, when.spanish)
    )


def hour(random: Random) -> Phrase:
    """`it is three o'clock`, `son las tres`; `it is half past one`, `es la una y media`."""
    time = pick(random, clock())
    return Phrase(f"it is {time.english}", f"{'es' if time.spanish.startswith('la ') else 'son'} {time.spanish}")


def timetable(random: Random) -> Clause:
    """`the train leaves at eight o'clock`, `the library opens on Mondays`."""
    what, verb = scheduled(random)
    form = pick(random, (Form.PRESENT, Form.PRESENT, Form.PAST, Form.FUTURE, Form.GOING))
    time = pick(random, at_the_hour())
    return Clause(what, Predicate(verb, time.english, time.spanish), form, chance(random, 0.1))


def scheduled(random: Random) -> tuple[Subject, Verb]:
    """A thing with a timetable, and its verb."""
    roll = random.random()
    if roll < 0.4:
        return subject(noun_phrase("the", pick(random, of_kinds("transport")))), pick(random, (LEAVE, ARRIVE))
    if roll < 0.7:
        event = pick(random, (noun("class"), noun("film"), noun("match"), noun("programme"), noun("exam")))
        return subject(noun_phrase("the", event)), pick(random, (BEGIN, END))
    house = pick(random, of_kinds("shop") + tuple(map(noun, ("bank", "museum", "library", "restaurant", "school"))))
    return subject(noun_phrase("the", house)), pick(random, (OPEN, CLOSE))


def price(random: Random) -> Clause:
    """`the shoes cost fifty pesos`, `los zapatos cuestan cincuenta pesos`."""
    thing = pick(random, of_kinds("clothes fruit paper small_thing kitchenware sweet"))
    what = noun_phrase(pick(random, ("the", "the", "this", "that")), thing, chance(random, 0.4))
    english, spanish = pick(random, PRICES)
    return Clause(subject(what), Predicate(COST, f"{english} pesos", f"{spanish} pesos"), Form.PRESENT)


def opinion(random: Random) -> Phrase:
    """`it is important to study history`, `es importante estudiar historia`."""
    word, to_do, negative = adjective(pick(random, OPINIONS)), pastime(random), chance(random, 0.2)
    english = join_words("it is", "not" if negative else "", word.english, "to", to_do.verb.english, to_do.english)
    return Phrase(
        english, join_words("no" if negative else "", "es", word.forms[0], to_do.verb.infinitive, to_do.spanish)
    )


def _somewhere(random: Random) -> Phrase:
    if chance(random, 0.3):
        return Phrase("", "")
    english, spanish = pick(random, COUNTRIES)
    return Phrase(f"in {english}", f"en {spanish}")

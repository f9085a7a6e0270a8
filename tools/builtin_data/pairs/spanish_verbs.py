"""Spanish conjugation: regular endings, changes of spelling and stem, and irregular verbs.

>>> conjugate("dormir", "preterite", Person.HE)
'durmió'
>>> gerund("pedir"), participle("abrir"), command("hacer")
('pidiendo', 'abierto', 'haz')
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import Literal

from builtin_data.table import rows

Tense = Literal["present", "preterite", "imperfect", "future", "subjunctive"]


class Person(IntEnum):
    """The five rows of a Spanish verb table; `ustedes` takes the row of THEY."""

    I = 0  # noqa: E741
    YOU = 1
    HE = 2
    WE = 3
    THEY = 4


ENDINGS = {
    "present": {"ar": "o as a amos an", "er": "o es e emos en", "ir": "o es e imos en"},
    "preterite": {"ar": "é aste ó amos aron", "er": "í iste ió imos ieron", "ir": "í iste ió imos ieron"},
    "imperfect": {"ar": "aba abas aba ábamos aban", "er": "ía ías ía íamos ían", "ir": "ía ías ía íamos ían"},
    "future": {"ar": "é ás á emos án", "er": "é ás á emos án", "ir": "é ás á emos án"},
    "subjunctive": {"ar": "e es e emos en", "er": "a as a amos an", "ir": "a as a amos an"},
}
STRONG_PRETERITE = "e iste o imos ieron"

# Stem vowel changes in stressed syllables: pensar, pienso.
STEM_CHANGES = {
    "cerrar": "ie", "despertar": "ie", "empezar": "ie", "encender": "ie", "entender": "ie",
    "perder": "ie", "preferir": "ie", "querer": "ie", "regar": "ie", "sentar": "ie",
    "acostar": "ue", "almorzar": "ue", "contar": "ue", "costar": "ue", "doler": "ue", "dormir": "ue",
    "encontrar": "ue", "jugar": "ue", "mostrar": "ue", "poder": "ue", "probar": "ue", "recordar": "ue", "volver": "ue",
    "elegir": "i", "pedir": "i", "servir": "i", "vestir": "i",
    "enviar": "í",
}  # fmt: skip

FIRST_PERSONS = {
    "conocer": "conozco", "decir": "digo", "elegir": "elijo", "hacer": "hago", "poner": "pongo",
    "salir": "salgo", "tener": "tengo", "traer": "traigo", "venir": "vengo",
}  # fmt: skip

STRONG_STEMS = {
    "decir": "dij", "estar": "estuv", "hacer": "hic", "poder": "pud", "poner": "pus", "querer": "quis",
    "saber": "sup", "tener": "tuv", "traer": "traj", "venir": "vin",
}  # fmt: skip

FUTURE_STEMS = {
    "decir": "dir", "haber": "habr", "hacer": "har", "poder": "podr", "poner": "pondr", "querer": "querr",
    "saber": "sabr", "salir": "saldr", "tener": "tendr", "venir": "vendr",
}  # fmt: skip

GERUNDS = {
    "construir": "construyendo", "decir": "diciendo", "ir": "yendo", "leer": "leyendo", "poder": "pudiendo",
    "traer": "trayendo", "venir": "viniendo",
}  # fmt: skip

PARTICIPLES = {
    "abrir": "abierto", "decir": "dicho", "escribir": "escrito", "hacer": "hecho", "leer": "leído", "poner": "puesto",
    "romper": "roto", "traer": "traído", "ver": "visto", "volver": "vuelto",
}  # fmt: skip

COMMANDS = {"decir": "di", "hacer": "haz", "ir": "ve", "poner": "pon", "salir": "sal", "tener": "ten", "venir": "ven"}

WHOLE_TABLES = """
construir | present     | construyo construyes construye construimos construyen
construir | preterite   | construí construiste construyó construimos construyeron
construir | subjunctive | construya construyas construya construyamos construyan
dar       | present     | doy das da damos dan
dar       | preterite   | di diste dio dimos dieron
dar       | subjunctive | dé des dé demos den
decir     | present     | digo dices dice decimos dicen
decir     | preterite   | dije dijiste dijo dijimos dijeron
estar     | present     | estoy estás está estamos están
estar     | subjunctive | esté estés esté estemos estén
haber     | present     | he has ha hemos han
hacer     | preterite   | hice hiciste hizo hicimos hicieron
ir        | present     | voy vas va vamos van
ir        | preterite   | fui fuiste fue fuimos fueron
ir        | imperfect   | iba ibas iba íbamos iban
ir        | subjunctive | vaya vayas vaya vayamos vayan
leer      | preterite   | leí leíste leyó leímos leyeron
saber     | present     | sé sabes sabe sabemos saben
saber     | subjunctive | sepa sepas sepa sepamos sepan
ser       | present     | soy eres es somos son
ser       | preterite   | fui fuiste fue fuimos fueron
ser       | imperfect   | era eras era éramos eran
ser       | subjunctive | sea seas sea seamos sean
tener     | present     | tengo tienes tiene tenemos tienen
traer     | preterite   | traje trajiste trajo trajimos trajeron
venir     | present     | vengo vienes viene venimos vienen
ver       | present     | veo ves ve vemos ven
ver       | preterite   | vi viste vio vimos vieron
ver       | imperfect   | veía veías veía veíamos veían
ver       | subjunctive | vea veas vea veamos vean
"""
WHOLE = {(verb, tense): tuple(forms.split()) for verb, tense, forms in rows(WHOLE_TABLES, 3)}


@cache
def conjugate(infinitive: str, tense: Tense, person: Person) -> str:
    """A verb in one tense and person."""
    if (infinitive, tense) in WHOLE:
        return WHOLE[infinitive, tense][person]
    if tense == "preterite" and infinitive in STRONG_STEMS:
        return STRONG_STEMS[infinitive] + STRONG_PRETERITE.split()[person]
    if tense == "present" and person == Person.I and infinitive in FIRST_PERSONS:
        return FIRST_PERSONS[infinitive]
    ending = ENDINGS[tense][infinitive[-2:]].split()[person]
    return _spelled(_stem(infinitive, tense, person), ending, infinitive)


@cache
def gerund(infinitive: str) -> str:
    """The form used after `estar`."""
    ending = "ando" if infinitive.endswith("ar") else "iendo"
    return GERUNDS.get(infinitive) or _weak_stem(infinitive) + ending


@cache
def participle(infinitive: str) -> str:
    """The form used after `haber`."""
    return PARTICIPLES.get(infinitive) or infinitive[:-2] + ("ado" if infinitive.endswith("ar") else "ido")


def command(infinitive: str) -> str:
    """The informal imperative; negative commands take the subjunctive."""
    return COMMANDS.get(infinitive) or conjugate(infinitive, "present", Person.HE)


def _stem(infinitive: str, tense: Tense, person: Person) -> str:
    """The stem for one tense and person."""
    stressed = person != Person.WE
    if tense == "future":
        return FUTURE_STEMS.get(infinitive, infinitive)
    if tense == "imperfect":
        return infinitive[:-2]
    if tense == "preterite":
        return _weak_stem(infinitive) if person in (Person.HE, Person.THEY) else infinitive[:-2]
    if tense == "subjunctive" and infinitive in FIRST_PERSONS:
        return FIRST_PERSONS[infinitive][:-1]
    if stressed:
        return _strong_stem(infinitive)
    return _weak_stem(infinitive) if tense == "subjunctive" else infinitive[:-2]


def _strong_stem(infinitive: str) -> str:
    """The stem in stressed syllables: dorm -> duerm."""
    change = STEM_CHANGES.get(infinitive)
    return _replace_last_vowel(infinitive[:-2], change) if change else infinitive[:-2]


def _weak_stem(infinitive: str) -> str:
    """The stem of durmió, pidiendo, durmamos: only verbs in -ir change it, to one vowel."""
    if infinitive.endswith("ir") and infinitive in STEM_CHANGES:
        return _replace_last_vowel(infinitive[:-2], STEM_CHANGES[infinitive].replace("ie", "i").replace("ue", "u"))
    return infinitive[:-2]


def _replace_last_vowel(stem: str, vowel: str) -> str:
    place = max(stem.rfind(letter) for letter in "eoui")
    return stem[:place] + vowel + stem[place + 1 :]


def _spelled(stem: str, ending: str, infinitive: str) -> str:
    """Stem and ending, respelled to keep the sound of the stem: buscar, busqué; empezar, empecé."""
    if infinitive.endswith("ar") and ending[0] in "eé":
        for letter, written in (("c", "qu"), ("g", "gu"), ("z", "c")):
            if stem.endswith(letter):
                return stem[:-1] + written + ending
    return stem + ending

"""Adjectives: their Spanish forms, position, copula (`ser` or `estar`), and the kinds of noun they modify.

A line reads `english | spanish | use | kinds`. The uses:
    ser     a permanent property, after the noun or after `ser`
    estar   a temporary state, after the noun or after `estar`
    state   only after `estar`
    noun    only next to a noun
    before  in front of the noun, or after `ser`
    order   an ordinal in front of the noun: the first, the last
An adjective may have several lines: a short man is `bajo`, a short story `corta`; a boring film `es aburrida`, a bored
girl `está aburrida`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal, cast

from builtin_data.pairs.nouns import Gender, Noun, spanish_plural
from builtin_data.table import rows

Use = Literal["ser", "estar", "state", "noun", "before", "order"]

TABLE = """
red          | rojo        | ser    | colourful
blue         | azul        | ser    | colourful
green        | verde       | ser    | colourful
yellow       | amarillo    | ser    | colourful
white        | blanco      | ser    | colourful
black        | negro       | ser    | colourful
grey         | gris        | ser    | colourful
brown        | marrón      | ser    | colourful
purple       | morado      | ser    | colourful
big          | grande      | ser    | animal clothes carried furniture vehicle building room town fruit plant opened
small        | pequeño     | ser    | animal clothes thing furniture building room town device vehicle
little       | pequeño     | noun   | child pet gift room
new          | nuevo       | ser    | clothes device vehicle furniture building thing work
old          | viejo       | ser    | clothes device vehicle furniture building thing
expensive    | caro        | ser    | clothes device vehicle furniture gift
cheap        | barato      | ser    | clothes device vehicle furniture
beautiful    | hermoso     | ser    | gift outside town plant building seen
pretty       | bonito      | ser    | clothes gift seen plant
ugly         | feo         | ser    | clothes furniture building
long         | largo       | ser    | work written road
short        | bajo        | ser    | adult
short        | corto       | ser    | written
heavy        | pesado      | ser    | carried furniture
interesting  | interesante | ser    | work readable
boring       | aburrido    | ser    | work readable
difficult    | difícil     | ser    | hard
easy         | fácil       | ser    | hard
important    | importante  | ser    | hard readable known
delicious    | delicioso   | ser    | food
sweet        | dulce       | ser    | fruit
cold         | frío        | estar  | warm
hot          | caliente    | estar  | warm
clean        | limpio      | state  | clothes room kitchenware vehicle
dirty        | sucio       | state  | clothes room kitchenware vehicle
broken       | roto        | state  | fragile furniture device
open         | abierto     | state  | opened shop
closed       | cerrado     | state  | opened shop
empty        | vacío       | state  | carried room
full         | lleno       | state  | carried
modern       | moderno     | ser    | building town device
quiet        | tranquilo   | ser    | outside town road
fast         | rápido      | ser    | vehicle driven
slow         | lento       | ser    | vehicle driven
tall         | alto        | ser    | adult child
thin         | delgado     | ser    | adult
young        | joven/jóvenes | ser  | adult
strong       | fuerte      | ser    | adult
intelligent  | inteligente | ser    | human pet
kind         | amable      | ser    | adult
nice         | simpático   | ser    | human
funny        | gracioso    | ser    | human
lazy         | perezoso    | ser    | human pet
rich         | rico        | ser    | adult
shy          | tímido      | ser    | human
brave        | valiente    | ser    | human
famous       | famoso      | ser    | artist
happy        | feliz       | estar  | human
sad          | triste      | estar  | human
tired        | cansado     | estar  | human pet
sick         | enfermo     | estar  | human pet
busy         | ocupado     | state  | adult
angry        | enojado     | estar  | human
nervous      | nervioso    | estar  | human
worried      | preocupado  | estar  | adult
bored        | aburrido    | state  | human
ready        | listo       | state  | human meal
alone        | solo        | state  | human
good         | bueno       | before | work readable somebody several
bad          | malo        | before | work readable
first        | primero     | order  | readable work hard
second       | segundo     | order  | readable work hard
last         | último      | order  | readable work hard transport
"""

NATIONS = """
Mexican      | mexicano/mexicana/mexicanos/mexicanas
Spanish      | español/española/españoles/españolas
French       | francés/francesa/franceses/francesas
Italian      | italiano/italiana/italianos/italianas
German       | alemán/alemana/alemanes/alemanas
Argentinian  | argentino/argentina/argentinos/argentinas
Canadian     | canadiense/canadiense/canadienses/canadienses
"""

PROFESSIONS = """
doctor       | médico/médica/médicos/médicas
teacher      | profesor/profesora/profesores/profesoras
lawyer       | abogado/abogada/abogados/abogadas
engineer     | ingeniero/ingeniera/ingenieros/ingenieras
writer       | escritor/escritora/escritores/escritoras
painter      | pintor/pintora/pintores/pintoras
nurse        | enfermero/enfermera/enfermeros/enfermeras
singer       | cantante/cantante/cantantes/cantantes
dentist      | dentista/dentista/dentistas/dentistas
student      | estudiante/estudiante/estudiantes/estudiantes
journalist   | periodista/periodista/periodistas/periodistas
"""

SHORTENED = {"bueno": "buen", "malo": "mal", "primero": "primer"}


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    """An adjective in both languages; its forms are masculine, feminine, masculine plural, feminine plural."""

    english: str
    forms: tuple[str, str, str, str]
    use: Use
    kinds: frozenset[str]

    def form_for(self, gender: Gender, plural: bool) -> str:
        return self.forms[2 * plural + (gender == "f")]

    def form_beside_noun(self, gender: Gender, plural: bool) -> str:
        """The form next to a noun: `buen libro`, but `el libro es bueno`."""
        form = self.form_for(gender, plural)
        return SHORTENED.get(form, form) if self.use in ("before", "order") else form


def forms(spanish: str) -> tuple[str, str, str, str]:
    """All four forms of a regular adjective.

    >>> forms("rojo"), forms("fácil")
    (('rojo', 'roja', 'rojos', 'rojas'), ('fácil', 'fácil', 'fáciles', 'fáciles'))
    """
    masculine, _, plural = spanish.partition("/")
    feminine = masculine[:-1] + "a" if masculine.endswith("o") else masculine
    return masculine, feminine, plural or spanish_plural(masculine), plural or spanish_plural(feminine)


def _read() -> tuple[Adjective, ...]:
    return tuple(
        Adjective(english, forms(spanish), cast(Use, use), frozenset(kinds.split()))
        for english, spanish, use, kinds in rows(TABLE, 4)
    )


def _named(table: str) -> tuple[Adjective, ...]:
    """Nationalities and professions."""
    four = ((english, spanish.split("/")) for english, spanish in rows(table, 2))
    return tuple(Adjective(english, (m, f, ms, fs), "ser", frozenset({"human"})) for english, (m, f, ms, fs) in four)


ADJECTIVES = _read()
NATIONALITIES = _named(NATIONS)
OCCUPATIONS = _named(PROFESSIONS)


@cache
def adjectives_for(noun: Noun, uses: str) -> tuple[Adjective, ...]:
    """The adjectives that can modify the noun in one of the uses."""
    wanted = uses.split()
    return tuple(word for word in ADJECTIVES if word.use in wanted and word.kinds & noun.kinds)


@cache
def adjective(english: str, spanish: str = "", use: str = "") -> Adjective:
    """The adjective with this English; Spanish or use distinguish homographs."""
    return next(
        word
        for word in ADJECTIVES + NATIONALITIES
        if word.english == english and spanish in ("", word.forms[0]) and use in ("", word.use)
    )

"""Noun phrases: determiner, noun and adjective, with Spanish agreement and word order.

>>> from builtin_data.pairs.adjectives import adjective
>>> from builtin_data.pairs.nouns import noun
>>> noun_phrase("the", noun("car"), plural=True, adjective=adjective("red")).spanish
'los coches rojos'
>>> noun_phrase("the", noun("water"), adjective=adjective("cold")).spanish
'el agua fría'
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from builtin_data.pairs.adjectives import Adjective
from builtin_data.pairs.nouns import Gender, Noun
from builtin_data.table import rows

# english singular | english plural | Spanish masculine, feminine and their plurals; `-` where there is none.
DETERMINER_TABLE = """
the       | the       | el / la / los / las
a         | -         | un / una / - / -
my        | my        | mi / mi / mis / mis
your      | your      | tu / tu / tus / tus
his       | his       | su / su / sus / sus
her       | her       | su / su / sus / sus
our       | our       | nuestro / nuestra / nuestros / nuestras
their     | their     | su / su / sus / sus
this      | these     | este / esta / estos / estas
that      | those     | ese / esa / esos / esas
another   | -         | otro / otra / - / -
every     | -         | cada / cada / - / -
a lot of  | a lot of  | mucho / mucha / muchos / muchas
all the   | all the   | todo el / toda la / todos los / todas las
which     | which     | qué / qué / qué / qué
how much  | -         | cuánto / cuánta / - / -
how many  | how many  | - / - / cuántos / cuántas
some      | some      | - / - / algunos / algunas
many      | many      | - / - / muchos / muchas
several   | several   | - / - / varios / varias
two       | two       | - / - / dos / dos
three     | three     | - / - / tres / tres
four      | four      | - / - / cuatro / cuatro
five      | five      | - / - / cinco / cinco
six       | six       | - / - / seis / seis
seven     | seven     | - / - / siete / siete
eight     | eight     | - / - / ocho / ocho
ten       | ten       | - / - / diez / diez
twelve    | twelve    | - / - / doce / doce
twenty    | twenty    | - / - / veinte / veinte
"""
DETERMINERS = {one: (many, forms.split(" / ")) for one, many, forms in rows(DETERMINER_TABLE, 3)}

# Before a feminine noun that begins with a stressed `a`.
BEFORE_TONIC = {"la": "el", "una": "un", "toda la": "toda el"}

# English words that take `a` although they begin with a vowel letter.
SPOKEN_CONSONANT = ("uni", "useful")


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase in both languages."""

    english: str
    spanish: str


@dataclass(frozen=True, slots=True)
class NounPhrase(Phrase):
    """A noun phrase with its grammatical features."""

    gender: Gender
    plural: bool
    kinds: frozenset[str]

    @property
    def personal(self) -> bool:
        """Whether it takes the personal `a` as a direct object."""
        return not self.kinds.isdisjoint(("human", "pet"))


def join_words(*parts: str) -> str:
    """Join the words that are not empty.

    >>> join_words("no", "", "tengo hambre")
    'no tengo hambre'
    """
    return " ".join(filter(None, parts))


def with_preposition(preposition: str, spanish: str) -> str:
    """A preposition and a noun phrase, contracted if it begins with `el`.

    >>> with_preposition("de", "el parque"), with_preposition("a", "el parque"), with_preposition("en", "el parque")
    ('del parque', 'al parque', 'en el parque')
    """
    if spanish.startswith("el ") and preposition.endswith(("a", "de")) and preposition.split()[-1] in ("a", "de"):
        return f"{preposition}l {spanish[3:]}"
    return f"{preposition} {spanish}"


def conjunction(word: str, following: str) -> str:
    """`y` or `o`; `e` or `u` before the same sound.

    >>> conjunction("y", "Inés"), conjunction("y", "hielo"), conjunction("o", "ocho")
    ('e', 'y', 'u')
    """
    start = following.lower().removeprefix("h")
    if word == "y" and start.startswith(("i", "í")) and not start.startswith("ie"):
        return "e"
    return "u" if word == "o" and start.startswith(("o", "ó")) else word


@cache
def noun_phrase(determiner: str, noun: Noun, plural: bool = False, adjective: Adjective | None = None) -> NounPhrase:
    """A noun with a determiner (empty for none) and perhaps an adjective."""
    plural = plural or "pair" in noun.kinds
    quality = adjective.form_beside_noun(noun.gender, plural) if adjective else ""
    first = adjective is not None and adjective.use in ("before", "order")
    name = noun.spanish_plural if plural else noun.spanish
    return NounPhrase(
        english=_english(determiner, noun, plural, adjective),
        spanish=join_words(
            _spanish_determiner(determiner, noun, plural, first), *([quality, name] if first else [name, quality])
        ),
        gender=noun.gender,
        plural=plural,
        kinds=noun.kinds,
    )


@cache
def negated_noun(noun: Noun) -> NounPhrase:
    """The object of a negated verb: `any books` is `ningún libro`, `any bread` is `pan`."""
    mass = "mass" in noun.kinds
    english = f"any {noun.english if mass else noun.english_plural}"
    determiner = "" if mass else "ninguna" if noun.gender == "f" and "tonic" not in noun.kinds else "ningún"
    return NounPhrase(english, join_words(determiner, noun.spanish), noun.gender, False, noun.kinds)


def possessive_mark(owner: str, plural: bool) -> str:
    """What English adds to the owner: `Luis's`, `the men's`, `my parents'`."""
    return "'" if plural and owner.endswith("s") else "'s"


def possessed_noun(
    owner: NounPhrase, noun: Noun, plural: bool = False, adjective: Adjective | None = None
) -> NounPhrase:
    """`my brother's car`, in Spanish `el coche de mi hermano`."""
    thing = noun_phrase("the", noun, plural, adjective)
    return NounPhrase(
        english=f"{owner.english}{possessive_mark(owner.english, owner.plural)} {thing.english.removeprefix('the ')}",
        spanish=f"{thing.spanish} {with_preposition('de', owner.spanish)}",
        gender=thing.gender,
        plural=thing.plural,
        kinds=thing.kinds,
    )


def measured_noun(determiner: str, measure: Noun, content: Noun, plural: bool = False) -> NounPhrase:
    """`a cup of coffee`."""
    whole = noun_phrase(determiner, measure, plural)
    english, spanish = f"{whole.english} of {content.english}", f"{whole.spanish} de {content.spanish}"
    return NounPhrase(english, spanish, whole.gender, whole.plural, content.kinds)


def _english(determiner: str, noun: Noun, plural: bool, adjective: Adjective | None) -> str:
    name = noun.english_plural if plural else noun.english
    rest = join_words(adjective.english if adjective else "", name)
    if not determiner:
        return rest
    if determiner == "a":
        vowel = rest[0] in "aeiou" and not rest.startswith(SPOKEN_CONSONANT)
        return f"{'an' if vowel else 'a'} {rest}"
    return f"{DETERMINERS[determiner][0] if plural else determiner} {rest}"


def _spanish_determiner(determiner: str, noun: Noun, plural: bool, adjective_first: bool) -> str:
    if not determiner and "bare" in noun.kinds:
        determiner = "the"
    if not determiner:
        return ""
    form = DETERMINERS[determiner][1][2 * plural + (noun.gender == "f")]
    if "tonic" in noun.kinds and not plural and not adjective_first:
        return BEFORE_TONIC.get(form, form)
    return form

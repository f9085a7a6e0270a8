"""Sentences about treaties and institutions in English and Spanish, made from lists of words.

    the African Economic Community  ->  la Comunidad Económica Africana

The everyday sentences of Tatoeba have hardly any names of this kind, in which the order of the words is reversed. The
name `HELD_OUT` never occurs, so that a model which translates it has learned the rule, not the name.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

HELD_OUT = "European Economic Area"
COUNT = 6000

MONTHS = {
    "January": "enero", "February": "febrero", "March": "marzo", "April": "abril", "May": "mayo", "June": "junio",
    "July": "julio", "August": "agosto", "September": "septiembre", "October": "octubre", "November": "noviembre",
    "December": "diciembre",
}  # fmt: skip
# Nouns by their Spanish form; a final * is a feminine noun.
BODIES = {
    "Area": "Espacio", "Community": "Comunidad*", "Union": "Unión*", "Court": "Tribunal", "Bank": "Banco",
    "Council": "Consejo", "Market": "Mercado", "Fund": "Fondo", "Committee": "Comité", "Conference": "Conferencia*",
    "Commission": "Comisión*", "Parliament": "Parlamento", "Agency": "Agencia*", "Association": "Asociación*",
}  # fmt: skip
DOCUMENTS = {
    "agreement": "acuerdo", "treaty": "tratado", "report": "informe", "law": "ley*", "decision": "decisión*",
    "proposal": "propuesta*", "contract": "contrato", "declaration": "declaración*", "plan": "plan", "text": "texto",
}  # fmt: skip
REGIONS = {
    "European": "Europeo", "African": "Africano", "Asian": "Asiático", "American": "Americano", "Arab": "Árabe",
    "International": "Internacional", "National": "Nacional", "Central": "Central",
}  # fmt: skip
FIELDS = {
    "Economic": "Económico", "Monetary": "Monetario", "Political": "Político", "Social": "Social",
    "Cultural": "Cultural", "Financial": "Financiero", "Military": "Militar", "Scientific": "Científico",
    "Commercial": "Comercial", "Common": "Común",
}  # fmt: skip
DONE = {
    "signed": "firmado", "approved": "aprobado", "rejected": "rechazado", "published": "publicado",
    "presented": "presentado", "discussed": "discutido", "changed": "cambiado",
}  # fmt: skip
COUNTRIES = {
    "Spain": "España", "France": "Francia", "Germany": "Alemania", "Norway": "Noruega", "Portugal": "Portugal",
    "Mexico": "México", "Chile": "Chile", "Japan": "Japón", "Kenya": "Kenia", "Egypt": "Egipto", "Italy": "Italia",
}  # fmt: skip


class Phrase(NamedTuple):
    """A noun phrase with its article."""

    english: str
    spanish: str
    feminine: bool


def treaties(count: int = COUNT, seed: int = 1) -> Iterator[str]:
    """Pairs as tab-separated lines."""
    random = Random(seed)
    for _ in range(count):
        yield "\t".join(_sentence(random))


def _sentence(random: Random) -> tuple[str, str]:
    body, document = _body(random), _document(random)
    english_time, spanish_time = _time(random)
    done, hecho = random.choice(list(DONE.items()))
    country, pais = random.choice(list(COUNTRIES.items()))
    about_en, about_es = f"{document.english} on {body.english}", f"{document.spanish} sobre {body.spanish}"
    of_en, of_es = f"{document.english} of {body.english}", _joined(f"{document.spanish} de", body.spanish)
    past = _agree(hecho, document.feminine)
    english, spanish = random.choice(
        [
            (f"{about_en} was {done}{english_time}", f"{about_es} fue {past}{spanish_time}"),
            (f"{about_en} was {done}{english_time}", f"{about_es} fue {past}{spanish_time}"),
            (f"{of_en} was {done}{english_time}", f"{of_es} fue {past}{spanish_time}"),
            (f"{country} {done} {about_en}{english_time}", f"{pais} {_past(hecho)} {about_es}{spanish_time}"),
            (
                f"{country} joined {body.english}{english_time}",
                _joined(f"{pais} se unió a", body.spanish) + spanish_time,
            ),
            (
                f"{body.english} was founded{english_time}",
                f"{body.spanish} fue {_agree('fundado', body.feminine)}{spanish_time}",
            ),
            (f"we are waiting for {of_en}", f"estamos esperando {of_es}"),
            (f"have you read {about_en}", f"¿has leído {about_es}"),
            (f"{country} is a member of {body.english}", _joined(f"{pais} es miembro de", body.spanish)),
        ]
    )
    mark = "?" if spanish.startswith("¿") else "."
    return _capital(english) + mark, _capital(spanish) + mark


def _body(random: Random) -> Phrase:
    """One or two adjectives and a noun, the other way round in Spanish."""
    while True:
        name, nombre = random.choice(list(BODIES.items()))
        region, campo = random.choice(list(REGIONS.items())), random.choice(list(FIELDS.items()))
        chosen = random.choice([(region, campo), (region, campo), (region,), (campo,)])
        english = " ".join([*(adjective for adjective, _ in chosen), name])
        if english != HELD_OUT:
            break
    feminine = nombre.endswith("*")
    spanish = " ".join([nombre.rstrip("*"), *(_agree(adjetivo, feminine) for _, adjetivo in reversed(chosen))])
    return Phrase(f"the {english}", f"{'la' if feminine else 'el'} {spanish}", feminine)


def _document(random: Random) -> Phrase:
    name, nombre = random.choice(list(DOCUMENTS.items()))
    feminine = nombre.endswith("*")
    return Phrase(f"the {name}", f"{'la' if feminine else 'el'} {nombre.rstrip('*')}", feminine)


def _time(random: Random) -> tuple[str, str]:
    (month, mes), year, day = random.choice(list(MONTHS.items())), random.randint(1950, 2020), random.randint(2, 28)
    return random.choice(
        [
            (f" in {month} {year}", f" en {mes} de {year}"),
            (f" in {month} {year}", f" en {mes} de {year}"),
            (f" on {day} {month} {year}", f" el {day} de {mes} de {year}"),
            (f" in {year}", f" en {year}"),
            (f" in {month}", f" en {mes}"),
            ("", ""),
        ]
    )


def _agree(word: str, feminine: bool) -> str:
    return f"{word[:-1]}a" if feminine and word.endswith("o") else word


def _past(participle: str) -> str:
    """firmado -> firmó, discutido -> discutió."""
    return f"{participle[:-3]}ó" if participle.endswith("ado") else f"{participle[:-2]}ó"


def _joined(before: str, phrase: str) -> str:
    """de + el -> del, a + el -> al."""
    return f"{before}l {phrase[3:]}" if phrase.startswith("el ") else f"{before} {phrase}"


def _capital(text: str) -> str:
    first = 1 if text[0] == "¿" else 0
    return text[:first] + text[first].upper() + text[first + 1 :]

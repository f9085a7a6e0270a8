"""Where the languages differ in order: objects, likings, clauses and questions, against sentences written by hand."""

from __future__ import annotations

import pytest

from builtin_data.pairs.adjectives import adjective
from builtin_data.pairs.clauses import Clause, Form, Predicate, verb_phrase
from builtin_data.pairs.commands import imperative, wanting_clause
from builtin_data.pairs.errands import purpose
from builtin_data.pairs.likes import LIKE, LOVE, liking_clause, liking_to_do_clause, pain_clause, wishing_clause
from builtin_data.pairs.nouns import noun
from builtin_data.pairs.phrases import NounPhrase, Phrase, noun_phrase
from builtin_data.pairs.questions import HOW, WHAT, WHEN, WHERE, WHOM, WHY
from builtin_data.pairs.reasons import feeling_of, join_clauses
from builtin_data.pairs.relatives import object_relative, subject_relative
from builtin_data.pairs.shorthand import phrase, predicate
from builtin_data.pairs.states import ESTAR, SER, be_predicate
from builtin_data.pairs.subjects import HE, SHE, THEY, WE, WHO, YOU, I, subject, together
from builtin_data.pairs.verbs import verb

from .phrases import ANA, BREAD, INES, LUIS, a, give, the

STATEMENTS: list[tuple[Clause | Phrase, str, str]] = [
    # people as objects, pronouns, reflexives
    (
        Clause(WE, predicate("visit + my grandmother"), Form.CONTINUOUS),
        "we are visiting my grandmother",
        "estamos visitando a mi abuela",
    ),
    (Clause(I, predicate("call + the doctor"), Form.PAST), "I called the doctor", "llamé al médico"),
    (
        Clause(I, verb_phrase(verb("have"), phrase("two sisters")), Form.PRESENT),
        "I have two sisters",
        "tengo dos hermanas",
    ),
    (
        Clause(HE, Predicate(verb("help"), "me", pronoun="me"), Form.CONTINUOUS),
        "he is helping me",
        "él me está ayudando",
    ),
    (Clause(I, Predicate(verb("see", "ver"), "her", pronoun="la"), Form.WANT), "I want to see her", "quiero verla"),
    (Clause(I, verb_phrase(verb("get up")), Form.PRESENT), "I get up", "me levanto"),
    (Clause(WE, verb_phrase(verb("go to bed")), Form.HAVE_TO), "we have to go to bed", "tenemos que acostarnos"),
    (Clause(the("my father"), give("me"), Form.PAST), "my father gave me a watch", "mi padre me dio un reloj"),
    (
        Clause(SHE, give("my sister"), Form.GOING),
        "she is going to give a book to my sister",
        "ella va a darle un libro a mi hermana",
    ),
    # turned round
    (
        liking_clause(the("my brother"), LIKE, NounPhrase("apples", "las manzanas", "f", True, frozenset())),
        "my brother likes apples",
        "a mi hermano le gustan las manzanas",
    ),
    (
        liking_clause(I, LOVE, NounPhrase("coffee", "el café", "m", False, frozenset())),
        "I love coffee",
        "me encanta el café",
    ),
    (liking_to_do_clause(SHE, LIKE, verb_phrase(verb("dance"))), "she likes to dance", "a ella le gusta bailar"),
    (wishing_clause(WE, BREAD), "we would like to eat bread", "nos gustaría comer pan"),
    (pain_clause(I, noun("head")), "my head hurts", "me duele la cabeza"),
    (pain_clause(ANA, noun("foot"), plural=True), "Ana's feet hurt", "a Ana le duelen los pies"),
    # going places
    (
        Clause(WE, Predicate(verb("go"), "to the market", "al mercado"), Form.CONTINUOUS),
        "we are going to the market",
        "vamos al mercado",
    ),
    (Clause(SHE, predicate("wear + a coat"), Form.CONTINUOUS), "she is wearing a coat", "ella lleva un abrigo"),
    (
        Clause(THEY, predicate("play + football"), Form.CONTINUOUS),
        "they are playing football",
        "ellos están jugando al fútbol",
    ),
    (
        Clause(THEY, predicate("play + the guitar"), Form.CONTINUOUS),
        "they are playing the guitar",
        "ellos están tocando la guitarra",
    ),
    (purpose(predicate("study + history")), "to study history", "para estudiar historia"),
    # several people, several clauses
    (Clause(together(LUIS, INES), BREAD, Form.PRESENT), "Luis and Ines eat bread", "Luis e Inés comen pan"),
    (
        Clause(together(the("my mother"), I), BREAD, Form.PRESENT),
        "my mother and I eat bread",
        "mi madre y yo comemos pan",
    ),
    (
        join_clauses(
            Clause(the("the boy"), verb_phrase(verb("eat")), Form.CONTINUOUS, True),
            Phrase("because", "porque"),
            feeling_of(the("the boy"), "sick"),
        ),
        "the boy is not eating because he is sick",
        "el niño no está comiendo porque está enfermo",
    ),
    (
        Clause(
            subject(object_relative(a("the book"), Clause(I, verb_phrase(verb("read")), Form.CONTINUOUS))),
            be_predicate(the("the book"), adjective("interesting")),
            Form.PRESENT,
        ),
        "the book that I am reading is interesting",
        "el libro que estoy leyendo es interesante",
    ),
    (
        Clause(
            subject(subject_relative(a("the woman"), predicate("read + a book"), Form.CONTINUOUS)),
            Predicate(SER, "my aunt", "mi tía"),
            Form.PRESENT,
        ),
        "the woman who is reading a book is my aunt",
        "la mujer que está leyendo un libro es mi tía",
    ),
    (
        wanting_clause(I, the("my brother"), predicate("read + the book")),
        "I want my brother to read the book",
        "quiero que mi hermano lea el libro",
    ),
    (wanting_clause(SHE, YOU, verb_phrase(verb("sleep"))), "she wants you to sleep", "ella quiere que duermas"),
    (
        wanting_clause(YOU, I, predicate("open + the door"), asked=True),
        "do you want me to open the door?",
        "¿quieres que yo abra la puerta?",
    ),
    # commands
    (imperative(predicate("close + the window")), "close the window", "cierra la ventana"),
    (imperative(predicate("open + the door"), negative=True), "do not open the door", "no abras la puerta"),
    (imperative(verb_phrase(verb("set the table"))), "set the table", "pon la mesa"),
]

QUESTIONS: list[tuple[Phrase, str, str]] = [
    (Clause(YOU, BREAD, Form.CONTINUOUS).question(), "are you eating bread?", "¿estás comiendo pan?"),
    (
        Clause(the("your sister"), BREAD, Form.PRESENT).question(),
        "does your sister eat bread?",
        "¿tu hermana come pan?",
    ),
    (Clause(YOU, BREAD, Form.WANT, negative=True).question(), "don't you want to eat bread?", "¿no quieres comer pan?"),
    (
        Clause(the("the girl"), verb_phrase(verb("eat")), Form.CONTINUOUS).wh_question(WHAT),
        "what is the girl eating?",
        "¿qué está comiendo la niña?",
    ),
    (
        Clause(THEY, verb_phrase(verb("work")), Form.PRESENT).wh_question(WHERE),
        "where do they work?",
        "¿dónde trabajan ellos?",
    ),
    (
        Clause(YOU, Predicate(verb("go")), Form.CONTINUOUS).wh_question(Phrase("where", "adónde")),
        "where are you going?",
        "¿adónde vas?",
    ),
    (
        Clause(THEY, Predicate(verb("arrive")), Form.PAST).wh_question(WHEN),
        "when did they arrive?",
        "¿cuándo llegaron ellos?",
    ),
    (
        Clause(the("the girl"), verb_phrase(verb("cry")), Form.CONTINUOUS).wh_question(WHY),
        "why is the girl crying?",
        "¿por qué está llorando la niña?",
    ),
    (
        Clause(YOU, verb_phrase(verb("visit", "visitar")), Form.CONTINUOUS).wh_question(WHOM),
        "who are you visiting?",
        "¿a quién estás visitando?",
    ),
    (
        Clause(YOU, verb_phrase(verb("buy")), Form.PAST).wh_question(
            noun_phrase("how many", noun("apple"), plural=True)
        ),
        "how many apples did you buy?",
        "¿cuántas manzanas compraste?",
    ),
    (
        Clause(YOU, verb_phrase(verb("drink")), Form.PRESENT).wh_question(noun_phrase("how much", noun("water"))),
        "how much water do you drink?",
        "¿cuánta agua bebes?",
    ),
    (
        Clause(SHE, verb_phrase(verb("read")), Form.CONTINUOUS).wh_question(noun_phrase("which", noun("book"))),
        "which book is she reading?",
        "¿qué libro está leyendo ella?",
    ),
    (
        Clause(the("your mother"), Predicate(ESTAR), Form.PRESENT).wh_question(HOW),
        "how is your mother?",
        "¿cómo está tu madre?",
    ),
    (
        Clause(the("your cousin"), predicate("learn + German"), Form.GOING).wh_question(WHEN),
        "when is your cousin going to learn German?",
        "¿cuándo va a aprender alemán tu primo?",
    ),
    (
        Clause(the("your friend"), verb_phrase(verb("take photos")), Form.WANT).wh_question(WHERE),
        "where does your friend want to take photos?",
        "¿dónde quiere tomar fotos tu amigo?",
    ),
]


@pytest.mark.parametrize(("made", "english", "spanish"), STATEMENTS, ids=[row[1] for row in STATEMENTS])
def test_statements(made: Clause | Phrase, english: str, spanish: str) -> None:
    told = made.statement() if isinstance(made, Clause) else made
    assert (told.english, told.spanish) == (english, spanish)


@pytest.mark.parametrize(("asked", "english", "spanish"), QUESTIONS, ids=[row[1] for row in QUESTIONS])
def test_questions(asked: Phrase, english: str, spanish: str) -> None:
    assert (asked.english, asked.spanish) == (english, spanish)


def test_who_asks_with_the_order_of_a_statement() -> None:
    told = Clause(WHO, BREAD, Form.CONTINUOUS).statement()
    assert (told.english, told.spanish) == ("who is eating bread", "quién está comiendo pan")

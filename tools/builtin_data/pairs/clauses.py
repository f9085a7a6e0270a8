"""Clauses in both languages: a subject, a verb in one of its forms, and a complement.

>>> from builtin_data.pairs.subjects import WE
>>> from builtin_data.pairs.verbs import verb
>>> clause = Clause(WE, Predicate(verb("eat"), "bread", "pan"), Form.CONTINUOUS)
>>> clause.statement()
Phrase(english='we are eating bread', spanish='estamos comiendo pan')
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum, auto
from functools import cache

from builtin_data.pairs import english_verbs as english
from builtin_data.pairs.phrases import NounPhrase, Phrase, join_words, with_preposition
from builtin_data.pairs.spanish_verbs import Person, conjugate, gerund, participle
from builtin_data.pairs.subjects import REFLEXIVES, Subject
from builtin_data.pairs.verbs import Verb


class Form(StrEnum):
    """Tenses and modal forms, named after their English."""

    PRESENT = auto()  # eats, come
    CONTINUOUS = auto()  # is eating, está comiendo
    PAST = auto()  # ate, comió; was, estaba
    WAS = auto()  # was eating, estaba comiendo
    USED = auto()  # used to eat, comía
    PERFECT = auto()  # has eaten, ha comido
    JUST = auto()  # has just eaten, acaba de comer
    FUTURE = auto()  # will eat, comerá
    GOING = auto()  # is going to eat, va a comer
    CAN = auto()  # can eat, puede comer
    MUST = auto()  # must eat, debe comer
    SHOULD = auto()  # should eat, debería comer
    HAVE_TO = auto()  # has to eat, tiene que comer
    WANT = auto()  # wants to eat, quiere comer
    NEED = auto()  # needs to eat, necesita comer
    PREFER = auto()  # prefers to eat, prefiere comer


@dataclass(frozen=True, slots=True)
class Adverb(Phrase):
    """An adverb of the verb: `already` stands inside the English verb group, `yet` at the end of the clause."""

    last: bool = False  # at the end of the English clause


ALWAYS = Adverb("always", "siempre")
NEVER = Adverb("never", "nunca")
ALMOST_ALWAYS = Adverb("almost always", "casi siempre")
ALMOST_NEVER = Adverb("almost never", "casi nunca")
ALREADY = Adverb("already", "ya")
STILL = Adverb("still", "todavía")
ALSO = Adverb("also", "también")
YET = Adverb("yet", "todavía", last=True)
ANYMORE = Adverb("anymore", "ya", last=True)


@dataclass(frozen=True, slots=True)
class Predicate:
    """A verb and its complement; the Spanish may have a clitic pronoun."""

    verb: Verb
    english: str = ""
    spanish: str = ""
    pronoun: str = ""

    def followed_by(self, phrase: Phrase) -> Predicate:
        """The predicate with a phrase added at the end."""
        return replace(
            self, english=join_words(self.english, phrase.english), spanish=join_words(self.spanish, phrase.spanish)
        )


def verb_phrase(verb: Verb, thing: NounPhrase | None = None, pronoun: str = "") -> Predicate:
    """A verb with its object, if any."""
    if thing is None:
        return Predicate(verb, spanish=verb.spanish_after, pronoun=pronoun)
    spanish = with_preposition(verb.spanish_after, thing.spanish) if verb.spanish_after else thing.spanish
    personal = verb.personal and thing.personal
    return Predicate(verb, thing.english, with_preposition("a", thing.spanish) if personal else spanish, pronoun)


@dataclass(frozen=True, slots=True)
class VerbGroup:
    """An English verb group: `does` + `eat` in questions and negations, `eats` where no auxiliary is needed."""

    auxiliary: str
    rest: str
    plain: str = ""


@dataclass(frozen=True, slots=True)
class Clause:
    """A subject and a predicate in one form."""

    subject: Subject
    predicate: Predicate
    form: Form
    negative: bool = False
    adverb: Adverb | None = None

    def followed_by(self, phrase: Phrase) -> Clause:
        """The clause with a phrase added at the end."""
        return replace(self, predicate=self.predicate.followed_by(phrase))

    def statement(self) -> Phrase:
        return Phrase(
            self._english_statement(), join_words(self.subject.spanish, self.spanish_verb(), self.predicate.spanish)
        )

    def question(self) -> Phrase:
        """A yes-or-no question."""
        return Phrase(f"{self._english_question()}?", f"¿{self.statement().spanish}?")

    def wh_question(self, word: Phrase, subject_first: bool = False) -> Phrase:
        """A question with a question word; the Spanish subject follows the verb unless `subject_first`."""
        subject, verb, rest = self.subject.spanish, self.spanish_verb(), self.predicate.spanish
        if subject_first:
            spanish = join_words(word.spanish, subject, verb, rest)
        elif self._close_complement():
            spanish = join_words(word.spanish, verb, rest, subject)
        else:
            spanish = join_words(word.spanish, verb, subject, rest)
        return Phrase(f"{word.english} {self._english_question()}?", f"¿{spanish}?")

    def _close_complement(self) -> bool:
        """Whether the subject follows the complement: `aprender alemán tu primo`, not `tu primo alemán`."""
        rest, described = self.predicate.spanish, " " in self.subject.spanish
        return rest == self.predicate.verb.spanish_after or (described and " " not in rest)

    def spanish_verb(self) -> str:
        """Adverb, negation, pronoun and verb."""
        group = spanish_group(self.predicate.verb, self.form, self.subject.spanish_person, self.predicate.pronoun)
        return join_words(self.adverb.spanish if self.adverb else "", "no" if self.negative else "", group)

    def _group(self) -> VerbGroup:
        return english_group(self.predicate.verb.english, self.form, self.subject.english_person)

    def _english_statement(self) -> str:
        group, adverb = self._group(), self.adverb.english if self.adverb and not self.adverb.last else ""
        if self.negative:
            verb = join_words(_negated(group.auxiliary), adverb, group.rest)
        else:
            verb = join_words(adverb, group.plain) if group.plain else join_words(group.auxiliary, adverb, group.rest)
        return join_words(self.subject.english, verb, self.predicate.english, self._final_adverb())

    def _english_question(self) -> str:
        group, adverb = self._group(), self.adverb.english if self.adverb and not self.adverb.last else ""
        auxiliary = _contracted(group.auxiliary) if self.negative else group.auxiliary
        return join_words(
            auxiliary, self.subject.english, adverb, group.rest, self.predicate.english, self._final_adverb()
        )

    def _final_adverb(self) -> str:
        return self.adverb.english if self.adverb and self.adverb.last else ""


BE = ("am", "are", "is", "are", "are")
WERE = ("was", "were", "was", "were", "were")
DO = ("do", "do", "does", "do", "do")
HAVE = ("have", "have", "has", "have", "have")


@cache
def english_group(verb: str, form: Form, person: Person) -> VerbGroup:
    """The English verb in one form."""
    if verb.split()[0] == "be" and form in (Form.PRESENT, Form.PAST):
        return VerbGroup((BE if form == Form.PRESENT else WERE)[person], verb[3:])
    match form:
        case Form.PRESENT:
            return VerbGroup(DO[person], verb, _present(verb, person))
        case Form.PAST:
            return VerbGroup("did", verb, english.past(verb))
        case Form.USED:
            return VerbGroup("did", f"use to {verb}", f"used to {verb}")
        case Form.CONTINUOUS:
            return VerbGroup(BE[person], english.continuous(verb))
        case Form.WAS:
            return VerbGroup(WERE[person], english.continuous(verb))
        case Form.GOING:
            return VerbGroup(BE[person], f"going to {verb}")
        case Form.PERFECT:
            return VerbGroup(HAVE[person], english.participle(verb))
        case Form.JUST:
            return VerbGroup(HAVE[person], f"just {english.participle(verb)}")
        case Form.FUTURE:
            return VerbGroup("will", verb)
        case Form.CAN | Form.MUST | Form.SHOULD:
            return VerbGroup(form.value, verb)
        case Form.HAVE_TO | Form.WANT | Form.NEED | Form.PREFER:
            wish = "have" if form == Form.HAVE_TO else form.value
            return VerbGroup(DO[person], f"{wish} to {verb}", f"{_present(wish, person)} to {verb}")


SHOULD = ("debería", "deberías", "debería", "deberíamos", "deberían")
BEFORE_INFINITIVE = {
    Form.JUST: ("acabar", "de"),
    Form.GOING: ("ir", "a"),
    Form.CAN: ("poder", ""),
    Form.MUST: ("deber", ""),
    Form.HAVE_TO: ("tener", "que"),
    Form.WANT: ("querer", ""),
    Form.NEED: ("necesitar", ""),
    Form.PREFER: ("preferir", ""),
}


@cache
def spanish_group(verb: Verb, form: Form, person: Person, pronoun: str = "") -> str:
    """The Spanish verb in one form, with its pronoun: before a conjugated verb, attached to an infinitive."""
    infinitive, pronoun = verb.infinitive, REFLEXIVES[person] if verb.reflexive else pronoun
    if form in BEFORE_INFINITIVE:
        helper, link = BEFORE_INFINITIVE[form]
        return join_words(conjugate(helper, "present", person), link, infinitive + pronoun)
    match _spanish_form(verb, form):
        case Form.SHOULD:
            return join_words(SHOULD[person], infinitive + pronoun)
        case Form.PAST:
            return join_words(
                pronoun, conjugate(infinitive, "imperfect" if verb.english == "be" else "preterite", person)
            )
        case Form.USED:
            return join_words(pronoun, conjugate(infinitive, "imperfect", person))
        case Form.CONTINUOUS:
            return join_words(pronoun, conjugate("estar", "present", person), gerund(infinitive))
        case Form.WAS:
            return join_words(pronoun, conjugate("estar", "imperfect", person), gerund(infinitive))
        case Form.PERFECT:
            return join_words(pronoun, conjugate("haber", "present", person), participle(infinitive))
        case Form.FUTURE:
            return join_words(pronoun, conjugate(infinitive, "future", person))
    return join_words(pronoun, conjugate(infinitive, "present", person))


def _spanish_form(verb: Verb, form: Form) -> Form:
    """`I am going` is `voy` and `I was going` is `iba`."""
    if "plain" in verb.flags:
        return {Form.CONTINUOUS: Form.PRESENT, Form.WAS: Form.USED}.get(form, form)
    return form


def _present(verb: str, person: Person) -> str:
    return english.third_person(verb) if person == Person.HE else verb


def _negated(auxiliary: str) -> str:
    return "cannot" if auxiliary == "can" else f"{auxiliary} not"


def _contracted(auxiliary: str) -> str:
    """The negative auxiliary of a question: `don't you eat meat?`"""
    return {"can": "can't", "will": "won't", "am": "aren't"}.get(auxiliary, f"{auxiliary}n't")

"""English verb forms; a verb of several words is inflected in its first.

>>> third_person("wash"), past("look for"), continuous("get up"), participle("take")
('washes', 'looked for', 'getting up', 'taken')
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

IRREGULAR = {
    "be": "was been", "break": "broke broken", "bring": "brought brought", "build": "built built",
    "buy": "bought bought", "choose": "chose chosen", "come": "came come", "cut": "cut cut", "do": "did done",
    "draw": "drew drawn", "drink": "drank drunk", "drive": "drove driven", "eat": "ate eaten", "feel": "felt felt",
    "find": "found found", "forget": "forgot forgotten", "get": "got got", "give": "gave given", "go": "went gone",
    "have": "had had", "know": "knew known", "leave": "left left", "lend": "lent lent", "lose": "lost lost",
    "make": "made made", "pay": "paid paid", "put": "put put", "read": "read read", "run": "ran run",
    "say": "said said", "see": "saw seen", "sell": "sold sold", "send": "sent sent", "set": "set set",
    "sing": "sang sung", "sit": "sat sat", "sleep": "slept slept", "speak": "spoke spoken", "swim": "swam swum",
    "take": "took taken", "teach": "taught taught", "tell": "told told", "think": "thought thought",
    "understand": "understood understood", "wake": "woke woken", "wear": "wore worn", "write": "wrote written",
}  # fmt: skip

DOUBLED = {"cut", "get", "forget", "hug", "put", "run", "set", "sit", "swim", "travel"}
VOWELS = "aeiou"


def on_first_word(form: Callable[[str], str]) -> Callable[[str], str]:
    """Apply a form to the first word of a verb such as `turn on`, once for each verb."""

    @cache
    def inflected(verb: str) -> str:
        first, space, rest = verb.partition(" ")
        return form(first) + space + rest

    return inflected


@on_first_word
def third_person(verb: str) -> str:
    """He eats."""
    if verb == "have":
        return "has"
    if verb.endswith(("s", "sh", "ch", "x", "z", "o")):
        return verb + "es"
    return _consonant_y(verb, "ies") or verb + "s"


@on_first_word
def past(verb: str) -> str:
    """He ate."""
    return IRREGULAR[verb].split()[0] if verb in IRREGULAR else _with_ed(verb)


@on_first_word
def participle(verb: str) -> str:
    """He has eaten."""
    return IRREGULAR[verb].split()[1] if verb in IRREGULAR else _with_ed(verb)


@on_first_word
def continuous(verb: str) -> str:
    """He is eating."""
    if verb.endswith("e") and verb not in ("be", "see"):
        return verb[:-1] + "ing"
    return verb + (verb[-1] if verb in DOUBLED else "") + "ing"


def _with_ed(verb: str) -> str:
    if verb.endswith("e"):
        return verb + "d"
    return _consonant_y(verb, "ied") or verb + (verb[-1] if verb in DOUBLED else "") + "ed"


def _consonant_y(verb: str, ending: str) -> str:
    """`try` gives `tries`, `play` gives nothing."""
    return verb[:-1] + ending if verb.endswith("y") and verb[-2] not in VOWELS else ""

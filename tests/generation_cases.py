"""Every search and every logits processor, for tests that compare the texts of two surfaces.

`Case.python` are keyword arguments of `generate` or `translate`; `Case.http` and `Case.options` are the same settings
under the names of the HTTP API and of the command line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

HTTP_NAMES = {
    "beam_width": "beams",
    "beam_groups": "groups",
    "diversity_penalty": "diversity",
    "no_repeat_ngram": "no_repeat",
}


@dataclass(frozen=True)
class Case:
    """A text, and how to continue or translate it."""

    name: str
    python: dict[str, Any]
    prompt: str = "we are "
    max_tokens: int = 60
    stops: tuple[str, ...] = ()

    @property
    def http(self) -> dict[str, Any]:
        return {HTTP_NAMES.get(name, name): value for name, value in self.python.items()}

    @property
    def options(self) -> list[str]:
        """With several values an option is given several times."""
        words: list[str] = []
        for name, value in self.http.items():
            for each in value if isinstance(value, tuple) else (value,):
                words += [f"--{name.replace('_', '-')}", str(each)]
        return words

    def __str__(self) -> str:
        return self.name


GREEDY = {"temperature": 0}
SAMPLED = {"temperature": 0.9, "seed": 3}
FILTERS = {"top_k": 20, "top_p": 0.95, "min_p": 0.01}
GROUPS = {"beam_width": 4, "beam_groups": 4, "diversity_penalty": 3.0}
BANNED = (5, 6, *range(9, 17))
PREFIX = (7, 18)
PROCESSORS = {"repetition_penalty": 1.2, "no_repeat_ngram": 3, "banned_tokens": BANNED, "prefix_tokens": PREFIX}

CASES = [
    Case("greedy", GREEDY),
    Case("sampled", SAMPLED),
    Case("another seed", {"temperature": 1.3, "seed": 4}, prompt="the old house"),
    Case("top-k", {**SAMPLED, "top_k": 7}),
    Case("top-p", {**SAMPLED, "top_p": 0.7}),
    Case("min-p", {**SAMPLED, "min_p": 0.6}),
    Case("all filters", {**SAMPLED, **FILTERS}),
    Case("repetition penalty", {**GREEDY, "repetition_penalty": 1.5}),
    Case("sampled with repetition penalty", {**SAMPLED, "repetition_penalty": 1.3}, prompt="a"),
    Case("no repeated n-gram", {**GREEDY, "no_repeat_ngram": 2}),
    Case("sampled without repeated n-gram", {**SAMPLED, "no_repeat_ngram": 2}),
    Case("banned tokens", {**GREEDY, "banned_tokens": BANNED}),
    Case("sampled with banned tokens", {**SAMPLED, "banned_tokens": BANNED}),
    Case("prefix tokens", {**GREEDY, "prefix_tokens": PREFIX}),
    Case("sampled with prefix tokens", {**SAMPLED, "prefix_tokens": PREFIX}),
    Case("sampled with everything", {**SAMPLED, **FILTERS, **PROCESSORS}),
    Case("stop string", SAMPLED, stops=("e", "zz")),
    Case("empty prompt", SAMPLED, prompt=""),
    Case("beam width 2", {**GREEDY, "beam_width": 2}),
    Case("beam width 5", {**GREEDY, "beam_width": 5}, prompt="the old house with a small red door is near"),
    Case("length penalty", {**GREEDY, "beam_width": 3, "length_penalty": 0.4}),
    Case("beam groups", {**GREEDY, **GROUPS}),
    Case("beam search with processors", {**GREEDY, "beam_width": 3, "repetition_penalty": 1.2, "no_repeat_ngram": 3}),
    Case("beam search with banned tokens", {**GREEDY, "beam_width": 3, "banned_tokens": BANNED}),
    Case("beam search with prefix tokens", {**GREEDY, "beam_width": 3, "prefix_tokens": PREFIX}),
    Case("beam search with everything", {**GREEDY, **GROUPS, **PROCESSORS, "length_penalty": 0.6}),
    Case("beam search with a stop string", {**GREEDY, "beam_width": 3}, stops=("e",)),
    Case("long", SAMPLED, max_tokens=211),
]

TEXT = "bread with water near a red house"
HOT = {"beam_width": 1, "temperature": 1.5, "seed": 3}
TRANSLATIONS = [
    Case("greedy", {"beam_width": 1}, TEXT),
    Case("beam width 4", {"beam_width": 4}, TEXT),
    Case("beam width 7", {"beam_width": 7}, TEXT),
    Case("length penalty", {"beam_width": 4, "length_penalty": 0.0}, TEXT),
    Case("coverage penalty", {"beam_width": 7, "coverage_penalty": 3.0}, TEXT),
    Case("beam groups", GROUPS, TEXT),
    Case("repetition penalty", {"beam_width": 1, "repetition_penalty": 3.0}, TEXT),
    Case("no repeated n-gram", {"beam_width": 1, "no_repeat_ngram": 2}, TEXT),
    Case("banned tokens", {"beam_width": 3, "banned_tokens": (*BANNED, 20)}, TEXT),
    Case("prefix tokens", {"beam_width": 3, "prefix_tokens": PREFIX}, TEXT),
    Case("beam search with everything", {**GROUPS, **PROCESSORS, "length_penalty": 0.6, "coverage_penalty": 0.3}, TEXT),
    Case("sampled", HOT, TEXT),
    Case("another seed", {**HOT, "seed": 4}, TEXT),
    Case("top-k", {**HOT, "top_k": 3}, TEXT),
    Case("top-p", {**HOT, "top_p": 0.8}, TEXT),
    Case("min-p", {**HOT, "min_p": 0.05}, TEXT),
    Case("sampled with everything", {**HOT, **FILTERS, **PROCESSORS}, TEXT),
]

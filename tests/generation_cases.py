"""Every search and every logits processor, for tests that compare the texts of two surfaces.

`Case.python` are keyword arguments of `Model.generate`, `Case.http` the fields of `/v1/completions`, and `Case.options`
the options of `clearhead generate`: the same settings under the names of each surface.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

HTTP_NAMES = {
    "beam_width": "beams",
    "beam_groups": "groups",
    "diversity_penalty": "diversity",
    "no_repeat_ngram": "no_repeat",
}


@dataclass(frozen=True)
class Case:
    """The settings of one generated text."""

    name: str
    python: dict[str, Any]
    prompt: str = "we are "
    max_tokens: int = 60
    stops: tuple[str, ...] = field(default=())

    @property
    def http(self) -> dict[str, Any]:
        settings = {HTTP_NAMES.get(name, name): value for name, value in self.python.items()}
        return {"prompt": self.prompt, "max_tokens": self.max_tokens, "stop": list(self.stops), **settings}

    @property
    def options(self) -> list[str]:
        settings = {"max_tokens": self.max_tokens, **{HTTP_NAMES.get(n, n): v for n, v in self.python.items()}}
        named = [(f"--{name.replace('_', '-')}", str(value)) for name, value in settings.items()]
        return [part for pair in (*named, *(("--stop", stop) for stop in self.stops)) for part in pair]

    def __str__(self) -> str:
        return self.name


GREEDY = {"temperature": 0}
SAMPLED = {"temperature": 0.9, "seed": 3}

CASES = [
    Case("greedy", GREEDY),
    Case("sampled", SAMPLED),
    Case("another seed", {"temperature": 1.3, "seed": 4}, prompt="the old house"),
    Case("top-k", {**SAMPLED, "top_k": 7}),
    Case("top-p", {**SAMPLED, "top_p": 0.7}),
    Case("min-p", {**SAMPLED, "min_p": 0.1}),
    Case("all filters", {**SAMPLED, "top_k": 20, "top_p": 0.95, "min_p": 0.01}),
    Case("repetition penalty", {**GREEDY, "repetition_penalty": 1.5}),
    Case("sampled with repetition penalty", {**SAMPLED, "repetition_penalty": 1.3}, prompt="a"),
    Case("no repeated n-gram", {**GREEDY, "no_repeat_ngram": 2}),
    Case("sampled without repeated n-gram", {**SAMPLED, "no_repeat_ngram": 3}),
    Case("stop string", SAMPLED, stops=("e", "zz")),
    Case("empty prompt", SAMPLED, prompt=""),
    Case("beam width 2", {**GREEDY, "beam_width": 2}),
    Case("beam width 5", {**GREEDY, "beam_width": 5}, prompt="the old house with a small red door is near"),
    Case("length penalty", {**GREEDY, "beam_width": 3, "length_penalty": 0.4}),
    Case("beam groups", {**GREEDY, "beam_width": 4, "beam_groups": 2, "diversity_penalty": 0.7}),
    Case("beam search with processors", {**GREEDY, "beam_width": 3, "repetition_penalty": 1.2, "no_repeat_ngram": 3}),
    Case("beam search with a stop string", {**GREEDY, "beam_width": 3}, stops=("e",)),
    Case("long", SAMPLED, max_tokens=300),
]

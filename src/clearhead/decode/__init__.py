"""Logits -> ids: ways to write a sequence token by token. A model is known only as a Stepper.

    prompts = Prompts([[start], [start, 7]], stop=stop)
    found = write(model, state, prompts, Settings(beams=4, n_best=2))          # whole texts
    for step in steps(model, state, prompts, Settings(temperature=0.8)): ...   # token by token
    found = write_all(model, sources, Special(pad, start, stop), Settings())   # of many sources
    for piece in pieces(tokens, tokenizer.decode, stops=["."]): ...            # their text

Settings and the text of a stream need no torch, and do not import it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from clearhead.decode.hypothesis import Hypothesis
from clearhead.decode.settings import Settings
from clearhead.decode.stream import TextStream, pieces

if TYPE_CHECKING:
    from clearhead.decode.beam import beam_search
    from clearhead.decode.many import Special, write_all
    from clearhead.decode.plan import Prompts
    from clearhead.decode.stepper import Attending, Stepper
    from clearhead.decode.writing import Token, steps, write

_NEED_TORCH = {
    "Attending": "stepper",
    "Prompts": "plan",
    "Special": "many",
    "Stepper": "stepper",
    "Token": "writing",
    "beam_search": "beam",
    "steps": "writing",
    "write": "writing",
    "write_all": "many",
}


def __getattr__(name: str) -> Any:
    if name not in _NEED_TORCH:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{_NEED_TORCH[name]}"), name)


__all__ = [
    "Attending",
    "Hypothesis",
    "Prompts",
    "Settings",
    "Special",
    "Stepper",
    "TextStream",
    "Token",
    "beam_search",
    "pieces",
    "steps",
    "write",
    "write_all",
]

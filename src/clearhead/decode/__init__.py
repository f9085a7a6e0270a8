"""Logits -> ids: the token loop, beam search and sampling. A model is known only as a Stepper.

    prompts = Prompts([[start], [start, 7]], stop=stop)
    found = generate(model, state, prompts, Settings(beam_width=4, n_best=2))             # whole texts
    for tokens in stream_tokens(model, state, prompts, Settings(temperature=0.8)): ...    # token by token
    found = generate_batch(model, sources, SpecialTokens(pad, start, stop), Settings())   # many sources
    for piece in text_pieces(ids, tokenizer.decode, stops=["."]): ...                     # their text
    loop = TokenLoop(model)                                                               # rows that join and leave

Settings, rows and the text of a stream do not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from clearhead.decode.rows import EndReason, Hypothesis, Prompts, Row, Token
from clearhead.decode.settings import Settings
from clearhead.decode.stream import TextStream, text_pieces

if TYPE_CHECKING:
    from clearhead.decode.batch import SpecialTokens, generate_batch
    from clearhead.decode.beam import BeamCandidate, BeamObserver, beam_search
    from clearhead.decode.loop import TokenLoop, generate, stream_tokens
    from clearhead.decode.stepper import ExtendedStepper, Stepper

_NEED_TORCH = {
    "BeamCandidate": "beam",
    "BeamObserver": "beam",
    "ExtendedStepper": "stepper",
    "SpecialTokens": "batch",
    "Stepper": "stepper",
    "TokenLoop": "loop",
    "beam_search": "beam",
    "generate": "loop",
    "generate_batch": "batch",
    "stream_tokens": "loop",
}


def __getattr__(name: str) -> Any:
    if name not in _NEED_TORCH:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{_NEED_TORCH[name]}"), name)


__all__ = [
    "BeamCandidate",
    "BeamObserver",
    "EndReason",
    "ExtendedStepper",
    "Hypothesis",
    "Prompts",
    "Row",
    "Settings",
    "SpecialTokens",
    "Stepper",
    "TextStream",
    "Token",
    "TokenLoop",
    "beam_search",
    "generate",
    "generate_batch",
    "stream_tokens",
    "text_pieces",
]

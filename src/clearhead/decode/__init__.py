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

from typing import TYPE_CHECKING

from clearhead.decode.settings import EndReason, Hypothesis, Prompts, Row, Settings, Token
from clearhead.decode.stream import TextStream, text_pieces
from clearhead.registry import lazy_exports

if TYPE_CHECKING:
    from clearhead.decode.beam import BeamCandidate, BeamObserver, beam_search
    from clearhead.decode.loop import (
        SpecialTokens,
        Steps,
        TokenLoop,
        batch_steps,
        finish,
        generate,
        generate_batch,
        stream_tokens,
    )
    from clearhead.decode.stepper import Stepper

__all__ = ["EndReason", "Hypothesis", "Prompts", "Row", "Settings", "TextStream", "Token", "text_pieces"]
__all__ += ["BeamCandidate", "BeamObserver", "beam_search"]
__all__ += ["SpecialTokens", "Stepper", "Steps", "TokenLoop", "batch_steps", "finish"]
__all__ += ["generate", "generate_batch", "stream_tokens"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        **dict.fromkeys(("BeamCandidate", "BeamObserver", "beam_search"), "beam"),
        **dict.fromkeys(("SpecialTokens", "Steps", "TokenLoop", "batch_steps", "finish"), "loop"),
        **dict.fromkeys(("generate", "generate_batch", "stream_tokens"), "loop"),
        "Stepper": "stepper",
    },
)

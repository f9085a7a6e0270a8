"""What models say about themselves."""

from __future__ import annotations

import pytest
from torch import nn

from clearhead.models.base import Model, TransformerDecoder

from .setting import RNN, System

STACKS = [
    (System("translate"), ["encoder", "decoder"], False, True),
    (System("translate", RNN), ["encoder", "decoder"], False, False),
    (System("lm"), ["decoder"], True, True),
    (System("lm", RNN), ["decoder"], True, False),
    (System("masked_lm"), ["encoder"], False, False),
    (System("classify"), ["encoder"], False, False),
    (System("tag"), ["encoder"], False, False),
    (System("vision"), ["encoder"], False, False),
    (System("caption", {"architecture": "cross"}), ["encoder", "decoder"], False, True),
    (System("caption", {"architecture": "sequence"}), ["decoder"], False, False),
    (System("caption", RNN), ["encoder", "decoder"], False, False),
]


@pytest.mark.parametrize(("system", "stacks", "causal_lm", "decodes"), STACKS, ids=str)
def test_a_model_says_what_it_is(system: System, stacks: list[str], causal_lm: bool, decodes: bool) -> None:
    model = system.build()
    assert isinstance(model, Model)
    assert list(model.stacks()) == stacks
    parts: set[nn.Module] = set(model.modules())
    assert set(model.stacks().values()) <= parts
    assert model.is_causal_lm == causal_lm
    assert isinstance(model, TransformerDecoder) == decodes
    if isinstance(model, TransformerDecoder):
        assert model.decoder_stack is model.stacks()["decoder"]
        assert model.decoder_input in parts

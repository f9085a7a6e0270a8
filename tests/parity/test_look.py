"""What is captured beside our fused kernel is what transformers returns with eager attention, on the same weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from clearhead.look.probes import capture
from clearhead.nn import Mask, padding_mask

from . import test_bert, test_gpt2, test_llama, test_marian, test_t5, test_vit
from .conftest import stay_fused
from .copying import Pair, same
from .setting import LENGTHS, MEMORY_LENGTHS, S, T, sentences


def agree(pair: Pair, ours: tuple[Any, ...], theirs: dict[str, Any], hidden: bool = True) -> None:
    """Every weight of every layer and kind; and, where their blocks write what ours do, every hidden state."""
    stay_fused(pair.ours)
    with torch.no_grad(), capture(pair.ours, "*") as seen:
        pair.ours(*ours)
        said = pair.theirs(**theirs, output_attentions=True, output_hidden_states=True)
    expected = {
        f"{stack}.{layer}.{part}.weights": weights
        for kind, (stack, part) in KINDS.items()
        for layer, weights in enumerate(getattr(said, kind, None) or ())
    }
    assert set(expected) == {name for name in seen if name.endswith(".weights")}
    for name, weights in expected.items():
        same(name, seen[name], weights)
    if hidden:
        states = said.hidden_states
        same("embedded", seen["encoder.embedded"], states[0])
        for layer, state in enumerate(states[1:-1]):  # the last is normalised
            same(f"hidden state of layer {layer}", seen[f"encoder.{layer}.hidden"], state)


KINDS = {
    "attentions": ("encoder", "self"),
    "encoder_attentions": ("encoder", "self"),
    "decoder_attentions": ("decoder", "self"),
    "cross_attentions": ("decoder", "cross"),
}


def test_gpt2_as_it_is_captured(transformers):
    theirs = transformers.GPT2Model(test_gpt2.config(transformers))
    pair, ids = Pair(test_gpt2.our_body(), theirs, test_gpt2.BODY), sentences(LENGTHS, T)
    mask = Mask(causal=True) & padding_mask(ids)
    agree(pair, (ids, mask), {"input_ids": ids, "attention_mask": ids != 0})


def test_llama_with_shared_keys_and_rotary_positions(transformers):
    theirs = transformers.LlamaModel(test_llama.config(transformers, 1))
    pair, ids = Pair(test_llama.our_body(1), theirs, test_llama.BODY), sentences(LENGTHS, T)
    mask = Mask(causal=True) & padding_mask(ids)
    agree(pair, (ids, mask), {"input_ids": ids, "attention_mask": ids != 0})


def test_bert_as_it_is_captured(transformers):
    theirs = transformers.BertModel(test_bert.config(transformers), add_pooling_layer=False)
    pair, ids = Pair(test_bert.BertBody(), theirs, test_bert.BODY), sentences(LENGTHS, T)
    kinds = torch.randint(test_bert.KINDS, ids.shape)
    agree(pair, (ids, kinds), {"input_ids": ids, "attention_mask": ids != 0, "token_type_ids": kinds})


def test_vit_as_it_is_captured(transformers):
    theirs = transformers.ViTModel(test_vit.config(transformers), add_pooling_layer=False)
    pair, images = Pair(test_vit.our_body(), theirs, test_vit.BODY), test_vit.pictures()
    agree(pair, (images,), {"pixel_values": images})


def translated(source: Tensor, target: Tensor) -> dict[str, Tensor]:
    return {
        "input_ids": source,
        "attention_mask": source != 0,
        "decoder_input_ids": target,
        "decoder_attention_mask": target != 0,
    }


def test_marian_as_it_is_captured(transformers):
    theirs = transformers.MarianModel(test_marian.config(transformers))
    pair = Pair(test_marian.our_translator(), theirs, test_marian.TRANSLATOR)
    texts = sentences(MEMORY_LENGTHS, S), sentences(LENGTHS, T)
    agree(pair, texts, translated(*texts), hidden=False)


def test_t5_with_its_positions_in_the_scores(transformers):
    theirs = transformers.T5Model(test_t5.config(transformers))
    pair = Pair(test_t5.our_translator("relu"), theirs, test_t5.TRANSLATOR)
    texts = sentences(MEMORY_LENGTHS, S), sentences(LENGTHS, T)
    agree(pair, texts, translated(*texts), hidden=False)

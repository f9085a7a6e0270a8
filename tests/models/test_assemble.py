"""Every name a configuration may use gives a model that runs, learns, and decodes as it was trained."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clearhead.models import assemble
from clearhead.models.config import ModelConfig
from clearhead.nn import FEED_FORWARDS, NORMS, PLACEMENTS, POSITIONS, SCORES, Fused, WindowCache, padding_mask

BASE = {"dim": 24, "heads": 4, "layers": 2, "dropout": 0.0, "max_length": 32, "placement": "before"}
VARIATIONS: list[dict[str, Any]] = [
    *({"score": name} for name in SCORES.builtin()),
    *({"positions": name} for name in POSITIONS.builtin()),
    *({"norm": name, "placement": place} for name in NORMS.builtin() for place in PLACEMENTS.builtin()),
    *({"feed_forward": name} for name in FEED_FORWARDS.builtin()),
    {"hard": True},
    {"window": 3},
    {"kv_heads": 2, "positions": "rotary"},
    {"key_dim": 6, "value_dim": 10, "positions": "rotary"},
    {"positions": "sinusoidal", "position_concat": True},
    {"positions": "learned", "position_concat": True},
    {"bias": False, "feed_forward": "swiglu", "norm": "rms"},
]


def name_of(variation: dict[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in variation.items())


def config_with(variation: dict[str, Any]) -> ModelConfig:
    return ModelConfig(**{**BASE, **variation})


@pytest.mark.parametrize("variation", VARIATIONS, ids=name_of)
def test_every_parameter_of_an_encoder_decoder_learns(variation: dict[str, Any]) -> None:
    torch.manual_seed(1)
    config = config_with(variation)
    source, target = torch.randint(1, 11, (3, 7)), torch.randint(1, 11, (3, 5))
    read, write = assemble.TokenInput(config, 11), assemble.TokenInput(config, 11)
    encoder, decoder = assemble.encoder(config), assemble.decoder(config)
    memory = encoder(read(source), mask=assemble.self_mask(config, causal=False))
    out = decoder(write(target), memory, mask=assemble.self_mask(config, causal=True))
    assert out.shape == (3, 5, 24)
    (out * torch.randn(3, 5, 24)).sum().backward()
    parts = torch.nn.ModuleList([read, write, encoder, decoder])
    still = [name for name, p in parts.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert still == []


@pytest.mark.parametrize("variation", [v for v in VARIATIONS if v.get("norm") != "batch"], ids=name_of)
def test_a_decoder_only_model_reads_step_by_step_what_it_reads_at_once(variation: dict[str, Any]) -> None:
    torch.manual_seed(2)
    config = config_with(variation)
    ids = torch.randint(1, 11, (2, 9))
    tokens = assemble.TokenInput(config, 11).double().eval()
    stack = assemble.encoder(config, causal=True).double().eval()
    mask = assemble.self_mask(config, causal=True)
    cache = stack.make_cache(lambda: assemble.make_cache(config))
    whole = stack(tokens(ids), mask=mask)
    steps = [stack(tokens(ids[:, i : i + 1], start=i), mask=mask, cache=cache) for i in range(9)]
    torch.testing.assert_close(torch.cat(steps, dim=1), whole)


def test_the_default_takes_the_fused_kernel_and_a_window_its_own_cache() -> None:
    assert isinstance(assemble.multi_head(config_with({})).kernel, Fused)
    assert isinstance(assemble.make_cache(config_with({"window": 5})), WindowCache)


def test_a_stack_of_t5_positions_shares_one_table() -> None:
    names = [name for name, _ in assemble.encoder(config_with({"positions": "t5"})).named_parameters()]
    assert sum("relative.table" in name for name in names) == 1


def test_padding_changes_nothing_for_the_rest() -> None:
    torch.manual_seed(3)
    config = config_with({"positions": "sinusoidal"})
    tokens, stack = assemble.TokenInput(config, 11, pad=0).double().eval(), assemble.encoder(config).double().eval()
    ids = torch.randint(1, 11, (2, 5))
    padded = torch.cat((ids, torch.zeros(2, 3, dtype=torch.long)), dim=1)
    mask = assemble.self_mask(config, causal=False) & padding_mask(padded)
    torch.testing.assert_close(stack(tokens(padded), mask=mask)[:, :5], stack(tokens(ids)))

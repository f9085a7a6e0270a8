"""The parts of models by name: what `train.freeze` freezes and what `train.targets` adapts."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from clearhead.errors import ConfigError
from clearhead.run import Sizes
from clearhead.tasks import default_config, override_config
from clearhead.tasks.base.network import build_network
from clearhead.train.parts import freeze, matching_linears

SMALL = ["model.dim=12", "model.heads=3", "model.layers=4", "model.inner=29"]
SIZES = Sizes(vocabulary=37, classes=5, channels=3, height=16, width=24)


def model(task: str, *more: str) -> nn.Module:
    return build_network(override_config(default_config(task), [*SMALL, *more]), SIZES)


def frozen(network: nn.Module, *patterns: str) -> set[str]:
    freeze(network, patterns)
    return {name for name, parameter in network.named_parameters() if not parameter.requires_grad}


def names(network: nn.Module, *beginnings: str) -> set[str]:
    return {name for name, _ in network.named_parameters() if name.startswith(beginnings)}


@pytest.mark.parametrize(
    ("task", "pattern", "beginnings"),
    [
        ("translate", "encoder", ("encoder.",)),
        ("translate", "decoder.0-2", ("decoder.blocks.0.", "decoder.blocks.1.", "decoder.blocks.2.")),
        ("translate", "decoder.1.cross_attention", ("decoder.blocks.1.cross_attention.",)),
        ("translate", "embedding", ("target.", "source.")),
        ("translate", "output", ("target.tokens.",)),  # one matrix
        ("lm", "decoder.3", ("stack.blocks.3.",)),
        ("lm", "stack.blocks.3", ("stack.blocks.3.",)),
        ("classify", "encoder", ("encoder.",)),
        ("classify", "output", ("output.",)),
        ("vision", "embedding", ("encoder.patches.", "encoder.class_token.", "encoder.positions.")),
        ("caption", "encoder.0", ("patches.stack.blocks.0.",)),
        ("tag", "*.feed_forward", tuple(f"encoder.stack.blocks.{i}.feed_forward." for i in range(4))),
    ],
)
def test_a_pattern_freezes_its_part_and_nothing_else(task: str, pattern: str, beginnings: tuple[str, ...]) -> None:
    network = model(task)
    expected = names(network, *beginnings)
    assert expected
    assert frozen(network, pattern) == expected


def test_block_1_is_not_block_10() -> None:
    network = model("lm", "model.layers=11")
    assert frozen(network, "decoder.1") == names(network, "stack.blocks.1.")


def test_the_sentence_counts_what_is_trained() -> None:
    network = model("classify")
    kept = sum(p.numel() for name, p in network.named_parameters() if name.startswith("output."))
    total = sum(p.numel() for p in network.parameters())
    assert freeze(network, ["encoder"]) == f"trains {kept:,} of {total:,} parameters; the others are frozen"


def test_a_frozen_batch_norm_keeps_its_statistics() -> None:
    network = model("classify", "model.norm=batch").train()
    freeze(network, ["encoder.0"])
    before = {name: buffer.clone() for name, buffer in network.named_buffers() if "running" in name}
    network(torch.randint(1, 37, (5, 7)))
    changed = {name for name, buffer in network.named_buffers() if name in before and (buffer != before[name]).any()}
    assert changed == {name for name in before if ".blocks.0." not in name}


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        ("encodr", "train.freeze=encodr is no part of this model; did you mean encoder?"),
        ("decoder.1.crossattention", r"did you mean decoder.1.cross_attention?"),
        ("decoder.9", "train.freeze=decoder.9 is no part of this model; did you mean decoder."),
        (
            "tail",
            "train.freeze=tail is no part of this model; choose from: decoder, embedding, encoder, output, source",
        ),
        ("*", "train.freeze=* leaves nothing to train; freeze fewer parts"),
    ],
)
def test_a_wrong_name_is_one_sentence(pattern: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        freeze(model("translate"), [pattern])
    assert sentence in str(error.value)


def test_targets_are_linear_maps_inside_blocks() -> None:
    network = model("translate")
    query = matching_linears(network, ["query"])
    assert query == [
        *(f"decoder.blocks.{i}.{kind}_attention.query" for i in range(4) for kind in ("self", "cross")),
        *(f"encoder.blocks.{i}.self_attention.query" for i in range(4)),
    ]
    assert matching_linears(network, ["encoder.0-1.output", "decoder.2.inner"]) == [
        "decoder.blocks.2.feed_forward.inner",
        "encoder.blocks.0.self_attention.output",
        "encoder.blocks.1.self_attention.output",
    ]


def test_wrong_targets_are_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"^train\.targets=quary is no linear map of .* did you mean query\?$"):
        matching_linears(model("lm"), ["quary"])
    with pytest.raises(ConfigError, match=r"^train\.targets=encoder\.query is .*; did you mean decoder\?$"):
        matching_linears(model("lm"), ["encoder.query"])

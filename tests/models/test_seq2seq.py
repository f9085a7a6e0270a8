"""The translator of "Attention Is All You Need": its size, its shared matrix, its masks."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from clearhead.models.seq2seq import Seq2Seq
from clearhead.run import Sizes
from clearhead.tasks import default_config, override_config
from clearhead.tasks.base.network import build_network
from clearhead.tasks.translate import TranslateModel

from .setting import DIM, PAD, SMALL, B, S, System, T, V, sentences

TRANSLATE = System("translate")


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def of_size(size: str, vocabulary: int, *settings: str) -> int:
    """Parameters of a translator; on torch's meta device nothing is computed."""
    with torch.device("meta"):
        return count(
            build_network(override_config(default_config("translate", size), settings), Sizes(vocabulary=vocabulary))
        )


def test_base_is_the_base_model_of_the_paper() -> None:
    model = default_config("translate", "base").model
    assert (model.layers, model.dim, model.heads, model.inner or 4 * model.dim) == (6, 512, 8, 2048)
    attention = 4 * (512 * 512 + 512)
    feed_forward = 512 * 2048 + 2048 + 2048 * 512 + 512
    norm = 2 * 512
    blocks = 6 * (attention + feed_forward + 2 * norm) + 6 * (2 * attention + feed_forward + 3 * norm)
    assert blocks == 44_138_496
    assert of_size("base", 37_000, "model.placement=after") == blocks + 512 * 37_000 == 63_082_496
    assert of_size("base", 37_000) == blocks + 2 * norm + 512 * 37_000  # norm first: one more closes each stack
    assert of_size("base", 37_000) == pytest.approx(65e6, rel=0.03)  # the paper's Table 3


def test_one_matrix_serves_source_target_and_output() -> None:
    model = TRANSLATE.build()
    assert model.source.tokens.table.weight is model.output.linear.weight
    assert model.target is model.source
    untied = TRANSLATE.build(tied=False)
    assert count(untied) == count(model) + 2 * V * DIM


def test_the_output_is_the_product_with_the_embedding() -> None:
    model, source, target = TRANSLATE.build().double(), sentences(B, S), sentences(B, T)
    memory, mask = model.encode(source)
    states = model.decoder(model.target(target), memory, memory_mask=mask)
    assert_close(model(source, target), states @ model.target.tokens.table.weight.T)


def test_a_source_of_padding_alone_is_finite() -> None:
    model, target = TRANSLATE.build(), sentences(B, T)
    logits = model(torch.full((B, S), PAD), target)
    assert logits.isfinite().all()
    F.cross_entropy(logits.flatten(0, 1), target.flatten()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_concatenated_positions_cannot_share_the_matrix() -> None:
    config = TranslateModel(**SMALL, position_concat=True)
    with pytest.raises(ValueError, match=r"an embedding of shape \(13, 17\) cannot be tied to an output of shape"):
        Seq2Seq(config, V, PAD)

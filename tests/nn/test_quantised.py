"""Block formats mean what the `gguf` package says they mean, weight for weight."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.optional import optional

from clearhead.errors import ShapeError
from clearhead.nn.quantised import FORMATS, Quantised, quantise

gguf = optional("gguf")
HALVES = {"Q6_K": (208,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q4_1": (0, 2), "Q5_1": (0, 2)}  # bytes that begin a float16


def random_rows(format: str, outputs: int, blocks: int, seed: int = 0) -> torch.Tensor:
    """Rows of arbitrary bits whose float16 numbers are ordinary ones."""
    kind, random = FORMATS[format], np.random.default_rng(seed)
    rows = random.integers(0, 256, (outputs, blocks, kind.bytes), dtype=np.uint8)
    for at in HALVES.get(format, (0,)):
        numbers = random.uniform(-0.05, 0.05, (outputs, blocks, 1)).astype(np.float16)
        rows[..., at : at + 2] = numbers.view(np.uint8)
    return torch.from_numpy(rows.reshape(outputs, -1))


@pytest.mark.parametrize("format", FORMATS)
def test_a_format_is_dequantised_as_gguf_does(format: str) -> None:
    rows = random_rows(format, outputs=7, blocks=3)
    theirs = gguf.quants.dequantize(rows.numpy(), gguf.GGMLQuantizationType[format])
    ours = Quantised(format, rows)
    assert ours.shape == theirs.shape == (7, 3 * FORMATS[format].weights)
    assert torch.equal(ours.dequantise(), torch.from_numpy(theirs))
    assert int(gguf.GGMLQuantizationType[format]) == FORMATS[format].code


@pytest.mark.parametrize("format", ["Q8_0", "Q4_0"])
def test_a_matrix_is_rounded_as_gguf_does(format: str) -> None:
    weight = torch.randn(11, 5 * 32, generator=torch.Generator().manual_seed(3))
    weight[2, :32] = 0
    theirs = gguf.quants.quantize(weight.numpy(), gguf.GGMLQuantizationType[format])
    assert torch.equal(quantise(weight, format).rows, torch.from_numpy(theirs))


def test_rows_that_are_no_blocks_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"shape \(5, 33\) has no rows of whole blocks of 32"):
        quantise(torch.zeros(5, 33), "Q8_0")
    with pytest.raises(ShapeError, match="rows of 35 bytes do not hold whole blocks of Q8_0"):
        Quantised("Q8_0", torch.zeros(2, 35, dtype=torch.uint8))

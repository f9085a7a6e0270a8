"""Block-quantised matrices, in the formats of GGUF: 32 neighbouring weights of a row share a scale.

Q8_0    w = d q                  q a signed byte, d a float16 of the block
Q4_0    w = d (q - 8)            q of 4 bits
Q4_1    w = d q + m              m a second float16
Q5_0    w = d (q - 16)           q of 5 bits
Q5_1    w = d q + m
Q4_K    w = (d s) q - (e t)      8 blocks share two float16 d, e; each has 6-bit numbers s, t
Q5_K    the same with q of 5 bits
Q6_K    w = (d s) (q - 32)       q of 6 bits, a signed byte s for 16 weights

O outputs, I inputs, N blocks
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.errors import ShapeError

BLOCK, SUPER = 32, 256  # weights of a block; of 8 blocks that share two numbers
NAMES = {"q8": "Q8_0", "q4": "Q4_0"}  # what users call them


@dataclass(frozen=True)
class Quantised:
    """A matrix (O, I) as rows of blocks."""

    format: str
    rows: Tensor  # (O, bytes of a row) uint8

    def __post_init__(self) -> None:
        if self.format not in FORMATS or self.rows.dtype != torch.uint8 or self.rows.dim() != 2:
            raise ShapeError(
                f"{self.format} rows of {self.rows.dtype} {tuple(self.rows.shape)} are no quantised matrix"
            )
        if not self.rows.size(1) or self.rows.size(1) % FORMATS[self.format].bytes:
            raise ShapeError(f"rows of {self.rows.size(1)} bytes do not hold whole blocks of {self.format}")

    @property
    def shape(self) -> tuple[int, int]:
        kind = FORMATS[self.format]
        return self.rows.size(0), self.rows.size(1) // kind.bytes * kind.weights

    def dequantise(self) -> Tensor:
        """The weights (O, I) that the blocks stand for, in float32."""
        kind = FORMATS[self.format]
        return kind.expand(self.rows.reshape(-1, kind.bytes)).reshape(self.shape)


def can_quantise(weight: Tensor) -> bool:
    """Whether the rows of a matrix are whole blocks."""
    return weight.dim() == 2 and weight.size(1) % BLOCK == 0


def quantise(weight: Tensor, format: str) -> Quantised:
    """A matrix (O, I) rounded to Q8_0 or Q4_0, as `gguf` rounds it."""
    if not can_quantise(weight):
        raise ShapeError(f"a matrix of shape {tuple(weight.shape)} has no rows of whole blocks of {BLOCK}")
    blocks = weight.detach().float().reshape(-1, BLOCK)  # (N, 32)
    packed = {"Q8_0": _pack_q8_0, "Q4_0": _pack_q4_0}[format](blocks)
    return Quantised(format, packed.reshape(weight.size(0), -1))


def _pack_q8_0(blocks: Tensor) -> Tensor:
    scale = blocks.abs().amax(1, keepdim=True) / 127
    inverse = torch.where(scale == 0, torch.zeros_like(scale), 1 / scale)
    scaled = blocks * inverse
    whole = torch.sign(scaled) * (scaled.abs() + 0.5).floor()  # halves away from zero
    return torch.cat((scale.half().view(torch.uint8), whole.to(torch.int8).view(torch.uint8)), dim=1)


def _pack_q4_0(blocks: Tensor) -> Tensor:
    """The number farthest from zero becomes -8 d."""
    largest = blocks.gather(1, blocks.abs().argmax(1, keepdim=True))
    scale = largest / -8
    inverse = torch.where(scale == 0, torch.zeros_like(scale), 1 / scale)
    whole = (blocks.double() * inverse + 8.5).floor().clamp(0, 15).to(torch.uint8)
    return torch.cat((scale.half().view(torch.uint8), whole[:, :16] | whole[:, 16:] << 4), dim=1)


# --- what blocks stand for: (N, bytes) -> (N, weights) ---


def _half(blocks: Tensor, at: int) -> Tensor:
    """(N, 1): the float16 at a byte."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16).float()


def _nibbles(blocks: Tensor, at: int) -> Tensor:
    """(N, 32): the lower four bits of 16 bytes, then the upper ones."""
    packed = blocks[:, at : at + 16]
    return torch.cat((packed & 15, packed >> 4), dim=1)


def _fifth(blocks: Tensor, at: int) -> Tensor:
    """(N, 32): a fifth bit for each weight, in its place."""
    bits = blocks[:, at : at + 4].unsqueeze(-1) >> torch.arange(8, dtype=torch.uint8)
    return ((bits & 1) << 4).flatten(1)


def _q8_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * blocks[:, 2:].contiguous().view(torch.int8)


def _q4_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * (_nibbles(blocks, 2).float() - 8)


def _q4_1(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _nibbles(blocks, 4) + _half(blocks, 2)


def _q5_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * ((_nibbles(blocks, 6) | _fifth(blocks, 2)).float() - 16)


def _q5_1(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * (_nibbles(blocks, 8) | _fifth(blocks, 4)) + _half(blocks, 2)


def _six_bits(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """(N, 8, 1): the scales and the minima of the 8 blocks, from 12 bytes."""
    first, second, third = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = torch.cat((first & 63, (third & 15) | (first >> 6) << 4), dim=1)
    minima = torch.cat((second & 63, third >> 4 | (second >> 6) << 4), dim=1)
    return scales.unsqueeze(-1), minima.unsqueeze(-1)


def _with_minima(blocks: Tensor, whole: Tensor) -> Tensor:
    """Blocks of 32 weights (N, 8, 32), each with its scale and minimum."""
    scales, minima = _six_bits(blocks)
    scale, least = _half(blocks, 0).unsqueeze(-1) * scales, _half(blocks, 2).unsqueeze(-1) * minima
    return (scale * whole - least).flatten(1)


def _pairs(blocks: Tensor, at: int) -> Tensor:
    """(N, 8, 32): of each 32 bytes, a block in the lower four bits and one in the upper."""
    packed = blocks[:, at : at + 128].unflatten(1, (4, 1, 32))
    return torch.cat((packed & 15, packed >> 4), dim=2).flatten(1, 2)


def _q4_k(blocks: Tensor) -> Tensor:
    return _with_minima(blocks, _pairs(blocks, 16))


def _q5_k(blocks: Tensor) -> Tensor:
    fifth = blocks[:, 16:48].unsqueeze(1) >> torch.arange(8, dtype=torch.uint8).view(8, 1)  # (N, 8, 32)
    return _with_minima(blocks, _pairs(blocks, 48) | (fifth & 1) << 4)


def _q6_k(blocks: Tensor) -> Tensor:
    packed = blocks[:, :128].unflatten(1, (2, 1, 64))  # (N, halves, 1, 64)
    low = torch.cat((packed & 15, packed >> 4), dim=2).unflatten(-1, (2, 32)).flatten(2, 3)  # (N, halves, 4, 32)
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8).view(4, 1)
    high = blocks[:, 128:192].unflatten(1, (2, 1, 32)) >> shifts & 3  # (N, halves, 4, 32)
    whole = (low | high << 4).float() - 32
    scales = blocks[:, 192:208].contiguous().view(torch.int8).unsqueeze(-1)  # (N, 16, 1)
    return (_half(blocks, 208).unsqueeze(-1) * scales * whole.reshape(-1, 16, 16)).flatten(1)


@dataclass(frozen=True)
class Format:
    """How the blocks of one format are stored."""

    code: int  # GGUF's number of it
    weights: int
    bytes: int
    expand: Callable[[Tensor], Tensor]


FORMATS = {
    "Q4_0": Format(2, BLOCK, 18, _q4_0),
    "Q4_1": Format(3, BLOCK, 20, _q4_1),
    "Q5_0": Format(6, BLOCK, 22, _q5_0),
    "Q5_1": Format(7, BLOCK, 24, _q5_1),
    "Q8_0": Format(8, BLOCK, 34, _q8_0),
    "Q4_K": Format(12, SUPER, 144, _q4_k),
    "Q5_K": Format(13, SUPER, 176, _q5_k),
    "Q6_K": Format(14, SUPER, 210, _q6_k),
}

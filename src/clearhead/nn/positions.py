"""Positions: attention alone does not know the order of its tokens, so order is put in, in one of two places.

At the input, a vector for each position is added to the token's vector, or concatenated to it:

    sinusoidal   PE(pos, 2i) = sin(pos / N^(2i/D)),  PE(pos, 2i+1) = cos(pos / N^(2i/D))
    learned      a table with a row for each position

Inside every attention head, where only the distance between query and key counts:

    rotary       queries and keys are turned by an angle that grows with their position
    ALiBi        the score falls in a straight line with the distance
    T5           a learned number for each range of distances is added to the score

    B batch, T tokens, S keys, H heads, D width
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from clearhead.errors import ShapeError

Combine = Callable[[Tensor, Tensor], Tensor]  # tokens (B, T, D), positions (T, P) -> (B, T, D or D + P)
Bias = Callable[[Tensor, Tensor], Tensor]  # query positions (T,), key positions (S,) -> (H, T, S)
Start = int | Tensor  # position of the first token, or (B,) one for each row


def add(x: Tensor, positions: Tensor) -> Tensor:
    """Token + position, as in the paper."""
    return x + positions


def concatenate(x: Tensor, positions: Tensor) -> Tensor:
    """Token and position side by side, as in the Georgia Tech lecture: the width grows."""
    return torch.cat((x, positions.expand(*x.shape[:-1], -1)), dim=-1)


def counting(start: Start, length: int, device: torch.device) -> Tensor:
    """The positions of `length` tokens from `start` on: (T,), or (B, T) when each row has its own start."""
    steps = torch.arange(length, device=device)
    return start.to(device).unsqueeze(-1) + steps if isinstance(start, Tensor) else start + steps


def _end(start: Start, length: int) -> int:
    """One past the last position."""
    return length + (int(start.max()) if isinstance(start, Tensor) else start)


class Waves(nn.Module):
    """sin and cos of pos / N^(2i/D), kept in a table that grows on demand."""

    sin: Tensor  # (positions, D/2)
    cos: Tensor

    def __init__(self, dim: int, base: float):
        super().__init__()
        self.dim, self.base = dim, base
        self._fill(256)

    def forward(self, start: Start, length: int) -> tuple[Tensor, Tensor]:
        """sin and cos, each (T, D/2), or (B, T, D/2) when each row has its own start."""
        if _end(start, length) > len(self.sin):
            self._fill(2 * _end(start, length))
        at = counting(start, length, self.sin.device) if isinstance(start, Tensor) else slice(start, start + length)
        return self.sin[at], self.cos[at]

    def _fill(self, length: int) -> None:
        """Angles need float64: at position 65,536 a float32 is off by 0.004."""
        pair = torch.arange(0, self.dim, 2, dtype=torch.float64)  # 2i
        angle = torch.arange(length, dtype=torch.float64).unsqueeze(-1) * self.base ** (-pair / self.dim)
        like = getattr(self, "sin", torch.empty(0))
        self.register_buffer("sin", angle.sin().to(like), persistent=False)
        self.register_buffer("cos", angle.cos().to(like), persistent=False)


class NoPositions(nn.Module):
    """Leaves the order out: what is left is the same for every permutation of the tokens."""

    def forward(self, x: Tensor, start: Start = 0) -> Tensor:  # noqa: ARG002 - every position scheme takes a start
        """(B, T, D) unchanged."""
        return x


class SinusoidalPositions(nn.Module):
    """Waves from short to long: dot products between positions fall with their distance."""

    def __init__(self, dim: int, base: float = 10000.0, combine: Combine = add):
        super().__init__()
        self.dim, self.combine, self.waves = dim, combine, Waves(dim, base)

    def encode(self, length: int, start: Start = 0) -> Tensor:
        """The vectors of `length` positions from `start` on: (T, D), or (B, T, D)."""
        sin, cos = self.waves(start, length)
        return torch.stack((sin, cos), dim=-1).flatten(-2)[..., : self.dim]  # sin, cos, sin, cos, …

    def forward(self, x: Tensor, start: Start = 0) -> Tensor:
        """(B, T, D) tokens from position `start` on -> the same with their positions."""
        return self.combine(x, self.encode(x.size(1), start).to(x.dtype))


class LearnedPositions(nn.Module):
    """A trainable vector for each position, up to the length of the table."""

    def __init__(self, dim: int, length: int, combine: Combine = add):
        super().__init__()
        self.dim, self.length, self.combine = dim, length, combine
        self.table = nn.Embedding(length, dim)
        nn.init.normal_(self.table.weight, std=0.02)

    def forward(self, x: Tensor, start: Start = 0) -> Tensor:
        """(B, T, D) tokens from position `start` on -> the same with their positions."""
        end = _end(start, x.size(1))
        if end > self.length:
            raise ShapeError(
                f"a sequence of {end} tokens is longer than the learned table of {self.length} positions; "
                "shorten the text or train with a larger model.max_length"
            )
        return self.combine(x, self.table(counting(start, x.size(1), x.device)))


class RelativePositions(nn.Module):
    """Order inside the heads. This one puts in none; the others turn the vectors or add a bias to the scores."""

    bias: Bias | None = None

    def rotate(self, x: Tensor, start: Start) -> Tensor:  # noqa: ARG002 - see Rotary
        """Queries or keys (B, H, T, D) whose first stands at `start`."""
        return x


class Rotary(RelativePositions):
    """Turns each pair (i, i + D/2) of a query or key by pos / N^(2i/D), so q · k depends on the distance alone."""

    def __init__(self, dim: int, base: float = 10000.0):
        super().__init__()
        if dim % 2:
            raise ShapeError(f"rotary positions turn pairs of numbers, and a head size of {dim} is odd")
        self.waves = Waves(dim, base)

    def rotate(self, x: Tensor, start: Start) -> Tensor:
        """(B, H, T, D) -> the same, turned: (left, right) becomes (left cos - right sin, right cos + left sin)."""
        cos, sin = (wave.to(x.dtype) for wave in self.turn(start, x.size(-2)))
        cos, sin = (wave.unsqueeze(-3) if wave.dim() == 3 else wave for wave in (cos, sin))  # (B, 1, T, D)
        return turned(x, cos, sin)

    def turn(self, start: Start, length: int) -> tuple[Tensor, Tensor]:
        """By what each number of a vector and its partner are multiplied, each (T, D) or (B, T, D)."""
        sin, cos = self.waves(start, length)
        return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """(…, T, D) -> the same, each number with its partner half a vector away."""
    return torch.addcmul(x * cos, x.roll(x.size(-1) // 2, dims=-1), sin)


class Alibi(RelativePositions):
    """Subtracts m_h · distance from the score; head h forgets faster or slower by its slope m_h."""

    slopes: Tensor  # (H,)

    def __init__(self, heads: int):
        super().__init__()
        self.register_buffer("slopes", torch.tensor(_slopes(heads)), persistent=False)

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Positions (T,), (S,) -> (H, T, S)."""
        distance = (queries.unsqueeze(-1) - keys).abs()
        return -self.slopes[:, None, None] * distance


def _slopes(heads: int) -> list[float]:
    """2^(-8/H), 2^(-16/H), …; between powers of two, every second slope of the next power fills the rest."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    return slopes + (_slopes(2 * power)[::2][: heads - power] if heads > power else [])


class T5Relative(RelativePositions):
    """Adds a learned number for the distance: one for each near distance, one for each wider range farther out."""

    def __init__(self, heads: int, buckets: int = 32, longest: int = 128, both_ways: bool = True):
        super().__init__()
        near = buckets // 4 if both_ways else buckets // 2
        if near < 1 or longest <= near:
            raise ShapeError(f"buckets={buckets} and longest={longest} leave no room for near and far distances")
        self.buckets, self.longest, self.both_ways = buckets, longest, both_ways
        self.table = nn.Embedding(buckets, heads)
        nn.init.normal_(self.table.weight, std=0.02)

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Positions (T,), (S,) -> (H, T, S)."""
        ahead = keys - queries.unsqueeze(-1)  # (T, S), positive where the key comes later
        return self.table(self.bucket(ahead)).permute(2, 0, 1)

    def bucket(self, ahead: Tensor) -> Tensor:
        """The row of the table for each signed distance."""
        buckets = self.buckets // 2 if self.both_ways else self.buckets
        side = (ahead > 0).long() * buckets if self.both_ways else torch.zeros_like(ahead)
        distance = ahead.abs() if self.both_ways else (-ahead).clamp(min=0)
        near = buckets // 2
        growth = (distance.clamp(min=near).float() / near).log() / math.log(self.longest / near)
        far = (near + (growth * (buckets - near)).long()).clamp(max=buckets - 1)
        return side + torch.where(distance < near, distance, far)

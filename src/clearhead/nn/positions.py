"""Positions: attention alone does not know the order of its tokens, so order is put in, in one of two places.

At the input, a vector for each position is added to the token's vector, or concatenated to it:

    sinusoidal   PE(pos, 2i) = sin(pos / N^(2i/D)),  PE(pos, 2i+1) = cos(pos / N^(2i/D))
    learned      a table with a row for each position

Inside every attention head, where only the distance between query and key counts:

    rotary       queries and keys are rotated by an angle that grows with their position
    ALiBi        the score falls linearly with the distance
    T5           a learned number for each range of distances is added to the score

    B batch, T tokens, S keys, H heads, D width

A new scheme subclasses `InputPositions` (write `encode`) or `RelativePositions` (write `rotate` or `bias`), builds
itself in `at_input` or `in_heads`, and is registered under the name that `model.positions` takes:

    @POSITIONS.register("mine")
    class Mine(RelativePositions):
        @classmethod
        def in_heads(cls, sizes: PositionSizes) -> "Mine":
            return cls(sizes.heads)
        def bias(self, queries, keys): ...                     # positions (T,), (S,) -> (H, T, S)
"""

# ruff: noqa: ARG003 - what a scheme does not do is a method that does nothing
from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from clearhead.errors import ShapeError
from clearhead.registry import Registry

Combine = Callable[[Tensor, Tensor], Tensor]  # tokens (B, T, D), positions (T, P) -> (B, T, D or D + P)
Bias = Callable[[Tensor, Tensor], Tensor]  # query positions (T,), key positions (S,) -> (H, T, S)
Start = int | Tensor  # position of the first token, or (B,) one for each row


def add_positions(x: Tensor, positions: Tensor) -> Tensor:
    """Token + position, as in the paper."""
    return x + positions


def concatenate_positions(x: Tensor, positions: Tensor) -> Tensor:
    """Token and position side by side, as in the Georgia Tech lecture: the width grows."""
    return torch.cat((x, positions.expand(*x.shape[:-1], -1)), dim=-1)


def position_ids(start: Start, length: int, device: torch.device) -> Tensor:
    """The positions of `length` tokens from `start` on: (T,), or (B, T) when each row has its own start."""
    steps = torch.arange(length, device=device)
    return start.to(device).unsqueeze(-1) + steps if isinstance(start, Tensor) else start + steps


def _end(start: Start, length: int) -> int:
    """One past the last position."""
    return length + (int(start.max()) if isinstance(start, Tensor) else start)


@dataclass(frozen=True)
class PositionSizes:
    """What a scheme may need to know of the model that it is built for."""

    dim: int  # of a position vector at the input
    heads: int
    key_dim: int  # of one head
    max_length: int  # of a learned table
    base: float = 10000.0  # N
    combine: Combine = add_positions
    causal: bool = False
    rotary_dim: int | None = None  # numbers of a head that are rotated; None = all
    rotary_factors: Sequence[float] | None = None  # what the angle of each pair is divided by
    rotary_gain: float = 1.0  # of sines and cosines
    buckets: int = 32  # of distances, T5
    longest: int = 128  # distance with a bucket of its own, T5


class PositionScheme(nn.Module):
    """What a position scheme puts where, and what it says about itself."""

    max_length: int | None = None  # positions that it has; None = any number
    windowed: ClassVar[bool] = False  # reads texts longer than trained on through a window of the trained length

    @classmethod
    def at_input(cls, sizes: PositionSizes) -> InputPositions:
        """The module for the input of a model; none unless a scheme says otherwise."""
        return NoPositions()

    @classmethod
    def in_heads(cls, sizes: PositionSizes) -> RelativePositions:
        """The module for the heads of one stack, shared by its blocks; none unless a scheme says otherwise."""
        return NoRelativePositions()

    @property
    def scheme(self) -> str:
        """The name it is registered under."""
        return next((name for name in POSITIONS.names() if POSITIONS[name] is type(self)), type(self).__name__)

    def vectors(self, length: int) -> Tensor | None:
        """(T, D): the vector of each position, if it has any."""
        return None

    def products(self, length: int) -> Tensor | None:
        """(1 or H, T, T): what the scheme adds to, or leaves of, the score of two positions."""
        return None


POSITIONS: Registry[type[PositionScheme]] = Registry("position")


def length_limit(model: nn.Module) -> int | None:
    """The longest sequence that the position schemes of a model can represent; None = any."""
    limits = (part.max_length for part in model.modules() if isinstance(part, PositionScheme))
    return min((limit for limit in limits if limit is not None), default=None)


def reads_in_windows(model: nn.Module) -> bool:
    """Whether a text longer than those trained on is read through a window: only distances count, and near ones."""
    return all(part.windowed for part in model.modules() if isinstance(part, PositionScheme))


class SinCosTable(nn.Module):
    """sin and cos of pos / N^(2i/D), in a table that grows on demand.

    The angle of pair i may be divided by `factors[i]`, and all sines and cosines multiplied by `gain`: this is how a
    model learns to read texts longer than those it was first trained with.
    """

    sin: Tensor  # (positions, D/2)
    cos: Tensor

    def __init__(self, dim: int, base: float, factors: Sequence[float] | None = None, gain: float = 1.0):
        super().__init__()
        pairs = (dim + 1) // 2
        if factors is not None and len(factors) != pairs:
            raise ShapeError(f"{len(factors)} rotary factors do not fit the {pairs} pairs of {dim} numbers")
        self.dim, self.base, self.gain = dim, base, gain
        self.factors = torch.ones(pairs, dtype=torch.float64) if factors is None else torch.tensor(factors).double()
        self._fill(256)

    def forward(self, start: Start, length: int) -> tuple[Tensor, Tensor]:
        """sin and cos, each (T, D/2), or (B, T, D/2) when each row has its own start."""
        if _end(start, length) > len(self.sin):
            self._fill(2 * _end(start, length))
        at = position_ids(start, length, self.sin.device) if isinstance(start, Tensor) else slice(start, start + length)
        return self.sin[at], self.cos[at]

    def _fill(self, length: int) -> None:
        """Compute the angles in float64: at position 65,536 a float32 is off by 0.004."""
        pair = torch.arange(0, self.dim, 2, dtype=torch.float64)  # 2i
        speed = self.base ** (-pair / self.dim) / self.factors
        angle = torch.arange(length, dtype=torch.float64).unsqueeze(-1) * speed
        like = getattr(self, "sin", torch.empty(0))
        self.register_buffer("sin", (self.gain * angle.sin()).to(like), persistent=False)
        self.register_buffer("cos", (self.gain * angle.cos()).to(like), persistent=False)


# --- at the input ---


class InputPositions(PositionScheme):
    """A vector for each position, combined with the token's: a scheme writes `encode`."""

    combine: Combine = staticmethod(add_positions)

    def encode(self, length: int, start: Start = 0) -> Tensor:
        """The vectors of `length` positions from `start` on: (T, D), or (B, T, D)."""
        raise NotImplementedError

    def forward(self, x: Tensor, start: Start = 0) -> Tensor:
        """Tokens (B, T, D) whose first stands at `start` -> (B, T, D), with their positions."""
        return self.combine(x, self.encode(x.size(1), start).to(x.dtype))

    @property
    def has_vectors(self) -> bool:
        return True

    @property
    def is_added(self) -> bool:
        """Whether `forward` adds `encode` to the tokens and does nothing else, as native code does it."""
        plain = self.combine is add_positions and type(self).forward is InputPositions.forward
        return plain and "encode" not in vars(self)  # not changed for a while

    @contextmanager
    def changed(self, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
        """While open, the position vectors (T, D) go through `change` before they meet the tokens."""
        encode, own = self.encode, vars(self)
        before = own.get("encode")
        own["encode"] = lambda length, start=0: change(encode(length, start))
        try:
            yield
        finally:
            if before is None:
                del own["encode"]
            else:
                own["encode"] = before

    def vectors(self, length: int) -> Tensor | None:
        return self.encode(length if self.max_length is None else min(length, self.max_length))

    def products(self, length: int) -> Tensor | None:
        vectors = self.vectors(length)
        return None if vectors is None else (vectors @ vectors.T).unsqueeze(0)


@POSITIONS.register("none")
class NoPositions(InputPositions):
    """No order: the result is the same for every permutation of the tokens."""

    windowed = True

    @property
    def has_vectors(self) -> bool:
        return False

    @property
    def is_added(self) -> bool:
        return True

    def forward(self, x: Tensor, start: Start = 0) -> Tensor:
        return x

    def vectors(self, length: int) -> None:
        return None


@POSITIONS.register("sinusoidal")
class SinusoidalPositions(InputPositions):
    """Sines from short to long wavelengths: dot products between positions fall with their distance."""

    def __init__(self, dim: int, base: float = 10000.0, combine: Combine = add_positions):
        super().__init__()
        self.dim, self.combine, self.waves = dim, combine, SinCosTable(dim, base)

    @classmethod
    def at_input(cls, sizes: PositionSizes) -> SinusoidalPositions:
        return cls(sizes.dim, sizes.base, sizes.combine)

    def encode(self, length: int, start: Start = 0) -> Tensor:
        sin, cos = self.waves(start, length)
        return torch.stack((sin, cos), dim=-1).flatten(-2)[..., : self.dim]  # sin, cos, sin, cos, …


@POSITIONS.register("sinusoidal_halves")
class SideBySideSinusoids(SinusoidalPositions):
    """The same sines and cosines, all sines before all cosines, as in Marian."""

    def encode(self, length: int, start: Start = 0) -> Tensor:
        sin, cos = self.waves(start, length)
        return torch.cat((sin, cos), dim=-1)[..., : self.dim]


@POSITIONS.register("sinusoidal_fairseq")
class FairseqSinusoids(SideBySideSinusoids):
    """Sines before cosines, from wavelength 2π to exactly 2πN, and the first position is number 2, as in M2M100."""

    FIRST = 2

    def __init__(self, dim: int, base: float = 10000.0, combine: Combine = add_positions):
        super().__init__(dim, base, combine)
        pairs = dim // 2
        factors = [base ** (i / max(pairs - 1, 1) - 2 * i / dim) for i in range((dim + 1) // 2)]
        self.waves = SinCosTable(dim, base, factors)

    def encode(self, length: int, start: Start = 0) -> Tensor:
        return super().encode(length, start + self.FIRST)


@POSITIONS.register("learned")
class LearnedPositions(InputPositions):
    """A trainable vector for each position, up to `max_length`."""

    def __init__(self, dim: int, max_length: int, combine: Combine = add_positions):
        super().__init__()
        self.dim, self.max_length, self.combine = dim, max_length, combine
        self.table = nn.Embedding(max_length, dim)
        nn.init.normal_(self.table.weight, std=0.02)

    @classmethod
    def at_input(cls, sizes: PositionSizes) -> LearnedPositions:
        return cls(sizes.dim, sizes.max_length, sizes.combine)

    def encode(self, length: int, start: Start = 0) -> Tensor:
        end = _end(start, length)
        if end > self.table.num_embeddings:
            raise ShapeError(
                f"a sequence of {end} tokens is longer than the learned table of {self.max_length} positions; "
                "shorten the text or train with a larger model.max_length"
            )
        return self.table(position_ids(start, length, self.table.weight.device))


# --- inside the heads ---


@dataclass(frozen=True)
class PositionForm:
    """What native code does to queries and keys, and what it adds to their score; None = nothing."""

    sin: Tensor | None = None  # (T, K/2): pairs (i, i + K/2) are rotated
    cos: Tensor | None = None  # (T, K/2)
    bias: Tensor | None = None  # (H, 2T - 1): by distance key - query, from T - 1 down to -(T - 1)


class RelativePositions(PositionScheme):
    """Order inside the heads: a scheme rotates queries and keys, or has a bias that is added to their scores."""

    bias: Bias | None = None

    def rotate(self, x: Tensor, start: Start) -> Tensor:
        """Queries or keys (B, H, T, K) whose first stands at `start` -> (B, H, T, K)."""
        return x

    def cos_sin(self, start: Start, length: int) -> tuple[Tensor, Tensor] | None:
        """The factors of `apply_rotary`, each (T, K) or (B, T, K), for a scheme whose `rotate` is that."""
        return None

    def native_form(self, length: int) -> PositionForm | None:
        """Tables for positions up to `length`; None = computed with torch only."""
        return None

    def products(self, length: int) -> Tensor | None:
        positions = torch.arange(length)
        return None if self.bias is None else self.bias(positions, positions)

    def bias_by_distance(self, length: int) -> PositionForm:
        """The native form of a scheme whose bias depends on the distance alone, for `native_form` to return."""
        assert self.bias is not None
        query, keys = torch.tensor([length - 1]), torch.arange(2 * length - 2, -1, -1)
        return PositionForm(bias=self.bias(query, keys).squeeze(1))


class NoRelativePositions(RelativePositions):
    """Leaves queries, keys and scores alone."""

    windowed = True

    def native_form(self, length: int) -> PositionForm:
        return PositionForm()


@POSITIONS.register("rotary")
class Rotary(RelativePositions):
    """Rotates each pair (i, i + K/2) of a query or key by pos / N^(2i/K): q · k then depends on the distance alone."""

    windowed = True

    def __init__(self, dim: int, base: float = 10000.0, factors: Sequence[float] | None = None, gain: float = 1.0):
        super().__init__()
        if dim % 2:
            raise ShapeError(f"rotary positions rotate pairs of numbers, and a head size of {dim} is odd")
        self.waves = SinCosTable(dim, base, factors, gain)

    @classmethod
    def in_heads(cls, sizes: PositionSizes) -> Rotary:
        rotated = sizes.key_dim if sizes.rotary_dim is None else sizes.rotary_dim
        if rotated > sizes.key_dim:
            raise ShapeError(f"rotary_dim={rotated} is more than the {sizes.key_dim} numbers of a head")
        kind = Rotary if rotated == sizes.key_dim else PartialRotary
        return kind(rotated, sizes.base, sizes.rotary_factors, sizes.rotary_gain)

    def rotate(self, x: Tensor, start: Start) -> Tensor:
        cos, sin = (table.to(x.dtype) for table in self.cos_sin(start, x.size(-2)))
        cos, sin = (table.unsqueeze(-3) if table.dim() == 3 else table for table in (cos, sin))  # (B, 1, T, K)
        return apply_rotary(x, cos, sin)

    def cos_sin(self, start: Start, length: int) -> tuple[Tensor, Tensor]:
        sin, cos = self.waves(start, length)
        return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)

    def native_form(self, length: int) -> PositionForm | None:
        sin, cos = self.waves(0, length)
        return PositionForm(sin, cos)

    def products(self, length: int) -> Tensor:
        """The score of a unit vector with itself, at all pairs of positions."""
        unit = torch.ones(1, 1, length, self.waves.dim) / self.waves.dim**0.5  # (1, 1, T, K)
        rotated = self.rotate(unit, 0)[0, 0]  # (T, K)
        return (rotated @ rotated.T).unsqueeze(0)


class PartialRotary(Rotary):
    """Rotates the first numbers of every query and key, and leaves the rest without a position."""

    def rotate(self, x: Tensor, start: Start) -> Tensor:
        rotated, rest = x[..., : self.waves.dim], x[..., self.waves.dim :]
        return torch.cat((super().rotate(rotated, start), rest), dim=-1)

    def native_form(self, length: int) -> None:
        return None


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """(left, right) -> (left cos - right sin, right cos + left sin), the halves of (…, T, K); sin carries the sign."""
    return torch.addcmul(x * cos, x.roll(x.size(-1) // 2, dims=-1), sin)


@POSITIONS.register("alibi")
class Alibi(RelativePositions):
    """Subtracts m_h · distance from the score; head h forgets faster or slower by its slope m_h."""

    slopes: Tensor  # (H,)

    def __init__(self, heads: int):
        super().__init__()
        self.register_buffer("slopes", torch.tensor(_slopes(heads)), persistent=False)

    @classmethod
    def in_heads(cls, sizes: PositionSizes) -> Alibi:
        return cls(sizes.heads)

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        distance = (queries.unsqueeze(-1) - keys).abs()
        return -self.slopes[:, None, None] * distance

    def native_form(self, length: int) -> PositionForm:
        return self.bias_by_distance(length)


def _slopes(heads: int) -> list[float]:
    """2^(-8/H), 2^(-16/H), …; between powers of two, every second slope of the next power fills the rest."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    return slopes + (_slopes(2 * power)[::2][: heads - power] if heads > power else [])


@POSITIONS.register("t5")
class T5Relative(RelativePositions):
    """Adds a learned number for the distance: one for each near distance, one for each wider range farther out."""

    windowed = True

    def __init__(self, heads: int, buckets: int = 32, longest: int = 128, both_ways: bool = True):
        super().__init__()
        near = buckets // 4 if both_ways else buckets // 2
        if near < 1 or longest <= near:
            raise ShapeError(f"buckets={buckets} and longest={longest} leave no room for near and far distances")
        self.buckets, self.longest, self.both_ways = buckets, longest, both_ways
        self.table = nn.Embedding(buckets, heads)
        nn.init.normal_(self.table.weight, std=0.02)

    @classmethod
    def in_heads(cls, sizes: PositionSizes) -> T5Relative:
        return cls(sizes.heads, sizes.buckets, sizes.longest, both_ways=not sizes.causal)

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
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

    def native_form(self, length: int) -> PositionForm:
        return self.bias_by_distance(length)


@POSITIONS.register("learned_and_t5")
class LearnedAndT5(T5Relative):
    """A vector for each position at the input and a number for each distance in the heads, as in MPNet."""

    @classmethod
    def at_input(cls, sizes: PositionSizes) -> LearnedPositions:
        return LearnedPositions.at_input(sizes)

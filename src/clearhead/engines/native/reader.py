"""Encoding sources by native code: sentences end to end, without the padding that a batch would need.

N sentences, S tokens of the longest, L layers, G key-value heads, K key size, V value size
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor

from clearhead.engines.native.embedding import TokenVectors
from clearhead.engines.native.layout import Layout, unsupported_parts
from clearhead.engines.threads import ThreadChooser
from clearhead.models.seq2seq import Seq2Seq

if TYPE_CHECKING:
    from clearhead.models.lm import LanguageModel
    from clearhead.models.seq2seq import AttentionWriter


@dataclass(frozen=True)
class Source:
    """Keys and values of encoded sentences, for cross-attention."""

    keys: Tensor  # (L, slots, G × K)
    values: Tensor  # (L, slots, G × V)
    lists: Tensor  # (N, S) int32, the slots of each sentence
    lengths: Tensor  # (N,) int32, how many of them are no padding


def can_read(network: AttentionWriter | LanguageModel) -> TypeGuard[Seq2Seq]:
    """Whether there is an encoder that native code supports; a window it has only for the decoder."""
    return isinstance(network, Seq2Seq) and network.config.window is None and not [*unsupported_parts(network.encoder)]


class Reader:
    """The encoder of a model, and the cross-attention keys and values of its decoder."""

    def __init__(self, network: Seq2Seq, decoder: Layout, library: ctypes.CDLL, int8: bool):
        self.pad, self.decoder, self.library, self.threads = network.pad, decoder, library, ThreadChooser()
        self.encoder = Layout(network.encoder, None, library, int8)
        self.vectors = TokenVectors(network.source, concatenated=network.config.position_concat)

    def read(self, source: Tensor) -> Source | None:
        """Padded sources (N, S) -> keys and values of every layer.

        None where padding stands between tokens, or a source is longer than the table of positions.
        """
        real = source != self.pad
        lengths = real.sum(1)
        begins = torch.cat((lengths.new_zeros(1), lengths.cumsum(0)))
        places = torch.arange(source.size(1))
        if not torch.equal(real, places < lengths.unsqueeze(1)) or not self.vectors.reach(source.size(1)):
            return None
        one, count = self.decoder.layers[0], int(begins[-1])
        keys, values = (
            torch.empty(len(self.decoder.layers), count, one.kv_heads * size) for size in (one.key_dim, one.value_dim)
        )
        self._fill(source[real].int(), begins.int(), keys, values)
        return Source(keys, values, (begins[:-1].unsqueeze(1) + places).int(), lengths.int())

    def _fill(self, ids: Tensor, begins: Tensor, keys: Tensor, values: Tensor) -> None:
        """Encode all tokens end to end, (tokens,), into keys and values."""
        longest = int(begins.diff().max())
        stacks = (self.encoder.reach(longest), self.vectors.structure(), self.decoder.stack)
        with self.threads.choose(len(ids)) as trial:
            failed = self.library.clearhead_read(
                *map(ctypes.byref, stacks),
                *map(_address, (ids, begins)),
                len(begins) - 1,
                *map(_address, (keys, values)),
                trial.threads,
            )
        if failed:
            raise MemoryError(f"out of memory while reading {len(ids)} tokens")


def _address(tensor: Tensor) -> Any:
    return ctypes.c_void_p(tensor.data_ptr())

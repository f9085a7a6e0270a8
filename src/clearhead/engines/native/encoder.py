"""The encoder of a model that labels or embeds texts, as native code.

Texts lie end to end, without the padding that a batch has; token vectors and the output stay with torch, which computes
them in a fraction of the time.

    B texts, T tokens of the longest, N tokens of all texts, D width
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from clearhead.decode.pool import is_beside_others
from clearhead.engines.native.layout import Layout, unsupported_in_stack
from clearhead.engines.native.library import Library, ThreadChooser
from clearhead.models.classifier import TextEncoder

MANY = 2048  # tokens from which on all threads are used without trying fewer: each has texts of its own


class NativeEncoder:
    """A text encoder whose stack is native code."""

    def __init__(self, encoder: TextEncoder, library: Library, *, int8: bool = False):
        self.encoder, self.library, self.threads = encoder, library, ThreadChooser()
        self.layout = Layout(encoder.stack, None, library, int8)

    @staticmethod
    def unsupported_features(encoder: TextEncoder) -> list[str]:
        """Why an encoder has no native form; empty where it has."""
        first = next(encoder.parameters())
        if first.device.type != "cpu" or first.dtype != torch.float32:
            return [f"it computes in {first.dtype} on {first.device}"]
        window = ["a window"] if encoder.config.window is not None else []
        return [*window, *unsupported_in_stack(encoder.stack)]

    def __call__(self, ids: Tensor) -> Tensor:
        """(B, T), or with features (B, T, 1 + F) -> (B, T, D), zeros for padding; like the encoder itself."""
        return self.encode_all([ids])[0]

    @torch.inference_mode()
    def encode_all(self, batches: Sequence[Tensor]) -> list[Tensor]:
        """The same of several batches at once: the more texts there are, the less do threads wait for each other."""
        masks = [self.encoder.real(ids) for ids in batches]  # each (B, T)
        lengths = [mask.sum(1) for mask in masks]
        if not all(map(_ends_in_padding, masks, lengths)):
            return [self.encoder(ids) for ids in batches]
        inputs = [self.encoder.embed(ids) for ids in batches]
        flat = torch.cat([x[mask] for x, mask in zip(inputs, masks, strict=True)])  # (N, D)
        self._encode(flat, torch.cat(lengths).tolist())
        ends = pairwise(accumulate((int(each.sum()) for each in lengths), initial=0))
        return [_padded(flat[first:last], mask) for (first, last), mask in zip(ends, masks, strict=True)]

    def _encode(self, x: Tensor, lengths: list[int]) -> None:
        """Embedded tokens of some texts (N, D), in place -> their hidden states."""
        begins = torch.tensor([0, *lengths]).cumsum(0).int()
        stack = self.layout.reach(max(lengths))
        addresses = (ctypes.byref(stack), ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(begins.data_ptr()))
        options = (len(lengths), self.encoder.causal)
        if len(x) >= MANY:
            threads = 1 if is_beside_others() else self.threads.choices[-1]
            failed = self.library.clearhead_encode(*addresses, *options, threads)
        else:
            with self.threads.choose(len(x)) as trial:
                failed = self.library.clearhead_encode(*addresses, *options, trial.threads)
        if failed:
            raise MemoryError(f"out of memory while reading {len(x)} tokens")


def _ends_in_padding(mask: Tensor, lengths: Tensor) -> bool:
    """Whether the real tokens of each text stand before its padding, and every text has one."""
    return bool(lengths.all()) and torch.equal(mask, torch.arange(mask.size(1)) < lengths.unsqueeze(1))


def _padded(x: Tensor, mask: Tensor) -> Tensor:
    """The vectors (N, D) of real tokens -> (B, T, D), zeros for padding."""
    if len(x) == mask.numel():
        return x.view(*mask.shape, -1)
    states = x.new_zeros(*mask.shape, x.size(1))
    states[mask] = x
    return states

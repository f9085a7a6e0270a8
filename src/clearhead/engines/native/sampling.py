"""The next tokens of rows with different settings, chosen by one call of native code (sample.c).

decode/logits.py defines what is chosen, and does it with torch where there is no native code.

    B rows, V vocabulary
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from ctypes import c_double, c_float, c_int32, c_void_p
from functools import lru_cache
from math import nan

from torch import Tensor

from clearhead.decode.logits import Chosen, RowText
from clearhead.decode.settings import Settings
from clearhead.engines.native.library import Library


class CChoice(ctypes.Structure):
    """How a row chooses."""

    _fields_ = (
        *(("temperature", c_double), ("top_p", c_double), ("min_p", c_double), ("banned", c_void_p)),
        *(("repetition_penalty", c_float), ("presence_penalty", c_float), ("frequency_penalty", c_float)),
        *(("top_k", c_int32), ("no_repeat_ngram", c_int32), ("banned_count", c_int32)),
    )


class CRowText(ctypes.Structure):
    """What choosing depends on besides the logits."""

    _fields_ = (("tokens", c_void_p), ("count", c_int32), ("prompt", c_int32), ("forced", c_int32))


class CSampling(ctypes.Structure):
    """Rows, and where their tokens go."""

    _fields_ = (
        *((name, c_void_p) for name in ("logits", "choices", "texts", "uniforms", "tokens", "logprobs")),
        *(("rows", c_int32), ("size", c_int32)),
    )


STRUCTURES = (CChoice, CRowText, CSampling)  # in the order of `clearhead_sampling_size`


class NativeSampler:
    """Chooses tokens for rows with these settings."""

    def __init__(self, library: Library, settings: Sequence[Settings]):
        rows, chosen = len(settings), list(map(_choice, settings))
        self._sample = library.clearhead_sample
        self._choices = (CChoice * rows)(*(choice for choice, _ in chosen))
        self._banned = [banned for _, banned in chosen]  # what the choices point to
        self._uniforms, self._tokens = (c_double * rows)(), (c_int32 * rows)()
        self._logprobs = (c_double * (2 * rows))() if any(each.return_logprobs for each in settings) else None
        self._nothing = [nan] * rows
        self._texts = (CRowText * rows)()
        self._call = CSampling(
            choices=ctypes.addressof(self._choices),
            uniforms=ctypes.addressof(self._uniforms),
            tokens=ctypes.addressof(self._tokens),
            logprobs=None if self._logprobs is None else ctypes.addressof(self._logprobs),
            rows=rows,
        )

    def __call__(self, logits: Tensor, uniforms: Sequence[float], texts: Sequence[RowText] | None) -> Chosen:
        """Logits (B, V), a random number for each row, and what they look back at -> what is chosen."""
        call, logits = self._call, logits.float().contiguous()
        call.logits, call.size, call.texts = logits.data_ptr(), logits.size(1), None
        self._uniforms[:] = list(uniforms)
        if texts is not None:
            for row, text in zip(self._texts, texts, strict=True):
                address, row.count = text.ids.buffer_info()
                row.tokens, row.prompt, row.forced = address, text.prompt, text.forced
            call.texts = ctypes.addressof(self._texts)
        if self._sample(ctypes.byref(call)):
            raise MemoryError(f"out of memory while choosing from {logits.size(1)} tokens")
        if self._logprobs is None:
            return self._tokens[:], self._nothing, self._nothing
        both = self._logprobs[:]
        return self._tokens[:], both[::2], both[1::2]


@lru_cache(maxsize=256)
def _choice(settings: Settings) -> tuple[CChoice, array[int]]:
    """The structure of some settings, and the memory that it points to."""
    banned = array("i", settings.banned_tokens)
    address, count = banned.buffer_info()
    return CChoice(
        temperature=settings.temperature,
        top_p=settings.top_p,
        min_p=settings.min_p,
        banned=address,
        repetition_penalty=settings.repetition_penalty,
        presence_penalty=settings.presence_penalty,
        frequency_penalty=settings.frequency_penalty,
        top_k=settings.top_k or 0,
        no_repeat_ngram=settings.no_repeat_ngram,
        banned_count=count,
    ), banned

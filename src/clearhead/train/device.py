"""Where and how it computes: device, precision, compilation, seeds."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from clearhead.config import TrainConfig
from clearhead.errors import ConfigError


@dataclass(frozen=True)
class Device:
    """A place to compute, and the choices that go with it."""

    place: torch.device
    half: bool  # bfloat16 for the products
    compiled: bool

    @classmethod
    def choose(cls, config: TrainConfig, note: Callable[[str], None], number: int | None = None) -> Device:
        """What the settings ask for, as far as this machine has it; what it lacks is said and done without.

        Of several graphics cards a process takes the one with its own number.
        """
        place = torch.device(place_name(config.device))
        if place.type == "cuda" and number is not None:
            place = torch.device("cuda", number)
            torch.cuda.set_device(place)
        native = place.type == "cuda" and torch.cuda.is_bf16_supported()
        if config.precision == "bfloat16" and not native:
            note(f"this {place.type} has no fast bfloat16: going on in float32")
        compiled = config.compile == "yes" or (config.compile == "auto" and place.type == "cuda")
        torch.use_deterministic_algorithms(config.deterministic, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # slow, and unread
        keep_freed_memory()
        return cls(place, half=native and config.precision != "float32", compiled=compiled)

    def prepare(self, model: nn.Module) -> nn.Module:
        """The model to call while training; its weights are those of `model`."""
        return torch.compile(model) if self.compiled else model  # type: ignore[return-value]

    def precision(self) -> AbstractContextManager[Any]:
        """The context in which losses are computed."""
        return torch.autocast(self.place.type, torch.bfloat16) if self.half else nullcontext()

    def seed(self, seed: int, step: int, rank: int = 0) -> None:
        """Everything random from here on follows from these three."""
        number = (seed * 1_000_003 + step) * 4099 + rank
        torch.default_generator.manual_seed(number % 2**63)
        if self.place.type == "cuda":
            torch.cuda.manual_seed(number % 2**63)
        elif self.place.type == "mps":
            torch.mps.manual_seed(number % 2**63)


def place_name(wanted: str) -> str:
    """`auto` is the fastest there is."""
    here = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if wanted == "auto":
        return next(name for name, there in here.items() if there)
    if not here[wanted]:
        raise ConfigError(f"train.device={wanted}: this machine has none; choose auto or cpu")
    return wanted


# Names of glibc's settings in malloc.h, and the largest values that it takes.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_NEVER, _LARGEST = 2**31 - 1, 2**25


def keep_freed_memory() -> None:
    """A step frees what the next one needs again: on Linux, let the C library keep it.

    It would hand it back and fetch it anew page by page, tens of thousands of them in a step of a small GPT.
    """
    if sys.platform != "linux":
        return
    tune = getattr(ctypes.CDLL(None), "mallopt", None)
    if tune is not None:  # not in every C library
        tune(_MMAP_THRESHOLD, _LARGEST)
        tune(_TRIM_THRESHOLD, _NEVER)

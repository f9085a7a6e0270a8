"""Device, precision, compilation and seeds of a training run."""

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
    """A torch device, and how to compute on it."""

    torch_device: torch.device
    bfloat16: bool  # autocast matrix products
    compiled: bool

    @classmethod
    def choose(cls, config: TrainConfig, note: Callable[[str], None], index: int | None = None) -> Device:
        """The device of the config; `note` is called with a sentence for what this machine cannot do.

        With several GPUs a process uses the one of its `index`. Also sets torch's deterministic algorithms.
        """
        device = torch.device(resolve_device(config.device))
        if device.type == "cuda" and index is not None:
            device = torch.device("cuda", index)
            torch.cuda.set_device(device)
        native = device.type == "cuda" and torch.cuda.is_bf16_supported()
        if config.precision == "bfloat16" and not native:
            note(f"{device.type} has no fast bfloat16 here: training in float32")
        compiled = config.compile == "yes" or (config.compile == "auto" and device.type == "cuda")
        torch.use_deterministic_algorithms(config.deterministic, warn_only=True)
        # Slow, and nothing reads uninitialised memory.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        keep_freed_memory()
        return cls(device, bfloat16=native and config.precision != "float32", compiled=compiled)

    def prepare(self, model: nn.Module) -> nn.Module:
        """The model to call while training, compiled if chosen; it shares the weights of `model`."""
        return torch.compile(model) if self.compiled else model  # type: ignore[return-value]

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.torch_device.type, torch.bfloat16) if self.bfloat16 else nullcontext()

    def seed(self, seed: int, step: int, rank: int = 0) -> None:
        """Seed torch with a number that depends on all three."""
        number = (seed * 1_000_003 + step) * 4099 + rank
        torch.default_generator.manual_seed(number % 2**63)
        if self.torch_device.type == "cuda":
            torch.cuda.manual_seed(number % 2**63)
        elif self.torch_device.type == "mps":
            torch.mps.manual_seed(number % 2**63)


def resolve_device(name: str) -> str:
    """cuda, mps or cpu; `auto` is the fastest available."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return next(each for each, here in available.items() if here)
    if not available[name]:
        raise ConfigError(f"train.device={name}: not available on this machine; choose auto or cpu")
    return name


# glibc's names in malloc.h, the largest values that it accepts, and its own ones.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_NEVER, _LARGEST = 2**31 - 1, 2**25
_TRIM, _MMAP = 2**17, 2**17


def keep_freed_memory() -> None:
    """On Linux, let the C library keep freed memory instead of returning it to the operating system.

    A training step frees what the next one allocates again: for a small GPT, tens of thousands of page faults per step.
    """
    _tune_malloc(_LARGEST, _NEVER)


def return_freed_memory() -> None:
    """On Linux, let the C library return freed memory at once.

    Sharded training frees the weights of a block after using them. Kept, that memory is soon full of small activations,
    and the next block needs new memory: in the end the process has as much as if nothing was sharded.
    """
    _tune_malloc(_MMAP, _TRIM)


def _tune_malloc(mmap_threshold: int, trim_threshold: int) -> None:
    if sys.platform != "linux":
        return
    tune = getattr(ctypes.CDLL(None), "mallopt", None)
    if tune is not None:  # glibc only
        tune(_MMAP_THRESHOLD, mmap_threshold)
        tune(_TRIM_THRESHOLD, trim_threshold)

"""Clearhead: train, run, serve and look inside every transformer of the lectures."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from clearhead.api import Model

__version__ = "0.1.0"


def load(path: str | Path, engine: str = "auto", int8: bool = False) -> Model:
    """A trained model, from its run directory or by its name."""
    from clearhead.api import load as load_run

    return load_run(path, engine, int8)

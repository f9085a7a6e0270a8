"""Libraries that only some tests need, and that take long to import."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest


class LazyModule:
    """A module that is imported when a test first uses it: every process of the tests reads every file."""

    def __init__(self, name: str):
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # pytest looks for some while it reads the file
            raise AttributeError(attribute)
        return getattr(import_module(self.name), attribute)


def optional(name: str, reason: str | None = None) -> Any:
    """The module; a file of tests is skipped where it is not installed."""
    if find_spec(name) is None:
        pytest.skip(reason or f"needs {name}", allow_module_level=True)
    return LazyModule(name)

"""Training: from a configuration to a run directory.

The package is also the function `clearhead.train`: importing a module of it makes Python put the package in the place
of the function, so calling the package calls the function.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        return import_module("clearhead.train.api").train(*arguments, **settings)


sys.modules[__name__].__class__ = _CallablePackage

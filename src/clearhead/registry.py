"""Things that a user chooses by name: tasks, views, data readers, position schemes, scores.

    SCORES: Registry[MakeScore] = Registry("score")

    @SCORES.register("cosine")
    def make_cosine(size, heads): ...

    SCORES["cosine"]        the thing, or a ConfigError that suggests the nearest name
    SCORES.names()          every name, those from outside the package too

A registry with a `package` has one module per name: `look/views/heads.py` registers "heads" when it is imported, which
happens when somebody asks for it. What comes from outside the package is loaded when a name is not known here: entry
points of the group `clearhead.scores` of installed packages, and the Python files in `$CLEARHEAD_PLUGINS`.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Generic, TypeVar

from clearhead.errors import ConfigError, nearest

T = TypeVar("T")

PLUGINS = "CLEARHEAD_PLUGINS"  # Python files, separated like the folders of $PATH


class Registry(Generic[T]):
    """Names and what they stand for; `kind` is what one of them is called in errors and entry points."""

    def __init__(self, kind: str, package: str = ""):
        self.kind, self.package = kind, package
        self._things: dict[str, T] = {}
        self._builtin: list[str] = []

    def register(self, name: str) -> Callable[[T], T]:
        """Decorate a class or function to give it a name; the last one of a name counts."""
        caller = str(sys._getframe(1).f_globals.get("__name__"))

        def add(thing: T) -> T:
            if caller.startswith("clearhead.") and name not in self._builtin:
                self._builtin.append(name)
            self._things[name] = thing
            return thing

        return add

    def __getitem__(self, name: str) -> T:
        if name not in self._things and name in self._modules():
            import_module(f"{self.package}.{name}")
        if name not in self._things:
            self._load_plugins()
        if name not in self._things:
            raise ConfigError(f"unknown {self.kind} {name}; {nearest(name, self.names())}")
        return self._things[name]

    def __contains__(self, name: object) -> bool:
        return name in self._things or name in self._modules() or name in self.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def builtin(self) -> list[str]:
        """The names of this package; nothing is imported to know them."""
        return self._modules() if self.package else list(self._builtin)

    def names(self) -> list[str]:
        """All names, this package's first."""
        self._load_plugins()
        return list(dict.fromkeys([*self._modules(), *self._things]))

    def _modules(self) -> list[str]:
        return _modules(self.package) if self.package else []

    def _load_plugins(self) -> None:
        from importlib.metadata import entry_points

        load_plugin_files()
        plural = f"{self.kind[:-1]}ies" if self.kind.endswith("y") else f"{self.kind}s"
        for entry in entry_points(group=f"clearhead.{plural}"):
            if entry.name not in self._things:
                thing = entry.load()
                self._things.setdefault(entry.name, thing)


@cache
def _modules(package: str) -> list[str]:
    """The modules of a package, each of which is named like the thing that it registers; subpackages are not."""
    found = importlib.util.find_spec(package)
    folders = [] if found is None else list(found.submodule_search_locations or [])
    return [module.name for module in iter_modules(folders) if not module.ispkg]


def load_plugin_files() -> None:
    """Import every file of `$CLEARHEAD_PLUGINS`, once in a process: each registers what it defines."""
    for text in filter(None, os.environ.get(PLUGINS, "").split(os.pathsep)):
        path = Path(text)
        name = f"clearhead_plugin_{path.stem}"
        if name in sys.modules:
            continue
        if not path.is_file():
            raise ConfigError(f"${PLUGINS}: there is no file {path}")
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise ConfigError(f"${PLUGINS}: {path} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise


def lazy_exports(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package that imports names on first use: name -> module inside the package."""

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package} has no attribute {name}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return find, lambda: sorted({*vars(sys.modules[package]), *modules})

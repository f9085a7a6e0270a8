"""Imports go one way along the line of layers; checked on the source, so imports inside functions count too."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import clearhead

ROOT = Path(clearhead.__file__).parent
LINE = (
    *("errors", "registry", "files", "config", "text", "data", "nn", "models", "decode", "engines", "look"),
    *("run", "tasks", "train", "interop", "serve", "studio", "bench", "cli"),
)
DOOR = {"__init__", "__main__"}  # the package itself: `import clearhead` leads everywhere
FILES = sorted(ROOT.rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def layer_of(path: Path) -> str:
    """The folder of the package that a file is in, or its own name at the root."""
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


def imported_layers(path: Path) -> Iterator[str]:
    """The layers that a file imports from, wherever the import stands."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (name.name.split(".")[1] for name in node.names if name.name.startswith("clearhead."))
        if isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            words = node.module.split(".")
            if words[0] == "clearhead":
                yield from [words[1]] if len(words) > 1 else (name.name for name in node.names)


def forbidden(path: Path, layer: str) -> list[str]:
    """Imports of a layer that does not stand before this one."""
    place = LINE.index(layer)
    return [each for each in imported_layers(path) if each in LINE and LINE.index(each) > place]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_imports_only_layers_that_stand_before_its_own(path: Path) -> None:
    layer = layer_of(path)
    assert layer in LINE or layer in DOOR
    if layer not in DOOR:
        assert forbidden(path, layer) == []


def test_the_rule_sees_a_forbidden_import(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(
        "def f():\n  from clearhead.cli import main\n  import clearhead.serve.server\n  from clearhead import load\n",
        encoding="utf-8",
    )
    assert forbidden(file, "train") == ["cli", "serve"]


@pytest.mark.parametrize(
    "module",
    [f"clearhead{part}" for part in ("", ".cli.main", ".text", ".data", ".config", ".run", ".tasks")],
)
def test_it_is_imported_without_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_using_a_model_imports_nothing_of_the_trainer_nor_of_the_compiler() -> None:
    slow = "'clearhead.train' in sys.modules or 'torch._dynamo' in sys.modules"
    code = f"import sys, clearhead; clearhead.load('en-es').translate('hello'); sys.exit({slow})"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


LAZY = json.loads((Path(__file__).parent / "lazy_imports.json").read_text(encoding="utf-8"))


def lazy_imports(path: Path) -> list[str]:
    """The modules that a file imports inside functions."""
    functions = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    found: set[str] = set()
    for node in (inner for function in functions for inner in ast.walk(function)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return sorted(found)


def test_lazy_imports_are_listed_with_their_reason() -> None:
    """Every import inside a function is there for the time of start-up, or because a library is optional."""
    found = {str(path.relative_to(ROOT).as_posix()): lazy_imports(path) for path in FILES}
    assert {name: modules for name, modules in found.items() if modules} == {
        name: sorted(modules) for name, modules in LAZY["files"].items()
    }
    assert set(LAZY["reasons"]) == {"start-up", "optional"}


def test_no_lazy_import_dodges_a_cycle() -> None:
    """A module that is imported lazily could be imported at the top: it never imports the file that imports it."""
    imports = {path: set(_modules(path)) for path in FILES}
    names = {_module_name(path): path for path in FILES}
    for file, modules in LAZY["files"].items():
        importer = _module_name(ROOT / file)
        for module in modules:
            assert importer not in _reachable(module, names, imports), f"{file} imports {module}, which imports it back"


def _module_name(path: Path) -> str:
    parts = ["clearhead", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _modules(path: Path) -> Iterator[str]:
    """The modules of the package that a file imports at its top."""
    for node in parsed(path).body:
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("clearhead"):
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def _reachable(module: str, names: dict[str, Path], imports: dict[Path, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in seen or name not in names or name == "clearhead":
            continue
        seen.add(name)
        waiting += imports[names[name]]
    return seen

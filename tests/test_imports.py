"""Imports go one way along the line of layers; checked on the source, so imports inside functions count too."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
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


def layer_of(path: Path) -> str:
    """The folder of the package that a file is in, or its own name at the root."""
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


def imported_layers(path: Path) -> Iterator[str]:
    """The layers that a file imports from, wherever the import stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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
        "def f():\n  from clearhead.cli import main\n  import clearhead.serve.app\n  from clearhead import load\n",
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


def test_loading_a_model_imports_nothing_of_the_trainer() -> None:
    code = "import sys, clearhead; clearhead.load('words'); sys.exit('clearhead.train' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

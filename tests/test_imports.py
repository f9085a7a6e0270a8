"""Who may import whom, as the design says; checked on the source, so imports inside functions count too."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import clearhead

ROOT = Path(clearhead.__file__).parent
EVERYTHING_BELOW_SERVE = {"run", "text", "data", "nn", "models", "decode", "engines", "train", "look", "interop"}
ALLOWED: dict[str, set[str]] = {
    "text": set(),
    "nn": set(),
    "decode": set(),
    "data": {"text"},
    "models": {"nn"},
    "look": {"data", "nn", "models", "decode"},
    "train": {"text", "data", "models", "decode", "engines", "look", "run"},
    "interop": {"nn", "models", "text"},
    "engines": {"nn", "models", "decode", "interop"},
    "bundled": set(),
    "bench": EVERYTHING_BELOW_SERVE,
    "serve": EVERYTHING_BELOW_SERVE,
    "cli": EVERYTHING_BELOW_SERVE | {"serve", "bench"},
}
EVERYONE = {"config", "errors", "files", "registry", "__version__"}
PUBLIC = {"load", "api", "bundled"}  # the package's own door, for those who use models rather than make them
FILES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT)


def imported_parts(path: Path) -> set[str]:
    """The folders of the package that a file imports from."""
    parts: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            parts |= {name.name.split(".")[1] for name in node.names if name.name.startswith("clearhead.")}
        if isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            words = node.module.split(".")
            if words[0] == "clearhead":
                parts |= {words[1]} if len(words) > 1 else {name.name for name in node.names}
    return parts


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_folder_imports_only_what_the_design_allows(path: Path) -> None:
    folder = path.relative_to(ROOT).parts[0]
    public = PUBLIC if folder in ("cli", "serve", "bench") else set()
    assert imported_parts(path) - EVERYONE - {folder} <= ALLOWED[folder] | public


def test_the_rule_would_see_a_forbidden_import(tmp_path: Path) -> None:
    sinner = tmp_path / "sinner.py"
    sinner.write_text("def f():\n  from clearhead.cli import main\n  import clearhead.serve.app\n", encoding="utf-8")
    assert imported_parts(sinner) == {"cli", "serve"}


def test_config_and_errors_import_no_folder() -> None:
    assert imported_parts(ROOT / "errors.py") == set()
    assert imported_parts(ROOT / "config.py") == {"errors"}


@pytest.mark.parametrize(
    "module",
    ["clearhead", "clearhead.cli.main", "clearhead.text", "clearhead.data", "clearhead.config", "clearhead.bundled"],
)
def test_it_is_imported_without_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

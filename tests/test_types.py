"""The public API is typed: a user's script passes the type checker without one Any."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "tests" / "types" / "user_script.py"


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What the checker says of the script, and of the same script with one wrong type, by the names of their files."""
    wrong = tmp_path_factory.mktemp("types") / "wrong.py"
    text = SCRIPT.read_text(encoding="utf-8")
    wrong.write_text(text.replace('bread"), str)', 'bread"), int)', 1), encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(SCRIPT), str(wrong)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    *lines, last = done.stdout.splitlines()
    assert last.endswith("(checked 2 source files)"), done.stdout + done.stderr
    found: dict[str, list[str]] = {SCRIPT.name: [], wrong.name: []}
    for line in lines:
        found[Path(line.split(":")[0]).name].append(line)
    return found


def test_a_script_of_a_user_has_types_everywhere(errors: dict[str, list[str]]) -> None:
    assert errors["user_script.py"] == []


def test_the_checker_would_see_a_wrong_type(errors: dict[str, list[str]]) -> None:
    [line] = errors["wrong.py"]
    assert 'Expression is of type "str", not "int"' in line

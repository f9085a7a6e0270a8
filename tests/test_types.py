"""The public API is typed: a user's script passes the type checker without one Any."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "tests" / "types" / "user_script.py"


def checked(script: Path) -> str:
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(script)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


def test_a_script_of_a_user_has_types_everywhere() -> None:
    assert "Success" in checked(SCRIPT)


def test_the_checker_would_see_a_wrong_type(tmp_path: Path) -> None:
    wrong = SCRIPT.read_text(encoding="utf-8").replace('bread"), str)', 'bread"), int)', 1)
    (tmp_path / "wrong.py").write_text(wrong, encoding="utf-8")
    assert 'Expression is of type "str", not "int"' in checked(tmp_path / "wrong.py")

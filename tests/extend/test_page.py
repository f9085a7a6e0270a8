"""docs/extending.md shows the files that these tests run, and its commands work."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")
FILES = re.findall(r'```python title="(\w+\.py)"\n(.*?)```\n', PAGE, re.S)
COMMANDS = re.findall(r"```shell\n(.*?)```\n", PAGE, re.S)


def test_every_kind_of_extension_is_shown() -> None:
    assert sorted(name for name, _ in FILES) == sorted(path.name for path in HERE.glob("*_plugin.py"))


@pytest.mark.parametrize(("name", "code"), FILES, ids=[name for name, _ in FILES])
def test_the_page_shows_the_file_that_is_tested(name: str, code: str) -> None:
    assert code == (HERE / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("number", range(1, len(COMMANDS)))
def test_the_commands_work(number: int, tmp_path: Path) -> None:
    for plugin in HERE.glob("*_plugin.py"):
        shutil.copy(plugin, tmp_path)
    environment = dict(os.environ, PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    script = COMMANDS[0] + COMMANDS[number]
    done = subprocess.run(
        ["bash", "-e", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

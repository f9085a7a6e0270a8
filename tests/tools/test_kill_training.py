"""Trainings that are killed at random moments, also inside of their writes, end as if nothing had happened."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "kill_training.py"


def killed(kills: int, *options: str) -> dict[str, object]:
    done = subprocess.run([sys.executable, TOOL, "--kills", str(kills), *options], capture_output=True, text=True)
    assert done.stdout, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    assert found["different"] == [], done.stderr
    assert done.returncode == 0
    return found


@pytest.mark.slow
def test_two_hundred_kills() -> None:
    assert killed(200)["kills"] == 200

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from clearhead.bench import start
from clearhead.bench.start import OURS, TORCH, milliseconds, results


def test_commands_run_with_compiled_modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    quick, slow = ((sys.executable, "-c", f"import json, time; time.sleep({s})") for s in (0, 1.5))
    monkeypatch.setattr(start, "COMMANDS", {"quick": quick, "slow": slow})
    (tmp_path / "kept").mkdir()
    taken = milliseconds(str(tmp_path / "kept"), rounds=1)
    assert taken["slow"] > taken["quick"]
    assert any((tmp_path / "kept").rglob("*.pyc"))


def test_a_command_that_fails_is_no_measurement(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(start, "COMMANDS", {"broken": (sys.executable, "-c", "raise SystemExit(3)")})
    with pytest.raises(Exception, match="returned non-zero exit status 3"):
        milliseconds(str(tmp_path), rounds=1)


def test_the_ratio_is_ours_over_torchs() -> None:
    ours, torch, ratio = results({OURS: 2600.0, TORCH: 2000.0}, rounds=1)
    assert (ours.value, torch.value, ratio.value) == (2.6, 2.0, 1.3)
    assert ratio.holds

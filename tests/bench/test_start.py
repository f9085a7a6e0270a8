from __future__ import annotations

import sys
from pathlib import Path

import pytest

from clearhead.bench import start
from clearhead.bench.start import HELP, OURS, TORCH, milliseconds, results


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


def test_the_ratios_are_ours_over_torchs() -> None:
    *seconds, whole, help_ = results({OURS: 2400.0, HELP: 200.0, TORCH: 2000.0}, rounds=1)
    assert [each.value for each in seconds] == [2.4, 0.2, 2.0]
    assert (whole.value, help_.value) == (1.2, 0.1)
    assert whole.holds
    assert help_.holds


def test_all_commands_and_their_ratios_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {OURS: 130.0, HELP: 10.0, TORCH: 100.0}
    monkeypatch.setattr(start, "milliseconds", lambda _folder, rounds: {k: each * rounds for k, each in taken.items()})
    found = list(start.run(peers=False))
    assert [each.value for each in found] == pytest.approx([1.43, 0.11, 1.1, 1.3, 0.1])
    assert (found[-2].limit, found[-2].holds) == (1.2, False)
    assert (found[-1].limit, found[-1].holds) == (0.1, True)

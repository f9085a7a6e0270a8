"""What the measurements of the Studio count."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "measure_studio.py"


@pytest.fixture
def tool() -> Any:
    pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install 'clearhead[dev]'")
    spec = importlib.util.spec_from_file_location("measure_studio", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_frames_are_counted_by_the_second(tool: Any) -> None:
    even = [1000 / 60] * 241
    assert set(tool.per_second(even)) <= {59, 60, 61}
    assert len(tool.per_second(even)) == 3  # the first and the last second are not whole
    stalled = [10.0] * 300 + [2500.0] + [10.0] * 300
    assert min(tool.per_second(stalled)) <= 1

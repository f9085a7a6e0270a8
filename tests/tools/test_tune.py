"""The search for recipes: what it draws is a configuration, the best go on, and nothing is measured twice."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest

from clearhead.bench.defaults import POINTS, Point
from clearhead.tasks import default_config, override_config

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tune() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tune", ROOT / "tools" / "tune.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tune"] = module
    spec.loader.exec_module(module)
    return module


def test_every_draw_is_a_configuration(tune: ModuleType) -> None:
    draw = random.Random(3)
    for task in {point.task for point in POINTS}:
        for _ in range(20):
            override_config(default_config(task), tune.drawn(task, draw))


def test_the_best_third_goes_on(tune: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[float, tuple[str, ...]]] = []

    def measured(point: Point, data: Path, minutes: float, settings: list[str], out: Path) -> dict[str, object]:
        asked.append((minutes, tuple(settings)))
        return {"score": len(settings), "settings": settings}

    monkeypatch.setattr(tune, "measured", measured)
    point = Point("p", "classify", lambda folder: folder, 8, "accuracy")
    last = tune.search(point, 8, 9, 1, tmp_path / "out.json")
    assert [minutes for minutes, _ in asked] == [2] * 9 + [4] * 3 + [8]
    assert last[0]["score"] == max(len(settings) for _, settings in asked)


def test_a_trial_is_measured_once(tune: ModuleType, tmp_path: Path) -> None:
    rows = "".join(f"{'ab'[i % 2]}\t{'good' if i % 2 else 'bad'} film {i}\n" for i in range(60))
    (tmp_path / "t.tsv").write_text("label\ttext\n" + rows, encoding="utf-8")
    point = Point("p", "classify", lambda folder: folder, 1, "accuracy")
    settings = ["model.dim=16", "model.heads=2", "train.max_steps=2"]
    first = tune.measured(point, tmp_path / "t.tsv", 0.5, settings, tmp_path / "out.json")
    assert tune.measured(point, tmp_path / "gone.tsv", 0.5, settings, tmp_path / "out.json") == first
    assert (first["steps"], first["metric"], 0 <= first["score"] <= 1) == (2, "accuracy", True)


def test_the_committed_results_are_of_known_points() -> None:
    results = json.loads((ROOT / "benchmarks" / "tune" / "results.json").read_text(encoding="utf-8"))
    assert {result["point"] for result in results} <= {point.name for point in POINTS}

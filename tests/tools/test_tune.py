"""The search for recipes: what it draws is a configuration, the best go on, and nothing is measured twice."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest

from clearhead.bench.defaults import POINTS, Data, Point, write_files
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
    for task in sorted({point.task for point in POINTS}):
        for _ in range(20):
            override_config(default_config(task), tune.drawn(task, draw))


def test_the_best_third_goes_on(tune: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[float, tuple[str, ...]]] = []

    def measured(point: Point, data: Data, minutes: float, settings: list[str], out: Path) -> dict[str, object]:
        asked.append((minutes, tuple(settings)))
        return {"score": len(settings), "settings": settings}

    monkeypatch.setattr(tune, "measured", measured)
    point = Point("p", "classify", lambda folder: Data(folder, folder), 8, "accuracy")
    last = tune.search(point, 8, 9, 1, tmp_path / "out.json")
    assert [minutes for minutes, _ in asked] == [2] * 9 + [4] * 3 + [8]
    assert last[0]["score"] == max(len(settings) for _, settings in asked)
    asked.clear()
    assert len(tune.search(point, 8, 5, 1, tmp_path / "out.json", tune.WHOLE)) == 5
    assert [minutes for minutes, _ in asked] == [8] * 5


def test_the_recipe_is_compared_with_the_best(
    tune: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("loop", "start"):
        monkeypatch.setattr(getattr(tune, name), "time", getattr(tune, name).time)  # what main changes is put back
    found = [{"score": 50.0, "settings": ["model.dim=64"]}, {"score": 48.0, "settings": []}]
    monkeypatch.setattr(tune, "search", lambda *_: found)
    assert tune.main(["en-de, 1,000 ", "--trials", "2", "--whole"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "the recipe has 0.960 of the best of 2 settings"


def test_a_trial_is_measured_once(tune: ModuleType, tmp_path: Path) -> None:
    rows = [f"{'ab'[i % 2]}\t{'good' if i % 2 else 'bad'} film {i}\n" for i in range(67)]
    data = write_files(tmp_path, ".tsv", *("label\ttext\n" + "".join(part) for part in (rows[:60], rows[60:])))
    point = Point("p", "classify", lambda folder: Data(folder, folder), 1, "accuracy")
    gone = Data(tmp_path / "gone.tsv", tmp_path / "gone.tsv")
    settings = ["model.dim=16", "model.heads=2", "train.max_steps=2"]
    first = tune.measured(point, data, 0.5, settings, tmp_path / "out.json")
    assert tune.measured(point, gone, 0.5, settings, tmp_path / "out.json") == first
    assert (first["steps"], first["metric"], first["part"]) == (2, "accuracy", "held out")
    assert round(7 * first["score"], 6) in range(8)


def test_the_committed_results_are_of_known_points() -> None:
    results = json.loads((ROOT / "benchmarks" / "tune" / "results.json").read_text(encoding="utf-8"))
    assert {result["point"] for result in results} <= {point.name for point in POINTS}

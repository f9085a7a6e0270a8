"""Search for the settings that `Task.recipe` gives: successive halving on one point of `clearhead bench defaults`.

    python tools/tune.py "TREC" --trials 12 --out benchmarks/tune/results.json
    python tools/tune.py "en-de, 1,000" --trials 20 --whole      # how good is the recipe among 20 settings

The first trial is the recipe as it is, the others draw from `SPACE` what they change in it. All get a quarter of the
point's minutes, the best third of them half, and the best third of those all; with --whole every trial gets all of
them. Minutes are those of the process on one core, so that other work on the machine costs no steps. A trial is scored
on the part that the point holds out; of many trials the best one is a little lucky there, which only makes the
comparison with the recipe stricter. Every result is appended to the file at once, and trials that it already has are
not repeated: a search that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import torch

from clearhead.bench.defaults import POINTS, Data, Point
from clearhead.files import write_text
from clearhead.tasks import default_config, override_config
from clearhead.train import loop, start
from clearhead.train.evaluate import evaluate
from clearhead.train.loop import Callbacks
from clearhead.train.start import plan_training, run_training

RUNGS = (0.25, 0.5, 1.0)  # shares of the point's minutes
WHOLE = (1.0,)
KEPT = 3  # one of so many goes on to the next rung

COMMON = {
    "data.batch_tokens": (512, 768, 1024, 2048),
    "model.dropout": (0.0, 0.1, 0.3, 0.5),
    "model.layers": (1, 2, 3, 4),
    "train.learning_rate": (0.002, 0.004, 0.008),
    "train.matrix_rate": (0.005, 0.01, 0.02, 0.03),
    "train.average": (0.0, 0.98, 0.99, 0.999),
}
WIDTHS = tuple({"model.dim": 32 * heads, "model.heads": heads, "model.inner": 64 * heads} for heads in (3, 4, 5, 6, 8))
SPACE: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "translate": {**COMMON, "tokenizer.size": (500, 1000, 2000, 3000, 4000, 8000), "model.norm": ("layer", "rms")},
    "lm": {**COMMON, "tokenizer.size": (300, 500, 1000, 2000, 4000), "model.length": (32, 64, 128, 256)},
    "classify": {**COMMON, "tokenizer.size": (1000, 2000, 4000, 8000), "model.ngrams": (1, 2, 3)},
    "vision": {**COMMON, "data.augment": (0.0, 0.2, 0.4, 0.6), "model.patches": ("linear", "convolution", "residual")},
    "tag": {**COMMON, "tokenizer.size": (200, 500, 1000, 2000), "model.ngrams": (1, 2, 4, 5)},
}


def main(words: Sequence[str] | None = None) -> int:
    """Search on one point, and print the trials of the last rung, the best one first."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("point", help="the beginning of a point's name: " + ", ".join(point.name for point in POINTS))
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--whole", action="store_true", help="give every trial all of the minutes")
    parser.add_argument("--minutes", type=float, help="instead of the point's")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/tune/results.json"))
    options = parser.parse_args(words)
    matching = [point for point in POINTS if point.name.startswith(options.point)]
    if len(matching) != 1:
        parser.error(f"{options.point!r} is the beginning of {len(matching)} points; see --help")
    torch.set_num_threads(1)
    own_time = SimpleNamespace(perf_counter=time.process_time, strftime=time.strftime)
    loop.time = start.time = own_time  # type: ignore[attr-defined,assignment]
    point, rungs = matching[0], WHOLE if options.whole else RUNGS
    last = search(point, options.minutes or point.minutes, options.trials, options.seed, options.out, rungs)
    for result in last:
        print(f"{result['score']:.4f}  {' '.join(result['settings']) or 'the recipe'}")
    if recipe := next((result["score"] for result in last if not result["settings"]), None):
        best = last[0]["score"]
        share = best / recipe if point.lower_is_better else recipe / best
        print(f"the recipe has {share:.3f} of the best of {len(last)} settings")
    return 0


def search(
    point: Point, minutes: float, trials: int, seed: int, out: Path, rungs: Sequence[float] = RUNGS
) -> list[dict[str, Any]]:
    """The results of the last rung, the best one first."""
    draw = random.Random(seed)
    waiting = [[], *(drawn(point.task, draw) for _ in range(trials - 1))]
    found: list[dict[str, Any]] = []
    with TemporaryDirectory() as folder:
        data = point.data(Path(folder))
        for share in rungs:
            found = [measured(point, data, share * minutes, settings, out) for settings in waiting]
            found.sort(key=lambda result: result["score"], reverse=not point.lower_is_better)
            waiting = [result["settings"] for result in found[: -(-len(found) // KEPT)]]
    return found


def drawn(task: str, draw: random.Random) -> list[str]:
    """Assignments that change about half of the recipe."""
    space = SPACE[task]
    chosen = {name: draw.choice(values) for name, values in space.items() if draw.random() < 0.5}
    if draw.random() < 0.5:
        chosen |= draw.choice(WIDTHS)
    return [f"{name}={value}" for name, value in sorted(chosen.items())]


def measured(point: Point, data: Data, minutes: float, settings: list[str], out: Path) -> dict[str, Any]:
    """The result of one trial, from the file if it is there."""
    results: list[dict[str, Any]] = json.loads(out.read_text(encoding="utf-8")) if out.exists() else []
    key = {"point": point.name, "part": "held out", "minutes": minutes, "settings": settings}
    for result in results:
        if all(result.get(name) == value for name, value in key.items()):
            return result
    given = [f"data.path={data.train}", f"train.max_minutes={minutes:g}", *settings]
    config = override_config(default_config(point.task), given)
    steps: list[int] = []
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        plan = plan_training(config, [each.partition("=")[0] for each in given])
        told = Callbacks(on_step=lambda step, _: steps.append(step.step))
        run_training(plan.config, run, "tools/tune.py", told, plan)
        scores = {score.name: score.value for score in evaluate(run, str(data.held_out)).scores}
    result = {**key, "score": scores[point.metric], "metric": point.metric, "steps": len(steps), "scores": scores}
    write_text(out, json.dumps([*results, result], indent=1, ensure_ascii=False) + "\n")
    print(f"{point.name}, {minutes:g} minutes: {result['score']:.4f}  {' '.join(settings)}", file=sys.stderr)
    return result


if __name__ == "__main__":
    sys.exit(main())

"""How to measure: turn and turn about, many times, the median of it; peak memory in a process of its own."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def side_by_side(candidates: Mapping[str, Callable[[], object]], repeats: int, warm_up: int = 3) -> dict[str, float]:
    """Median milliseconds of each; they take turns, so that a slow moment of the machine hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(warm_up + repeats):
        for name, run in candidates.items():
            begin = time.perf_counter()
            run()
            if turn >= warm_up:
                times[name].append(1000 * (time.perf_counter() - begin))
    return {name: statistics.median(taken) for name, taken in times.items()}


# Linux's own high-water mark: getrusage would count the process that started this one, too.
_PEAK = """
import json, pathlib, resource, sys
status = pathlib.Path("/proc/self/status")
if status.exists():
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
    result["peak_mb"] = int(line.split()[1]) * 1024 / 1e6
else:
    unit = 1 if sys.platform == "darwin" else 1024
    result["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
print(json.dumps(result))
"""


def in_own_process(code: str, *arguments: str) -> dict[str, Any]:
    """Run Python code that sets `result` in a new process, and add its peak memory in MB."""
    command = [sys.executable, "-c", code + _PEAK, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def growth_exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """p of the best fit time = c · size^p: 1 is linear, 2 quadratic."""
    x, y = [math.log(size) for size in sizes], [math.log(taken) for taken in times]
    return statistics.linear_regression(x, y).slope


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    import torch

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "system": platform.system(),
    }

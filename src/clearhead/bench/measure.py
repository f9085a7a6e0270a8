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
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Self

SPINNING = 0.3  # seconds: for so long the threads of some packages keep a core busy after their work

Round = dict[str, float]  # the milliseconds of each candidate
Turn = Callable[[], object]
MakeTurn = Callable[[], Turn]


def side_by_side(candidates: Mapping[str, Turn], repeats: int, warm_up: int = 3) -> dict[str, float]:
    """Median milliseconds of each; they take turns, so that a slow moment of the machine hits all alike."""
    return medians(rounds_together(candidates, repeats, warm_up))


def rounds_together(candidates: Mapping[str, Turn], repeats: int, warm_up: int = 3) -> list[Round]:
    """Each round by itself, for ratios of turns that followed each other."""
    return _rounds({name: partial(_milliseconds, turn) for name, turn in candidates.items()}, repeats, warm_up)


def side_by_side_apart(candidates: Mapping[str, MakeTurn], repeats: int, warm_up: int = 3) -> dict[str, float]:
    """As above, each in a process of its own, which it may set up as it likes; what makes a turn must be picklable."""
    return medians(rounds_apart(candidates, repeats, warm_up))


def rounds_apart(candidates: Mapping[str, MakeTurn], repeats: int, warm_up: int = 3) -> list[Round]:
    """The same, each in a process of its own.

    There is a pause before each turn, so that nobody computes beside the threads of the one before.
    """
    with ExitStack() as all_of_them:
        workers = {name: all_of_them.enter_context(_Worker(make)) for name, make in candidates.items()}
        return _rounds({name: worker.turn for name, worker in workers.items()}, repeats, warm_up)


def medians(rounds: Sequence[Round]) -> dict[str, float]:
    """Of each candidate."""
    return {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}


def median_ratio(rounds: Sequence[Round], ours: str, theirs: str) -> float:
    """Of the two times in a round: a machine that is slow for a minute is slow for both."""
    return statistics.median(each[ours] / each[theirs] for each in rounds)


def _rounds(turns: Mapping[str, Callable[[], float]], repeats: int, warm_up: int) -> list[Round]:
    """What the turns gave, without the first ones."""
    return [{name: turn() for name, turn in turns.items()} for _ in range(warm_up + repeats)][warm_up:]


def _milliseconds(turn: Turn) -> float:
    begin = time.perf_counter()
    turn()
    return 1000 * (time.perf_counter() - begin)


class _Worker:
    """A process that makes a candidate, and one turn whenever it is asked."""

    def __init__(self, make: MakeTurn):
        start = get_context("spawn")
        self.pipe, theirs = start.Pipe()
        self.process = start.Process(target=_take_turns, args=(make, theirs), daemon=True)

    def __enter__(self) -> Self:
        self.process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.join()

    def turn(self) -> float:
        """Milliseconds."""
        time.sleep(SPINNING)
        self.pipe.send(None)
        return float(self.pipe.recv())


def _take_turns(make: MakeTurn, pipe: Connection) -> None:
    turn = make()
    while True:
        pipe.recv()
        pipe.send(_milliseconds(turn))


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

"""Measuring: candidates take turns, many times, and the median counts; peak memory in a separate process.

side_by_side(candidates, repeats)             in this process
side_by_side_apart(candidates, repeats)       each candidate in its own process
in_own_process(code)                          runs Python code and reports its peak memory
at_once(clients, work)                        calls work(0), work(1), … in a thread each
"""

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
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, Self

from clearhead.engines.native.library import load_library

FLAGS = {  # of a processor, those that decide how fast native code can be
    *("fma", "f16c", "avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8"),
    *("asimd", "asimddp", "i8mm", "sve"),
}
IDLE = 0.3  # seconds that the threads of some packages keep a core busy after their work

Round = dict[str, float]  # milliseconds by candidate
Turn = Callable[[], object]  # what is timed
MakeTurn = Callable[[], Turn]


@dataclass(frozen=True)
class Measurement:
    """One measured value, its limit, and the numbers behind it."""

    what: str
    value: float
    unit: str
    limit: float | None = None
    detail: dict[str, Any] = field(default_factory=dict)
    bound: Literal["at most", "at least"] = "at most"

    @property
    def holds(self) -> bool | None:
        """Whether the value is within its limit; None without a limit."""
        if self.limit is None:
            return None
        return self.value <= self.limit if self.bound == "at most" else self.value >= self.limit

    @property
    def target(self) -> str:
        """The limit as text: `≤ 1.05 ×`."""
        sign = {"at most": "≤", "at least": "≥"}[self.bound]
        return "" if self.limit is None else f"{sign} {self.limit:g} {self.unit}".rstrip()

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "holds": self.holds}


def side_by_side(candidates: Mapping[str, Turn], repeats: int, warm_up: int = 3) -> dict[str, float]:
    """Median milliseconds of each candidate; they take turns, so that a slow moment of the machine affects all."""
    return medians(rounds_together(candidates, repeats, warm_up))


def rounds_together(candidates: Mapping[str, Turn], repeats: int, warm_up: int = 3) -> list[Round]:
    """The milliseconds of every round, for ratios of turns that followed each other."""
    return _rounds({name: partial(_milliseconds, turn) for name, turn in candidates.items()}, repeats, warm_up)


def side_by_side_apart(candidates: Mapping[str, MakeTurn], repeats: int, warm_up: int = 3) -> dict[str, float]:
    """Median milliseconds of each candidate, each in its own process; functions that make turns must be picklable."""
    return medians(rounds_apart(candidates, repeats, warm_up))


def rounds_apart(candidates: Mapping[str, MakeTurn], repeats: int, warm_up: int = 3) -> list[Round]:
    """The milliseconds of every round, each candidate in its own process.

    A pause before each turn lets the threads of the previous candidate go idle.
    """
    with ExitStack() as stack:
        workers = {name: stack.enter_context(_Worker(make)) for name, make in candidates.items()}
        return _rounds({name: worker.turn for name, worker in workers.items()}, repeats, warm_up)


def medians(rounds: Sequence[Round]) -> dict[str, float]:
    """The median milliseconds of each candidate."""
    return {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}


def median_ratio(rounds: Sequence[Round], ours: str, theirs: str) -> float:
    """Median over the rounds of ours / theirs: a machine that is slow for a minute is slow for both."""
    return statistics.median(each[ours] / each[theirs] for each in rounds)


def _rounds(turns: Mapping[str, Callable[[], float]], repeats: int, warm_up: int) -> list[Round]:
    return [{name: turn() for name, turn in turns.items()} for _ in range(warm_up + repeats)][warm_up:]


def _milliseconds(turn: Turn) -> float:
    begin = time.perf_counter()
    turn()
    return 1000 * (time.perf_counter() - begin)


class _Worker:
    """A process that makes a candidate and times one turn per request."""

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
        time.sleep(IDLE)
        self.pipe.send(None)
        return float(self.pipe.recv())


def _take_turns(make: MakeTurn, pipe: Connection) -> None:
    turn = make()
    while True:
        pipe.recv()
        pipe.send(_milliseconds(turn))


# On Linux VmHWM: getrusage would include the peak of the parent process.
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
    """Run Python code that sets `result`, a dict, in a new process; return it with its peak memory in MB added."""
    command = [sys.executable, "-c", code + _PEAK, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def growth_exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """Exponent p of the least-squares fit time = c · size^p: 1 is linear, 2 quadratic."""
    x, y = [math.log(size) for size in sizes], [math.log(taken) for taken in times]
    return statistics.linear_regression(x, y).slope


def machine() -> dict[str, Any]:
    """The versions and hardware of this machine, recorded with the results."""
    import torch

    native = load_library()
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "system": platform.system(),
        "native": None if native is None else native.variant,
        "flags": cpu_flags(),
    }


def cpu_flags(info: Path = Path("/proc/cpuinfo")) -> str:
    """The flags of this processor that native code may use; empty where the system does not say."""
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    words = next((line.split(":", 1)[1].split() for line in lines if line.startswith(("flags", "Features"))), [])
    return " ".join(word for word in words if word in FLAGS)


def at_once(clients: int, work: Callable[[int], None]) -> None:
    """Run clients of a service side by side; what one of them raises is raised when all have ended."""
    with ThreadPoolExecutor(clients) as pool:
        for ended in [pool.submit(work, number) for number in range(clients)]:
            ended.result()

"""`clearhead bench start`: how long a user waits for the first answer, from nothing.

`clearhead translate en-es "hello"` in a new process, against one that only imports torch; the two take turns. Python
keeps the compiled form of all modules in a folder of this benchmark, whatever the environment says about that.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from tempfile import TemporaryDirectory

from clearhead.bench.measure import Measurement, side_by_side

OURS, TORCH = 'clearhead translate en-es "hello"', "import torch"
COMMANDS = {
    OURS: (sys.executable, "-m", "clearhead", "translate", "en-es", "hello"),
    TORCH: (sys.executable, "-c", "import torch"),
}
RATIO = 1.3
ROUNDS = 11


def run(peers: bool) -> Iterator[Measurement]:  # noqa: ARG001 - torch is no peer: nothing starts without it
    """The time of both, and their ratio."""
    with TemporaryDirectory() as folder:
        taken = milliseconds(folder, ROUNDS)
    yield from figures(taken, ROUNDS)


def milliseconds(folder: str, rounds: int) -> dict[str, float]:
    """The median milliseconds of each command."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = folder
    return side_by_side({name: partial(_run, command, environment) for name, command in COMMANDS.items()}, rounds, 1)


def _run(command: tuple[str, ...], environment: Mapping[str, str]) -> None:
    subprocess.run(command, env=environment, check=True, capture_output=True)


def figures(taken: Mapping[str, float], rounds: int) -> Iterator[Measurement]:
    """Seconds of each, and how many times as long ours takes."""
    detail = {"milliseconds": dict(taken), "rounds": rounds}
    for name, each in taken.items():
        yield Measurement(name, each / 1000, "s", None, detail)
    yield Measurement(f"{OURS} / {TORCH}", taken[OURS] / taken[TORCH], "×", RATIO, detail)

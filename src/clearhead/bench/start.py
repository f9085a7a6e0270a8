"""`clearhead bench start`: time from the command to the first answer.

`clearhead translate en-es "hello"` and `clearhead --help` in a new process, against one that only imports torch; they
take turns. All write bytecode to a temporary cache, regardless of the environment, so that all but the first run are
warm. A process that only imports torch also collects garbage at its end, which the command leaves to the system.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from tempfile import TemporaryDirectory

from clearhead.bench.measure import Measurement, side_by_side

OURS, HELP, TORCH = 'clearhead translate en-es "hello"', "clearhead --help", "import torch"
COMMANDS = {
    OURS: (sys.executable, "-m", "clearhead", "translate", "en-es", "hello"),
    HELP: (sys.executable, "-m", "clearhead", "--help"),
    TORCH: (sys.executable, "-c", "import torch"),
}
RATIOS = {OURS: 1.2, HELP: 0.1}  # to the time of importing torch, at most
ROUNDS = 11


def run(peers: bool) -> Iterator[Measurement]:  # noqa: ARG001 - torch is not a peer: it is always needed
    """Seconds of the commands, and the ratios of ours to torch's."""
    with TemporaryDirectory() as folder:
        taken = milliseconds(folder, ROUNDS)
    yield from results(taken, ROUNDS)


def milliseconds(folder: str, rounds: int) -> dict[str, float]:
    """The median milliseconds of each command."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = folder
    return side_by_side({name: partial(_run, command, environment) for name, command in COMMANDS.items()}, rounds, 1)


def _run(command: tuple[str, ...], environment: Mapping[str, str]) -> None:
    subprocess.run(command, env=environment, check=True, capture_output=True)


def results(taken: Mapping[str, float], rounds: int) -> Iterator[Measurement]:
    """Seconds of each command, and the ratios of ours to torch's."""
    detail = {"milliseconds": dict(taken), "rounds": rounds}
    for name, each in taken.items():
        yield Measurement(name, each / 1000, "s", None, detail)
    for name, limit in RATIOS.items():
        yield Measurement(f"{name} / {TORCH}", taken[name] / taken[TORCH], "×", limit, detail)

"""What every test shares: one thread, the same random examples in every run, and a `clearhead` that starts at once."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

settings.register_profile("clearhead", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("clearhead")
torch.set_num_threads(1)


def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are cores: many tests wait for a browser or for another process."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture(scope="session")
def commands_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a `clearhead` that starts at once."""
    folder = tmp_path_factory.mktemp("bin")
    tool, listening = Path(__file__).with_name("warm_server.py"), folder / "socket"
    command = folder / "clearhead"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{tool}" run "{listening}" "$@"\n')
    command.chmod(0o755)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    starting = [sys.executable, tool, "serve", listening]
    with subprocess.Popen(starting, stdout=subprocess.PIPE, env=environment) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield folder
        server.kill()

"""What every test shares: one thread, the same random examples in every run, and a `clearhead` that starts at once."""

import gc
import os
import random
import subprocess
import sys
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from clearhead.registry import Registry

settings.register_profile("clearhead", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("clearhead")
torch.set_num_threads(1)
if not torch.cuda.is_available():  # or every seed is kept, with a traceback, for a GPU that may yet come
    torch.manual_seed = lambda seed: torch.default_generator.manual_seed(int(seed))
if sys.dont_write_bytecode:  # or each of the processes compiles the package and rewrites all tests, in every run
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
gc.disable()  # until all tests are imported, a quarter of whose time it would take

TOGETHER = ("tests/browser/studio/", "tests/browser/")  # the tests of each share a browser
FIRST = (  # what takes longest
    *TOGETHER,
    *("tests/docs/", "tests/train/", "tests/test_types.py", "tests/serve/test_same_text.py"),
)


def rank(nodeid: str) -> int:
    return next((place for place, folder in enumerate(FIRST) if nodeid.startswith(folder)), len(FIRST))


class ByFile(LoadFileScheduling):
    """Gives a file to one process, so that what its tests share is made once."""

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in TOGETHER if nodeid.startswith(folder)), super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    config.option.loadscopereorder = False
    return ByFile(config, log)


def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are cores: many tests wait for a browser or for another process."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: rank(item.nodeid))


def pytest_collection_finish() -> None:
    """What was imported stays: the garbage collector looks at the rest, and less often."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


# A test finds the same state whichever tests ran before it in its process.


@contextmanager
def own_state(seed: int) -> Iterator[None]:
    """Random numbers of a seed; afterwards they continue as before, and what a training sets in torch is restored."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    deterministic = torch.are_deterministic_algorithms_enabled()
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        torch.use_deterministic_algorithms(deterministic)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol() -> Generator[None, Any, Any]:
    with own_state(0):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
    """What several tests share is the same, and leaves the same, whichever of them comes first."""
    if fixturedef.scope == "function":
        return (yield)
    with own_state(zlib.crc32(fixturedef.argname.encode())):  # two fixtures are not equal by chance
        return (yield)


@pytest.fixture(autouse=True, scope="module")
def as_before() -> Iterator[None]:
    """What the tests of a file change, the next file does not see."""
    place, kind, threads = Path.cwd(), torch.get_default_dtype(), torch.get_num_threads()
    ours = {name: value for name, value in os.environ.items() if name.startswith("CLEARHEAD_")}
    yield
    os.chdir(place)
    torch.set_default_dtype(kind)
    torch.set_num_threads(threads)
    for name in [name for name in os.environ if name.startswith("CLEARHEAD_") and name not in ours]:
        del os.environ[name]
    os.environ.update(ours)
    forget_plugins()


def forget_plugins() -> None:
    """Remove what was registered from outside the package."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("clearhead.")]
    for registry in (thing for module in modules for thing in vars(module).values() if isinstance(thing, Registry)):
        for name, thing in list(registry._things.items()):
            if getattr(thing, "__module__", "").startswith(("clearhead_plugin_", "tests.", "__main__")):
                del registry._things[name]
    for name in [name for name in sys.modules if name.startswith("clearhead_plugin_")]:
        del sys.modules[name]


@pytest.fixture(scope="session")
def commands_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `clearhead` and a `python` that start at once; of one server for all processes of the tests."""
    import fcntl  # not on Windows, where these tests are skipped

    folder, tests = tmp_path_factory.getbasetemp(), os.getpid()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder, tests = folder.parent, os.getppid()
    folder /= "commands"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "python").exists():
            start_warm_server(folder, tests)
    return folder


def start_warm_server(folder: Path, until: int) -> None:
    tool, listening = Path(__file__).with_name("warm_server.py"), folder / "socket"
    server = subprocess.Popen(
        [sys.executable, tool, "serve", listening, str(until)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    assert server.stdout is not None
    with server.stdout as said:
        assert said.readline() == b"ready\n"
    server.returncode = 0  # it ends with the tests: nobody waits for it
    for name, words in (("clearhead", "-m clearhead "), ("python", "")):
        command = folder / name
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{tool}" run "{listening}" {words}"$@"\n')
        command.chmod(0o755)

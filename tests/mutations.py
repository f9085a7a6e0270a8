"""Seeded mutations of what strangers send, and what must not happen because of them."""

from __future__ import annotations

import copy
import os
import random
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

STRANGE: list[Any] = [
    *(None, True, -1, 0, 1, 3, 2**31, 2**63, 10**30, 0.5, -1e300, float("nan"), float("inf"), "", "x", "a\0b", "😀"),
    *([], {}, [[]], [None], {"a": 1}, "[STOP]", "../../etc/passwd", "x" * 5000, [1] * 3000),
]


def nodes(tree: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of every value of a JSON tree."""
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield tree, key
        yield from nodes(tree[key])


def change_tree(tree: Any, chance: random.Random) -> Any:
    """A tree with some of its values replaced, removed or renamed."""
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        places = list(nodes(tree))
        if not places:
            return copy.deepcopy(chance.choice(STRANGE))
        container, key = chance.choice(places)
        kind = chance.randrange(4)
        if kind == 0 and isinstance(container, dict):
            container[chance.choice(["x", "", key[::-1] if isinstance(key, str) else key])] = container.pop(key)
        elif kind == 1:
            del container[key]
        else:
            container[key] = copy.deepcopy(chance.choice(STRANGE))
    return tree


def change_bytes(data: bytes, chance: random.Random) -> bytes:
    """Bytes that were flipped, cut off, repeated, or replaced."""
    at, size = chance.randrange(len(data) + 1), chance.choice([1, 1, 3, 17, 200])
    return chance.choice(
        [
            lambda: data[:at] + bytes(chance.randrange(256) for _ in range(size)) + data[at + size :],
            lambda: data[:at],
            lambda: data[:at] + data[max(0, at - size) : at] * chance.choice([1, 50]) + data[at:],
            lambda: data[:at] + data[at + size :],
            lambda: (
                data[:at]
                + chance.choice([b"[", b"{", b"- ", b'"', b"\n", b"&a *a ", b"!!int ", b"0"]) * size
                + data[at:]
            ),
        ]
    )()


@contextmanager
def no_longer_than(seconds: float) -> Iterator[None]:
    """Stop what takes longer: of the processor, or waiting for something on a machine that may be busy."""

    def late(_number: int, _frame: object) -> None:
        raise TimeoutError(f"it took longer than {seconds} s")

    timers = {signal.SIGPROF: (signal.ITIMER_PROF, seconds), signal.SIGALRM: (signal.ITIMER_REAL, 20 * seconds)}
    before = {number: signal.signal(number, late) for number in timers}
    for timer, limit in timers.values():
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for number, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


# --- nothing is read or written outside ---

CODE = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[1]))  # what packages read of themselves
SYSTEM = ("/proc", "/sys", "/dev/null", "/dev/urandom", "/etc/localtime")
READ = ("os.listdir", "os.scandir")
CHANGE = ("os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.chmod")
MOVE = ("os.rename", "os.link", "os.symlink")
START = ("os.exec", "os.system", "os.posix_spawn", "subprocess.Popen", "socket.connect")
_watched: list[tuple[tuple[str, ...], list[str]]] = []  # folders, and what was done outside of them


@contextmanager
def nothing_outside(*folders: Path) -> Iterator[None]:
    """Fail if Python code reads, writes or deletes a file outside of some folders, connects, or starts a program."""
    _install_hook()
    found: list[str] = []
    _watched.append((tuple(map(os.path.realpath, folders)), found))
    try:
        yield
    finally:
        _watched.pop()
    assert not found, found


@cache
def _install_hook() -> None:
    sys.addaudithook(_audit)  # it stays until the process ends


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watched:
        return
    folders, found = _watched[-1]
    if event == "open":
        paths, reads = arguments[:1], not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    else:
        paths, reads = arguments[: (event in READ + CHANGE + MOVE) + (event in MOVE)], event in READ
    outside = [path for path in paths if not _is_inside(path, (*folders, *CODE, *SYSTEM) if reads else folders)]
    if outside or event in START:
        found.append(f"{event} {outside or arguments}")


def _is_inside(path: Any, folders: tuple[str, ...]) -> bool:
    if isinstance(path, int):  # a file that is open already
        return True
    real = os.path.realpath(os.fsdecode(path))
    return "__pycache__" in real or any(real == folder or real.startswith(f"{folder}/") for folder in folders)

"""A port for a server that another process will open."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from itertools import count

_NEXT = count(10_000 + 97 * os.getpid() % 20_000)  # other processes begin elsewhere


def free_port() -> int:
    """Not one that the system chooses: before the server listens, a connection of another test could be given it."""
    for port in _NEXT:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("there is always another number")

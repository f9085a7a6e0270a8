"""The threads that compute batches side by side."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache

_thread = threading.local()


@cache
def batch_pool(threads: int) -> ThreadPoolExecutor:
    """One pool for the process: the C library keeps memory for every new thread."""
    return ThreadPoolExecutor(threads, "clearhead-batch", initializer=_enter)


def _enter() -> None:
    _thread.in_pool = True


def is_beside_others() -> bool:
    """Whether this thread computes a batch while others compute theirs: each has a core, and should use no more."""
    return getattr(_thread, "in_pool", False)

"""The user's cache: downloads, compiled code, copies of models for other engines. All of it can be made again."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder(part: str) -> Path:
    """Where one kind of thing is kept: in `$CLEARHEAD_CACHE`, or where the operating system likes such things."""
    if chosen := os.environ.get("CLEARHEAD_CACHE"):
        return Path(chosen).expanduser() / part
    if sys.platform == "win32":
        system = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        system = "~/Library/Caches"
    else:
        system = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(system).expanduser() / "clearhead" / part

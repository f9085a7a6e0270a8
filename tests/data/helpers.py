"""Shared by the tests of readers: writing small files, and finding the real corpora."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def put(path: Path, content: str | bytes) -> Path:
    """Write a file, and the folders above it; newlines stay as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def real(name: str) -> Path:
    """A real corpus, or a skipped test where this machine has none."""
    folder = os.environ.get("CLEARHEAD_DATA")
    if not folder or not (Path(folder) / name).exists():
        pytest.skip(f"needs {name} in the folder that CLEARHEAD_DATA names")
    return Path(folder) / name

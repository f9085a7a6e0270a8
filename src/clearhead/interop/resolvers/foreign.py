"""A foreign model wherever a model is expected: imported once, into the cache."""

from __future__ import annotations

import hashlib
from pathlib import Path

from clearhead.files import cache_folder
from clearhead.interop.checkpoint import format_of
from clearhead.interop.importing import import_model
from clearhead.run import RESOLVERS

VERSION = "3"  # of what an import writes: 2 keeps quantised matrices in their blocks, 3 writes a shorter tokenizer.json


@RESOLVERS.register("foreign")
def resolve(path: Path) -> Path | None:
    """The run directory of a foreign model in the cache; None for a path that is no model."""
    if format_of(path) is None:
        return None
    out = cache_folder("imported") / _fingerprint(path) / path.resolve().stem
    if not (out / "config.yaml").is_file():
        import_model(path, out)
    return out


def _fingerprint(path: Path) -> str:
    """Changes with every file of the model: its name, size and time of change."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    stats = ((file, file.stat()) for file in files if file.is_file())
    facts = [f"{file.relative_to(path)} {stat.st_size} {stat.st_mtime_ns}" for file, stat in stats]
    return hashlib.sha256("\n".join([VERSION, str(path.resolve()), *facts]).encode()).hexdigest()[:16]

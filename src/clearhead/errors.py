"""Every error a user can cause.

    ClearheadError
    ├── ConfigError     a setting that is unknown, of the wrong type, or contradicts another
    ├── DataError       a file or a row that cannot be read; knows its path and line
    ├── DownloadError   a dataset that cannot be fetched or is not what it should be
    ├── RunError        a run directory, model or checkpoint that cannot be used or written
    │   ├── WrongTaskError  a model asked for what another task does
    │   └── InUseError      a run directory that another process is training in
    ├── EngineError     an engine that this machine lacks, or that cannot run a model as it is asked to
    ├── TextError       a tokenizer that cannot be trained, read or applied
    ├── ProbeError      a part of a model that cannot be looked at: no such layer, head, token or probe
    └── ShapeError      tensors whose sizes do not fit together

Each prints as one sentence that says what was wrong, where, and what to do. The command line turns any of
them into that sentence and exit code 2; only an error that is not in this tree is a failure of ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class ClearheadError(Exception):
    """The root: catching it catches every mistake a user can make."""


class ConfigError(ClearheadError, ValueError):
    """A setting that is unknown, of the wrong type, or contradicts another."""


class DataError(ClearheadError, ValueError):
    """A file or a row that cannot be read.

    >>> str(DataError("has 4 columns where 2 are expected", path="pairs.tsv", line=3))
    'pairs.tsv, line 3: has 4 columns where 2 are expected'
    """

    def __init__(self, message: str, *, path: str | Path | None = None, line: int | None = None):
        self.message = message
        self.path = None if path is None else str(path)
        self.line = line
        place = ", ".join(([self.path] if self.path else []) + ([f"line {line}"] if line is not None else []))
        super().__init__(f"{place}: {message}" if place else message)


class DownloadError(ClearheadError):
    """A dataset that cannot be fetched, or whose bytes are not the published ones."""


class RunError(ClearheadError):
    """A run directory, model or checkpoint that cannot be used or written."""


class WrongTaskError(RunError, AttributeError):
    """A model was asked for what a model of another task does; an AttributeError too, so that hasattr is False."""


class InUseError(RunError):
    """A file or folder that another process has locked."""


class EngineError(ClearheadError):
    """An engine that this machine lacks, or that cannot run a model as it is asked to."""


class TextError(ClearheadError, ValueError):
    """A tokenizer that cannot be trained, read or applied."""


class ProbeError(ClearheadError, ValueError):
    """A part of a model that cannot be looked at: no such layer, head, token or probe."""


class ShapeError(ClearheadError, ValueError):
    """Tensors whose sizes do not fit together."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: its nearest right one, or all of them.

    >>> nearest("dimm", ["dim", "heads"])
    'did you mean dim?'
    >>> nearest("colour", ["dim", "heads"])
    'choose from: dim, heads'
    """
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else f"choose from: {', '.join(known)}"

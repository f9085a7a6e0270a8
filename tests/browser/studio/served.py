"""A Studio in a separate process, so that it can be killed: `python served.py PORT RUNS TRAINER`."""

from __future__ import annotations

import sys
from pathlib import Path

from clearhead.serve.registry import Service
from clearhead.studio.app import open_studio
from clearhead.studio.runs import Runs

if __name__ == "__main__":
    port, runs, trainer = sys.argv[1:]
    open_studio(Service.load(["words"]), Runs(Path(runs), (sys.executable, trainer)), int(port), lambda _: None)

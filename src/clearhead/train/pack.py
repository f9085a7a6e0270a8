"""`clearhead pack`: a small copy of a finished run, to send, deploy or publish.

config.yaml, tokenizer.json, card.md    as they are
model.safetensors                       each weight once, in float16 if asked for
metrics.jsonl, attention/               some of it, evenly spaced over the run
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead.errors import ConfigError
from clearhead.files import write_errors
from clearhead.run import Run
from clearhead.tasks import run_config
from clearhead.tasks.base.network import load_weights, save_weights

AS_THEY_ARE = ("config.yaml", "tokenizer.json", "card.md")
METRICS = 50_000  # most bytes of metrics.jsonl
ATTENTION = 1_000_000  # most bytes of attention/
MOMENTS = 12  # most files of it


@dataclass(frozen=True)
class Part:
    """A file or folder of a run, and its bytes before and after; None if it is left out."""

    name: str
    before: int
    after: int | None


def pack(run: Path, out: Path, half: bool = False) -> list[Part]:
    """Write a small copy of a finished run to a new directory; returns the size of each part before and after."""
    source = Run.open(run)
    if out.exists():
        raise ConfigError(f"{out} is there already; choose another --out")
    with new_folder(out) as place:
        for name in AS_THEY_ARE:
            if source.file(name).is_file():
                shutil.copyfile(run / name, place / name)
        config = run_config(source)
        save_weights(Run(place), config, *load_weights(source, config), half)
        if source.file("metrics.jsonl").is_file():
            lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
            (place / "metrics.jsonl").write_text("".join(thinned(lines)), encoding="utf-8")
        _copy_attention(run / "attention", place / "attention")
    return [Part(path.name, _size(path), _packed(out / path.name)) for path in sorted(run.iterdir())]


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A temporary folder that is renamed to `out` when it is complete."""
    temporary = out.with_name(f".{out.name}.part")
    with write_errors(out):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            yield temporary
            temporary.rename(out)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def thinned(lines: Sequence[str], room: int = METRICS) -> list[str]:
    """All evaluations of metrics.jsonl, and as many training steps as fit, evenly spaced."""
    measured = [(number, line, part) for number, line in enumerate(lines) if (part := _part(line))]
    kept: list[tuple[int, str]] = []
    for wanted in ("validation", "train"):
        some = [(number, line) for number, line, part in measured if part == wanted]
        sizes = [len(line.encode()) for _, line in some]
        chosen = [some[place] for place in evenly(sizes, room)]
        room -= sum(len(line.encode()) for _, line in chosen)
        kept += chosen
    return [line for _, line in sorted(kept)]


def _part(line: str) -> Any:
    """The `part` of a line; None for a line that a killed process left unfinished."""
    try:
        return json.loads(line)["part"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return None


def _copy_attention(source: Path, target: Path) -> None:
    files = sorted(source.glob("step-*.safetensors"))
    chosen = evenly([file.stat().st_size for file in files], ATTENTION, MOMENTS)
    if chosen:
        target.mkdir()
    for place in chosen:
        shutil.copyfile(files[place], target / files[place].name)


def evenly(sizes: Sequence[int], room: int, most: int | None = None) -> list[int]:
    """Evenly spaced indices from the first to the last: all, or as many as fit into `room` bytes."""
    count = min(len(sizes), len(sizes) if most is None else most)
    if count == len(sizes) and sum(sizes) <= room:
        return list(range(count))
    count = min(count, room // max(sizes))
    if count < 2:
        return [len(sizes) - 1] if count else []
    return [round(place * (len(sizes) - 1) / (count - 1)) for place in range(count)]


def _packed(path: Path) -> int | None:
    return _size(path) if path.exists() else None


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())

"""Peak memory of each process that trains a model with fsdp, by what it does: python tools/shard_memory.py 1 2 4

Every number of processes trains the same language model for three steps, with a checkpoint, an evaluation and the final
save. Peaks are resident memory above what the process had before the model was built, in MB, of the process with most.
Written as JSON to benchmarks/memory/shards.json, and printed as the table of docs/training.md. Linux only.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

SETTINGS = [
    *("data.kind=text", "data.validation=0.1", "data.batch_tokens=32", "model.length=16", "tokenizer.kind=char"),
    *("model.dim=512", "model.heads=8", "model.layers=12", "model.dropout=0"),
    *("train.max_steps=3", "train.checkpoint_every=2", "train.evaluate_every=2", "train.keep=1"),
    *("train.device=cpu", "train.strategy=fsdp"),
]
OUT = Path(__file__).parents[1] / "benchmarks" / "memory" / "shards.json"


def resident(field: str) -> float:
    """VmRSS (now) or VmHWM (the peak) of this process, in MB."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def measure(folder: Path) -> None:
    """In one process: train, and write the peak of each kind of work."""
    from clearhead.tasks import default_config, override_config
    from clearhead.train import loop, start

    peaks: dict[str, float] = {}
    base: list[float] = []

    def watched(work: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            ctypes.CDLL(None).malloc_trim(0)  # training keeps freed memory for the next step
            if not base:
                base.append(resident("VmRSS"))
            Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # forget the peak
            try:
                return function(*arguments, **named)
            finally:
                peaks[work] = max(peaks.get(work, 0.0), resident("VmHWM") - base[0])

        return run

    start.build_network = watched("build", start.build_network)  # type: ignore[assignment]
    loop.Trainer.update = watched("step", loop.Trainer.update)  # type: ignore[method-assign]
    loop.Trainer.save = watched("checkpoint", loop.Trainer.save)  # type: ignore[method-assign]
    loop.Trainer.evaluate = watched("evaluation", loop.Trainer.evaluate)  # type: ignore[method-assign]
    start.save_weights = watched("final save", start.save_weights)
    text = folder / "text.txt"
    if not text.exists():
        text.write_text("the quick brown fox jumps over the lazy dog\n" * 50, encoding="utf-8")
    config = override_config(default_config("lm", "tiny"), [*SETTINGS, f"data.path={text}"])
    start.run_training(config, folder / "run", "tools/shard_memory.py")
    rank = os.environ.get("RANK", "0")
    (folder / f"{rank}.json").write_text(json.dumps(peaks), encoding="utf-8")


def measured(processes: int) -> dict[str, float]:
    """The largest peak of some processes for each kind of work."""
    with TemporaryDirectory() as folder:
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        command = [sys.executable, *(launch if processes > 1 else []), __file__, "--measure", folder]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        found = [json.loads(path.read_text(encoding="utf-8")) for path in Path(folder).glob("*.json")]
    return {work: round(max(each.get(work, 0.0) for each in found)) for work in max(found, key=len)}


def main() -> None:
    """Measure some numbers of processes one after the other, or be one of the processes."""
    if sys.argv[1] == "--measure":
        measure(Path(sys.argv[2]))
        return
    table = {count: measured(int(count)) for count in sys.argv[1:]}
    OUT.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    works = list(next(iter(table.values())))
    print("| processes |", " | ".join(works), "|")
    for count, peaks in table.items():
        print("|", count, "|", " | ".join(f"{peaks[work]:,.0f}" for work in works), "|")


if __name__ == "__main__":
    main()

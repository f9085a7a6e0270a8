"""A fast substitute for `clearhead train` and `clearhead resume`: writes the same files.

It continues after the last checkpoint, as the real one does.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

EVERY = 10  # steps between checkpoints


def main(words: list[str]) -> None:
    run = Path(words[words.index("--out") + 1]) if words[0] == "train" else Path(words[1])
    steps = _steps(words, run)
    run.mkdir(exist_ok=True)
    (run / "config.yaml").write_text(f"train:\n  max_steps: {steps}\n", encoding="utf-8")
    saved = sorted((run / "checkpoints").glob("step-*"))
    first = int(saved[-1].name.removeprefix("step-")) if saved else 0
    for step in range(first + 1, steps + 1):
        record = {"step": step, "part": "train", "loss": 7 / (step + 1), "tokens": 100}
        with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
            if step % EVERY == 0:
                measured = {**record, "part": "validation", "sample": f"said at {step} <b>"}
                file.write(json.dumps(measured) + "\n")
                (run / "checkpoints" / f"step-{step:08d}").mkdir(parents=True)
        time.sleep(0.02)
    (run / "model.safetensors").touch()


def _steps(words: list[str], run: Path) -> int:
    given = [word for word in words if word.startswith("train.max_steps=")]
    text = given[0].partition("=")[2] if given else (run / "config.yaml").read_text(encoding="utf-8").split()[-1]
    return int(text)


if __name__ == "__main__":
    main(sys.argv[1:])

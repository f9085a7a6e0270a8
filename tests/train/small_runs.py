"""Small runs that several processes make, and what they must have in common with the run of one process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from tests.ports import free_port

from clearhead.config import AnyConfig, dump
from clearhead.files import read_tensors
from clearhead.tasks import default_config, override_config

# The budget makes batches of odd and even size, and the one long pair a batch of which the second process has nothing.
SETTINGS = [
    "data.validation=0.02",
    "data.batch_tokens=100",
    "tokenizer.size=60",
    "model.dim=16",
    "model.heads=2",
    "model.layers=2",
    "model.dropout=0",
    "train.average=0.9",
    "train.accumulate=2",
    "train.evaluate_every=7",
    "train.checkpoint_every=4",
    "train.keep=9",
    "train.max_steps=10",
    "train.device=cpu",
]


def make_config(tmp_path: Path, task: str = "translate", *more: str) -> AnyConfig:
    pairs = "".join(f"{a} {b} {a}\t{b} {a}\n" for a in "abcdefgh" for b in "ijklmnop")
    (tmp_path / "pairs.tsv").write_text(pairs + " ".join("abcd" * 20) + "\tlong\n", encoding="utf-8")
    words = [f"data.path={tmp_path / 'pairs.tsv'}", *SETTINGS, *more]
    return override_config(default_config(task, "tiny"), words)


def written(config: AnyConfig, path: Path) -> Path:
    path.write_text(dump(config), encoding="utf-8")
    return path


def together(
    python: Path, tmp_path: Path, script: str, *arguments: object, restarts: int = 0, processes: int = 2
) -> subprocess.CompletedProcess[str]:
    """Some processes of a script: under torchrun where they are restarted, else forked, which is faster.

    `python` starts at once, as that of `commands_folder` does.
    """
    worker = tmp_path / "worker.py"
    worker.write_text(script, encoding="utf-8")
    port = str(free_port())
    if restarts:
        options = ["--nproc-per-node", str(processes), "--master-port", port, "--max-restarts", str(restarts)]
        launch = ["-m", "torch.distributed.run", *options, "--no-python", str(python)]
    else:
        launch = [str(Path(__file__).with_name("forked.py")), str(processes), port]
    command = [str(python), *launch, str(worker), *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    return done


def stopped_at(step: int, run: Path, copy: Path, config: AnyConfig) -> Path:
    """The same run as if it had been killed after the checkpoint of a step, to go on with another configuration."""
    shutil.copytree(run, copy)
    for checkpoint in (copy / "checkpoints").glob("step-*"):
        if checkpoint.name > f"step-{step:08d}":
            shutil.rmtree(checkpoint)
    (copy / "model.safetensors").unlink()
    written(config, copy / "config.yaml")
    return copy


def losses(run: Path) -> dict[tuple[str, int], list[float]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len({(line["part"], line["step"]) for line in lines}) == len(lines)
    return {(line["part"], line["step"]): [line["loss"], line.get("tokens", 0)] for line in lines}


def assert_alike(run: Path, other: Path) -> None:
    """The same losses and numbers of tokens at the same steps, and the same weights in the end, to rounding."""
    mine, theirs = losses(run), losses(other)
    assert mine.keys() == theirs.keys()
    for place, values in mine.items():
        assert values == pytest.approx(theirs[place], abs=1e-5), place
    weights, expected = (read_tensors(each / "model.safetensors")[0] for each in (run, other))
    assert weights.keys() == expected.keys()
    for name, weight in weights.items():
        if not name.endswith("key.bias"):  # softmax does not see it: its gradient is 0, and what adamw gets is rounding
            torch.testing.assert_close(weight, expected[name], atol=1e-4, rtol=1e-4)

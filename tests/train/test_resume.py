"""An interrupted run resumes bit for bit, whenever it was interrupted and whichever file was damaged."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from clearhead.config import AnyConfig, dump
from clearhead.errors import ConfigError, RunError
from clearhead.files import read_tensors
from clearhead.run import Run
from clearhead.tasks import default_config, override_config
from clearhead.train import checkpoints
from clearhead.train.loop import Callbacks
from clearhead.train.start import make_trainer, resume, run_training

# Everything that a step can depend on: dropout, averaging, both optimisers, accumulation, scheduled rates.
SETTINGS = [
    "data.validation=0.02",
    "data.batch_tokens=300",
    "tokenizer.size=200",
    "model.dim=16",
    "model.heads=2",
    "model.layers=1",
    "model.dropout=0.2",
    "train.optimizer=muon",
    "train.average=0.9",
    "train.accumulate=2",
    "train.evaluate_every=7",
    "train.checkpoint_every=4",
    "train.max_steps=18",
]


class StoppedError(Exception):
    """A simulated kill in the middle of a run."""


@pytest.fixture
def config(tmp_path: Path) -> AnyConfig:
    pairs = "".join(f"{a} {b} {a}\t{b} {a}\n" for a in "abcdefgh" for b in "ijklmnop")
    (tmp_path / "pairs.tsv").write_text(pairs, encoding="utf-8")
    words = [f"data.path={tmp_path / 'pairs.tsv'}", *SETTINGS]
    return override_config(default_config("translate", "tiny"), words)


def stopping_at(step: int) -> Callbacks:
    def stop(found: object, _progress: object) -> None:
        if found.step == step:  # type: ignore[attr-defined]
            raise StoppedError

    return Callbacks(on_step=stop)


def files(run: Path) -> dict[str, object]:
    """The files of a finished run, in comparable form."""
    tensors, header = read_tensors(run / "model.safetensors")
    metrics = (run / "metrics.jsonl").read_text(encoding="utf-8")
    return {"weights": {name: t.numpy().tobytes() for name, t in tensors.items()}, "header": header, "metrics": metrics}


@pytest.fixture
def whole(config: AnyConfig, tmp_path: Path) -> dict[str, object]:
    run_training(config, tmp_path / "whole", "test")
    return files(tmp_path / "whole")


@pytest.mark.parametrize("step", [1, 3, 4, 5, 8, 13, 17])
def test_a_run_stopped_at_any_step_resumes_bit_for_bit(
    config: AnyConfig, whole: dict[str, object], tmp_path: Path, step: int
) -> None:
    run = tmp_path / "stopped"
    with pytest.raises(StoppedError):
        run_training(config, run, "test", stopping_at(step))
    resume(run)
    assert files(run) == whole


@pytest.mark.parametrize(
    "settings",
    [
        ["train.average=0", "train.optimizer=adamw"],
        ["train.average=0", "train.accumulate=1"],
        ["train.patience=1", "train.learning_rate=1e-9", "train.matrix_rate=1e-9"],
    ],
    ids=["plain", "without an average", "early stopping"],
)
def test_every_checkpoint_of_a_plain_run_is_used(config: AnyConfig, tmp_path: Path, settings: list[str]) -> None:
    config, notes = override_config(config, settings), []
    run_training(config, tmp_path / "whole", "test")
    with pytest.raises(StoppedError):
        run_training(config, tmp_path / "stopped", "test", stopping_at(6))
    seen: list[int] = []
    resume(tmp_path / "stopped", Callbacks(on_step=lambda step, _: seen.append(step.step), on_note=notes.append))
    assert seen[0] == 5  # it went on from the checkpoint of step 4
    assert [note for note in notes if "checkpoint" in note] == []
    assert files(tmp_path / "stopped") == files(tmp_path / "whole")


@pytest.mark.parametrize("average", [0.0, 0.6])
def test_early_stopping_keeps_the_best_weights(config: AnyConfig, tmp_path: Path, average: float) -> None:
    words = ["train.patience=2", "train.evaluate_every=2", "train.learning_rate=0.3", "train.schedule=stable"]
    words += ["train.metric=loss"]
    words += ["train.optimizer=adamw", "train.max_steps=200", f"train.average={average}", "train.checkpoint_every=1"]
    config, run, notes = override_config(config, words), tmp_path / "run", []
    found = run_training(config, run, "test", Callbacks(on_note=notes.append))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    *evaluations, last = [(line["step"], line["loss"]) for line in lines if line["part"] == "validation"]
    step, best = min(evaluations, key=lambda pair: pair[1])
    assert last[0] < 200
    assert evaluations[-1][1] > best  # or this test would show nothing
    assert last[1] == found.loss == pytest.approx(best, rel=1e-6)
    assert notes == [f"kept the weights of step {step}, which have the lowest loss"]
    with pytest.raises(StoppedError):
        run_training(config, tmp_path / "stopped", "test", stopping_at(step + 1))
    resume(tmp_path / "stopped")
    assert files(tmp_path / "stopped") == files(run)


def test_a_damaged_checkpoint_is_named_and_skipped(config: AnyConfig, whole: dict[str, object], tmp_path: Path) -> None:
    run, notes = tmp_path / "stopped", []
    with pytest.raises(StoppedError):
        run_training(config, run, "test", stopping_at(14))
    newest, older = checkpoints.saved(run / "checkpoints")
    weights = newest / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    resume(run, Callbacks(on_note=notes.append))
    assert any(f"checkpoint {newest} is damaged: weights.safetensors is missing or changed" in note for note in notes)
    assert older.name == "step-00000008"
    assert files(run) == whole


def test_an_incomplete_state_and_leftovers_of_a_kill_are_ignored(
    config: AnyConfig, whole: dict[str, object], tmp_path: Path
) -> None:
    run = tmp_path / "stopped"
    with pytest.raises(StoppedError):
        run_training(config, run, "test", stopping_at(10))
    (checkpoints.saved(run / "checkpoints")[0] / "state.json").write_text("{", encoding="utf-8")
    (run / "checkpoints" / ".step-00000012.part").mkdir()
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 99, "half a li')
    resume(run)
    assert files(run) == whole


def test_resuming_a_finished_run_changes_nothing(config: AnyConfig, tmp_path: Path) -> None:
    run_training(config, tmp_path / "run", "test")
    before = files(tmp_path / "run")
    resume(tmp_path / "run")
    assert files(tmp_path / "run") == before


def test_the_folder_of_another_run_is_refused(config: AnyConfig, tmp_path: Path) -> None:
    run_training(config, tmp_path / "run", "test")
    with pytest.raises(ConfigError, match="holds another run; go on with `clearhead resume"):
        run_training(config, tmp_path / "run", "test")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").touch()
    with pytest.raises(ConfigError, match="exists and is not an empty folder"):
        run_training(config, tmp_path / "full", "test")
    with pytest.raises(RunError, match=r"is not a run directory: it has no config\.yaml"):
        resume(tmp_path / "full")


def test_a_checkpoint_of_another_version_is_refused(config: AnyConfig, tmp_path: Path) -> None:
    run_training(config, tmp_path / "run", "test")
    newest = checkpoints.saved(tmp_path / "run" / "checkpoints")[0]
    document = json.loads((newest / "state.json").read_text(encoding="utf-8"))
    (newest / "state.json").write_text(json.dumps({**document, "version": 99}), encoding="utf-8")
    with pytest.raises(RunError, match=r"was written by another version \(99; this one reads 1\)"):
        checkpoints.load(newest)


def test_a_loss_that_is_not_a_number_stops_the_run(config: AnyConfig, tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", config)
    trainer = make_trainer(run, config, Callbacks())
    with torch.no_grad():
        trainer.model.output.linear.weight.fill_(float("nan"))  # type: ignore[union-attr]
    with pytest.raises(RunError, match="the loss became nan at step 0; no checkpoint was written yet; try a lower"):
        trainer.train()


KILLED = """
import sys
from pathlib import Path
from clearhead.tasks import load_config
from clearhead.train.start import run_training, resume
run = Path(sys.argv[1])
if (run / "config.yaml").exists():
    resume(run)
else:
    run_training(load_config(sys.argv[2]), run, "test")
"""


def killed_until_finished(config: AnyConfig, tmp_path: Path, kills: int, name: str) -> Path:
    """Start, kill at a random moment, resume, kill again …, then let it finish."""
    recipe, run, chance = tmp_path / "recipe.yaml", tmp_path / name, random.Random(name)
    recipe.write_text(dump(config), encoding="utf-8")
    command = [sys.executable, "-c", KILLED, str(run), str(recipe)]
    for kill in range(kills + 1):
        process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)
        if kill < kills:
            time.sleep(2.5 + 3 * chance.random())
            process.send_signal(signal.SIGKILL)
        process.wait()
    return run


def test_killed_processes_resume_bit_for_bit(config: AnyConfig, whole: dict[str, object], tmp_path: Path) -> None:
    assert files(killed_until_finished(config, tmp_path, kills=2, name="killed")) == whole


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk with room for some of what a run writes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("a small disk can be mounted only by root")
    try:
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_full_disk_is_one_sentence_and_nothing_is_lost(
    config: AnyConfig, whole: dict[str, object], tmp_path: Path, small_disk: Path
) -> None:
    run, filler = small_disk / "run", small_disk / "filler"

    def fill(found: object, _progress: object) -> None:
        if found.step == 9:  # type: ignore[attr-defined]
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(1000))

    with pytest.raises(RunError, match=r"cannot write .*: .*[Nn]o space left on device"):
        run_training(config, run, "test", Callbacks(on_step=fill))
    assert checkpoints.saved(run / "checkpoints")[0].name == "step-00000008"
    filler.unlink()
    resume(run)
    assert files(run) == whole


@pytest.mark.slow
def test_twenty_kills_at_random_moments(config: AnyConfig, tmp_path: Path) -> None:
    longer = override_config(config, ["train.max_steps=3000"])
    run_training(longer, tmp_path / "whole", "test")
    assert files(killed_until_finished(longer, tmp_path, kills=20, name="killed")) == files(tmp_path / "whole")

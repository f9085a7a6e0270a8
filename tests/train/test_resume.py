"""An interrupted run resumes bit for bit, whenever it was interrupted and whichever file was damaged."""

from __future__ import annotations

import errno
import json
import os
import random
import re
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
from clearhead.errors import ConfigError, InUseError, RunError
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


def make_config(folder: Path) -> AnyConfig:
    pairs = "".join(f"{a} {b} {a}\t{b} {a}\n" for a in "abcdefgh" for b in "ijklmnop")
    (folder / "pairs.tsv").write_text(pairs, encoding="utf-8")
    words = [f"data.path={folder / 'pairs.tsv'}", *SETTINGS]
    return override_config(default_config("translate", "tiny"), words)


@pytest.fixture
def config(tmp_path: Path) -> AnyConfig:
    return make_config(tmp_path)


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


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """The files of a run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    run_training(make_config(folder), folder / "run", "test")
    return files(folder / "run")


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


def test_damaged_checkpoints_neither_count_nor_displace_whole_ones(
    config: AnyConfig, whole: dict[str, object], tmp_path: Path
) -> None:
    run, notes = tmp_path / "stopped", []
    with pytest.raises(StoppedError):
        run_training(config, run, "test", stopping_at(14))
    for each in checkpoints.saved(run / "checkpoints"):  # of the steps 12 and 8
        (each / "optimizer.safetensors").write_bytes(b"damaged")
    with pytest.raises(StoppedError):
        resume(run, stopping_at(6))  # from the beginning
    assert [each.name for each in checkpoints.saved(run / "checkpoints")] == ["step-00000004"]
    assert not list((run / "checkpoints").glob("damaged-*"))  # the first whole one replaced them
    resume(run, Callbacks(on_note=notes.append))
    assert notes == ["continuing after step 4"]
    assert [each.name for each in checkpoints.saved(run / "checkpoints")] == ["step-00000018", "step-00000016"]
    assert files(run) == whole


def test_a_damaged_checkpoint_between_whole_ones_does_not_count(config: AnyConfig, tmp_path: Path) -> None:
    config, run = override_config(config, ["train.keep=3"]), tmp_path / "stopped"
    with pytest.raises(StoppedError):
        run_training(config, run, "test", stopping_at(14))
    (run / "checkpoints" / "step-00000008" / "weights.safetensors").unlink()
    with pytest.raises(StoppedError):
        resume(run, stopping_at(17))
    steps = [each.name[-2:] for each in checkpoints.saved(run / "checkpoints")]
    assert steps == ["16", "12", "04"]


def test_a_changed_state_is_damage(config: AnyConfig, whole: dict[str, object], tmp_path: Path) -> None:
    run, notes = tmp_path / "stopped", []
    with pytest.raises(StoppedError):
        run_training(config, run, "test", stopping_at(14))
    state = checkpoints.saved(run / "checkpoints")[0] / "state.json"
    state.write_text(
        re.sub(r'"position": (\d)', r'"position": 1\1', state.read_text(encoding="utf-8")), encoding="utf-8"
    )
    resume(run, Callbacks(on_note=notes.append))
    assert notes[0] == f"checkpoint {state.parent} is damaged: state.json has changed; skipped"
    assert files(run) == whole


def test_a_checkpoint_of_another_version_is_not_replaced(config: AnyConfig, tmp_path: Path) -> None:
    run = tmp_path / "stopped"
    with pytest.raises(StoppedError):
        run_training(config, run, "test", stopping_at(14))
    state = checkpoints.saved(run / "checkpoints")[0] / "state.json"
    document = json.loads(state.read_text(encoding="utf-8"))
    del document["checksum"]
    state.write_text(json.dumps({**document, "version": 99}), encoding="utf-8")
    with pytest.raises(RunError, match=r"was written by another version \(99"):
        resume(run)
    assert state.is_file()


@pytest.mark.parametrize("damage", ["cut", "zeros"])
def test_metrics_that_a_power_failure_damaged_are_repaired(config: AnyConfig, tmp_path: Path, damage: str) -> None:
    run, notes = tmp_path / "stopped", []
    with pytest.raises(StoppedError):
        run_training(config, run, "test", stopping_at(14))
    metrics = run / "metrics.jsonl"
    before = metrics.read_bytes()
    first = before.index(b'{"step": 11')
    metrics.write_bytes(before[: first + 9] if damage == "cut" else before[:first] + bytes(len(before) - first))
    resume(run, Callbacks(on_note=notes.append))
    text = metrics.read_text(encoding="utf-8")
    assert "\0" not in text
    steps = [line["step"] for line in map(json.loads, text.splitlines()) if line["part"] == "train"]
    assert steps == [*range(1, 11), *range(13, 19)]  # 11 and 12 are lost: their lines are not made again
    [note] = [note for note in notes if "lacks" in note]
    assert re.fullmatch(r".*metrics\.jsonl lacks \d+ bytes that were lost before step 12", note)


def test_the_metrics_are_on_the_disk_before_a_checkpoint_counts_on_them(
    config: AnyConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr("clearhead.train.loop.sync", lambda path: order.append(path.name))
    real = checkpoints.save
    monkeypatch.setattr(checkpoints, "save", lambda *a: order.append("save") or real(*a))  # type: ignore[func-returns-value]
    run_training(config, tmp_path / "run", "test")
    assert order == ["metrics.jsonl", "save"] * 5  # steps 4, 8, 12, 16 and 18


def test_a_second_process_in_one_folder_is_refused(config: AnyConfig, tmp_path: Path) -> None:
    run, refused = tmp_path / "run", []
    sentence = r"another process is training in this folder; wait for it, or stop it \(process \d+ on"

    def try_too(found: object, _progress: object) -> None:
        if found.step == 5:  # type: ignore[attr-defined]
            for attempt in (lambda: resume(run), lambda: run_training(config, run, "test")):
                with pytest.raises(InUseError, match=sentence):
                    attempt()
                refused.append(sorted(path.name for path in run.iterdir()))

    run_training(config, run, "test", Callbacks(on_step=try_too))
    assert len(refused) == 2
    assert all("config.yaml" in names and ".lock" in names for names in refused)
    assert not (run / ".lock").exists()
    resume(run)


def test_the_lock_of_a_killed_process_is_free(config: AnyConfig, tmp_path: Path) -> None:
    Run.create(tmp_path / "run", config)
    holder = [sys.executable, "-c", HOLDER, str(tmp_path / "run")]
    with subprocess.Popen(holder, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(InUseError, match=f"process {process.pid} on"):
            resume(tmp_path / "run")
        process.kill()
    assert (tmp_path / "run" / ".lock").exists()
    with Run(tmp_path / "run").training():
        pass


HOLDER = """
import sys, time
from pathlib import Path
from clearhead.run import Run
with Run(Path(sys.argv[1])).training():
    print("locked", flush=True)
    time.sleep(60)
"""


def test_what_killed_writes_left_is_removed(config: AnyConfig, whole: dict[str, object], tmp_path: Path) -> None:
    run = tmp_path / "stopped"
    with pytest.raises(StoppedError):
        run_training(config, run, "test", stopping_at(10))
    left = ["checkpoints/.best.safetensors.123", ".model.safetensors.45", "attention/.step-00000007.safetensors.6"]
    for name in left:
        (run / name).write_bytes(bytes(7))
    (run / "checkpoints" / ".step-00000012.part").mkdir()
    (run / ".hidden").touch()  # somebody's own
    resume(run)
    assert not [name for name in (*left, "checkpoints/.step-00000012.part") if (run / name).exists()]
    assert (run / ".hidden").exists()
    assert files(run) == whole


def test_a_folder_that_a_killed_start_left_can_be_used(config: AnyConfig, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in (".lock", ".config.yaml.77"):
        (run / name).touch()
    run_training(override_config(config, ["train.max_steps=1"]), run, "test")
    assert not (run / ".config.yaml.77").exists()


@pytest.mark.parametrize("same_lengths", [True, False])
def test_data_that_changed_is_noticed_and_named(config: AnyConfig, tmp_path: Path, same_lengths: bool) -> None:
    run, notes, data = tmp_path / "stopped", [], tmp_path / "pairs.tsv"
    with pytest.raises(StoppedError):
        run_training(config, run, "test", stopping_at(6))
    text = data.read_text(encoding="utf-8")
    data.write_text(text.replace("a i a", "a j a") if same_lengths else text[:-100], encoding="utf-8")
    if same_lengths:
        resume(run, Callbacks(on_note=notes.append))
        assert f"{data} has changed since the training began: its result may be another" in notes
    else:
        with pytest.raises(RunError, match=rf"{data} has changed; .*continue with the same data"):
            resume(run)


def test_data_that_was_only_touched_has_not_changed(config: AnyConfig, tmp_path: Path) -> None:
    run, notes, data = tmp_path / "stopped", [], tmp_path / "pairs.tsv"
    with pytest.raises(StoppedError):
        run_training(config, run, "test", stopping_at(6))
    os.utime(data, (1, 1))
    resume(run, Callbacks(on_note=notes.append))
    assert notes == ["continuing after step 4"]


def test_a_checkpoint_that_does_not_fit_the_configuration_is_one_sentence(config: AnyConfig, tmp_path: Path) -> None:
    run = tmp_path / "stopped"
    with pytest.raises(StoppedError):
        run_training(config, run, "test", stopping_at(6))
    path = run / "config.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace("dim: 16", "dim: 20"), encoding="utf-8")
    with pytest.raises(
        RunError, match=r"the checkpoint of step 4 does not fit config\.yaml \(size mismatch.*change config"
    ):
        resume(run)


@pytest.mark.parametrize("settings", [[], ["train.patience=1", "train.learning_rate=1e-9", "train.matrix_rate=1e-9"]])
def test_an_interrupt_after_an_evaluation_does_not_repeat_it(
    config: AnyConfig, tmp_path: Path, settings: list[str]
) -> None:
    config = override_config(config, settings)
    run_training(config, tmp_path / "whole", "test")

    def interrupt(step: int, _found: object) -> None:
        if step == (14 if settings else 7):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_training(config, tmp_path / "stopped", "test", Callbacks(on_evaluation=interrupt))
    resume(tmp_path / "stopped")
    assert files(tmp_path / "stopped") == files(tmp_path / "whole")


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


def killed_until_finished(python: Path, config: AnyConfig, tmp_path: Path, kills: int, seconds: float) -> Path:
    """Start, kill at a random moment, resume, kill again …, then let it finish."""
    recipe, run, chance = tmp_path / "recipe.yaml", tmp_path / "killed", random.Random(kills)
    recipe.write_text(dump(config), encoding="utf-8")
    command, environment = [python, "-c", KILLED, run, recipe], {**os.environ, "OMP_NUM_THREADS": "1"}
    for kill in range(kills + 1):
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if kill < kills:
            time.sleep(0.1 + seconds * chance.random())
            process.send_signal(signal.SIGKILL)
        process.communicate()  # until nothing of it holds the pipe
    return run


def test_killed_processes_resume_bit_for_bit(
    config: AnyConfig, whole: dict[str, object], tmp_path: Path, commands_folder: Path
) -> None:
    run = killed_until_finished(commands_folder / "python", config, tmp_path, kills=4, seconds=0.8)
    assert files(run) == whole


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

    with pytest.raises(RunError, match=r"cannot write .*: .*[Nn]o space left on device") as raised:
        run_training(config, run, "test", Callbacks(on_step=fill))
    assert not list((run / "checkpoints").glob(".*"))  # no half checkpoint takes up the rest of the disk
    assert "\n" not in str(raised.value)
    assert checkpoints.saved(run / "checkpoints")[0].name == "step-00000008"
    filler.unlink()
    resume(run)
    assert files(run) == whole


def test_a_failed_write_says_what_is_kept(
    config: AnyConfig, whole: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, real = tmp_path / "run", checkpoints.write_tensors

    def full(path: Path, *rest: object) -> None:
        if "step-00000008" in str(path) and path.name.startswith("optimizer"):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoints, "write_tensors", full)
    sentence = (
        f"cannot save step 8, and training stops (cannot write {run / 'checkpoints'}: No space left on device); "
        f"step-00000004 is kept; make room, then `clearhead resume {run}`"
    )
    with pytest.raises(RunError, match=f"^{re.escape(sentence)}$"):
        run_training(config, run, "test")
    assert [path.name for path in (run / "checkpoints").glob("*step*")] == ["step-00000004"]
    monkeypatch.undo()
    resume(run)
    assert files(run) == whole


@pytest.mark.slow
def test_twenty_kills_at_random_moments(config: AnyConfig, tmp_path: Path, commands_folder: Path) -> None:
    longer = override_config(config, ["train.max_steps=3000"])
    run_training(longer, tmp_path / "whole", "test")
    run = killed_until_finished(commands_folder / "python", longer, tmp_path, kills=20, seconds=3)
    assert files(run) == files(tmp_path / "whole")

"""Training keeps its promises about time: evaluations are spread evenly, the limit counts everything, Ctrl-C saves."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clearhead.config import AnyConfig
from clearhead.errors import ConfigError
from clearhead.run import Run
from clearhead.tasks import default_config, override_config, run_config
from clearhead.tasks.base.metrics import Score
from clearhead.tasks.base.task import Evaluation
from clearhead.tasks.translate import Translate
from clearhead.train import checkpoints, loop, start
from clearhead.train.loop import Callbacks, Trainer, uninterrupted
from clearhead.train.schedules import Progress
from clearhead.train.start import resume, run_training

TINY = [
    "data.batch_tokens=300",
    "tokenizer.size=200",
    "model.dim=16",
    "model.heads=2",
    "model.layers=1",
    "train.max_steps=23",
]


@pytest.fixture
def config(tmp_path: Path) -> AnyConfig:
    pairs = "".join(f"{a} {b} {a}\t{b} {a}\n" for a in "abcdefgh" for b in "ijklmnop")
    (tmp_path / "pairs.tsv").write_text(pairs, encoding="utf-8")
    return override_config(default_config("translate", "tiny"), [f"data.path={tmp_path / 'pairs.tsv'}", *TINY])


def evaluated(run: Path) -> list[int]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line["step"] for line in lines if line["part"] == "validation"]


def weights(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


def test_evaluations_are_evenly_spread(config: AnyConfig, tmp_path: Path) -> None:
    run_training(override_config(config, ["train.evaluations=4", "train.max_steps=83"]), tmp_path / "run", "test")
    assert evaluated(tmp_path / "run") == [21, 42, 63, 83]


def test_a_run_of_few_steps_is_not_evaluated_after_each(config: AnyConfig, tmp_path: Path) -> None:
    run_training(override_config(config, ["train.max_steps=12"]), tmp_path / "run", "test")
    assert evaluated(tmp_path / "run") == [10, 12]


def test_ctrl_c_saves_the_step_and_resume_goes_on_from_it(config: AnyConfig, tmp_path: Path) -> None:
    run_training(config, tmp_path / "whole", "test")

    def interrupt(step: object, _progress: object) -> None:
        if step.step == 11:  # type: ignore[attr-defined]
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_training(config, tmp_path / "stopped", "test", Callbacks(on_step=interrupt))
    assert [folder.name for folder in checkpoints.saved(tmp_path / "stopped" / "checkpoints")] == ["step-00000011"]
    notes: list[str] = []
    resume(tmp_path / "stopped", Callbacks(on_note=notes.append))
    assert notes == ["continuing after step 11"]
    assert weights(tmp_path / "stopped") == weights(tmp_path / "whole")  # the very same file
    assert evaluated(tmp_path / "stopped") == evaluated(tmp_path / "whole")


def test_resume_says_that_nothing_was_saved(config: AnyConfig, tmp_path: Path) -> None:
    def stop(_step: object, _progress: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_training(config, tmp_path / "run", "test", Callbacks(on_step=stop))
    notes: list[str] = []
    resume(tmp_path / "run", Callbacks(on_note=notes.append))
    assert notes == ["no step was saved: from the beginning"]


def test_an_interrupt_waits_for_the_end_of_a_step() -> None:
    done = []

    def step() -> None:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("the rest of the step")

    with pytest.raises(KeyboardInterrupt):
        step()
    assert done == ["the rest of the step"]
    with uninterrupted():
        done.append("another step")
    assert len(done) == 2


def test_the_time_limit_counts_preparation_and_evaluations(
    config: AnyConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that only the test moves: preparation takes 20 seconds, a step half of one, an evaluation 10."""
    now, take_rows = [0.0], Trainer._local_batch

    def spend(seconds: float) -> None:
        now[0] += seconds

    def take_slowly(self: Trainer, examples: Any) -> Any:
        spend(0.5)
        return take_rows(self, examples)

    for module in (loop, start):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(Trainer, "_local_batch", take_slowly)
    monkeypatch.setattr(Translate, "full_evaluation_cost", lambda _self: 1.0)
    phases = {"building the model": 20.0, "evaluating": 10.0}
    limited = override_config(config, ["train.max_steps=none", "train.max_minutes=1", "train.evaluations=2"])
    run_training(limited, tmp_path / "run", "test", Callbacks(on_phase=lambda phase: spend(phases.get(phase, 0))))
    assert now[0] == 60
    assert evaluated(tmp_path / "run") == [17, 40]  # the first after half of 60 seconds less a reserve of 3


def test_progress_keeps_time_for_the_last_evaluation() -> None:
    progress = Progress(max_steps=None, max_minutes=1, elapsed=27, reserve=6)
    assert progress.share(7) == 0.5
    assert Progress(max_steps=11, max_minutes=1, elapsed=30).share(11) == 1


def test_a_training_without_an_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing ends the training: give max_steps or max_minutes"):
        override_config(default_config("lm"), ["train.max_steps=none"])


def test_early_stopping_watches_a_score() -> None:
    found = Evaluation(2.0, (Score("accuracy", 0.7, ""), Score("perplexity", 7.4, "")))
    assert (found.quality("loss"), found.quality("accuracy"), found.quality("perplexity")) == (-2.0, 0.7, -7.4)
    with pytest.raises(ConfigError, match=r"unknown train\.metric=acuracy; did you mean accuracy\?"):
        found.quality("acuracy")


def test_a_run_finds_its_data_from_every_folder(
    config: AnyConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    relative = override_config(config, ["data.path=pairs.tsv", "train.max_steps=1"])
    run_training(relative, Path("run"), "test")
    assert run_config(Run.open(Path("run"))).data.path == str(tmp_path / "pairs.tsv")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert resume(Path("../run")).loss > 0


def test_equal_runs_are_equal_files(config: AnyConfig, tmp_path: Path) -> None:
    for name in ("one", "two"):
        run_training(config, tmp_path / name, "test")
    assert weights(tmp_path / "one") == weights(tmp_path / "two")

"""What a training would take agrees with what it takes, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clearhead.config import AnyConfig
from clearhead.run import Run, Sizes
from clearhead.tasks import default_config, override_config, run_config
from clearhead.tasks.base.network import build_network, load_network
from clearhead.train.dry_run import TIMED, estimate, parts_of
from clearhead.train.loop import Step, Trainer
from clearhead.train.start import run_training

SMALL = ["model.dim=16", "model.heads=2", "model.layers=2", "tokenizer.kind=char", "model.dropout=0", "train.clip=none"]


@pytest.fixture
def config(tmp_path: Path) -> AnyConfig:
    (tmp_path / "t.txt").write_text("to be or not to be that is the question\n" * 300, encoding="utf-8")
    words = [f"data.path={tmp_path / 't.txt'}", *SMALL, "model.length=20", "data.batch_tokens=200"]
    return override_config(default_config("lm", "tiny"), words)


def test_the_numbers_are_those_of_the_training(config: AnyConfig, tmp_path: Path) -> None:
    found = estimate(config)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.txt"]
    run_training(override_config(config, ["train.max_steps=1"]), tmp_path / "run", "test")
    network, _ = load_network(Run.open(tmp_path / "run"), run_config(Run.open(tmp_path / "run")))
    assert found.parameters == parts_of(network)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    assert sum(found.parameters.values()) == parameters
    assert found.memory["weights"] == found.memory["gradients"] == 4 * parameters
    assert 8 * parameters <= found.memory["optimizer"] < 8 * parameters + 1000  # adamw's two averages, and its counts
    assert "average" not in found.memory
    assert (found.steps, found.unit, found.per_step) == (2000, "tokens", 200)
    assert found.evaluations == 6
    needed = 2000 * found.seconds_per_step / 60 + found.evaluation_minutes
    assert found.preparation_minutes > 0
    assert found.minutes == pytest.approx(found.preparation_minutes + needed)
    assert estimate(config, reading=600.0).minutes > 10


def test_the_last_evaluation_is_as_long_as_it_will_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The timed one translates 64 pairs, those in between 200, and the last one all 700, by beam search."""
    rows = "".join(f"a {number}\tb {number}\n" for number in range(1400))
    (tmp_path / "p.tsv").write_text(rows, encoding="utf-8")
    words = [f"data.path={tmp_path / 'p.tsv'}", "data.validation=0.5", *SMALL, "train.evaluations=5"]
    clock = [0.0]
    monkeypatch.setattr("clearhead.train.dry_run.time.perf_counter", lambda: clock[0])

    def evaluate(task: Any, *_arguments: Any) -> None:
        clock[0] += 60 * min(task.max_scored, len(task.held_out.pairs))

    monkeypatch.setattr("clearhead.tasks.translate.Translate.evaluate", evaluate)
    monkeypatch.setattr(Trainer, "update", fixed_step)
    found = estimate(override_config(default_config("translate", "tiny"), words))
    held_out = found.evaluation_minutes - 4 * 200
    assert held_out == pytest.approx(2 * round(held_out / 2))
    assert 1200 < held_out < 1600


def fixed_step(trainer: Trainer, _batches: object) -> None:
    trainer.callbacks.on_step(Step(1, 1.0, 1.0, 7, 0.5), trainer.progress)


def test_twice_the_batch_keeps_twice_the_activations(config: AnyConfig) -> None:
    once = estimate(config).memory["activations"]
    twice = estimate(override_config(config, ["data.batch_tokens=400"])).memory["activations"]
    assert twice == pytest.approx(2 * once, rel=0.1)


def test_steps_are_those_that_fit_in_the_minutes(config: AnyConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    few = override_config(config, ["train.max_minutes=0.01", "train.max_steps=100000000", "train.average=0.9"])
    found = estimate(few)
    assert found.steps == round(0.6 / found.seconds_per_step)
    assert found.minutes == pytest.approx(0.01, rel=0.1)
    assert found.memory["average"] == found.memory["weights"]


def test_accumulated_batches_count(config: AnyConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    update = Trainer.update
    monkeypatch.setattr(Trainer, "update", lambda self, batches: (made.append(len(batches)), update(self, batches)))
    found = estimate(override_config(config, ["train.accumulate=3"]))
    assert found.per_step == 600
    assert made == [1] + [3] * TIMED


def test_tied_weights_count_once() -> None:

    model = build_network(default_config("lm", "tiny"), Sizes(vocabulary=50))
    assert sum(parts_of(model).values()) == sum(parameter.numel() for parameter in model.parameters())

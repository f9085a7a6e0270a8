from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.optim import AdamW

from clearhead.bench import train
from clearhead.bench.measure import median_ratio, medians
from clearhead.bench.peers import BETAS, RATE, WEIGHT_DECAY, Gpt
from clearhead.bench.train import (
    LORA,
    PEFT,
    PEFT_GPT2,
    RANK,
    SIZES,
    TURN,
    adapter_memory,
    adapter_results,
    adapter_steps,
    measured,
    our_trainer,
    results,
    write_base,
)

SMALL = Gpt(layers=1, dim=6, heads=2, block=7, batch=3, vocabulary=17)


def test_our_trainer_makes_the_same_step_as_the_peers(tmp_path: Path) -> None:
    trainer = our_trainer(SMALL, tmp_path)
    rows = next(iter(trainer.cursor))
    assert rows.shape == (3, 8)
    assert trainer.task.meta.sizes.vocabulary == 17
    (optimizer,) = trainer.optimizers
    assert isinstance(optimizer, AdamW)
    assert {(group["lr"], group["betas"]) for group in optimizer.param_groups} == {(RATE, BETAS)}
    assert {group["weight_decay"] for group in optimizer.param_groups} == {WEIGHT_DECAY, 0.0}
    assert trainer.config.clip == 1.0


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_there_are_enough_batches_for_a_turn(size: Gpt, tmp_path: Path) -> None:
    trainer = our_trainer(size, tmp_path)
    assert trainer.task.meta.sizes.vocabulary == 65
    assert len(trainer.cursor) >= TURN


@pytest.mark.usefixtures("in_this_process")
def test_ours_is_measured_alone_without_peers() -> None:
    try:
        first, second = measured(SMALL, peers=False, rounds=1, starts=2)
        assert set(first) == set(second) == {"clearhead"}
    finally:
        torch.use_deterministic_algorithms(False)


def test_ours_is_compared_with_each_peer_that_is_the_same() -> None:
    calm = {"clearhead": 6.0, "transformers": 9.0, "clearhead without biases": 4.0, "x-transformers": 5.0}
    busy = {"clearhead": 24.0, "transformers": 30.0, "clearhead without biases": 20.0, "x-transformers": 20.0}
    found = list(results(SMALL, [calm, busy, calm]))
    assert [result.what for result in found] == [
        "GPT 1 × 6, 3 × 7 tokens: one step of clearhead",
        "GPT 1 × 6, 3 × 7 tokens: one step of transformers",
        "GPT 1 × 6, 3 × 7 tokens: one step of clearhead without biases",
        "GPT 1 × 6, 3 × 7 tokens: one step of x-transformers",
        "GPT 1 × 6, 3 × 7 tokens: clearhead / transformers",
        "GPT 1 × 6, 3 × 7 tokens: clearhead without biases / x-transformers",
    ]
    assert [result.value for result in found[-2:]] == pytest.approx([6 / 9, 0.8])
    assert found[-1].holds is True
    assert list(results(SMALL, [{**calm, "clearhead": 9.1}]))[-2].holds is False
    assert found[0].value == 6.0
    assert len(list(results(SMALL, [{"clearhead": 6.0}]))) == 1


def test_a_ratio_is_that_of_turns_which_followed_each_other() -> None:
    rounds = [{"a": 1.0, "b": 2.0}, {"a": 10.0, "b": 20.0}, {"a": 100.0, "b": 201.0}]
    assert median_ratio(rounds, "a", "b") == 0.5
    assert medians(rounds) == {"a": 10.0, "b": 20.0}


def test_adapters_of_ours_and_of_peft_are_of_the_same_size(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    write_base(SMALL, tmp_path)
    trained = {}
    try:
        for name in (LORA, PEFT, PEFT_GPT2):
            model, step = adapter_steps(name, SMALL, tmp_path, 1)
            step()
            trained[name] = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    finally:
        torch.use_deterministic_algorithms(False)
    assert trained == {LORA: 4 * RANK * 6, PEFT: 4 * RANK * 6, PEFT_GPT2: RANK * (6 + 18)}


def test_an_adapter_keeps_no_more_for_its_backward_pass_than_that_of_peft(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("peft")
    monkeypatch.setattr(train, "in_own_process", lambda _code, *words: {**train.one_step(*words), "peak_mb": 700.0})
    try:
        memory = adapter_memory(SMALL)
    finally:
        torch.use_deterministic_algorithms(False)
    assert 0 < memory[LORA]["kept_mb"] <= memory[PEFT]["kept_mb"] + 16e-6  # the number of tokens
    rounds = [{LORA: 3.0, PEFT: 4.0, PEFT_GPT2: 6.0}]
    found = {each.what: each for each in adapter_results(SMALL, rounds, memory)}
    assert found["adapter of a GPT 1 × 6: clearhead LoRA / peft on the same network"].value == 0.75
    kept = found["adapter of a GPT 1 × 6: memory for the backward pass, clearhead LoRA / peft on the same network"]
    assert kept.value == pytest.approx(1, abs=2e-3)


@pytest.mark.slow
def test_the_memory_of_an_adapter_is_that_of_its_own_process() -> None:
    pytest.importorskip("peft")
    memory = adapter_memory(SMALL)
    assert 0 < memory[LORA]["kept_mb"] <= memory[PEFT]["kept_mb"] + 16e-6
    assert min(each["peak_mb"] for each in memory.values()) > 50


@pytest.mark.usefixtures("in_this_process")
def test_every_adapter_is_timed() -> None:
    pytest.importorskip("peft")
    try:
        [taken] = train.adapters_measured(SMALL, rounds=1, starts=1)
    finally:
        torch.use_deterministic_algorithms(False)
    assert list(taken) == [LORA, PEFT, PEFT_GPT2]


def test_both_sizes_are_measured_and_adapters_with_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    calm = {"clearhead": 6.0, "transformers": 9.0}
    monkeypatch.setattr(
        train, "measured", lambda _size, peers, rounds: [calm if peers else {"clearhead": 6.0}] * rounds
    )
    monkeypatch.setattr(
        train, "adapters_measured", lambda _size, rounds: [{LORA: 3.0, PEFT: 4.0, PEFT_GPT2: 6.0}] * rounds
    )
    kept = {name: {"kept_mb": 2.0, "peak_mb": 700.0} for name in (LORA, PEFT)}
    monkeypatch.setattr(train, "adapter_memory", lambda _size: kept)
    alone, beside = list(train.run(peers=False)), list(train.run(peers=True))
    assert [each.detail["rounds"] for each in alone] == list(SIZES.values())
    assert {each.what for each in alone} < {each.what for each in beside}
    assert "adapter of a GPT 6 × 384: clearhead LoRA / peft on the same network" in {each.what for each in beside}

"""The device of a training: which one is chosen, how it computes, and how it is seeded."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from clearhead.config import TrainConfig
from clearhead.errors import ConfigError
from clearhead.train import device as device_file
from clearhead.train.device import Device, resolve_device

CPU = torch.device("cpu")


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """A machine with GPUs that have bfloat16; the ones that a process has chosen."""
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    return chosen


def choose(index: int | None = None, **settings: object) -> tuple[Device, list[str]]:
    notes: list[str] = []
    config = TrainConfig.model_validate({"deterministic": False, **settings})
    return Device.choose(config, notes.append, index), notes


def test_auto_is_the_fastest_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"cuda": True, "mps": True}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: here["cuda"])
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: here["mps"])
    for expected in ("cuda", "mps"):
        assert resolve_device("auto") == resolve_device(expected) == expected
        here[expected] = False
    assert resolve_device("auto") == resolve_device("cpu") == "cpu"
    with pytest.raises(ConfigError, match=r"train\.device=cuda: not available on this machine; choose auto or cpu"):
        resolve_device("cuda")


def test_a_gpu_computes_in_bfloat16_and_compiled(gpus: list[torch.device]) -> None:
    found, notes = choose(device="auto", precision="auto", compile="auto")
    assert (found.torch_device.type, found.bfloat16, found.compiled, notes) == ("cuda", True, True, [])
    assert choose(device="cuda", precision="float32", compile="no")[0] == Device(torch.device("cuda"), False, False)
    assert gpus == []


def test_each_process_has_the_gpu_of_its_number(gpus: list[torch.device]) -> None:
    found, _ = choose(index=3, device="cuda")
    assert found.torch_device == torch.device("cuda", 3)
    assert gpus == [torch.device("cuda", 3)]


def test_a_cpu_says_that_it_stays_in_float32() -> None:
    found, notes = choose(device="cpu", precision="bfloat16", compile="auto")
    assert found == Device(CPU, bfloat16=False, compiled=False)
    assert notes == ["cpu has no fast bfloat16 here: training in float32"]


def test_matrix_products_are_cast_only_where_it_was_chosen() -> None:
    x, products = torch.randn(3, 5), []
    for bfloat16 in (True, False):
        with Device(CPU, bfloat16, compiled=False).autocast():
            products.append((x @ x.T).dtype)
    assert products == [torch.bfloat16, torch.float32]


def test_a_model_is_compiled_if_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda model: nn.Sequential(model))
    model = nn.Linear(3, 5)
    assert Device(CPU, False, compiled=False).prepare(model) is model
    compiled = Device(CPU, False, compiled=True).prepare(model)
    assert next(compiled.parameters()) is model.weight


def test_the_seed_depends_on_step_and_process() -> None:
    drawn = set()
    for seed, step, rank in ((1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 4), (1, 2, 3)):
        Device(CPU, False, False).seed(seed, step, rank)
        drawn.add(float(torch.rand(())))
    assert len(drawn) == 4


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_the_device_is_seeded_like_the_processor(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(getattr(torch, kind), "manual_seed", seeds.append)
    Device(torch.device(kind), False, False).seed(5, 7, 11)
    assert seeds == [torch.default_generator.initial_seed()] == [(5 * 1_000_003 + 7) * 4099 + 11]


def test_memory_is_tuned_on_linux_only(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    monkeypatch.setattr(device_file.ctypes, "CDLL", opened.append)
    monkeypatch.setattr(device_file.sys, "platform", "darwin")
    device_file.keep_freed_memory()
    assert opened == []
    monkeypatch.setattr(device_file.sys, "platform", "linux")
    device_file.return_freed_memory()  # a C library without mallopt is left alone
    assert opened == [None]

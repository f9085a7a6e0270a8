from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clearhead.bench import core
from clearhead.bench.measure import (
    Measurement,
    cpu_flags,
    growth_exponent,
    in_own_process,
    machine,
    side_by_side,
    side_by_side_apart,
)
from clearhead.data import builtin


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_growth_exponent_finds_the_power(power: float) -> None:
    sizes = [3, 5, 11, 29]
    assert growth_exponent(sizes, [7 * size**power for size in sizes]) == pytest.approx(power)


def test_candidates_take_turns() -> None:
    calls: list[str] = []
    taken = side_by_side({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, repeats=3, warm_up=2)
    assert calls == ["a", "b"] * 5
    assert set(taken) == {"a", "b"}
    assert all(milliseconds >= 0 for milliseconds in taken.values())


def test_candidates_in_their_own_processes_take_turns_too() -> None:
    quick, slow = partial(partial, time.sleep, 0.002), partial(partial, time.sleep, 0.15)
    taken = side_by_side_apart({"quick": quick, "slow": slow}, repeats=3, warm_up=1)
    assert 2 <= taken["quick"] < taken["slow"]
    assert taken["slow"] >= 150


def test_peak_memory_is_that_of_the_process_alone() -> None:
    small = in_own_process("import sys; result = {'said': sys.argv[1]}", "hello")
    large = in_own_process("held = bytearray(200_000_000); result = {}")
    assert small["said"] == "hello"
    assert small["peak_mb"] < 100
    assert 200 < large["peak_mb"] < 300


def test_attention_is_compared_on_the_same_weights() -> None:
    figure = core.attention_against_torch(batch=2, length=5, dim=12, heads=3, repeats=2)
    assert figure.unit == "×"
    assert set(figure.detail["milliseconds"]) == {"clearhead", "torch"}


def test_the_program_for_long_texts_measures_every_length(
    commands_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(commands_folder / "python"))
    found = in_own_process(core._LONG, "3", "7", "11")
    assert found["lengths"] == [7, 11]
    assert len(found["seconds"]) == 2
    assert min(found["seconds"]) > 0


def test_core_measures_attention_length_text_and_start_up(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, attention = (
        builtin.examples,
        partial(core.attention_against_torch, batch=2, length=3, dim=4, heads=2, repeats=1),
    )
    monkeypatch.setattr(builtin, "examples", lambda kind: whole(kind)[::97])
    monkeypatch.setattr("clearhead.data.hub.origin", lambda _data: None)  # as if nothing had been downloaded
    monkeypatch.setattr(core, "attention_against_torch", lambda **_: attention())

    def grows(_code: str, window: str, *lengths: str) -> dict[str, Any]:
        return {"peak_mb": 700.0, "seconds": [float(length) ** (1 if int(window) else 2) for length in lengths]}

    monkeypatch.setattr(core, "in_own_process", grows)
    started: list[list[str]] = []
    monkeypatch.setattr(core.subprocess, "run", lambda words, **_: started.append(words[1:]))
    found = {each.what: each for each in core.run(peers=False)}
    assert found["causal forward of 65,536 tokens, 128 wide: peak memory"].holds is True
    assert found["time against length, full attention: exponent"].value == pytest.approx(2)
    window = found["time against length, window of 256: exponent"]
    assert (window.value, window.holds) == (pytest.approx(1), True)
    read = found["read, tokenise and bucket the built-in pairs"]
    assert read.detail["pairs"] == len(whole("pairs")[::97])
    assert list(read.detail["seconds so far"]) == ["read", "train the tokenizer", "encode", "bucket"]
    assert 0 <= found["padding of the built-in pairs at 4,096 tokens"].value < 100
    assert started == [["-m", "clearhead", "--help"]] * 7 + [["-c", "import clearhead"]] * 7
    assert (found["clearhead --help"].limit, found["import clearhead"].limit) == (0.4, None)


def test_machine_names_what_it_measured_on() -> None:
    assert {"python", "torch", "threads", "cores", "flags"} <= set(machine())


def test_the_flags_are_those_that_native_code_may_use(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor : 0\nflags\t\t: fpu sse2 fma avx2 smep avx512_vnni\nprocessor : 1\nflags : fma\n")
    assert cpu_flags(info) == "fma avx2 avx512_vnni"
    assert cpu_flags(tmp_path / "none") == ""


def test_a_measurement_knows_whether_it_holds() -> None:
    assert Measurement("x", 2.0, "s", 2.0).holds is True
    assert Measurement("x", 2.1, "s", 2.0).holds is False
    assert Measurement("x", 3.0, "s").holds is None


def test_some_measurements_should_be_large() -> None:
    assert Measurement("x", 2.0, "s", 2.0, bound="at least").holds is True
    assert Measurement("x", 1.9, "s", 2.0, bound="at least").holds is False


@pytest.mark.parametrize(
    ("measurement", "text"),
    [
        (Measurement("x", 3.0, "s", 2.5), "≤ 2.5 s"),
        (Measurement("x", 3.0, "", 2.0), "≤ 2"),
        (Measurement("x", 3.0, "points", -2.0, bound="at least"), "≥ -2 points"),
        (Measurement("x", 3.0, "s"), ""),
    ],
)
def test_limits_are_written_as_people_write_them(measurement: Measurement, text: str) -> None:
    assert measurement.target == text


def test_the_document_has_the_verdict() -> None:
    assert Measurement("x", 3.0, "×", 5.0, {"repeats": 7}).document() == {
        "what": "x",
        "value": 3.0,
        "unit": "×",
        "limit": 5.0,
        "detail": {"repeats": 7},
        "bound": "at most",
        "holds": True,
    }

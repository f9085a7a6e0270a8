from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path
from pkgutil import iter_modules
from threading import Thread

import pytest
import torch
from tests.engines.small import VOCABULARY, make, native_of, sources

from clearhead.decode.pool import batch_pool
from clearhead.engines.native import library
from clearhead.engines.native.library import FOLDER, load_library
from clearhead.errors import ConfigError

needs_library = pytest.mark.skipif(load_library() is None, reason="no native library: python tools/build_native.py")


def test_the_library_is_built_from_these_sources() -> None:
    assert library.library_problem() is None


def test_a_missing_library_is_named(tmp_path: Path) -> None:
    found = library._code(tmp_path / "libclearhead.so")
    assert isinstance(found, str)
    assert found.startswith(f"there is no native library {tmp_path}/libclearhead.so; build it with `python tools/build")


def test_a_file_that_is_no_library_is_named(tmp_path: Path) -> None:
    (tmp_path / "libclearhead.so").write_bytes(b"not a library")
    found = library._code(tmp_path / "libclearhead.so")
    assert isinstance(found, str)
    assert found.startswith("the native library cannot be loaded (")


@needs_library
def test_a_library_of_other_sources_is_not_used(tmp_path: Path) -> None:
    for file in (*FOLDER.glob("*.[ch]"), FOLDER / f"libclearhead{library.SUFFIX}"):
        shutil.copy(file, tmp_path)
    path = tmp_path / f"libclearhead{library.SUFFIX}"
    assert isinstance(library._code(path), ctypes.CDLL)
    library._code.cache_clear()
    (tmp_path / "step.c").write_text("/* changed */", encoding="utf-8")
    assert str(library._code(path)).startswith(f"the native library {path} was built from other sources; build it")


def test_the_library_is_not_taken_for_a_python_module(tmp_path: Path) -> None:
    (tmp_path / f"libclearhead{library.SUFFIX}").touch()
    assert list(iter_modules([str(tmp_path)])) == []


# --- variants ---


def variants() -> list[str]:
    """Those that this processor can run."""
    found = load_library()
    if found is None:
        return []
    able = library.VARIANTS[: library.VARIANTS.index(found.variant) + 1]
    return [each for each in able if hasattr(found._code, f"clearhead_step_{each}")]


@needs_library
@pytest.mark.parametrize("int8", [False, True])
@torch.inference_mode()
def test_every_variant_computes_the_same(monkeypatch: pytest.MonkeyPatch, int8: bool) -> None:
    network = make("translate", "model.feed_forward=swiglu", "model.placement=before")
    ids, logits, able = torch.randint(VOCABULARY, (13, 7)), {}, variants()
    for variant in able:
        monkeypatch.setenv("CLEARHEAD_CPU", variant)
        model = native_of(network, int8=int8)
        assert model.library.variant == variant
        logits[variant] = model.step(ids, model.start(sources(1).expand(13, -1)))[0]
    first, *others = (logits[each] for each in able if not int8 or each != "portable")  # rounds weights only
    for other in others:
        torch.testing.assert_close(other, first, rtol=2e-3 if int8 else 2e-4, atol=2e-3 if int8 else 2e-4)


@needs_library
def test_a_variant_that_does_not_exist_or_run_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARHEAD_CPU", "avx3")
    with pytest.raises(
        ConfigError, match=r"^CLEARHEAD_CPU=avx3 is not a variant of the native code; did you mean avx2"
    ):
        load_library()
    wrong = "neon" if "avx2" in library.VARIANTS[:2] and os.uname().machine == "x86_64" else "avx512"
    monkeypatch.setenv("CLEARHEAD_CPU", wrong)
    with pytest.raises(
        ConfigError, match=f"^CLEARHEAD_CPU={wrong}: this processor cannot run it; the best that it can"
    ):
        load_library()


# --- threads ---


@needs_library
@torch.inference_mode()
def test_steps_from_many_threads_at_once_are_right() -> None:
    model = native_of(make("translate"))
    model.threads.choices = [2]
    ids = torch.randint(VOCABULARY, (5, 3))
    expected = model.step(ids, model.start(sources(1).expand(5, -1)))[0]
    wrong: list[int] = []

    def step_often(number: int) -> None:
        with torch.inference_mode():
            for _ in range(30):
                if not torch.equal(model.step(ids, model.start(sources(1).expand(5, -1)))[0], expected):
                    wrong.append(number)

    threads = [Thread(target=step_often, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@needs_library
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_has_threads_of_its_own() -> None:
    code = """
import os, torch
from tests.engines.small import make, native_of
model = native_of(make("lm"))
model.threads.choices = [2]
ids = torch.ones(2, 3, dtype=torch.int64)
with torch.inference_mode():
    expected = model.step(ids, model.start())[0]
    child = os.fork()
    same = torch.equal(model.step(ids, model.start())[0], expected)
if child == 0:
    os._exit(0 if same else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True, timeout=60)


def test_the_faster_number_of_threads_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = {1: 5, 4: 1}  # with four threads a step takes less
    now = [0.0]
    monkeypatch.setattr(library.time, "perf_counter", lambda: now[0])
    found = library.ThreadChooser(most=4)
    for _ in range(2 * library.TRIALS):
        with found.choose(rows=9) as trial:
            now[0] += slow[trial.threads]
    with found.choose(rows=9) as trial:
        assert trial.threads == 4
    with found.choose(rows=100) as trial:  # another size is tried anew
        assert trial.threads == 1


def test_the_choice_recovers_from_a_slow_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slow = [0.0], {1: 5.0, 4: 1.0}
    monkeypatch.setattr(library.time, "perf_counter", lambda: now[0])
    found, chosen = library.ThreadChooser(most=4), []
    for step in range(400):
        with found.choose(rows=9) as trial:
            now[0] += slow[trial.threads] + (20 if trial.threads == 4 and step < 9 else 0)
        chosen.append(trial.threads)
    assert set(chosen[8:15]) == {1}  # when they were measured, four threads seemed slower
    assert set(chosen[15:31]) == {4}  # the first time that they were tried again, they stayed
    assert chosen[31:36] == [1] * library.TRIALS + [4]  # one thread is still slow
    again = [step + 1 for step, threads in enumerate(chosen) if step > 15 and threads == 1]
    assert again == [begin + i for begin in (32, 64, 128, 256, 384) for i in range(library.TRIALS)]


@pytest.mark.parametrize(("slow", "share"), [(4.0, 0.0), (20.0, 1.0)])
def test_single_slow_steps_count_by_what_they_cost(monkeypatch: pytest.MonkeyPatch, slow: float, share: float) -> None:
    """Of 16 steps with four threads one is slow: they take 0.9 together, or 1.9; one thread takes 1.2."""
    now, steps = [0.0], [0]
    monkeypatch.setattr(library.time, "perf_counter", lambda: now[0])
    found, chosen = library.ThreadChooser(most=4), []
    for _ in range(2000):
        with found.choose(rows=9) as trial:
            steps[0] += trial.threads == 4
            now[0] += 1.2 if trial.threads == 1 else slow if steps[0] % 16 == 0 else 0.7
        chosen.append(trial.threads)
    assert sum(number == 1 for number in chosen[1000:]) / 1000 == pytest.approx(share, abs=0.25)


def test_a_search_is_measured_per_step(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(library.time, "perf_counter", lambda: now[0])
    found = library.ThreadChooser(most=4)
    for _ in range(library.TRIALS):  # a search counts as two
        with found.choose(rows=9) as trial:
            trial.steps = 30 if trial.threads == 4 else 10
            now[0] += 3.0 if trial.threads == 4 else 2.0
    with found.choose(rows=9) as trial:
        assert trial.threads == 4


def test_a_batch_that_has_others_beside_it_keeps_to_one_thread() -> None:
    found = library.ThreadChooser(most=4)

    def threads() -> list[int]:
        chosen = []
        for _ in range(2 * library.TRIALS):
            with found.choose(16) as trial:
                chosen.append(trial.threads)
        return chosen

    assert batch_pool(2).submit(threads).result() == [1] * 2 * library.TRIALS
    assert set(threads()) == {1, 4}  # elsewhere both are tried

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from clearhead.bench import lm
from clearhead.errors import DataError
from clearhead.interop.formats.base.gguf_file import GgufFile
from clearhead.tasks.lm import LanguageModel


def test_a_prompt_has_exactly_so_many_tokens() -> None:
    assert lm.prompt_of([5, 7, 9], 8) == [5, 7, 9, 5, 7, 9, 5, 7]
    assert lm.prompt_of([5, 7, 9], 2) == [5, 7]


def test_without_a_file_it_says_where_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLEARHEAD_GGUF", raising=False)
    monkeypatch.setattr(lm, "find_spec", lambda _name: None)
    with pytest.raises(DataError, match="this benchmark needs a GGUF file in Q4_1; set CLEARHEAD_GGUF, or pip install"):
        lm.model_file()
    monkeypatch.setenv("CLEARHEAD_GGUF", "mine.gguf")
    assert lm.model_file() == Path("mine.gguf")


def test_the_goals_cover_every_work() -> None:
    assert all(goals.keys() == {work.name for work in lm.WORKS} for goals in lm.GOALS.values())


def test_a_rewritten_file_is_the_same_model_in_another_format(gguf_file: Path, tmp_path: Path) -> None:
    before, after = GgufFile(gguf_file), GgufFile(lm.rewritten(gguf_file, "Q4_0", tmp_path))
    plain = [{key: np.asarray(value).tolist() for key, value in each.metadata.items()} for each in (before, after)]
    assert plain[0] == plain[1]
    assert before.tensors.keys() == after.tensors.keys()
    for name, tensor in after.tensors.items():
        assert tensor.shape == before.tensors[name].shape
        close = 1e-6 if len(tensor.shape) == 1 else 0.3 * float(before.read(name).abs().max())
        assert float((after.read(name) - before.read(name)).abs().max()) <= close


@pytest.mark.usefixtures("in_this_process")
def test_every_format_and_work_is_measured_then_loading(
    gguf_file: Path, tmp_path: Path, commands_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEARHEAD_GGUF", str(gguf_file))
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "executable", str(commands_folder / "python"))
    works = (lm.Work("prefill 512", 11, 1), lm.Work("decode 128", 2, 5))
    for name, value in {"ROUNDS": 1, "WARM_UP": 0, "WORKS": works, "LONG": 29, "TOKENS": 5}.items():
        monkeypatch.setattr(lm, name, value)
    first, *rates, again, edited, new, seen, memory, seconds = lm.run(peers=False)
    assert first.detail["variant"] == lm.variant()
    assert set(first.detail["flags"].split()) == set(lm.flags().split())
    assert [each.what for each in rates] == [
        f"{kind}, {work.name}: {engine}"
        for kind in ("Q4_1", "Q4_0", "Q8_0")
        for work in works
        for engine in (lm.OURS, lm.EXACT)
    ]
    assert min(each.value for each in rates) > 0
    itself = (again, edited, new, seen)
    assert [(each.limit, each.bound) for each in itself] == [
        (0.05, "at most"), (1.5, "at least"), (0.97, "at least"), (1.1, "at most")
    ]  # fmt: skip
    assert min(each.value for each in itself) > 0
    assert (memory.limit, seconds.limit) == (1.25, 0.7)
    assert seconds.value > 0


class LlamaServer:
    """In place of llama.cpp's: keeps the settings that it was started with, and what it was asked."""

    started: list[LlamaServer] = []

    def __init__(self, parameters: Any):
        self.parameters, self.asked = parameters, []
        self.started.append(self)

    def handle_completions(self, request: dict[str, Any]) -> None:
        self.asked.append(request)


@pytest.mark.usefixtures("in_this_process")
def test_llama_cpp_gets_the_same_prompt_and_threads_and_is_compared(
    gguf_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def settings() -> SimpleNamespace:
        inner = {name: SimpleNamespace() for name in ("model", "cpuparams", "cpuparams_batch")}
        return SimpleNamespace(**inner)

    library = SimpleNamespace(CommonParams=settings, Server=LlamaServer)
    monkeypatch.setattr(lm, "import_module", {"xllamacpp": library}.__getitem__)
    monkeypatch.setattr(LlamaServer, "started", [])
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))
    for name, value in {"ROUNDS": 2, "WARM_UP": 0}.items():
        monkeypatch.setattr(lm, name, value)
    work = lm.Work("decode 128", 13, 3)
    *rates, times = lm.results("Q4_1", gguf_file, work, peers=True)
    assert [each.what for each in rates] == [f"Q4_1, decode 128: {name}" for name in (lm.OURS, lm.EXACT, lm.PEER)]
    assert (times.what, times.limit, times.bound) == ("Q4_1, decode 128: times llama.cpp", 1.4, "at least")
    assert times.value == pytest.approx(1 / lm.median_ratio(times.detail["rounds"], lm.OURS, lm.PEER))
    [server] = LlamaServer.started
    assert server.parameters.model.path == str(gguf_file)
    assert server.parameters.cpuparams.n_threads == server.parameters.cpuparams_batch.n_threads == lm.cores()
    ids = lm.prompt_of(LanguageModel.load(gguf_file).tokenizer.encode(lm.TEXT), 13)
    wanted = {"prompt": ids, "n_predict": 3, "temperature": 0.0, "ignore_eos": True, "cache_prompt": False}
    assert server.asked == [wanted] * 2


def test_another_ending_reads_only_the_ending_and_a_text_is_the_same_with_guesses(
    gguf_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))
    for name, value in {"ROUNDS": 2, "LONG": 31, "TOKENS": 23}.items():
        monkeypatch.setattr(lm, name, value)
    model = lm.LanguageModel.load(gguf_file)
    stepper, read = model.engines.stepper(), list[int]()
    step_last = stepper.step_last

    def counted(ids: Any, state: Any) -> Any:
        read.append(ids.size(1))
        return step_last(ids, state)

    monkeypatch.setattr(stepper, "step_last", counted)
    lm.repeated_prompt(model)
    assert read == [31, *[31, lm.ENDING] * 3]
    texts = list[Any]()
    generate = lm.generate
    monkeypatch.setattr(lm, "generate", lambda *parts: texts.append(generate(*parts)))
    lm.guessing(model, "a text", "abcabcabc", lm.Settings(max_tokens=23, temperature=0.0), 1.5)
    assert len(texts) == 6
    assert all(each[0][0].ids == texts[0][0][0].ids for each in texts)
    assert "rewind" not in vars(stepper)

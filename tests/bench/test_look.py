from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from tests.interop.originals import ORIGINALS

from clearhead.bench import look
from clearhead.bench.look import (
    ALL,
    ALONE,
    EXACT,
    HEADLESS,
    LENS,
    ONE,
    PLAIN,
    ROUNDED,
    TRANSFORMERS,
    Translator,
    against_peers,
    against_plain_forward,
    copy_gpt2,
    measured,
    memory_of_one_head,
    our_gpt,
    peers_of,
    run_model,
)
from clearhead.bench.peers import Gpt, transformers_gpt2
from clearhead.interop.importing import import_model
from clearhead.tasks.base.predictor import load

SMALL = Gpt(layers=2, dim=6, heads=3, block=11, batch=1, vocabulary=17)


def test_a_translator_is_measured_unseen_and_seen() -> None:
    size = Translator(layers=2, dim=6, heads=3, inner=5, vocabulary=13)
    found = list(against_plain_forward(size, length=7, rounds=1))
    assert [(figure.what, figure.limit) for figure in found] == [
        ("translator of 2 + 2 layers, 7 tokens: all weights and the answer / plain forward", 1.5),
        ("translator of 2 + 2 layers, 7 tokens: one head of one layer / plain forward", 1.1),
    ]
    assert set(found[0].detail["milliseconds"]) == {PLAIN, ALL, ONE}


def test_ours_computes_what_the_copied_gpt2_computes() -> None:
    torch.manual_seed(2)
    theirs, ours, ids = transformers_gpt2(SMALL, "eager").eval(), our_gpt(SMALL), torch.randint(1, 17, (2, 7))
    assert not torch.allclose(ours(ids), theirs(ids).logits, atol=1e-3)
    copy_gpt2(theirs, ours)
    torch.testing.assert_close(ours(ids), theirs(ids).logits)


def test_ours_is_measured_alone_without_peers() -> None:
    [taken] = measured(SMALL, 7, peers=False, rounds=1)
    assert set(taken) == {PLAIN, ALL, ALONE, ONE}


def test_peers_are_measured_where_they_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "has_lens", lambda: False)
    [taken] = measured(SMALL, 7, peers=True, rounds=1)
    assert set(taken) == {PLAIN, ALL, ALONE, ONE, TRANSFORMERS, HEADLESS}


def test_a_peer_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "has_lens", lambda: False)
    monkeypatch.setattr(look, "against_plain_forward", lambda *_, **__: [])
    monkeypatch.setattr(look, "memory_of_one_head", lambda _: "memory")
    monkeypatch.setattr(look, "LENGTHS", {})
    *_, last = look.run(peers=True)
    assert last.what == "packages that are not installed and not compared with: transformer-lens"
    assert list(look.run(peers=False)) == ["memory"]


def test_ours_is_compared_with_each_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "version", lambda _: "4.0")
    usual = {PLAIN: 10.0, ALL: 14.0, ALONE: 9.0, ONE: 10.5, TRANSFORMERS: 16.0, HEADLESS: 12.0, LENS: 20.0}
    slow = {name: 3 * each for name, each in usual.items()} | {PLAIN: 50.0}  # a moment in which one was disturbed
    found = {figure.what.split(": ")[1]: figure for figure in against_peers(SMALL, 1024, [usual, slow, usual])}
    assert found["one head of one layer / plain forward"].value == pytest.approx(1.05)
    answered, lens = found[f"{ALL} / {TRANSFORMERS}"], found[f"{ALL} / {LENS}"]
    assert (answered.value, answered.holds) == (pytest.approx(0.875), True)
    assert (lens.value, lens.holds) == (pytest.approx(0.7), None)
    alone, cached = found[f"{ALONE} / {HEADLESS}"], found[f"{ALONE} / {LENS}"]
    assert (alone.value, alone.holds) == (pytest.approx(0.75), True)
    assert (cached.value, cached.holds) == (pytest.approx(0.45), True)
    assert lens.detail["transformer-lens"] == "4.0"


def test_one_head_takes_one_matrix(commands_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(commands_folder / "python"))
    figure = memory_of_one_head(4096)
    assert 0.5 < figure.value < 2
    assert figure.detail["matrix MB"] == pytest.approx(67.1, abs=0.1)


def test_a_model_from_elsewhere_is_measured_beside_its_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look, "has_lens", lambda: False)
    ORIGINALS["llama"].save(tmp_path / "theirs")
    import_model(tmp_path / "theirs", tmp_path / "ours")
    found = list(run_model(str(tmp_path / "ours"), peers=False, length=13, generated=3, rounds=1))
    assert [figure.what for figure in found][-2:] == [
        "ours, 13 tokens: one head of one layer / plain forward",
        "ours, 3 tokens generated: one head of one layer / without looking",
    ]
    assert [figure.limit for figure in found][-2:] == [1.1, 1.1]
    network = load(tmp_path / "ours").network
    ids = torch.randint(5, 300, (1, 13))
    with torch.inference_mode():
        assert set(peers_of(str(tmp_path / "theirs"), network, ids)) == {TRANSFORMERS, HEADLESS}


def test_the_engine_of_quantised_weights_is_measured_too(gguf_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "has_lens", lambda: False)
    found = {figure.what: figure for figure in run_model(str(gguf_file), peers=False, length=13, generated=3, rounds=1)}
    assert {f"model, 13 tokens: {name}" for name in (PLAIN, ALL, ALONE, ONE, ROUNDED, EXACT)} < set(found)
    assert 0 < found["model: attention that rounding moves to other tokens"].value < 0.05
    usual = {
        PLAIN: 10.0,
        ALL: 14.0,
        ALONE: 9.0,
        ONE: 10.5,
        TRANSFORMERS: 16.0,
        HEADLESS: 12.0,
        ROUNDED: 4.0,
        EXACT: 6.0,
    }
    figures = {figure.what: figure for figure in look.compared("it", [usual])}
    assert figures[f"it: {EXACT} / {HEADLESS}"].holds is True
    assert f"it: {EXACT} / {LENS}" not in figures

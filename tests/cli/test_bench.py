"""`clearhead bench`: what it prints and writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from clearhead.bench import Suite
from clearhead.bench.measure import Measurement
from clearhead.cli.main import _run


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_suite: Suite, peers: bool) -> Iterator[Measurement]:
        yield Measurement("ours", 3.0, "ms")
        if peers:
            yield Measurement("ours / theirs", 0.5, "×", 0.25, bound="at least")
            yield Measurement("theirs / ours", 2.0, "×", 1.0)

    monkeypatch.setattr(Suite, "run", run)


def test_peers_are_measured_with_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["bench", "core", "--json"], debug=False) == 0
    assert [figure["what"] for figure in json.loads(capsys.readouterr().out)["figures"]] == ["ours"]
    assert _run(["bench", "core", "--peers", "--json"], debug=False) == 0
    verdicts = [figure["holds"] for figure in json.loads(capsys.readouterr().out)["figures"]]
    assert verdicts == [None, True, False]


def test_the_table_shows_the_limits(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["bench", "core", "--peers"], debug=False) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["ours", "3", "ms"] in lines
    assert ["ours", "/", "theirs", "0.5", "×", "≥", "0.25", "×", "holds"] in lines
    assert ["theirs", "/", "ours", "2", "×", "≤", "1", "×", "MISSED"] in lines


def test_the_results_can_be_written_to_a_file(tmp_path: Path) -> None:
    assert _run(["bench", "core", "--out", str(tmp_path / "core.json")], debug=False) == 0
    document = json.loads((tmp_path / "core.json").read_text(encoding="utf-8"))
    assert document["bench"] == "core"
    assert document["figures"][0]["value"] == 3.0


def test_a_missing_peer_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("clearhead.bench.find_spec", lambda _module: None)
    assert _run(["bench", "words", "--peers"], debug=False) == 2
    sentence = "bench words --peers compares with gensim, not installed here; pip install 'clearhead[peers]'"
    assert capsys.readouterr().err == f"clearhead: {sentence}\n"


def test_torch_is_not_measured_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = "the native library was built from other sources"
    monkeypatch.setattr("clearhead.engines.native.library.library_problem", lambda: problem)
    assert _run(["bench", "core", "--json"], debug=False) == 0
    assert f"note: torch is measured instead of native code: {problem}" in capsys.readouterr().err

"""`clearhead bench defaults` on a little data: what it writes, trains and compares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clearhead.bench import defaults
from clearhead.bench.defaults import (
    POINTS,
    Peer,
    Point,
    labelled,
    linear_tags,
    linear_texts,
    nanogpt,
    novel,
    pairs,
    trained,
    treebank,
)
from clearhead.data import Labelled, Pair, read
from clearhead.data.examples import Dataset
from clearhead.errors import RunError

SENTENCES = [Pair(f"a b {i}", f"c d {i}") for i in range(1500)]
TEXTS = [Labelled(f"{'good' if i % 2 else 'bad'}\tfilm {i}", "ab"[i % 2]) for i in range(50)]


def test_held_out_pairs_are_not_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults, "read", lambda *_, **__: Dataset("pairs", SENTENCES, [], ""))
    dataset = read(pairs("fr", 300)(tmp_path))
    assert (len(dataset.train), len(dataset.validation)) == (300, 1000)
    assert not {pair.source for pair in dataset.train} & {pair.source for pair in dataset.validation}


def test_labelled_texts_keep_their_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults, "read", lambda *_, **__: Dataset("labelled", TEXTS[:40], TEXTS[40:], ""))
    data = labelled("trec")(tmp_path)
    dataset = read(data)
    assert (len(dataset.train), dataset.validation[0].text) == (40, "bad film 40")
    monkeypatch.undo()
    assert linear_texts(data, 1) == 1.0


def test_a_treebank_gives_every_tenth_sentence_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gzip

    words = ("1\tthe\tthe\tDET\tDT", "2\tdog{}\tdog\tNOUN\tNN")
    rows = "".join("".join(word.format(i) + "\t_" * 5 + "\n" for word in words) + "\n" for i in range(41))
    (tmp_path / "t.conllu.gz").write_bytes(gzip.compress(rows.encode()))
    monkeypatch.setattr(defaults, "get", lambda _name: type("Found", (), {"path": tmp_path / "t.conllu.gz"}))
    (tmp_path / "data").mkdir()
    data = treebank(tmp_path / "data")
    dataset = read(data)
    assert (len(dataset.train), len(dataset.validation)) == (36, 5)
    assert linear_tags(data, 1) == 1.0


def test_a_novel_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "b.txt").write_bytes("café\n".encode("latin-1"))
    monkeypatch.setattr(defaults, "get", lambda _name: type("Found", (), {"path": tmp_path / "books"}))
    assert novel("b.txt")(tmp_path).read_text(encoding="utf-8") == "café\n"


def test_nanogpt_learns_for_the_same_time(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="needs clearhead[peers]")
    (tmp_path / "b.txt").write_text("the cat saw the dog\n" * 200, encoding="utf-8")
    bits = nanogpt(tmp_path / "b.txt", 0.02)
    assert 0 < bits < 4.5  # of 14 characters log2(14) = 3.8


def little(folder: Path) -> Path:
    rows = "".join(f"{'ab'[i % 2]}\t{'good' if i % 2 else 'bad'} film {i}\n" for i in range(60))
    (folder / "t.tsv").write_text("label\ttext\n" + rows, encoding="utf-8")
    return folder / "t.tsv"


def test_a_point_is_trained_by_the_command(tmp_path: Path) -> None:
    point = Point("little", "classify", little, 0.05, "accuracy", 10)
    found = trained(point, little(tmp_path), tmp_path / "run")
    assert 0 <= found["scores"]["accuracy"] <= 1
    assert found["minutes"] > 0
    with pytest.raises(RunError, match=r"classify --data .*no\.tsv .* failed: "):
        trained(point, tmp_path / "no.tsv", tmp_path / "other")


def test_scores_limits_times_and_peers_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {"scores": {"accuracy": 0.7, "bits per character": 1.6}, "minutes": 1.1}
    monkeypatch.setattr(defaults, "trained", lambda *_: found)
    points = (
        Point("texts", "classify", little, 1, "accuracy", 60, Peer("a peer", lambda *_: 0.9)),
        Point("a novel", "lm", little, 1, "bits per character", 1.65),
    )
    monkeypatch.setattr(defaults, "POINTS", points)
    score, time, peer, bits, _ = defaults.run(peers=True)
    assert (score.value, score.unit, score.holds, time.value, time.holds) == (70, "%", True, 1.1, True)
    assert (peer.value, peer.holds, bits.value, bits.holds, bits.bound) == (90, None, 1.6, True, "at most")
    assert len(list(defaults.run(peers=False))) == 4
    assert [point.task for point in POINTS].count("translate") == 4

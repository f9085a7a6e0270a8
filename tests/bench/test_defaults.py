"""`clearhead bench defaults` on a little data: what it writes, trains and compares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearhead.bench import defaults
from clearhead.bench.defaults import (
    POINTS,
    Data,
    Peer,
    Point,
    digits,
    labelled,
    linear_tags,
    linear_texts,
    nanogpt,
    novel,
    pairs,
    points,
    trained,
    treebank,
    write_files,
)
from clearhead.cli.main import _run
from clearhead.data import Labelled, Pair, Picture, read
from clearhead.data.examples import Dataset
from clearhead.errors import ConfigError, RunError

SENTENCES = [Pair(f"a b {i}", f"c d {i}") for i in range(1500)]
TEXTS = [Labelled(f"{'good' if i % 2 else 'bad'}\tfilm {i}", "ab"[i % 2]) for i in range(50)]


def test_held_out_pairs_are_not_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults, "read", lambda *_, **__: Dataset("pairs", SENTENCES, [], ""))
    data = pairs("fr", 300)(tmp_path)
    train, held_out = (read(path, validation=0).train for path in (data.train, data.held_out))
    assert (len(train), len(held_out)) == (300, 1000)
    assert not {pair.source for pair in train} & {pair.source for pair in held_out}
    assert len(read(data.train).validation) > 5  # training finds a validation part of its own


def test_labelled_texts_are_chosen_on_one_part_and_reported_on_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(defaults, "read", lambda *_, **__: Dataset("labelled", TEXTS[:40], TEXTS[40:], ""))
    data = labelled("trec")(tmp_path)
    dataset = read(data.train)
    parts = [{each.text for each in part} for part in (dataset.train, dataset.validation)]
    parts.append({each.text for each in read(data.held_out, validation=0).train})
    assert [len(part) for part in parts] == [38, 2, 10]
    assert len(set.union(*parts)) == 50
    assert "bad film 40" in parts[2]
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
    train, held_out = (read(path, validation=0).train for path in (data.train, data.held_out))
    assert (len(train), len(held_out)) == (36, 5)
    assert linear_tags(data, 1) == 1.0


def test_the_end_of_a_novel_is_held_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "b.txt").write_bytes(("café\n" * 40).encode("latin-1"))
    monkeypatch.setattr(defaults, "get", lambda _name: type("Found", (), {"path": tmp_path / "books"}))
    data = novel("b.txt")(tmp_path)
    assert data.train.read_text(encoding="utf-8") == "café\n" * 39
    assert data.held_out.read_text(encoding="utf-8") == "café\n"


def test_images_are_held_out_without_their_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = [np.frombuffer(number.to_bytes(2, "big") * 3, np.uint8).reshape(2, 3, 1) for number in range(12_000)]
    pictures = [Picture(image, str(i % 3)) for i, image in enumerate([*images, *images[:7]])]
    monkeypatch.setattr(defaults, "read", lambda *_, **__: Dataset("images", pictures, [], ""))
    data = digits(tmp_path)
    train, held_out = (read(path, validation=0).train for path in (data.train, data.held_out))
    assert len(held_out) == 10_000
    assert not {each.image.tobytes() for each in train} & {each.image.tobytes() for each in held_out}


def test_nanogpt_learns_for_the_same_time(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="needs clearhead[peers]")
    text = "the cat saw the dog\n"
    bits = nanogpt(write_files(tmp_path, ".txt", text * 200, text * 20), 0.02)
    assert 0 < bits < 4.5  # of 14 characters log2(14) = 3.8


def little(folder: Path) -> Data:
    rows = [f"{'ab'[i % 2]}\t{'good' if i % 2 else 'bad'} film {i}\n" for i in range(67)]
    return write_files(folder, ".tsv", *("label\ttext\n" + "".join(part) for part in (rows[:60], rows[60:])))


def test_a_point_is_trained_by_the_command(
    tmp_path: Path, commands_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(defaults.sys, "executable", str(commands_folder / "python"))
    point = Point("little", "classify", little, 0.02, "accuracy", 10)
    found = trained(point, little(tmp_path), tmp_path / "run")
    assert round(7 * found["scores"]["accuracy"], 6) in range(8)  # of the 7 texts that are held out
    assert round(20 * found["validation"]["accuracy"], 6) in range(21)  # of the 20 that training set aside
    assert found["minutes"] > 0
    with pytest.raises(RunError, match=r"classify --data .*no\.tsv .* failed: "):
        trained(point, Data(tmp_path / "no.tsv", tmp_path / "no.tsv"), tmp_path / "other")


def test_scores_limits_times_and_peers_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {"scores": {"accuracy": 0.7, "bits per character": 1.6}, "minutes": 1.1}
    monkeypatch.setattr(defaults, "trained", lambda *_: found)
    points = (
        Point("texts", "classify", little, 1, "accuracy", 60, Peer("a peer", lambda *_: 0.9)),
        Point("a novel", "lm", little, 1, "bits per character", 1.65),
    )
    monkeypatch.setattr(defaults, "POINTS", points)
    score, time, peer, bits, _ = defaults.run(peers=True)
    assert (score.value, score.unit, score.holds) == (70, "%", True)
    assert (round(time.value, 6), time.unit, time.holds) == (10, "%", True)
    assert (peer.value, peer.holds, bits.value, bits.holds, bits.bound) == (90, None, 1.6, True, "at most")
    found["minutes"] = 0.7
    _, early, _, _ = defaults.run(peers=False)
    assert (round(early.value, 6), early.holds) == (30, False)
    assert {point.task for point in POINTS} == {"translate", "lm", "classify", "tag", "vision"}


def test_only_the_points_with_this_beginning_are_measured() -> None:
    assert [point.name for point in points("en-de, 10")] == ["en-de, 10,000 pairs", "en-de, 100,000 pairs"]
    assert [point.name for point in points("trec")] == ["TREC"]
    assert points("") == list(POINTS)
    with pytest.raises(ConfigError, match=r"^no point of bench defaults begins with 'TRECK'; did you mean TREC\?$"):
        next(defaults.run(peers=False, only="TRECK"))


def test_only_defaults_has_points(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["bench", "core", "--only", "TREC"], debug=False) == 2
    assert capsys.readouterr().err == "clearhead: --only is an option of bench defaults, not of bench core\n"

"""Every verb that takes a text takes several, a file of lines, and standard input."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clearhead.cli.main import _run
from clearhead.tasks import default_config, override_config
from clearhead.train.start import run_training

TEXTS = ["a good film", "a dull film", "good good", ""]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    words = ["model.dim=16", "model.heads=2", "model.layers=1", "train.max_steps=3"]
    (folder / "c.csv").write_text("text,label\n" + "".join(f"film {i},{'ab'[i % 2]}\n" for i in range(40)))
    (folder / "t.conll").write_text("".join(f"a\tD\nfilm{i}\tN\n\n" for i in range(40)))
    (folder / "p.tsv").write_text("".join(f"a {i}\tb {i}\n" for i in range(40)))
    for task, data in (("classify", "c.csv"), ("tag", "t.conll"), ("translate", "p.tsv")):
        config = override_config(default_config(task), [f"data.path={folder / data}", *words])
        run_training(config, folder / task, "test")
    return folder


@pytest.fixture
def say(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    monkeypatch.chdir(tmp_path)

    def run(verb: str, *words: str, stdin: str = "") -> str:
        model = "classify" if verb in ("predict", "embed") else verb
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin.encode()), isatty=lambda: False))
        assert _run([verb, str(runs / model), *words], debug=True) == 0
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("verb", ["classify", "tag", "translate", "predict", "embed"])
def test_arguments_a_file_and_standard_input_are_the_same(verb: str, say: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS[:3]) + "\n", encoding="utf-8")
    several = say(verb, *TEXTS[:3])
    assert several.strip()
    assert say(verb, stdin="\n".join(TEXTS[:3]) + "\n") == several
    assert say(verb, "-", stdin="\n".join(TEXTS[:3]) + "\n") == several
    assert say(verb, "texts.txt") == several
    for number, text in enumerate(TEXTS[:3]):
        (tmp_path / f"{number}.txt").write_text(text + "\n", encoding="utf-8")
    assert say(verb, "0.txt", "1.txt", "2.txt") == several
    found: Any = json.loads(say(verb, "--json", *TEXTS[:3]))
    assert len(found) == 3
    if verb not in ("translate", "embed"):  # which give a list of one
        assert isinstance(json.loads(say(verb, "--json", TEXTS[0])), dict)


def test_one_text_has_the_details(say: Callable[..., str]) -> None:
    label, *probabilities = say("classify", "a good film").splitlines()
    assert label in "ab"
    assert len(probabilities) == 2
    lines = say("classify", "a good film", "a dull film").splitlines()
    assert [len(line.split("\t")) for line in lines] == [2, 2]
    assert say("tag", "a film", "a b c").count("\n") == 2 + 1 + 3 + 1


@pytest.mark.parametrize("verb", ["classify", "tag", "translate"])
def test_a_table_is_not_a_text(
    verb: str, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("file.tsv", "file.NDJSON", "file.json", "file.csv.gz"):
        (tmp_path / name).write_text("a\tb\n", encoding="utf-8")
        assert _run([verb, str(runs / verb), name], debug=False) == 2
        assert f"{name}: is a table; give one text on each line, for instance by cut -f1" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["classify", "tag", "translate", "predict", "embed"])
@pytest.mark.parametrize(
    ("items", "refused"),
    [
        (["missing.txt"], "missing.txt: no such file; give files or texts, or pass the text on standard input"),
        (["texts.txt", "data/missing.TXT.gz"], "data/missing.TXT.gz: no such file; "),
        (["texts.txt", "a good film"], "a good film: is a text beside the name of a file; "),
    ],
)
def test_the_name_of_a_file_is_not_a_text(
    verb: str,
    items: list[str],
    refused: str,
    runs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("a dull film\n", encoding="utf-8")
    assert _run([verb, str(runs / (verb if verb in ("tag", "translate") else "classify")), *items], debug=False) == 2
    printed = capsys.readouterr()
    assert refused in printed.err
    assert printed.out == ""


def test_a_text_may_end_with_a_dot_and_a_word(say: Callable[..., str]) -> None:
    assert say("tag", "see notes.txt", "film.") == say("tag", stdin="see notes.txt\nfilm.\n")


def test_images_are_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np
    from PIL import Image

    from clearhead import train

    shades = [(np.full((9, 13, 3), 5 * i, np.uint8), "dark" if i < 20 else "light") for i in range(41)]
    small = {"dim": 16, "heads": 2, "layers": 1, "max_steps": 2, "progress": False}
    train("caption", data=shades, out=tmp_path / "run", **small)
    train("vision", data=shades, out=tmp_path / "eyes", **small)
    for name in ("one.png", "two.png"):
        Image.fromarray(shades[7][0]).save(tmp_path / name)
    images = [str(tmp_path / name) for name in ("one.png", "two.png")]
    assert _run(["caption", str(tmp_path / "run"), *images], debug=True) == 0
    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == images
    assert _run(["caption", str(tmp_path / "run"), images[0]], debug=True) == 0
    one = capsys.readouterr().out.rstrip("\n")
    assert _run(["caption", str(tmp_path / "run"), "--json", *images], debug=True) == 0
    assert json.loads(capsys.readouterr().out)[1] == {"image": images[1], "caption": one}
    assert _run(["classify", str(tmp_path / "eyes"), images[0]], debug=True) == 0
    assert capsys.readouterr().out.count("%") == 2  # the path of an image is not a file of texts


def test_generate_reads_its_prompt_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"ROMEO:\nAy\n"), isatty=lambda: False))
    assert _run(["generate", "shakespeare", "-", "--max-tokens", "5"], debug=True) == 0
    assert capsys.readouterr().out.startswith("ROMEO:\nAy")

"""README.md and docs/results.md hold the figures of the cards and benchmarks, as the tool writes them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .pages import ROOT

TOOL = ROOT / "tools" / "make_results.py"


def test_the_tables_are_what_the_tool_writes() -> None:
    done = subprocess.run([sys.executable, TOOL, "--check"], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A repository with one card, the benchmarks that README.md shows, and its markers."""
    for name in ("src/clearhead/bundled", "recipes/cards", "benchmarks", "tools"):
        for file in (ROOT / name).rglob("*"):
            if file.suffix in (".md", ".json") or file == TOOL:
                target = tmp_path / file.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read_bytes())
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(
        "<!-- results -->\nold\n<!-- end of results -->\nkept\n<!-- speed -->\n<!-- end of speed -->\n",
        encoding="utf-8",
    )
    return tmp_path


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    tool = folder / "tools" / "make_results.py"
    done = subprocess.run([sys.executable, tool, *arguments], check=False, capture_output=True, text=True)
    return done.returncode, done.stderr


def test_check_names_the_pages_that_are_old(copy: Path) -> None:
    assert run(copy, "--check") == (1, "run tools/make_results.py: README.md, results.md\n")
    assert run(copy) == (0, "")
    assert run(copy, "--check") == (0, "")
    readme = (copy / "README.md").read_text(encoding="utf-8")
    assert "old" not in readme
    assert "\n<!-- end of results -->\nkept\n" in readme


def test_a_figure_comes_from_its_file(copy: Path) -> None:
    run(copy)
    card = copy / "recipes" / "cards" / "multi30k.md"
    card.write_text(card.read_text(encoding="utf-8").replace("| 40.59 |", "| 41.23 |"), encoding="utf-8")
    serve = copy / "benchmarks" / "serve.json"
    document = json.loads(serve.read_text(encoding="utf-8"))
    for figure in document["figures"]:
        if figure["what"] == "64 clients: answers a second":
            figure["value"] = 777.6
    serve.write_text(json.dumps(document), encoding="utf-8")
    assert run(copy) == (0, "")
    for page in ("README.md", "docs/results.md"):
        text = (copy / page).read_text(encoding="utf-8")
        assert "BLEU 41.23" in text
        assert "778/s" in text


def test_a_renamed_figure_is_named(copy: Path) -> None:
    serve = copy / "benchmarks" / "serve.json"
    serve.write_text(serve.read_text(encoding="utf-8").replace("64 clients: answers", "64: answers"), encoding="utf-8")
    code, said = run(copy)
    assert code == 1
    assert said.startswith("benchmarks/serve.json has no figure '64 clients: answers a second'")

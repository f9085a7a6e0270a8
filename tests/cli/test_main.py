"""The command itself: its help, its exit codes, its one sentence for every mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from clearhead import __version__, tasks
from clearhead.cli.main import VERBS, Verb, _run
from clearhead.data import builtin
from clearhead.errors import DataError


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["--version"], debug=False) == 0
    assert capsys.readouterr().out == f"clearhead {__version__}\n"
    assert _run(["--help"], debug=False) == 0
    said = capsys.readouterr().out
    assert all(verb in said for verb in ("config", "data", "demo", "bench"))
    assert "..." not in said.partition("Commands:")[2]


@pytest.mark.parametrize("name", VERBS)
def test_the_help_has_the_first_sentence_of_each_verb(name: str) -> None:
    verb = Verb(name, help=VERBS[name][1]).load()
    assert verb.name == name
    assert verb.get_short_help_str(100) == VERBS[name][1]


def test_the_help_reads_the_file_of_no_verb() -> None:
    show = "print([name for name in sys.modules if name.startswith('clearhead.cli.') and name != 'clearhead.cli.main'])"
    code = f"import sys; from clearhead.cli.main import _run; _run(['--help'], False); {show}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["trian"], "clearhead: no such command 'trian'"),
        (["config", "show", "translte"], "clearhead: unknown task translte; did you mean translate?\n"),
        (["config", "show", "lm", "--size", "big"], "clearhead: unknown size big; choose from: base, small, tiny\n"),
        (["config", "show", "lm", "model.dimm=3"], "clearhead: unknown setting model.dimm; did you mean model.dim?\n"),
        (["config", "show"], "clearhead: missing argument 'name'; see clearhead config show --help\n"),
        (["config", "show", "none.yaml"], "clearhead: cannot read none.yaml: No such file or directory\n"),
        (["demo", "--colour"], "clearhead: no such option: --colour"),
        (["bench", "cor"], "clearhead: unknown benchmark cor; did you mean core?\n"),
        (["bench", "core", "--out", "no/x.json"], "clearhead: cannot write no/x.json: there is no folder no\n"),
        (["demo", "--steps", "--out", "no/x.svg"], "clearhead: cannot write no/x.svg: No such file or directory\n"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(words, debug=False) == 2
    said = capsys.readouterr()
    assert said.err.startswith(sentence)
    assert said.err.count("\n") == 1


def test_with_json_the_sentence_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["config", "show", "lmm", "--json"], debug=False) == 2
    assert json.loads(capsys.readouterr().err) == {"error": "unknown task lmm; did you mean lm?"}


def test_a_failure_of_ours_is_exit_code_1_and_debug_shows_where(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("oops")

    monkeypatch.setattr(tasks, "default_config", broken)
    assert _run(["config", "show", "lm"], debug=False) == 1
    assert capsys.readouterr().err == "clearhead: unexpected RuntimeError: oops (--debug shows where)\n"
    assert _run(["config", "show", "lm"], debug=True) == 1
    assert "Traceback" in capsys.readouterr().err


def test_debug_shows_the_traceback_of_a_mistake_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def mistaken(*_: object) -> None:
        raise DataError("is empty", path="x")

    monkeypatch.setattr(tasks, "default_config", mistaken)
    assert _run(["config", "show", "lm"], debug=True) == 2
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert said.endswith("clearhead: x: is empty\n")


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tasks, "default_config", interrupted)
    assert _run(["config", "show", "lm"], debug=False) == 130
    assert capsys.readouterr().err == "clearhead: stopped\n"


def test_config_show_prints_yaml_that_can_be_used_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert _run(["config", "show", "lm", "model.dim=96", "--size", "tiny"], debug=False) == 0
    said = capsys.readouterr().out
    assert tasks.parse_config(said).model.dim == 96
    assert "# alignment score between a query and a key" in said
    (tmp_path / "r.yaml").write_text(said, encoding="utf-8")
    assert _run(["config", "show", str(tmp_path / "r.yaml"), "--json"], debug=False) == 0
    assert json.loads(capsys.readouterr().out) == yaml.safe_load(said)


def test_demo_shows_the_steps(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["demo", "--steps"], debug=False) == 0
    said = capsys.readouterr().out
    assert '"it" looked mostly at "animal"' in said
    assert max(len(line.rstrip()) for line in said.splitlines()) <= 80


def test_demo_saves_a_picture_that_needs_no_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["demo", "--steps", "--out", str(tmp_path / "demo.svg")], debug=False) == 0
    picture = (tmp_path / "demo.svg").read_text(encoding="utf-8")
    assert "animal" in picture
    assert "url(http" not in picture


def test_demo_as_json_has_rows_that_sum_to_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["demo", "--steps", "--json"], debug=False) == 0
    said = json.loads(capsys.readouterr().out)
    assert [step["name"] for step in said["steps"]] == ["score", "scale", "softmax", "weight", "sum"]
    assert all(sum(row) == pytest.approx(1) for row in said["weights"])


@pytest.fixture
def short_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a few of the pairs, for two steps."""
    demo, whole = import_module("clearhead.cli.demo"), builtin.examples
    monkeypatch.setattr(demo, "SETTINGS", (*demo.SETTINGS, "tokenizer.size=300", "model.dim=16", "train.max_steps=2"))
    monkeypatch.setattr(builtin, "examples", lambda kind: whole(kind)[::97])


@pytest.mark.usefixtures("short_demo")
def test_demo_trains_translates_and_says_what_to_type_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert _run(["demo", "--out", str(run)], debug=True) == 0
    said = capsys.readouterr().out
    assert "% of the held-out sentences are translated exactly as in the reference." in said
    assert "\n  we are eating bread\n  → " in said
    assert f'  clearhead translate {run} "the little girl is reading a book"\n' in said
    assert "cross-attention, last layer" in (run / "cross-attention.svg").read_text(encoding="utf-8")
    assert _run(["translate", str(run), "we are eating bread"], debug=True) == 0
    assert f"  → {capsys.readouterr().out}" in said


@pytest.mark.usefixtures("short_demo")
def test_demo_as_json_has_scores_and_translations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _run(["demo", "--json"], debug=True) == 0
    said = json.loads(capsys.readouterr().out)
    assert Path(said["run"]).parent == Path("runs")
    assert {"BLEU", "exact match"} <= said["scores"].keys()
    assert len(said["translations"]) == 3
    assert Path(said["figure"]).is_file()


def test_the_module_is_the_command_and_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m clearhead config show lm | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.startswith("task: lm")

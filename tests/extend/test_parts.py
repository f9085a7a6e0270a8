"""A position scheme and a score, each in one file outside the package: trained, used and looked into from the shell."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from clearhead.registry import PLUGINS
from clearhead.run import Sizes
from clearhead.tasks import default_config, override_config
from clearhead.tasks.base.network import build_network

HERE = Path(__file__).parent
PARTS = {"position_plugin.py": "model.positions=kerple", "score_plugin.py": "model.score=euclidean"}
PAIRS = "".join(f"{a} {b}\t{b} {a}\n" for a in "abcdefgh" for b in "ijklmnop")
SMALL = ["model.dim=16", "model.layers=1", "tokenizer.kind=char", "data.batch_tokens=300", "train.max_steps=3"]


class Shell:
    """`clearhead` in a folder, with the plugin files of $CLEARHEAD_PLUGINS."""

    def __init__(self, folder: Path, plugin: str, command: Path):
        self.folder, self.plugin, self.command = folder, plugin, command

    def run(self, *words: str, with_plugin: bool = True) -> subprocess.CompletedProcess[str]:
        files = str(HERE / self.plugin) if with_plugin else ""
        return subprocess.run(
            [self.command, *words],
            cwd=self.folder,
            env={**os.environ, PLUGINS: files, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )

    def json(self, *words: str) -> Any:
        done = self.run(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module", params=PARTS)
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, commands_folder: Path) -> Shell:
    """A shell in a folder with a translator that was trained with the part."""
    made = Shell(tmp_path_factory.mktemp("outside"), request.param, commands_folder / "clearhead")
    (made.folder / "pairs.tsv").write_text(PAIRS, encoding="utf-8")
    part = PARTS[request.param]
    made.json("train", "translate", "--data", "pairs.tsv", "--size", "tiny", "--out", "run", part, *SMALL)
    return made


def test_it_translates(shell: Shell) -> None:
    (found,) = shell.json("translate", "run", "a i", "--beams", "2")
    assert isinstance(found["text"], str)


def test_its_equation_is_a_step(shell: Shell) -> None:
    found = shell.json("look", "run", "a i", "--view", "steps", "--kind", "encoder.self")
    steps = {step["name"]: step for step in found["steps"]}
    if shell.plugin == "score_plugin.py":
        assert steps["score"]["equation"] == "s_j = -τ |q - k_j|²"
        assert steps["score"]["file"] == str(HERE / "score_plugin.py")
    else:
        assert "position" in steps


def test_its_positions_are_shown(shell: Shell) -> None:
    done = shell.run("look", "run", "--view", "positions", "--out", "positions.svg")
    assert done.returncode == 0, done.stderr
    found = shell.json("look", "run", "--view", "positions")
    assert found["scheme"] == ("kerple" if shell.plugin == "position_plugin.py" else "rotary")


def test_a_run_says_which_name_is_missing_without_the_file(shell: Shell) -> None:
    done = shell.run("translate", "run", "a i", with_plugin=False)
    assert done.returncode == 2
    kind = "position kerple" if shell.plugin == "position_plugin.py" else "score euclidean"
    assert f"unknown {kind}; " in done.stderr


@pytest.mark.parametrize(("plugin", "setting"), PARTS.items())
def test_cached_generation_equals_one_pass_and_no_native_code_is_used(
    plugin: str, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clearhead.engines.native.layout import unsupported_parts

    monkeypatch.setenv(PLUGINS, str(HERE / plugin))
    config = override_config(default_config("lm", "tiny"), ["model.dim=12", "model.positions=alibi", setting])
    network = build_network(config, Sizes(vocabulary=11)).double().eval()
    assert list(unsupported_parts(network.stack))
    ids, state = torch.randint(11, (3, 7)), network.start()
    with torch.no_grad():
        first, state = network.step(ids[:, :4], state)
        rest, _ = network.step(ids[:, 4:], state)
        assert_close(torch.cat((first, rest), dim=1), network(ids))

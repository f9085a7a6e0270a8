"""An export format in one file outside the package is found by its name, by the command too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clearhead
from clearhead.cli.main import main
from clearhead.errors import ConfigError
from clearhead.interop.exporting import export

PLUGIN = Path(__file__).parent / "export_plugin.py"


@pytest.fixture(autouse=True)
def plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARHEAD_PLUGINS", str(PLUGIN))


def test_the_command_writes_it(tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["export", "npz", "invented", "--out", str(tmp_path / "out"), "--quantise", "half", "--json"])
    assert ended.value.code == 0
    assert set(json.loads(capsys.readouterr().out)["files"]) == {"README.md", "weights.npz"}
    own = clearhead.load("invented").network.state_dict()
    with np.load(tmp_path / "out" / "weights.npz") as written:
        assert set(written) == set(own)
        for name, weight in own.items():
            np.testing.assert_array_equal(written[name], weight.numpy().astype(np.float16))


def test_what_it_refuses_is_one_sentence_and_exit_code_2(tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["export", "npz", "words", "--out", str(tmp_path / "out")])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "clearhead: words has one table, for which there are better formats\n"
    assert not (tmp_path / "out").exists()
    with pytest.raises(ConfigError, match="--quantise Q8_0 is not known to the format npz; choose from: half"):
        export("npz", "invented", tmp_path / "out", "Q8_0")

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clearhead.config import override
from clearhead.errors import ConfigError
from clearhead.interop.export.base.hf_form import TARGETS
from clearhead.interop.exporting import export
from clearhead.tasks import default_config
from clearhead.train.presets import PRESETS, preset_settings

CASES = [(name, task) for name, tasks in PRESETS.items() for task in tasks]


@pytest.mark.parametrize(("name", "task"), CASES)
def test_every_preset_can_be_exported(name: str, task: str) -> None:
    config = default_config(task)
    settings = preset_settings(name, task)
    model = override(config, settings).model
    [target] = [each for each in TARGETS if each.preset == name and task in each.tasks and not each.obstacles(model)]
    assert target.preset == name


def test_unknown_presets_and_wrong_tasks() -> None:
    with pytest.raises(ConfigError, match="unknown preset lama; did you mean llama"):
        preset_settings("lama", "lm")
    with pytest.raises(ConfigError, match="the preset vit is for vision, not for lm"):
        preset_settings("vit", "lm")


def test_train_with_a_preset_and_export(tmp_path: Path, capsys: Any) -> None:
    from clearhead.cli.main import main

    book = tmp_path / "book.txt"
    book.write_text("A cat sat on a mat. A dog sat on a log, and a frog on a bog.\n" * 90, encoding="utf-8")
    run = tmp_path / "run"
    small = ["model.dim=32", "model.heads=2", "model.layers=1", "model.length=32", "tokenizer.size=290"]
    with pytest.raises(SystemExit) as ended:
        main(["train", "lm", "--preset", "llama", "--data", str(book), "--out", str(run), *small, "train.max_steps=2"])
    assert ended.value.code == 0, capsys.readouterr().err
    pytest.importorskip("gguf")
    assert export("gguf", run, tmp_path / "gguf", "Q8_0").files["model.gguf"] > 10_000
    with pytest.raises(SystemExit) as ended:
        main(["export", "hf", str(run), "--out", str(tmp_path / "hf"), "--json"])
    assert ended.value.code == 0
    assert (tmp_path / "hf" / "config.json").is_file()

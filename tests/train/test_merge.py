"""The mean of two trainings of one network is a model like any other; other pairs of models are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import clearhead
from clearhead.cli.main import _run
from clearhead.errors import ConfigError, RunError
from clearhead.run import Run
from clearhead.tasks import run_config
from clearhead.tasks.base.network import load_weights
from clearhead.train.merge import merge

PAIRS = [(f"a {a} {b}", f"{b} {a} a") for a in "bcdefg" for b in "hijklm"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def trained(out: str, data: Any = PAIRS, **settings: Any) -> None:
    shape = {"model.dim": 12, "model.heads": 2, "model.layers": 1, "model.inner": 13, "tokenizer.size": 40}
    steps = {"train.max_steps": 3, "train.evaluations": 1, "data.validation": 0.2, "train.device": "cpu"}
    clearhead.train("translate", data=data, out=out, progress=False, **{**shape, **steps, **settings})


def weights_of(run: str) -> dict[str, Tensor]:
    return load_weights(Run(Path(run)), run_config(Run(Path(run))))[0]


def test_the_mean_of_two_trainings() -> None:
    trained("one")
    trained("more", **{"train.start_from": "one", "train.learning_rate": 0.02})
    assert _run(["merge", "more", "--with", "one", "--share", "0.7", "--out", "between"], debug=True) == 0
    one, more, between = map(weights_of, ("one", "more", "between"))
    assert between.keys() == more.keys()
    assert any(not torch.equal(one[name], more[name]) for name in one)
    for name, tensor in between.items():
        torch.testing.assert_close(tensor, 0.3 * one[name] + 0.7 * more[name], rtol=1e-6, atol=1e-7)
    assert clearhead.load("between").translate("a b h") is not None
    for share, same in ((1.0, more), (0.0, one)):
        merge(Path("more"), Path(f"all-{share}"), Path("one"), share)
        assert all(torch.equal(tensor, same[name]) for name, tensor in weights_of(f"all-{share}").items())


def test_what_cannot_be_averaged_is_one_sentence() -> None:
    trained("one")
    trained("wider", **{"model.inner": 17})
    trained("other", [(source.upper(), target) for source, target in PAIRS])
    with pytest.raises(RunError, match=r"^one and wider are different networks: .*inner.* is \(13,.*\) and \(17,"):
        merge(Path("one"), Path("new"), Path("wider"))
    with pytest.raises(RunError, match=r"^one and other have different tokenizers; only trainings with the same"):
        merge(Path("one"), Path("new"), Path("other"))
    with pytest.raises(ConfigError, match=r"^--share 1\.5: it is the part of one in the mean, from 0 to 1"):
        merge(Path("one"), Path("new"), Path("one"), 1.5)
    assert not Path("new").exists()

"""Where a captioner looks while it writes each word."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

import clearhead
from clearhead.data import builtin
from clearhead.errors import ProbeError
from clearhead.look.view import show
from clearhead.tasks import default_config, override_config
from clearhead.tasks.caption import Captioner
from clearhead.train.start import run_training

SMALL = ["model.dim=16", "model.heads=2", "model.layers=2", "train.max_steps=2", "data.batch_tokens=600"]


@pytest.fixture(scope="module")
def captioner(tmp_path_factory: pytest.TempPathFactory) -> Captioner:
    whole, out = builtin.examples, tmp_path_factory.mktemp("caption") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builtin, "examples", lambda kind: whole(kind)[::97])
        run_training(override_config(default_config("caption", "tiny"), SMALL), out, "test")
    model = clearhead.load(out)
    assert isinstance(model, Captioner)
    return model


def test_each_word_has_its_share_of_every_patch(captioner: Captioner, tmp_path: Path) -> None:
    image = builtin.examples("captions")[0].image
    look = captioner.look(image)
    view, seen = show(captioner, "overlay", item=image), look.attention["decoder.cross"]
    assert look.grid is not None
    rows, columns = look.grid
    shares = seen.weights[1].mean(0)[:, -rows * columns :]
    wanted = (shares / shares.sum(-1, keepdim=True)).view(-1, rows, columns)
    assert view.words == seen.rows
    assert_close(view.maps, wanted)
    assert_close(view.maps.sum((1, 2)), torch.ones(len(seen.rows)))
    one = show(captioner, "overlay", item=image, layer=0, head=1, query=0)
    first = seen.weights[0][1, 0, -rows * columns :]
    assert_close(one.maps[0], (first / first.sum()).view(rows, columns))
    assert one.words == seen.rows[:1]
    assert one.to_json()["words"] == seen.rows[:1]
    assert one.save(tmp_path / "words.svg").read_text(encoding="utf-8").count("<image") >= 2


def test_a_model_that_does_not_write_about_images_is_refused() -> None:
    with pytest.raises(ProbeError, match="en-es does not write about an image by cross-attention; look at a captioner"):
        clearhead.load("en-es").look("a red car").view("overlay")

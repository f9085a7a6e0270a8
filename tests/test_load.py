"""`clearhead.load`: a run directory, or the name of a model that comes with the package."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

import clearhead
from clearhead import run as runs
from clearhead.errors import RunError
from clearhead.run import ModelMeta, Run, Sizes
from clearhead.tasks import default_config, override_config, run_config
from clearhead.tasks.base.network import build_network, save_weights
from clearhead.text import Tokenizer


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that comes with word vectors, and an empty place to work in."""
    monkeypatch.setattr(runs, "BUNDLED", tmp_path / "package")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return write_vectors(tmp_path / "package" / "words", dim=3).parent


def write_vectors(path: Path, dim: int) -> Path:
    run = Run.create(path, override_config(default_config("words"), [f"model.dim={dim}"]))
    vocabulary = Tokenizer.train("word", ["king queen man woman"], lowercase=True)
    vocabulary.save(path / "tokenizer.json")
    sizes = Sizes(vocabulary=len(vocabulary))
    save_weights(run, run_config(run), build_network(run_config(run), sizes).state_dict(), ModelMeta(sizes), half=True)
    return path


def test_a_model_is_loaded_by_its_name(package: Path) -> None:
    model = clearhead.load("words")
    assert model.run.path == package / "words"
    assert [word for word, _ in model.neighbours("king", 3, "dot")] == [
        word for word, _ in clearhead.load(package / "words").neighbours("king", 3, "dot")
    ]
    assert model.network.vectors.shape[1] == 3
    assert model.network.vectors.dtype.itemsize == 4  # float16 in the file, float32 in use


@pytest.mark.usefixtures("package")
def test_a_directory_comes_before_a_name() -> None:
    write_vectors(Path("words"), dim=5)
    assert clearhead.load("words").network.vectors.shape[1] == 5


@pytest.mark.usefixtures("package")
def test_a_folder_that_is_no_run_and_an_unknown_name_are_refused() -> None:
    Path("data").mkdir()
    with pytest.raises(RunError, match=r"data is not a run directory: it has no config\.yaml"):
        clearhead.load("data")
    with pytest.raises(RunError, match=r"no such run directory or model: wrds; did you mean words\? `clearhead mod"):
        clearhead.load("wrds")


COLLECTOR = """
import gc, clearhead
collections = []
gc.collect()
gc.callbacks.append(lambda phase, info: collections.append(phase))
with clearhead._without_garbage_collection():
    kept = [[each] for each in range(10_000)]
assert not collections and gc.isenabled() and not gc.get_freeze_count()
assert any(each is kept for each in gc.get_objects(generation=2))

try:
    with clearhead._without_garbage_collection():
        raise KeyError
except KeyError:
    assert gc.isenabled()

gc.freeze()
frozen = gc.get_freeze_count()
with clearhead._without_garbage_collection():
    pass
assert gc.get_freeze_count() > frozen / 2
gc.get_freeze_count = None  # it takes long, and the answer is known
with clearhead._without_garbage_collection():
    pass

gc.disable()
with clearhead._without_garbage_collection():
    pass
assert not gc.isenabled()
"""


def test_loading_collects_no_garbage_and_leaves_the_collector_as_it_was() -> None:
    done = subprocess.run([sys.executable, "-c", COLLECTOR], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_loading_is_without_the_collector(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enabled = []
    monkeypatch.setattr(runs.Run, "open", lambda _path: enabled.append(gc.isenabled()))
    with pytest.raises(AttributeError):  # of a run that is None
        clearhead.load("words")
    assert enabled == [False]
    assert gc.isenabled()

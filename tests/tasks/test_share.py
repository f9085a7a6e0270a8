"""An evaluation that three processes share gives the loss and the scores of one; here the processes are threads."""

from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from clearhead.data.batches import Batches
from clearhead.data.windows import Windows, write_tokens
from clearhead.errors import DataError
from clearhead.tasks import TASKS, default_config, override_config
from clearhead.tasks.base.network import build_network
from clearhead.tasks.base.share import ALONE, Share
from clearhead.tasks.base.task import Evaluation, Task, Workspace
from clearhead.text import Tokenizer

SMALL = {
    "translate": ["data.path=pairs.tsv", "data.validation=0.4", "tokenizer.size=60", "data.batch_tokens=100"],
    "lm": ["data.path=builtin", "model.length=61", "tokenizer.size=300", "data.batch_tokens=2000"],
    "masked_lm": ["data.path=builtin", "model.length=61", "tokenizer.size=300", "data.batch_tokens=2000"],
    "classify": ["data.path=builtin", "tokenizer.size=300", "data.batch_tokens=500"],
    "tag": ["data.path=builtin", "tokenizer.size=300", "data.batch_tokens=500"],
    "vision": ["data.path=builtin", "model.patch=4"],
    "caption": ["data.path=builtin", "model.patch=8", "data.batch_tokens=2000"],
}


class ThreadShare(Share):
    """One of several threads that meet at every call."""

    def __init__(self, rank: int, barrier: threading.Barrier, box: dict[int, Any]):
        self.rank, self.world_size, self.barrier, self.box = rank, barrier.parties, barrier, box

    def gather(self, mine: Any) -> list[Any]:
        self.box[self.rank] = mine
        self.barrier.wait(60)
        gathered = [self.box[rank] for rank in range(self.world_size)]
        self.barrier.wait(60)
        return gathered

    def all_reduce(self, tensor: Tensor) -> Tensor:
        return tensor.copy_(torch.stack(self.gather(tensor.clone())).sum(0))


def shared_evaluations(task: Task[Any], model: torch.nn.Module, processes: int) -> list[Evaluation]:
    barrier, box = threading.Barrier(processes), {}

    def evaluate(rank: int) -> Evaluation:
        mine = copy.copy(task)
        mine.share = ThreadShare(rank, barrier, box)
        return mine.evaluate(model, torch.device("cpu"))

    with ThreadPoolExecutor(processes) as pool:
        return list(pool.map(evaluate, range(processes)))


@pytest.mark.parametrize("name", SMALL)
def test_three_processes_score_as_one(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pairs = "".join(f"{a} {b} {a}\t{b} {a}\n" for a in "abcdefgh" for b in "ijklmnop")
    Path("pairs.tsv").write_text(pairs, encoding="utf-8")
    small = ["model.dim=12", "model.heads=2", "model.layers=1", *SMALL[name]]
    config = override_config(default_config(name, "tiny"), small)
    task = TASKS[name](config, Workspace(tmp_path))
    task.max_scored = 17
    torch.manual_seed(1)
    model = build_network(config, task.meta.sizes).eval()
    alone = task.evaluate(model, torch.device("cpu"))
    for found in shared_evaluations(task, model, 3):
        assert found.loss == pytest.approx(alone.loss, rel=1e-6)
        assert [score.name for score in found.scores] == [score.name for score in alone.scores]
        values = [score.value for score in found.scores]
        assert values == pytest.approx([score.value for score in alone.scores], rel=1e-6)
        assert found.sample == alone.sample


def test_more_processes_than_examples_and_no_example_at_all(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"{a} {b}\t{b} {a}\n" for a in "abc" for b in "de"), encoding="utf-8")
    words = [f"data.path={tmp_path / 'pairs.tsv'}", "data.validation=0.3", "tokenizer.size=60", "model.dim=12"]
    config = override_config(default_config("translate", "tiny"), [*words, "model.layers=1"])
    task = TASKS["translate"](config, Workspace(tmp_path))
    model = build_network(config, task.meta.sizes).eval()
    alone = task.evaluate(model, torch.device("cpu"))
    for found in shared_evaluations(task, model, 5):
        assert (found.loss, found.sample) == (pytest.approx(alone.loss, rel=1e-6), alone.sample)
        assert found.scores == alone.scores
    task.validation = lambda: iter(())  # type: ignore[method-assign]
    with pytest.raises(DataError, match="leaves no example to validate with"):
        shared_evaluations(task, model, 2)


def test_results_are_put_together_in_the_order_of_the_items() -> None:
    barrier, box = threading.Barrier(3), {}
    shares = [ThreadShare(rank, barrier, box) for rank in range(3)]
    with ThreadPoolExecutor(3) as pool:
        merged = list(pool.map(lambda share: share.merge([10 * each for each in share.mine(range(7))]), shares))
    assert merged == [[0, 10, 20, 30, 40, 50, 60]] * 3
    assert ALONE.merge(list(ALONE.mine("abc"))) == ["a", "b", "c"]


def test_a_cursor_reads_only_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer.train("char", ["abcdefgh "], size=60)
    tokens = write_tokens(["abcdefgh " * 50], tokenizer, tmp_path / "tokens.npy")
    read: list[int] = []
    plain = type(tokens).read

    def counting(self: Any, starts: Any, length: int) -> Any:
        read.extend(starts.tolist() if length == 12 else [])  # the fingerprint of the file reads other lengths
        return plain(self, starts, length)

    def windows() -> Windows:
        return Windows(tokens, length=11, batch=7, seed=3)

    whole = list(windows())
    monkeypatch.setattr(type(tokens), "read", counting)
    parts = []
    for rank in range(3):
        cursor = windows()
        cursor.rows = slice(rank, None, 3)
        parts.append(list(cursor))
    assert len(set(read)) == len(read) == sum(map(len, whole)) > 30  # every row by one process
    for batch, *mine in zip(whole, *parts, strict=True):
        np.testing.assert_array_equal(np.concatenate(mine), np.concatenate([batch[rank::3] for rank in range(3)]))
    batches = Batches([5, 3, 2, 7, 1], budget=8, seed=1)
    batches.rows = slice(4, None, 5)  # a fifth process
    assert [len(batch) for batch in batches] == [0] * len(batches)

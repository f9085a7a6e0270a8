"""Two processes equal one, either resumes from the other's checkpoints, and a killed one is restarted."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.train.small_runs import assert_alike, losses, make_config, stopped_at, together, written

from clearhead.config import AnyConfig, TrainConfig
from clearhead.errors import ConfigError, RunError
from clearhead.train import distributed as distributed_file
from clearhead.train.distributed import ProcessGroup
from clearhead.train.start import resume, run_training

# What each process does: begin the first recipe, then go on with the runs that are named after it, in one group.
WORKER = """
import sys
from pathlib import Path
from torch import distributed
from clearhead.tasks import load_config
from clearhead.train.start import run_training, resume
recipe, out, *runs = map(Path, sys.argv[1:])
distributed.init_process_group("gloo")
run_training(load_config(recipe), out, "test")
for run in runs:
    resume(run)
distributed.destroy_process_group()
"""

# The second process kills itself in its sixth step, but not when it is started again.
KILLED = """
import os, signal, sys
from clearhead.cli.main import main
from clearhead.train.loop import Trainer
update = Trainer.update
def fatal(self, batches):
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and self.group.rank == 1 and self.step == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    update(self, batches)
Trainer.update = fatal
main()
"""


def check_both_ways(config: AnyConfig, tmp_path: Path, commands_folder: Path) -> None:
    """From the beginning, from one process to two, and from two to one."""
    one, two = tmp_path / "one", tmp_path / "two"
    run_training(config, one, "test")
    one_then_two = stopped_at(4, one, tmp_path / "one then two", config)
    together(commands_folder / "python", tmp_path, WORKER, written(config, tmp_path / "recipe.yaml"), two, one_then_two)
    assert_alike(two, one)
    assert_alike(one_then_two, one)
    two_then_one = stopped_at(8, two, tmp_path / "two then one", config)
    resume(two_then_one)
    assert_alike(two_then_one, one)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_equal_one_and_resume_from_each_other(
    tmp_path: Path, commands_folder: Path, strategy: str
) -> None:
    check_both_ways(make_config(tmp_path, "translate", f"train.strategy={strategy}"), tmp_path, commands_folder)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize("more", [("model.objective=masked",), ("model.architecture=rnn",), ("model.tied=false",)])
def test_two_processes_equal_one_for_language_models(
    tmp_path: Path, commands_folder: Path, strategy: str, more: tuple[str, ...]
) -> None:
    settings = (
        "data.kind=text",
        "tokenizer.kind=char",
        "data.validation=0.1",
        "model.length=20",
        f"train.strategy={strategy}",
    )
    check_both_ways(make_config(tmp_path, "lm", *settings, *more), tmp_path, commands_folder)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_solve_for_the_same_linear_model(tmp_path: Path, commands_folder: Path, strategy: str) -> None:
    file = tmp_path / "texts.tsv"
    texts = (f"{'ab'[word % 3 > 0]}\tword {word} of {word % 5} words" for word in range(53))
    file.write_text("label\ttext\n" + "".join(f"{text}\n" for text in texts), encoding="utf-8")
    settings = (f"data.path={file}", "model.wide=1009", "train.average=0.5", f"train.strategy={strategy}")
    check_both_ways(make_config(tmp_path, "classify", *settings), tmp_path, commands_folder)


# Begin with the first recipe and stop in the middle, as a kill would; then go on with the runs.
STOPPED = """
import sys
from pathlib import Path
from torch import distributed
from clearhead.tasks import load_config
from clearhead.train.loop import Callbacks, Trainer
from clearhead.train.start import run_training, resume
recipe, out, last = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
distributed.init_process_group("gloo")
update = Trainer.update
def stopping(self, batches):
    if self.step == last:
        raise InterruptedError
    update(self, batches)
Trainer.update = stopping
try:
    resume(out) if out.exists() else run_training(load_config(recipe), out, "test")
except InterruptedError:
    pass
distributed.destroy_process_group()
"""


@pytest.mark.parametrize("optimizer", ["adamw", pytest.param("muon", marks=pytest.mark.slow)])
def test_shards_of_two_go_on_with_three_and_then_one(tmp_path: Path, commands_folder: Path, optimizer: str) -> None:
    """The width 20 and the vocabulary of 42 are not cut evenly, and of a norm with 20 gains the third has fewer."""
    more = ("train.strategy=fsdp", f"train.optimizer={optimizer}", "model.dim=20", "model.tied=true")
    config, one, run = make_config(tmp_path, "translate", *more), tmp_path / "one", tmp_path / "run"
    run_training(config, one, "test")
    recipe = written(config, tmp_path / "recipe.yaml")
    together(commands_folder / "python", tmp_path, STOPPED, recipe, run, 5)
    first = run / "checkpoints" / "step-00000004"
    assert sorted(path.name for path in first.iterdir()) == ["average", "optimizer", "state.json", "weights"]
    shards = sorted(path.name for path in (first / "weights").iterdir())
    assert shards == [f"shard-{n:05d}-model-00001-of-00001.safetensors" for n in (1, 2)]
    together(commands_folder / "python", tmp_path, STOPPED, recipe, run, 9, processes=3)
    times = [json.loads(line)["step"] for line in (run / "times.jsonl").read_text(encoding="utf-8").splitlines()]
    assert times == [1, 2, 3, 4, 5, *range(5, 10)]  # three processes went on from step 4
    sizes = [path.stat().st_size for path in sorted((run / "checkpoints" / "step-00000008" / "weights").iterdir())]
    assert len(sizes) == 3
    assert max(sizes) < 0.6 * (run / "checkpoints" / "step-00000004" / "weights" / shards[0]).stat().st_size * 2
    resume(run)
    assert_alike(run, one)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_muon_in_two_processes(tmp_path: Path, commands_folder: Path, strategy: str) -> None:
    check_both_ways(
        make_config(tmp_path, "translate", "train.optimizer=muon", f"train.strategy={strategy}"),
        tmp_path,
        commands_folder,
    )


def test_a_killed_process_is_restarted_and_the_run_continues(tmp_path: Path, commands_folder: Path) -> None:
    config, run = make_config(tmp_path, "translate", "model.dropout=0.1"), tmp_path / "run"
    recipe = written(config, tmp_path / "recipe.yaml")
    done = together(commands_folder / "python", tmp_path, KILLED, "train", recipe, "--out", run, restarts=1)
    assert [step for part, step in losses(run) if part == "train"] == [*range(1, 11)]
    assert (run / "model.safetensors").is_file()
    assert done.stdout.count("The model is in") == 1  # one process speaks
    times = [json.loads(line)["step"] for line in (run / "times.jsonl").read_text(encoding="utf-8").splitlines()]
    assert times == [1, 2, 3, 4, 5, *range(5, 11)]  # it went on from step 4


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[None]]:
    """A group of two whose connection is not made."""
    monkeypatch.setattr(distributed_file, "rendezvous", lambda *_, **__: iter([(None, 0, 2)]))
    for name in ("init_process_group", "destroy_process_group"):
        monkeypatch.setattr(torch.distributed, name, lambda *_, **__: None)
    return lambda: ProcessGroup(rank=0, world_size=2)._connected(TrainConfig(device="cpu"))


@pytest.mark.parametrize(
    "problem",
    [
        RuntimeError("[/w/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:53684."),
        torch.distributed.DistNetworkError("The client socket has timed out"),
    ],
)
def test_a_process_that_is_gone_is_one_sentence_in_the_others(connected: Any, problem: Exception) -> None:
    sentence = "another process of this training has stopped or does not answer, so this one stops too; its own last"
    with pytest.raises(RunError, match=sentence), connected():
        raise problem


def test_other_errors_are_not_taken_for_a_lost_process(connected: Any) -> None:
    with pytest.raises(RuntimeError, match="shape 3 is not 5"), connected():
        raise RuntimeError("shape 3 is not 5")


def test_a_device_that_processes_cannot_share_is_refused(connected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed_file, "resolve_device", lambda _name: "mps")
    with (
        pytest.raises(
            ConfigError, match=r"train\.device=mps cannot be shared by many processes; use train\.device=cpu"
        ),
        connected(),
    ):
        pass


def test_a_group_that_the_caller_has_made_stays_open(connected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[None] = []
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: closed.append(None))
    with connected():
        pass
    assert closed == []


def test_restarted_processes_do_not_read_the_addresses_of_those_that_died(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun's store outlives them; each start has its own names in it."""
    store, given = torch.distributed.HashStore(), []
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.setattr(distributed_file, "rendezvous", lambda *_, **__: iter([(store, 1, 3)]))
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda *_, **words: given.append(words))
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: None)
    for restarts in (0, 2):
        with ProcessGroup(rank=1, world_size=3, restarts=restarts)._connected(TrainConfig(device="cpu")):
            given[-1]["store"].set("address", f"of start {restarts}")
    assert [(words["rank"], words["world_size"]) for words in given] == [(1, 3)] * 2
    assert [words["store"].get("address") for words in given] == [b"of start 0", b"of start 2"]


def send(monkeypatch: pytest.MonkeyPatch, sent: object) -> None:
    """What the main process sends to the others."""

    def receive(box: list[object], *_: object) -> None:
        box[0] = sent

    monkeypatch.setattr(torch.distributed, "broadcast_object_list", receive)


def test_an_error_of_the_main_process_is_an_error_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise RunError("no room on the disk")

    def never() -> None:
        raise AssertionError("only the main process works")

    send(monkeypatch, RunError("no room on the disk"))
    for rank, work in enumerate((refuse, never)):
        with pytest.raises(RunError, match=r"^no room on the disk$"):
            ProcessGroup(rank, world_size=2).on_main(work)


def test_another_machine_gets_the_settings_unless_it_has_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, run = ProcessGroup(rank=1, world_size=2, same_folder=False), tmp_path / "run"
    files = {"config.yaml": "task: lm\n", "tokenizer.json": "{}"}
    send(monkeypatch, files)
    monkeypatch.setattr(torch.distributed, "barrier", lambda _group: None)
    assert group.main_first(lambda: sorted(path.name for path in run.iterdir()), run) == sorted(files)
    group.main_first(lambda: None, run)  # the same ones again
    assert {path.name: path.read_text(encoding="utf-8") for path in run.iterdir()} == files
    send(monkeypatch, {**files, "config.yaml": "task: tag\n"})
    with pytest.raises(
        ConfigError, match=r"config\.yaml of this machine is of another run than that of the main process"
    ):
        group.main_first(lambda: None, run)
    assert (run / "config.yaml").read_text(encoding="utf-8") == "task: lm\n"


def test_batch_norm_is_refused() -> None:
    with pytest.raises(ConfigError, match="batch needs a whole batch in one process"):
        ProcessGroup(rank=0, world_size=2).shard(torch.nn.BatchNorm1d(3))


def test_the_rows_of_all_processes_are_the_batch() -> None:
    batch = {"ids": torch.arange(14).view(7, 2), "labels": torch.arange(7)}
    shares = [ProcessGroup(rank, world_size=3).local_rows(batch) for rank in range(3)]
    assert [weight for _, weight in shares] == [1, 1, 1]
    assert torch.cat([mine["labels"] for mine, _ in shares]).sort().values.tolist() == [*range(7)]
    mine, weight = ProcessGroup(rank=2, world_size=3).local_rows({name: rows[:2] for name, rows in batch.items()})
    assert (weight, mine["ids"].tolist()) == (0, [[0, 1]])


# In three processes: Muon on shards against Muon on whole matrices, and what a damaged or forged shard leads to.
SHARDED = """
import json, sys
from pathlib import Path
import torch
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from clearhead.errors import RunError
from clearhead.train import sharded
from clearhead.train.checkpoints import Checkpoint
from clearhead.train.distributed import ProcessGroup, full_tensor
from clearhead.train.muon import Muon

folder = Path(sys.argv[1])
distributed.init_process_group("gloo")
group = ProcessGroup(distributed.get_rank(), 3, sharded=True)

def models():
    torch.manual_seed(1)  # more matrices than processes, fewer, and one with a row for two of them only
    shapes = [(7, 5)] * 5 + [(5, 13)] * 2 + [(2, 11)]
    whole = nn.ParameterList([nn.Parameter(torch.randn(shape)) for shape in shapes])
    cut = nn.ParameterList([nn.Parameter(each.detach().clone()) for each in whole])
    fully_shard(cut)
    return whole, cut

whole, cut = models()
optimizers = [Muon(list(each), weight_decay=0.1) for each in (whole, cut)]
for step in range(3):
    torch.manual_seed(step)
    for one, other in zip(whole, cut):
        one.grad = torch.randn(one.shape)
        other.grad = torch.distributed.tensor.distribute_tensor(one.grad, other.device_mesh, other.placements)
    for optimizer in optimizers:
        optimizer.step()
for one, other in zip(whole, cut):
    torch.testing.assert_close(full_tensor(other.detach()), one.detach(), atol=1e-5, rtol=1e-5)

tensors = {"weights": {str(n): each.detach() for n, each in enumerate(cut)}, "optimizer": {}, "average": {}}
for step, sharded.FILE_BYTES in ((4, 100), (8, 2**24)):  # many small files, and one
    sharded.save(folder, Checkpoint(step, tensors, {"cursor": step}), 9, group)

def check_shards(found):
    back = found.shards("weights", dict(tensors["weights"]).get, group)
    for name, each in tensors["weights"].items():
        assert back[name].placements == each.placements
        torch.testing.assert_close(back[name].to_local(), each.to_local(), atol=0, rtol=0)
    assert found.shards("average", dict().get, group) == {}

found, damaged = sharded.newest(folder, group)
assert (found.step, found.state, damaged) == (8, {"cursor": 8}, [])
check_shards(found)

def report(damaged):
    distributed.barrier()
    assert len(damaged) == 1 and len(set(group.gather(damaged[0]))) == 1
    group.on_main(lambda: (folder / "damaged-step-00000008").rename(folder / "step-00000008"))  # it was set aside
    return damaged[0]

shard = sorted((folder / "step-00000008" / "weights").iterdir())[2]
group.on_main(lambda: shard.write_bytes(shard.read_bytes()[:-1] + b"x"))
found, damaged = sharded.newest(folder, group)
assert found.step == 4 and report(damaged).endswith("shard-00003-model-00001-of-00001.safetensors is changed; skipped")
assert len(list((folder / "step-00000004" / "weights").iterdir())) > 6
check_shards(found)
group.on_main(shard.unlink)
found, damaged = sharded.newest(folder, group)
assert found.step == 4 and report(damaged).endswith("shard-00003-model-00001-of-00001.safetensors is missing; skipped")
state = folder / "step-00000008" / "state.json"
whole = state.read_text()
group.on_main(lambda: state.write_text(whole.replace('"cursor": 8', '"cursor": 9')))
found, damaged = sharded.newest(folder, group)
assert found.step == 4 and report(damaged).endswith("state.json has changed; skipped")
group.on_main(lambda: state.write_text(state.read_text().replace("weights/shard-00003", "../weights/shard")))
found, damaged = sharded.newest(folder, group)
assert found.step == 4 and report(damaged).endswith("state.json names files that are none of its own; skipped")
distributed.destroy_process_group()
"""


def test_shards_in_three_processes(tmp_path: Path, commands_folder: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    together(commands_folder / "python", tmp_path, SHARDED, folder, processes=3)
    for path in folder.rglob("*"):  # nothing that would have to be unpickled
        assert path.is_dir() or path.suffix in (".safetensors", ".json")

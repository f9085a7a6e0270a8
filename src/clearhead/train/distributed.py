"""Many processes that train one model together: `torchrun --nproc-per-node 2 -m clearhead train …`.

Every process walks the same batches and takes its rows of each, so what is learned does not depend on how many there
are. With Σ over the processes, the loss and its gradient are those of one process that sees all rows:

    loss = Σ losses / Σ tokens,    gradient = Σ gradients / Σ tokens

ddp     every process has the whole model; gradients are summed                 (DistributedDataParallel)
fsdp    every process has a part of each tensor, and borrows the rest of a block while it computes it  (fully_shard)

Files hold whole tensors either way, so that any number of processes, also one, can go on from them. The first process
writes, prints and evaluates; the run directory must be one that all can read.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from clearhead.config import TrainConfig
from clearhead.errors import ClearheadError, ConfigError
from clearhead.train.device import place_name

Found = TypeVar("Found")

PATIENCE = timedelta(hours=6)  # the others wait for as long as the first evaluates; torchrun finds out who died


@dataclass(frozen=True)
class Team:
    """The processes of one training, as one of them sees them; alone, every method does the obvious."""

    rank: int = 0
    world: int = 1
    local: int = 0  # rank on this machine
    shards: bool = False
    restarts: int = 0  # by torchrun, each after one of them died

    @classmethod
    @contextmanager
    def join(cls, config: TrainConfig) -> Iterator[Team]:
        """Meet the others that torchrun has started, and part from them at the end."""
        if "TORCHELASTIC_RUN_ID" not in os.environ:
            yield cls()
            return
        rank, world, local, restarts = (
            int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT")
        )
        team = cls(rank, world, local, world > 1 and config.strategy == "fsdp", restarts)
        with team._connected(config) if world > 1 else nullcontext():
            yield team

    @contextmanager
    def _connected(self, config: TrainConfig) -> Iterator[None]:
        """Within, the processes can talk.

        A group that the caller has made already is used and left alone: torch can make only one in a process's life.
        """
        if self.shards and config.optimizer == "muon":
            raise ConfigError("train.optimizer=muon needs whole matrices, and train.strategy=fsdp cuts them; use ddp")
        place = place_name(config.device)
        if place == "mps":
            raise ConfigError("train.device=mps cannot be shared by many processes; say train.device=cpu")
        if distributed.is_initialized():
            yield
            return
        # torchrun keeps the addresses of those who died, so each start has its own names for them.
        store, rank, world = next(rendezvous("env://", timeout=PATIENCE))
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if place == "cuda" else "gloo",
            store=distributed.PrefixStore(f"start {self.restarts}", store),  # type: ignore[attr-defined]
            rank=rank,
            world_size=world,
            timeout=PATIENCE,
        )
        try:
            yield
        finally:
            distributed.destroy_process_group()

    # --- talking ---

    @property
    def restarted(self) -> bool:
        """There may be something to go on from."""
        return self.restarts > 0

    @property
    def leads(self) -> bool:
        """This is the first process."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Σ over the processes."""
        if self.world > 1:
            distributed.all_reduce(tensor)
        return tensor

    def agree(self, number: float) -> float:
        """The first process's number."""
        if self.world == 1:
            return number
        said = torch.tensor(number, dtype=torch.float64)
        distributed.broadcast(said, 0)
        return float(said)

    def first(self, work: Callable[[], Found]) -> Found:
        """Only the first process does it; all get what it found, or its mistake."""
        if self.world == 1:
            return work()
        said: list[Any] = [None]
        if self.leads:
            try:
                said = [work()]
            except ClearheadError as mistake:
                said = [mistake]
        distributed.broadcast_object_list(said, 0, device=torch.device("cpu"))
        if isinstance(said[0], ClearheadError):
            raise said[0]
        found: Found = said[0]
        return found

    def first_then_all(self, work: Callable[[], Found]) -> Found:
        """Each does it, but the others only when the first is done, so that they find the files it has written."""
        mine: list[Found] = []
        self.first(lambda: mine.append(work()))
        return mine[0] if mine else work()

    def share(self, batch: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], int]:
        """This process's rows of a batch and 1; or, where there are too few, a row to compute in vain and 0."""
        mine = {name: rows[self.rank :: self.world] for name, rows in batch.items()}
        if all(len(rows) for rows in mine.values()):
            return mine, 1
        return {name: rows[:1] for name, rows in batch.items()}, 0

    # --- the model ---

    def spread(self, model: nn.Module) -> None:
        """Get a model ready to be trained together; with fsdp its parameters become parts from here on."""
        if self.world > 1 and any(isinstance(module, _BatchNorm) for module in model.modules()):
            raise ConfigError("model.norm=batch needs a whole batch in one process; choose layer or rms")
        if self.shards:
            _shard(model)

    def connect(self, model: nn.Module, place: torch.device) -> nn.Module:
        """The model to call while training: its gradients are sums over the processes."""
        if self.world == 1 or self.shards:
            return model
        connected = DistributedDataParallel(model, device_ids=[self.local] if place.type == "cuda" else None)
        connected.register_comm_hook(None, lambda state, bucket: _summed(bucket))  # noqa: ARG005 - ddp asks the names
        return connected

    def collecting(self, model: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """Within, gradients of ddp stay at home unless the batch is the last of its step: they are summed once."""
        return nullcontext() if last or not isinstance(model, DistributedDataParallel) else model.no_sync()

    def spare(self, model: nn.Module) -> nn.Module | None:
        """A whole copy, for the first process to evaluate with when its own model is to be sharded."""
        return copy.deepcopy(model).cpu() if self.shards and self.leads else None

    def whole(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Whole copies on the CPU, for the first process; all must ask, and the others get nothing."""
        if not self.shards:
            return cpu_copy(tensors) if self.leads else {}
        kept = {}
        for name, tensor in tensors.items():
            whole = full(tensor)
            if self.leads:
                kept.update(cpu_copy({name: whole}))
        return kept

    def parts(self, tensors: Mapping[str, Tensor], like: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
        """This process's part of each whole tensor, cut as the one of the same name in `like` is."""
        if not self.shards:
            return dict(tensors)
        return {name: _cut(tensor, like.get(name)) for name, tensor in tensors.items()}


def _summed(bucket: Any) -> torch.futures.Future[Tensor]:
    """What ddp does with gradients: add them up, where it would take their mean."""
    work = distributed.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    future: torch.futures.Future[Tensor] = work.get_future().then(lambda done: done.value()[0])
    return future


def _shard(model: nn.Module) -> None:
    """Each block is borrowed as a whole, and then what is left of the model."""
    from torch.distributed.fsdp import FSDPModule, fully_shard

    blocks = [module for name, module in model.named_modules() if name.split(".")[-2:-1] == ["blocks"]]
    for module in [*blocks, model]:
        fully_shard(module)
        assert isinstance(module, FSDPModule)
        module.set_gradient_divide_factor(1.0)  # sums, not means,
        module.set_force_sum_reduction_for_comms(True)  # in a way that gloo knows


def full(tensor: Tensor) -> Tensor:
    """All of a tensor of which each process has a part; all must ask."""
    from torch.distributed.tensor import DTensor

    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _cut(tensor: Tensor, like: Tensor | None) -> Tensor:
    """Every process has read the whole tensor, so none needs to send anything."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(like, DTensor) or tensor.shape != like.shape:  # whoever takes it refuses a wrong shape
        return tensor
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


@torch.no_grad()
def cpu_copy(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the CPU that training does not change any more."""
    return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}

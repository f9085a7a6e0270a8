"""Training one model in many processes: `torchrun --nproc-per-node 2 -m clearhead train …`.

Every process iterates over the same batches and takes its rows of each, so the result does not depend on the number of
processes. With Σ over the processes, loss and gradient are those of one process that sees all rows:

    loss = Σ losses / Σ tokens,    gradient = Σ gradients / Σ tokens

ddp     every process has the whole model; gradients are summed                       (DistributedDataParallel)
fsdp    every process has a shard of each tensor, and gathers a block while it computes it       (fully_shard)

Files hold full tensors either way, so that any number of processes can resume from them, one included. The main process
(rank 0) writes, prints and evaluates; all processes must be able to read the run directory.
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
from clearhead.train.device import resolve_device

Result = TypeVar("Result")

TIMEOUT = timedelta(hours=6)  # the others wait while the main process evaluates; torchrun notices who died


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of one training run, seen from one of them. With one process, every method is a no-op."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0  # rank on this machine
    sharded: bool = False  # fsdp
    restarts: int = 0  # by torchrun, after a process died

    @classmethod
    @contextmanager
    def join(cls, config: TrainConfig) -> Iterator[ProcessGroup]:
        """Join the group that torchrun has started, and leave it at the end; one process without torchrun."""
        if "TORCHELASTIC_RUN_ID" not in os.environ:
            yield cls()
            return
        rank, world_size, local_rank, restarts = (
            int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT")
        )
        group = cls(rank, world_size, local_rank, world_size > 1 and config.strategy == "fsdp", restarts)
        with group._connected(config) if world_size > 1 else nullcontext():
            yield group

    @contextmanager
    def _connected(self, config: TrainConfig) -> Iterator[None]:
        """Initialise torch's process group; one that the caller has initialised is used and left open."""
        if self.sharded and config.optimizer == "muon":
            raise ConfigError("train.optimizer=muon needs whole matrices, and train.strategy=fsdp cuts them; use ddp")
        device = resolve_device(config.device)
        if device == "mps":
            raise ConfigError("train.device=mps cannot be shared by many processes; use train.device=cpu")
        if distributed.is_initialized():
            yield
            return
        # torchrun keeps the addresses of processes that died, so each restart uses its own prefix.
        store, rank, world_size = next(rendezvous("env://", timeout=TIMEOUT))
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo",
            store=distributed.PrefixStore(f"start {self.restarts}", store),  # type: ignore[attr-defined]
            rank=rank,
            world_size=world_size,
            timeout=TIMEOUT,
        )
        try:
            yield
        finally:
            distributed.destroy_process_group()

    # --- communication ---

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def restarted(self) -> bool:
        return self.restarts > 0

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Σ over the processes, in place."""
        if self.world_size > 1:
            distributed.all_reduce(tensor)
        return tensor

    def broadcast(self, number: float) -> float:
        """The main process's number."""
        if self.world_size == 1:
            return number
        tensor = torch.tensor(number, dtype=torch.float64)
        distributed.broadcast(tensor, 0)
        return float(tensor)

    def on_main(self, work: Callable[[], Result]) -> Result:
        """Run `work` in the main process only; every process returns its result or raises its error."""
        if self.world_size == 1:
            return work()
        box: list[Any] = [None]
        if self.is_main:
            try:
                box = [work()]
            except ClearheadError as error:
                box = [error]
        distributed.broadcast_object_list(box, 0, device=torch.device("cpu"))
        if isinstance(box[0], ClearheadError):
            raise box[0]
        result: Result = box[0]
        return result

    def main_first(self, work: Callable[[], Result]) -> Result:
        """Run `work` in every process, in the others only after the main one has finished and written its files."""
        results: list[Result] = []
        self.on_main(lambda: results.append(work()))
        return results[0] if results else work()

    def local_rows(self, batch: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], int]:
        """This process's rows of a batch and the weight 1; if there are none, a dummy row with weight 0."""
        rows = {name: tensor[self.rank :: self.world_size] for name, tensor in batch.items()}
        if all(len(tensor) for tensor in rows.values()):
            return rows, 1
        return {name: tensor[:1] for name, tensor in batch.items()}, 0

    # --- the model ---

    def shard(self, model: nn.Module) -> None:
        """Check that a model can be trained by many processes; with fsdp, replace its parameters by shards."""
        if self.world_size > 1 and any(isinstance(module, _BatchNorm) for module in model.modules()):
            raise ConfigError("model.norm=batch needs a whole batch in one process; choose layer or rms")
        if self.sharded:
            _fully_shard(model)

    def data_parallel(self, model: nn.Module, device: torch.device) -> nn.Module:
        """The model to call while training: with ddp, wrapped so that gradients are summed over the processes."""
        if self.world_size == 1 or self.sharded:
            return model
        wrapped = DistributedDataParallel(model, device_ids=[self.local_rank] if device.type == "cuda" else None)
        wrapped.register_comm_hook(None, lambda state, bucket: _sum_gradients(bucket))  # noqa: ARG005 - names fixed by ddp
        return wrapped

    def gradient_sync(self, model: nn.Module, enabled: bool) -> AbstractContextManager[Any]:
        """With ddp, sum gradients only if `enabled`: once per step, not once per accumulated batch."""
        return nullcontext() if enabled or not isinstance(model, DistributedDataParallel) else model.no_sync()

    def evaluation_copy(self, model: nn.Module) -> nn.Module | None:
        """A full copy on the CPU, with which the main process evaluates a sharded model; otherwise None."""
        return copy.deepcopy(model).cpu() if self.sharded and self.is_main else None

    def gather_full(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Full copies on the CPU in the main process, {} in the others; every process must call it."""
        if not self.sharded:
            return cpu_copy(tensors) if self.is_main else {}
        gathered = {}
        for name, tensor in tensors.items():
            full = full_tensor(tensor)
            if self.is_main:
                gathered.update(cpu_copy({name: full}))
        return gathered

    def local_shards(self, tensors: Mapping[str, Tensor], like: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
        """This process's shard of each full tensor, split like the tensor of the same name in `like`."""
        if not self.sharded:
            return dict(tensors)
        return {name: _shard_like(tensor, like.get(name)) for name, tensor in tensors.items()}


def _sum_gradients(bucket: Any) -> torch.futures.Future[Tensor]:
    """Communication hook for ddp: sum the gradients, where its default is their mean."""
    work = distributed.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    future: torch.futures.Future[Tensor] = work.get_future().then(lambda done: done.value()[0])
    return future


def _fully_shard(model: nn.Module) -> None:
    """Shard each block as one unit, then the rest of the model."""
    from torch.distributed.fsdp import FSDPModule, fully_shard

    blocks = [module for name, module in model.named_modules() if name.split(".")[-2:-1] == ["blocks"]]
    for module in [*blocks, model]:
        fully_shard(module)
        assert isinstance(module, FSDPModule)
        module.set_gradient_divide_factor(1.0)  # sums, not means,
        module.set_force_sum_reduction_for_comms(True)  # by an operation that gloo supports


def full_tensor(tensor: Tensor) -> Tensor:
    """The full tensor of a shard; every process must call it."""
    from torch.distributed.tensor import DTensor

    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _shard_like(tensor: Tensor, like: Tensor | None) -> Tensor:
    """Every process has read the full tensor, so nothing is sent."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(like, DTensor) or tensor.shape != like.shape:  # loading refuses a wrong shape
        return tensor
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


@torch.no_grad()
def cpu_copy(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the CPU that training does not change any more."""
    return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}

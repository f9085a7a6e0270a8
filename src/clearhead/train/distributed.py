"""Training one model in many processes: `torchrun --nproc-per-node 2 -m clearhead train …`.

Every process walks the same batches and reads its rows of each, so the result does not depend on the number of
processes. With Σ over the processes, loss and gradient are those of one process that sees all rows:

    loss = Σ losses / Σ tokens,    gradient = Σ gradients / Σ tokens

ddp     every process has the whole model; gradients are summed                       (DistributedDataParallel)
fsdp    every process has a shard of each tensor, and gathers a block while it computes it       (fully_shard)

All processes evaluate, each its share of the validation part. The main process (rank 0) prints, logs and writes, but
shards are written by those who have them (sharded.py). The machines may share the run directory or have one each; what
the others need of the main one's is sent to them.
"""

from __future__ import annotations

import copy
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from clearhead.config import TrainConfig
from clearhead.errors import ClearheadError, ConfigError, RunError
from clearhead.files import write_text
from clearhead.tasks.base.share import Share
from clearhead.train.device import resolve_device, return_freed_memory

Result = TypeVar("Result")

PATIENCE = timedelta(hours=6)  # how long the others wait while the main process reads and tokenizes the data
COPIED = ("config.yaml", "tokenizer.json")  # what every machine needs of the run directory


@dataclass(frozen=True)
class ProcessGroup(Share):
    """The processes of one training run, seen from one of them. With one process, every method is a no-op."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0  # rank on this machine
    sharded: bool = False  # fsdp
    restarts: int = 0  # by torchrun, after a process died
    same_folder: bool = True  # whether all processes see the same run directory
    patient: Any = None  # torch's process group with the long timeout
    wrapped: list[DistributedDataParallel] = field(default_factory=list)  # models of data_parallel

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
            # A machine that comes back counts its restarts from 0.
            patient = distributed.new_group(timeout=PATIENCE) if world_size > 1 else None
            try:
                yield replace(group, restarts=max(group.gather(restarts)), patient=patient)
            finally:
                group._release_models()

    @contextmanager
    def _connected(self, config: TrainConfig) -> Iterator[None]:
        """Initialise torch's process group; one that the caller has initialised is used and left open."""
        device = resolve_device(config.device)
        if device == "mps":
            raise ConfigError("train.device=mps cannot be shared by many processes; use train.device=cpu")
        if distributed.is_initialized():
            yield
            return
        timeout = timedelta(minutes=config.timeout)
        store, rank, world_size = next(rendezvous("env://", timeout=timeout))
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            # This store outlives the processes, with the addresses of those that died.
            store = distributed.PrefixStore(f"start {self.restarts}", store)  # type: ignore[attr-defined]
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo",
            store=store,
            rank=rank,
            world_size=world_size,
            timeout=timeout,
        )
        try:
            yield
        except (RuntimeError, distributed.DistError) as problem:
            if not _is_lost_connection(problem):
                raise
            raise RunError(
                "another process of this training has stopped or does not answer, so this one stops too; "
                "its own last line says why, and `clearhead resume` goes on from the last checkpoint"
            ) from problem
        finally:
            distributed.destroy_process_group()

    def _release_models(self) -> None:
        """Take the process group from the models while it is still open.

        A model that outlived the group would close it, with Python's lock in hand, and wait for a thread of gloo that
        needs that lock to end.
        """
        for model in self.wrapped:
            del model.logger, model.reducer

    def with_folder(self, run: Path) -> ProcessGroup:
        """The group, having found out whether all processes see the same run directory."""
        if self.world_size == 1:
            return self
        probe = self.on_main(lambda: _touched(run / f".{uuid.uuid4().hex}"))
        seen = self.gather(probe.exists())
        if self.is_main:
            probe.unlink()
        return replace(self, same_folder=all(seen))

    # --- communication ---

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def restarted(self) -> bool:
        return self.restarts > 0

    def all_reduce(self, tensor: Tensor) -> Tensor:
        if self.world_size > 1:
            distributed.all_reduce(tensor)
        return tensor

    def gather(self, mine: Result) -> list[Result]:
        if self.world_size == 1:
            return [mine]
        gathered: list[Any] = [None] * self.world_size
        distributed.all_gather_object(gathered, mine)
        return gathered

    def broadcast(self, number: float) -> float:
        """The main process's number."""
        if self.world_size == 1:
            return number
        tensor = torch.tensor(number, dtype=torch.float64)
        distributed.broadcast(tensor, 0)
        return float(tensor)

    def on_main(self, work: Callable[[], Result], patient: bool = False) -> Result:
        """Run `work` in the main process only; every process returns its result or raises its error.

        The others wait for it as long as for anything else, or hours if they are `patient`.
        """
        if self.world_size == 1:
            return work()
        box: list[Any] = [None]
        if self.is_main:
            try:
                box = [work()]
            except ClearheadError as error:
                box = [error]
        distributed.broadcast_object_list(box, 0, self.patient if patient else None, torch.device("cpu"))
        if isinstance(box[0], ClearheadError):
            raise box[0]
        result: Result = box[0]
        return result

    def main_first(self, work: Callable[[], Result], run: Path) -> Result:
        """Run `work` in every process, in the others only after the main one has finished and written its files."""
        results: list[Result] = []
        self.on_main(lambda: results.append(work()), patient=True)
        if not self.same_folder:
            self._copy_files(run)
        mine = results[0] if results else work()
        if self.world_size > 1:
            distributed.barrier(self.patient)  # tokenizing takes long in the others too
        return mine

    def _copy_files(self, run: Path) -> None:
        """Write the main process's settings and tokenizer into the run directories of the other machines."""
        files = self.on_main(lambda: {n: (run / n).read_text("utf-8") for n in COPIED if (run / n).exists()})
        run.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            path = run / name
            if path.exists() and path.read_text("utf-8") != text:
                raise ConfigError(f"{path} of this machine is of another run than that of the main process; remove it")
            if not path.exists():
                write_text(path, text)

    @property
    def rows(self) -> slice:
        """The rows of each batch that this process computes."""
        return slice(self.rank, None, self.world_size)

    def local_rows(self, batch: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], int]:
        """This process's rows of a batch and the weight 1; if there are none, a dummy row with weight 0."""
        rows = {name: tensor[self.rows] for name, tensor in batch.items()}
        if all(len(tensor) for tensor in rows.values()):
            return rows, 1
        return {name: tensor[:1] for name, tensor in batch.items()}, 0

    # --- the model ---

    def shard(self, model: nn.Module) -> None:
        """Check that a model can be trained by many processes; with fsdp, replace its parameters by shards."""
        if self.world_size > 1 and any(isinstance(module, _BatchNorm) for module in model.modules()):
            raise ConfigError("model.norm=batch needs a whole batch in one process; choose layer or rms")
        if self.sharded:
            return_freed_memory()
            _fully_shard(model)

    def data_parallel(self, model: nn.Module, device: torch.device) -> nn.Module:
        """The model to call while training: with ddp, wrapped so that gradients are summed over the processes."""
        if self.world_size == 1 or self.sharded:
            return model
        wrapped = DistributedDataParallel(model, device_ids=[self.local_rank] if device.type == "cuda" else None)
        wrapped.register_comm_hook(None, lambda state, bucket: _sum_gradients(bucket))  # noqa: ARG005 - names fixed by ddp
        self.wrapped.append(wrapped)
        return wrapped

    def gradient_sync(self, model: nn.Module, enabled: bool) -> AbstractContextManager[Any]:
        """With ddp, sum gradients only if `enabled`: once per step, not once per accumulated batch."""
        return nullcontext() if enabled or not isinstance(model, DistributedDataParallel) else model.no_sync()

    def gather_full(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Full tensors on the CPU in the main process, {} in the others; every process must call it.

        What is full and on the CPU already is not copied.
        """
        gathered = {}
        for name, tensor in tensors.items():
            full = full_tensor(tensor.detach())
            if self.is_main:
                gathered[name] = full.cpu()
        return gathered

    def scatter(self, tensors: Mapping[str, Tensor], like: Callable[[str], Tensor | None]) -> dict[str, Tensor]:
        """From the main process's full tensors, one after the other: this process's shard of each, split as `like`."""
        if self.world_size == 1:
            return dict(tensors)
        sizes = self.on_main(lambda: {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()})
        shards = {}
        for name, (shape, dtype) in sizes.items():
            full = tensors[name].contiguous() if self.is_main else torch.empty(shape, dtype=dtype)
            distributed.broadcast(full, 0)
            shards[name] = _shard_like(full, like(name))
        return shards


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
    """Every process has the full tensor, so nothing is sent."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(like, DTensor) or tensor.shape != like.shape:  # loading refuses a wrong shape
        return tensor
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def without_weights(model: nn.Module) -> nn.Module:
    """A copy whose parameters take no memory; buffers are copied."""
    return copy.deepcopy(model, {id(each): nn.Parameter(each.to("meta")) for each in model.parameters()})


@torch.no_grad()
def with_weights(model: nn.Module, tensors: Mapping[str, Tensor], device: torch.device) -> nn.Module:
    """A copy of a model `without_weights` on a device, with the full weights of some shards; all must call it."""
    empty = {id(each): nn.Parameter(torch.empty_like(each, device=device)) for each in model.parameters()}
    full = copy.deepcopy(model, empty).to(device)
    for name, tensor in full.state_dict().items():
        tensor.copy_(full_tensor(tensors[name]))
    return full


def _touched(path: Path) -> Path:
    path.touch()
    return path


def _is_lost_connection(problem: Exception) -> bool:
    """Whether torch says that another process is gone; of gloo it is a RuntimeError with a line of its source."""
    return isinstance(problem, distributed.DistError) or "/gloo/" in str(problem)

"""`clearhead bench train`: milliseconds per training step of one GPT, against transformers and x-transformers.

A step is forward, loss, backward, clipping, AdamW and zeroing the gradients; ours is the trainer's own step with its
checks and logging. The candidates take turns, a few steps each, in processes that are restarted several times, since
memory layout differs between processes. Linear layers have biases in transformers and none in x-transformers, so ours
is measured both ways, each beside its equal.

The step of a LoRA adapter is measured against peft: on the same network with the same weights, and on transformers'
GPT-2. Its memory is what the forward pass keeps for the backward pass, and the peak of a process that makes one step.

    B windows, T tokens
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

from clearhead.bench.measure import Measurement, Round, in_own_process, median_ratio, medians, rounds_apart
from clearhead.bench.peers import BETAS, CLIP, PEERS, RATE, WEIGHT_DECAY, Gpt, Peer, transformers_gpt2
from clearhead.config import AnyConfig, dump
from clearhead.files import write_text
from clearhead.run import Run
from clearhead.tasks import default_config, override_config, run_config
from clearhead.tasks.base.network import load_network, save_weights
from clearhead.text import SPECIALS
from clearhead.train.dry_run import kept_for_backward
from clearhead.train.loop import Callbacks, Trainer
from clearhead.train.start import make_trainer

SIZES = {
    Gpt(layers=4, dim=128, heads=4, block=64, batch=12): 10,
    Gpt(layers=6, dim=384, heads=6, block=256, batch=8): 3,
}  # rounds after each start
STARTS = 5
TURN = 5  # steps per turn
OURS, OURS_BARE = "clearhead", "clearhead without biases"
LORA, PEFT, PEFT_GPT2 = "clearhead LoRA", "peft on the same network", "peft on transformers"
ADAPTED = Gpt(layers=6, dim=384, heads=6, block=256, batch=8)
RANK, ALPHA = 8, 16
SAME = {"transformers": OURS, "x-transformers": OURS_BARE}  # which of ours has the same layers
RATIO = 1.0  # limit of ours / peer


def run(peers: bool) -> Iterator[Measurement]:
    """Milliseconds per step of every candidate in both sizes."""
    for size, rounds in SIZES.items():
        yield from results(size, measured(size, peers, rounds))
    if peers:
        yield from adapter_results(ADAPTED, adapters_measured(ADAPTED, SIZES[ADAPTED]), adapter_memory(ADAPTED))


def results(size: Gpt, rounds: Sequence[Round]) -> Iterator[Measurement]:
    """Milliseconds of each candidate, and the ratio of ours to each peer."""
    what, taken = f"{size}, {size.batch} × {size.block} tokens", medians(rounds)
    detail = {"milliseconds": taken, "rounds": len(rounds), "steps in a turn": TURN}
    for name, each in taken.items():
        yield Measurement(f"{what}: one step of {name}", each, "ms", None, detail)
    for peer, ours in SAME.items():
        if peer in taken:
            yield Measurement(f"{what}: {ours} / {peer}", median_ratio(rounds, ours, peer), "×", RATIO, detail)


def measured(size: Gpt, peers: bool, rounds: int, starts: int = STARTS) -> list[Round]:
    """Milliseconds per step of each candidate, each in its own process."""
    with TemporaryDirectory() as folder:
        candidates = {OURS: partial(our_turn, size, Path(folder, "biases"), bias=True)}
        if peers:  # each beside its equal
            candidates |= {
                "transformers": partial(peer_turn, "transformers", size),
                OURS_BARE: partial(our_turn, size, Path(folder, "bare"), bias=False),
                "x-transformers": partial(peer_turn, "x-transformers", size),
            }
        found = [each for _ in range(starts) for each in rounds_apart(candidates, rounds, warm_up=2)]
    return [{name: taken / TURN for name, taken in each.items()} for each in found]


def our_trainer(size: Gpt, folder: Path, *, bias: bool = True) -> Trainer:
    """Our trainer of the same GPT, on random text with as many characters as its vocabulary holds."""
    return make_trainer(Run(folder), our_config(size, folder, bias=bias), Callbacks())


def our_config(size: Gpt, folder: Path, *more: str, bias: bool = True) -> AnyConfig:
    """Its configuration; writes the text."""
    characters = (string.ascii_letters + string.digits)[: size.vocabulary - len(SPECIALS)]
    count = 2 * TURN * size.batch * size.block
    folder.mkdir(exist_ok=True)
    (folder / "text.txt").write_text("".join(random.Random(1).choices(characters, k=count)), encoding="utf-8")
    settings = (
        f"data.path={folder / 'text.txt'}",
        "data.kind=text",
        f"data.batch_tokens={size.batch * size.block}",
        "tokenizer.kind=char",
        f"model.layers={size.layers}",
        f"model.dim={size.dim}",
        f"model.heads={size.heads}",
        f"model.length={size.block}",
        f"model.max_length={size.block}",
        "model.positions=learned",
        "model.norm=layer",
        "model.feed_forward=gelu",
        f"model.bias={bias}",
        "model.dropout=0",
        "train.optimizer=adamw",
        f"train.learning_rate={RATE}",
        f"train.betas={BETAS[0]},{BETAS[1]}",
        f"train.weight_decay={WEIGHT_DECAY}",
        f"train.clip={CLIP}",
        "train.schedule=stable",
        "train.warmup=0",
        "train.max_steps=1000000",
    )
    return override_config(default_config("lm"), [*settings, *more])


def our_turn(size: Gpt, folder: Path, *, bias: bool) -> Callable[[], None]:
    """A turn of ours: TURN steps."""
    return steps_of(our_trainer(size, folder, bias=bias))


def steps_of(trainer: Trainer, count: int = TURN) -> Callable[[], None]:
    """Some steps of a trainer."""
    batches = list(islice(trainer.cursor.forever(), count))  # each (B, T + 1)

    def turn() -> None:
        for batch in batches:
            trainer.update([batch])

    return turn


def peer_turn(name: str, size: Gpt) -> Callable[[], None]:
    """A turn of a peer: TURN steps on as many random tokens."""
    return steps_of_peer(PEERS[name](size), size)


def steps_of_peer(peer: Peer, size: Gpt, count: int = TURN) -> Callable[[], None]:
    """Some steps of a peer."""
    generator = torch.Generator().manual_seed(1)
    batches = torch.randint(size.vocabulary, (count, size.batch, size.block + 1), generator=generator)

    def turn() -> None:
        for batch in batches:
            peer.update(batch)

    return turn


# --- adapters ---


def adapters_measured(size: Gpt, rounds: int, starts: int = STARTS) -> list[Round]:
    """Milliseconds per step of an adapter, ours and peft's."""
    with TemporaryDirectory() as folder:
        write_base(size, Path(folder))
        names = (LORA, PEFT, PEFT_GPT2)
        candidates = {name: partial(adapter_turn, name, size, Path(folder)) for name in names}
        found = [each for _ in range(starts) for each in rounds_apart(candidates, rounds, warm_up=2)]
    return [{name: taken / TURN for name, taken in each.items()} for each in found]


def adapter_memory(size: Gpt) -> dict[str, dict[str, float]]:
    """Of each candidate on the same network, megabytes kept for the backward pass, and the peak of its process."""
    code = "import sys\nfrom clearhead.bench.train import one_step\nresult = one_step(*sys.argv[1:])\n"
    numbers = [str(each) for each in (size.layers, size.dim, size.heads, size.block, size.batch, size.vocabulary)]
    with TemporaryDirectory() as folder:
        write_base(size, Path(folder))
        return {name: in_own_process(code, name, folder, *numbers) for name in (LORA, PEFT)}


def one_step(name: str, folder: str, *numbers: str) -> dict[str, float]:
    """Megabytes that one step keeps for its backward pass."""
    import_module("peft")  # in every process, so that the peaks can be compared
    model, step = adapter_steps(name, Gpt(*map(int, numbers)), Path(folder), 1)
    with kept_for_backward() as kept:
        step()
    own = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    return {"kept_mb": sum(each for place, each in kept.items() if place not in own) / 1e6}


def adapter_results(
    size: Gpt, rounds: Sequence[Round], memory: Mapping[str, Mapping[str, float]]
) -> Iterator[Measurement]:
    """Milliseconds of each candidate, and the ratios of ours to peft's in time and memory."""
    what, taken = f"adapter of a {size}", medians(rounds)
    detail = {"milliseconds": taken, "rounds": len(rounds), "steps in a turn": TURN, "rank": RANK, "memory": memory}
    for name, each in taken.items():
        yield Measurement(f"{what}: one step of {name}", each, "ms", None, detail)
    for peer in (PEFT, PEFT_GPT2):
        yield Measurement(f"{what}: {LORA} / {peer}", median_ratio(rounds, LORA, peer), "×", RATIO, detail)
    for key, meaning, limit in (("kept_mb", "memory for the backward pass", RATIO), ("peak_mb", "peak memory", None)):
        ratio = round(memory[LORA][key] / memory[PEFT][key], 3)  # a count of tokens is a few bytes
        yield Measurement(f"{what}: {meaning}, {LORA} / {PEFT}", ratio, "×", limit, detail)


def write_base(size: Gpt, folder: Path) -> None:
    """A run directory `base` with the model that is adapted."""
    trainer = our_trainer(size, folder / "base")
    write_text(folder / "base" / "config.yaml", dump(trainer.task.config))
    save_weights(trainer.run, trainer.task.config, trainer.model.state_dict(), trainer.task.meta)


def adapter_trainer(size: Gpt, folder: Path) -> Trainer:
    """Our trainer of an adapter for the queries and values of the base."""
    lora = ["train.adapter=lora", f"train.rank={RANK}", f"train.alpha={ALPHA}", "train.targets=query,value"]
    config = our_config(size, folder / "ours", f"train.start_from={folder / 'base'}", *lora)
    return make_trainer(Run(folder / "ours"), config, Callbacks())


def peft_peer(folder: Path) -> Peer:
    """peft's adapter of the same matrices, on the same network with the same weights."""
    base = Run(folder / "base")
    network, _ = load_network(base, run_config(base))
    model = _peft_model(network, ["query", "value"])
    return Peer(model.train(), model)


def peft_gpt2_peer(size: Gpt) -> Peer:
    """peft's adapter of transformers' GPT-2, whose queries, keys and values are one matrix."""
    model = _peft_model(transformers_gpt2(size, "sdpa"), ["c_attn"], fan_in_fan_out=True)
    return Peer(model.train(), lambda ids: model(input_ids=ids).logits)


def _peft_model(network: nn.Module, targets: list[str], **settings: bool) -> nn.Module:
    peft = import_module("peft")
    config = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=targets, **settings)
    model: nn.Module = peft.get_peft_model(network, config)
    return model


def adapter_turn(name: str, size: Gpt, folder: Path) -> Callable[[], None]:
    """A turn of ours or of peft: TURN steps."""
    return adapter_steps(name, size, folder, TURN)[1]


def adapter_steps(name: str, size: Gpt, folder: Path, count: int) -> tuple[nn.Module, Callable[[], None]]:
    """A model with an adapter, and some steps of its training."""
    if name == LORA:
        trainer = adapter_trainer(size, folder)
        return trainer.model, steps_of(trainer, count)
    peer = peft_peer(folder) if name == PEFT else peft_gpt2_peer(size)
    return peer.model, steps_of_peer(peer, size, count)

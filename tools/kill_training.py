"""Kill trainings at random moments, and check that what resumes ends bit for bit as if nothing had happened.

    python tools/kill_training.py --kills 60

A training is forked and killed (SIGKILL), resumed and killed again, up to some times; then it may finish, and its
weights and metrics are compared with those of a run that was never killed. Half of the kills strike just before a
random file operation (a checkpoint, its renaming, the deletion of old ones, metrics, the final weights, the card), the
others at a random time. A third of the runs stop early, and so write their best weights, too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ["OMP_NUM_THREADS"] = "1"

import torch

from clearhead.config import AnyConfig
from clearhead.files import read_tensors
from clearhead.run import describe
from clearhead.tasks import default_config, override_config
from clearhead.train.start import resume, run_training

SETTINGS = (
    *("data.validation=0.02", "data.batch_tokens=300", "tokenizer.size=200", "model.dim=16", "model.heads=2"),
    *("model.layers=1", "model.dropout=0.2", "train.optimizer=muon", "train.average=0.9", "train.accumulate=2"),
    *("train.evaluate_every=7", "train.checkpoint_every=3"),
)
EARLY = ("train.patience=2", "train.evaluate_every=2", "train.learning_rate=0.1", "train.metric=loss")
OPERATIONS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree", "os.chmod")  # audit events
MOST = 7  # kills of one run


def make_config(folder: Path, *more: str) -> AnyConfig:
    """A small translator with everything that a step can depend on."""
    pairs = "".join(f"{a} {b} {a}\t{b} {a}\n" for a in "abcdefgh" for b in "ijklmnop")
    (folder / "pairs.tsv").write_text(pairs, encoding="utf-8")
    return override_config(default_config("translate", "tiny"), [f"data.path={folder / 'pairs.tsv'}", *SETTINGS, *more])


def train(config: AnyConfig, run: Path) -> None:
    """Begin a run, or go on with it."""
    if (run / "config.yaml").exists():
        resume(run)
    else:
        run_training(config, run, "test")


def die_before(run: Path, count: int, log: Path) -> None:
    """Kill this process just before the given number of file operations in the run were made; log which it is."""
    left = [count]

    def count_down(event: str, arguments: tuple[object, ...]) -> None:
        if event in OPERATIONS and str(run) in str(arguments[0]):
            left[0] -= 1
            if left[0] == 0:
                name = str(arguments[0]).removeprefix(str(run)).strip("/").replace(str(os.getpid()), "PID")
                os.write(handle, f"{event} {name}".encode())
                os.kill(os.getpid(), signal.SIGKILL)

    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    sys.addaudithook(count_down)


def fork(work: Callable[[], None], seconds: float | None = None) -> int:
    """Do `work` in a copy of this process, killed after so many seconds; its status, negative if it was killed."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as problem:
            print(f"{type(problem).__name__}: {problem}", file=sys.stderr, flush=True)
            os._exit(1)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)  # it is not waited for yet, so its number is nobody else's
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def result(run: Path) -> tuple[object, ...]:
    """What must be equal in the end."""
    tensors, header = read_tensors(run / "model.safetensors")
    weights = {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}
    left = sorted(path.name for path in (run, run / "checkpoints") for path in path.glob(".*"))
    scores = {key: value for key, value in vars(describe(run)).items() if key not in ("name", "size")}
    return weights, header, (run / "metrics.jsonl").read_bytes(), left, scores


def kill(kills: int, seed: int, steps: int, folder: Path) -> dict[str, object]:
    """Make so many kills; the counts of kills, runs and places, and the runs that ended otherwise."""
    chance, log = random.Random(seed), folder / "log"
    made, runs, different = 0, 0, []
    places: Counter[str] = Counter()
    length = f"train.max_steps={steps}"
    configs = {early: make_config(folder, length, *(EARLY if early else ())) for early in (False, True)}
    whole, seconds = {}, 0.0
    for early, config in configs.items():
        begin = time.perf_counter()
        assert fork(lambda config=config, early=early: train(config, folder / f"whole {early}")) == 0  # type: ignore[misc]
        seconds = max(seconds, time.perf_counter() - begin)
        whole[early] = result(folder / f"whole {early}")
    while made < kills:
        early, run = runs % 3 == 2, folder / f"run {runs}"
        for _ in range(min(MOST, kills - made)):
            if chance.randrange(2):
                count = chance.randint(1, 20 * steps)
                status = fork(lambda count=count, early=early, run=run: (  # type: ignore[misc]
                    die_before(run, count, log),
                    train(configs[early], run),
                ))  # fmt: skip
            else:
                log.write_text("a random time", encoding="utf-8")
                status = fork(lambda early=early, run=run: train(configs[early], run), seconds * chance.random())  # type: ignore[misc]
            if status == 0:
                break  # it was faster
            if status != -signal.SIGKILL:
                different.append(f"{run.name}: exit code {status}")
                break
            made += 1
            places[log.read_text(encoding="utf-8")] += 1
        runs += 1
        status = fork(lambda early=early, run=run: train(configs[early], run))  # type: ignore[misc]
        if status or result(run) != whole[early]:
            different.append(f"{run.name}: {'not equal' if not status else f'exit code {status}'}")
    return {"kills": made, "runs": runs, "different": different, "places": dict(places.most_common())}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=60, help="Number of kills.")
    parser.add_argument("--seed", type=int, default=1, help="Random seed of the moments.")
    parser.add_argument("--steps", type=int, default=23, help="Training steps of each run.")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with TemporaryDirectory() as place:
        found = kill(options.kills, options.seed, options.steps, Path(place))
    print(json.dumps(found, indent=1))
    sys.exit(bool(found["different"]))

"""Three machines, each a network namespace with its own address, that train one model under `torchrun --nnodes`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from tests.train.small_runs import assert_alike, losses, make_config, written

from clearhead.files import read_lines
from clearhead.train.start import run_training

pytestmark = pytest.mark.slow  # minutes: every machine starts torch several times

NAMES = (1, 2, 3)
PATIENCE = 480.0  # seconds, on a busy machine

# `clearhead` with steps that take a while, so that something can happen between two of them.
WORKER = """
import time
from clearhead.cli.main import main
from clearhead.train.loop import Trainer
update = Trainer.update
def slow(self, batches):
    time.sleep(0.2)
    update(self, batches)
Trainer.update = slow
main()
"""


class Hosts:
    """Three network namespaces that a bridge in a fourth one connects."""

    def __init__(self, folder: Path):
        self.folder, self.key = folder, f"ch{os.getpid()}"
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.separate = False  # whether each has a run directory of its own
        self.nodes = "3"  # how many machines torchrun needs
        (folder / "worker.py").write_text(WORKER, encoding="utf-8")
        (folder / "runs").mkdir()

    def open(self) -> None:
        self._ip("netns", "add", self._name(0))
        self._ip("-n", self._name(0), "link", "add", "bridge", "type", "bridge")
        self._ip("-n", self._name(0), "link", "set", "bridge", "up")
        for host in NAMES:
            # An address in `hosts`, and a name server that refuses at once: nothing waits for a name.
            files = self._files(host)
            files.mkdir(parents=True)
            known = "".join(f"10.77.0.{each} host{each}\n" for each in NAMES)
            (files / "hosts").write_text(f"127.0.0.1 localhost\n{known}", encoding="utf-8")
            (files / "resolv.conf").write_text("nameserver 127.0.0.1\noptions attempts:1\n", encoding="utf-8")
            name = self._name(host)
            self._ip("netns", "add", name)
            self._ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", f"port{host}", "netns", self._name(0))
            self._ip("-n", self._name(0), "link", "set", f"port{host}", "master", "bridge", "up")
            self._ip("-n", name, "addr", "add", f"10.77.0.{host}/24", "dev", "eth0")
            self._ip("-n", name, "link", "set", "eth0", "up")
            self._ip("-n", name, "link", "set", "lo", "up")

    def close(self) -> None:
        for host in (*NAMES, 0):
            self.kill(host)
            subprocess.run(["ip", "netns", "del", self._name(host)], capture_output=True, check=False)
            shutil.rmtree(self._files(host), ignore_errors=True)

    def start(self, host: int, *arguments: object) -> None:
        """torchrun on one machine, with one process."""
        is_main = str(int(host == 1))
        # Without sharing torchrun's own store, a machine that comes back can find the others.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
        environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        launch = [
            *("--nnodes", self.nodes, "--nproc-per-node", "1", "--max-restarts", "9"),
            *("--local-addr", f"10.77.0.{host}"),
            *("--rdzv-backend", "c10d", "--rdzv-id", self.key, "--rdzv-endpoint", "10.77.0.1:29400"),
            *("--rdzv-conf", f"is_host={is_main},last_call_timeout=1"),
        ]
        command = [sys.executable, "-m", "torch.distributed.run", *launch, str(self.folder / "worker.py")]
        run = ["sh", "-c", f'{self._mount(host)} exec "$@"', "sh", *command, *map(str, arguments)]
        with (self.folder / f"host{host}.txt").open("ab") as output:
            inside = ["ip", "netns", "exec", self._name(host), *run]
            self.running[host] = subprocess.Popen(inside, env=environment, stdout=output, stderr=output)

    def _mount(self, host: int) -> str:
        """A folder of its own in the place of `runs`; `ip netns exec` gives each command its own mounts."""
        if not self.separate:
            return ""
        own = self.folder / f"disk{host}"
        own.mkdir(exist_ok=True)
        return f"mount --bind '{own}' '{self.folder / 'runs'}' &&"

    def kill(self, host: int) -> None:
        """Everything that runs on a machine, at once."""
        found = subprocess.run(["ip", "netns", "pids", self._name(host)], capture_output=True, text=True, check=False)
        for pid in found.stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        if host in self.running:
            self.running.pop(host).wait()

    def link(self, host: int, state: str) -> None:
        """Cut or join the cable between a machine and the bridge."""
        self._ip("-n", self._name(0), "link", "set", f"port{host}", state)

    def limit(self, host: int, rate: str) -> None:
        """Make the network card of a machine slow."""
        card = ["tc", "-n", self._name(host), "qdisc", "add", "dev", "eth0", "root"]
        subprocess.run([*card, "tbf", "rate", rate, "burst", "16kbit", "latency", "400ms"], check=True)

    def wait(self) -> None:
        """Until all have finished."""
        self.until(lambda: all(each.poll() is not None for each in self.running.values()))
        assert [each.returncode for each in self.running.values()] == [0, 0, 0], self.output()

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, self.output()
            time.sleep(0.1)

    def output(self) -> str:
        return "\n".join(path.read_text(encoding="utf-8")[-3000:] for path in sorted(self.folder.glob("host*.txt")))

    def _name(self, host: int) -> str:
        return f"{self.key}h{host}"

    def _files(self, host: int) -> Path:
        return Path("/etc/netns") / self._name(host)

    def _ip(self, *arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    found = Hosts(tmp_path)
    try:
        found.open()
        yield found
    except (OSError, subprocess.CalledProcessError) as problem:
        pytest.skip(f"network namespaces need root and iproute2: {problem}")
    finally:
        found.close()


def started(hosts: Hosts, settings: Sequence[str]) -> tuple[Path, Path, list[object]]:
    """One process's run, where the main machine has the run of all, and the arguments of `clearhead` in each."""
    one, config = hosts.folder / "one", make_config(hosts.folder, "translate", "train.max_steps=22", *settings)
    run_training(config, one, "test")
    recipe, run = written(config, hosts.folder / "recipe.yaml"), hosts.folder / "runs" / "run"
    command: list[object] = ["train", recipe, "--out", run]
    for host in NAMES:
        hosts.start(host, *command)
    return one, hosts.folder / "disk1" / "run" if hosts.separate else run, command


def last_step(run: Path) -> int:
    return max((line["step"] for line in read_lines(run / "metrics.jsonl")), default=0)


@pytest.mark.parametrize("separate", [False, True], ids=["shared folder", "separate folders"])
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_three_hosts_of_which_one_is_slow_equal_one_process(hosts: Hosts, strategy: str, separate: bool) -> None:
    hosts.separate = separate
    hosts.limit(2, "10mbit")
    one, run, _ = started(hosts, [f"train.strategy={strategy}"])
    hosts.wait()
    assert_alike(run, one)
    shards = len(list((run / "checkpoints" / "step-00000020").glob("weights/shard-*")))
    assert shards == (3 if strategy == "fsdp" and not separate else 0)
    if separate:  # the others have what they need to train, and nothing that only one should have
        for host in (2, 3):
            names = {path.name for path in (hosts.folder / f"disk{host}" / "run").iterdir()}
            assert names == {"config.yaml", "tokenizer.json", "checkpoints"}


@pytest.mark.parametrize(("strategy", "separate"), [("fsdp", False), ("ddp", True)])
def test_a_host_that_was_killed_comes_back(hosts: Hosts, strategy: str, separate: bool) -> None:
    hosts.separate = separate
    one, run, command = started(hosts, [f"train.strategy={strategy}"])
    hosts.until(lambda: last_step(run) > 5)
    hosts.kill(3)
    hosts.start(3, *command)
    hosts.wait()
    assert_alike(run, one)
    times = [line["step"] for line in read_lines(run / "times.jsonl")]
    assert times.count(1) == 1  # it went on from a checkpoint
    assert len(times) > len(losses(run)) - 5  # and repeated some steps


def test_two_hosts_go_on_until_the_third_comes_back(hosts: Hosts) -> None:
    hosts.nodes = "2:3"
    one, run, command = started(hosts, ["train.strategy=fsdp", "train.max_steps=44", "train.evaluate_every=40"])
    hosts.until(lambda: last_step(run) > 5)
    hosts.kill(3)
    seen = last_step(run)
    hosts.until(lambda: last_step(run) > seen + 8)  # a checkpoint of two later
    hosts.start(3, *command)
    hosts.wait()
    assert_alike(run, one)
    shards = {len(list(path.glob("weights/*"))) for path in (run / "checkpoints").glob("step-*")}
    assert shards == {2, 3}


def test_a_link_that_was_cut_for_longer_than_the_timeout(hosts: Hosts) -> None:
    one, run, _ = started(hosts, ["train.strategy=ddp", "train.timeout=0.2"])
    hosts.until(lambda: last_step(run) > 5)
    hosts.link(3, "down")
    seen = last_step(run)
    time.sleep(20)
    assert last_step(run) <= seen + 1  # nobody goes on without the others
    hosts.link(3, "up")
    hosts.wait()
    assert_alike(run, one)

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.data.windows import TokenFile, Windows, write_tokens
from clearhead.errors import DataError
from clearhead.text import Tokenizer
from clearhead.text.sentences import CHUNK

TEXT = "the cat sat on the mat\nand the dog sat on the log\n" * 40


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train("bytes", [TEXT], size=280)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokens")


def counting(folder: Path, count: int) -> TokenFile:
    """A file that holds 0, 1, 2, ... so that a token tells its place."""
    path = folder / f"{count}.npy"
    np.save(path, np.arange(count, dtype=np.uint32))
    return TokenFile.open(path)


def test_the_file_holds_the_text(tokenizer: Tokenizer, tmp_path: Path) -> None:
    blocks = [TEXT, "", "x" * (3 * CHUNK), " y z" * CHUNK, TEXT]
    tokens = write_tokens(iter(blocks), tokenizer, tmp_path / "train.npy")
    ids = np.load(tmp_path / "train.npy")
    assert ids.dtype == np.uint16
    assert ids.shape == (len(tokens),)
    assert tokenizer.decode(ids) == "".join(blocks)
    assert TokenFile.open(tmp_path / "train.npy") == tokens
    assert [path.name for path in tmp_path.iterdir()] == ["train.npy"]


def test_blocks_can_end_with_a_stop(tokenizer: Tokenizer, tmp_path: Path) -> None:
    write_tokens(["the cat", "x" * (3 * CHUNK), ""], tokenizer, tmp_path / "train.npy", stop=True)
    ids = np.load(tmp_path / "train.npy").tolist()
    assert ids.count(tokenizer.stop) == 3
    assert ids[: len(tokenizer.encode("the cat")) + 1] == [*tokenizer.encode("the cat"), tokenizer.stop]
    assert ids[-2:] == [tokenizer.stop] * 2


def test_many_tokens_need_wider_numbers(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train("word", (f"w{number}" for number in range(70_000)), size=80_000)
    write_tokens([" ".join(f"w{number}" for number in range(69_000, 70_000))], tokenizer, tmp_path / "train.npy")
    ids = np.load(tmp_path / "train.npy")
    assert ids.dtype == np.uint32
    assert ids.max() > 1 << 16
    assert tokenizer.decode(ids).startswith("w69000 w69001")


def test_a_failed_write_leaves_the_old_file(tokenizer: Tokenizer, tmp_path: Path) -> None:
    def torn() -> Iterator[str]:
        yield TEXT
        raise DataError("is torn", path="book.txt")

    old = write_tokens([TEXT], tokenizer, tmp_path / "train.npy")
    with pytest.raises(DataError, match=r"book\.txt: is torn"):
        write_tokens(torn(), tokenizer, tmp_path / "train.npy")
    assert TokenFile.open(tmp_path / "train.npy") == old
    assert [path.name for path in tmp_path.iterdir()] == ["train.npy"]
    with pytest.raises(DataError, match=r"train\.npy: cannot be written: No such file or directory"):
        write_tokens([TEXT], tokenizer, tmp_path / "nowhere" / "train.npy")


def test_files_that_hold_no_tokens_are_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "train.npy"
    with pytest.raises(DataError, match=r"train\.npy: cannot be read: No such file or directory"):
        TokenFile.open(path)
    path.write_text(TEXT)
    with pytest.raises(DataError, match=r"train\.npy: is not a token file; write one with write_tokens"):
        TokenFile.open(path)
    path.write_bytes(b"")
    with pytest.raises(DataError, match=r"train\.npy: is not a token file"):
        TokenFile.open(path)
    np.save(path, np.zeros((3, 5)))
    with pytest.raises(DataError, match=r"holds float64 numbers of shape \(3, 5\), not a row of token ids"):
        TokenFile.open(path)
    np.save(path, np.zeros(7, np.int64))
    with pytest.raises(DataError, match=r"holds int64 numbers of shape \(7,\)"):
        TokenFile.open(path)


@pytest.mark.parametrize("bytes_off", [1, 100])
def test_a_torn_file_is_refused(tokenizer: Tokenizer, tmp_path: Path, bytes_off: int) -> None:
    path = tmp_path / "train.npy"
    count = len(write_tokens([TEXT], tokenizer, path))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - bytes_off)
    with pytest.raises(DataError, match=rf"holds {count - (bytes_off + 1) // 2} tokens where its header says {count}"):
        TokenFile.open(path)


def test_a_text_shorter_than_a_window_is_refused(folder: Path) -> None:
    with pytest.raises(DataError, match=r"8\.npy: holds 8 tokens, too few for one window of 8 \+ 1"):
        Windows(counting(folder, 8), length=8, batch=2, seed=1)
    assert [rows.tolist() for rows in Windows(counting(folder, 9), length=8, batch=2, seed=1)] == [[[*range(9)]]]
    with pytest.raises(DataError, match="holds 3 windows, too few for 4 processes"):
        Windows(counting(folder, 40), length=10, batch=2, seed=1, world=4)
    with pytest.raises(DataError, match="0 tokens, too few"):
        Windows(counting(folder, 0), length=8, batch=2, seed=1)


@given(st.integers(2, 300), st.integers(1, 40), st.integers(1, 7), st.integers(0, 2**32), st.integers(1, 3))
@settings(deadline=None)
def test_windows_lie_side_by_side_and_ranks_share_them(
    folder: Path, count: int, length: int, batch: int, seed: int, world: int
) -> None:
    tokens = counting(folder, max(count, world * length + length, length + 1))
    ranks = [Windows(tokens, length=length, batch=batch, seed=seed, rank=rank, world=world) for rank in range(world)]
    for _ in range(2):
        epochs = [list(rank) for rank in ranks]
        assert {len(epoch) for epoch in epochs} == {len(ranks[0])}
        assert len({sum(map(len, epoch)) for epoch in epochs}) == 1
        rows = np.concatenate([rows for epoch in epochs for rows in epoch])  # (windows, length + 1)
        assert rows.dtype == np.int64
        assert all(len(rows) <= batch for epoch in epochs for rows in epoch)
        assert (np.diff(rows, axis=1) == 1).all()
        starts = np.sort(rows[:, 0])
        assert len(set(starts.tolist())) == len(starts)
        assert ((starts - starts[0]) % length == 0).all()
        assert rows.max() < len(tokens)
        assert len(tokens) - 1 - length * len(rows) < length * (world + 1)


def test_borders_move_with_the_epoch(folder: Path) -> None:
    windows = Windows(counting(folder, 300), length=16, batch=4, seed=1)
    firsts = [min(int(rows[:, 0].min()) for rows in windows) for _ in range(20)]
    assert len(set(firsts)) > 8
    assert max(firsts) < 16


@given(st.integers(20, 200), st.integers(1, 9), st.integers(0, 60), st.integers(0, 1))
@settings(deadline=None)
def test_going_on_from_anywhere_is_as_if_one_had_never_stopped(
    folder: Path, count: int, length: int, cut: int, rank: int
) -> None:
    def fresh() -> Windows:
        return Windows(counting(folder, count + 10), length=length, batch=3, seed=5, rank=rank, world=2)

    whole = [rows.tolist() for rows in islice(fresh().forever(), cut + 20)]
    first, second = fresh(), fresh()
    seen = [rows.tolist() for rows in islice(first.forever(), cut)]
    second.restore(json.loads(json.dumps(first.state())))
    assert seen + [rows.tolist() for rows in islice(second.forever(), 20)] == whole


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 2}, "the state has seed=1 and this run has seed=2"),
        ({"length": 9}, "the state has length=8 and this run has length=9"),
        ({"batch": 3}, "the state has batch=2 and this run has batch=3"),
        ({"world": 2}, "the state has world=1 and this run has world=2"),
    ],
)
def test_a_state_of_another_run_is_refused(folder: Path, change: dict[str, int], message: str) -> None:
    given = {"length": 8, "batch": 2, "seed": 1}
    state = Windows(counting(folder, 100), **given).state()
    with pytest.raises(DataError, match=f"cannot resume: {message}"):
        Windows(counting(folder, 100), **{**given, **change}).restore(state)


def test_a_state_of_another_text_is_refused(folder: Path, tmp_path: Path) -> None:
    state = Windows(counting(folder, 100), length=8, batch=2, seed=1).state()
    np.save(tmp_path / "other.npy", np.arange(1, 101, dtype=np.uint32))
    for other in (counting(folder, 101), TokenFile.open(tmp_path / "other.npy")):
        with pytest.raises(DataError, match="cannot resume: the state has data="):
            Windows(other, length=8, batch=2, seed=1).restore(state)


# Trains on, tokenises and windows `megabytes` of text in a process of its own, and prints the most memory it held.
PROGRAM = """
import sys
from itertools import islice
from pathlib import Path
from clearhead.data.windows import Windows, write_tokens
from clearhead.text import Tokenizer

text, out, kind = sys.argv[1:]

def blocks():
    with open(text, encoding="utf-8") as file:
        while block := file.read(1 << 20):
            yield block

tokenizer = Tokenizer.train(kind, blocks(), size=300)
windows = Windows(write_tokens(blocks(), tokenizer, out), length=256, batch=64, seed=1)
read = sum(rows.size for rows in islice(windows, 20_000))
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(read, int(peak.split()[1]) / 1024)
"""


def peak_memory(megabytes: int, kind: str, folder: Path) -> float:
    """In MiB, from the kernel: unlike getrusage, VmHWM knows nothing of the process that started this one."""
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc to measure memory")
    text = folder / "text.txt"
    words = np.random.default_rng(1).permutation([f"word{number % 97}s{number}" for number in range(5000)])
    block = (" ".join(words) + "\n").encode()
    with text.open("wb") as file:
        while file.tell() < megabytes << 20:
            file.write(block)
    source = Path(sys.modules["clearhead"].__path__[0]).parent
    command = [sys.executable, "-c", PROGRAM, str(text), str(folder / "out.npy"), kind]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    text.unlink()
    (folder / "out.npy").unlink()
    tokens, peak = done.stdout.split()
    assert int(tokens) > megabytes << 17
    return float(peak)


@pytest.mark.parametrize("kind", ["char", "bytes"])
def test_memory_does_not_grow_with_the_text(kind: str, tmp_path: Path) -> None:
    small, large = peak_memory(1, kind, tmp_path), peak_memory(7, kind, tmp_path)
    assert large < small + 30


@pytest.mark.slow
def test_two_gigabytes_of_text_fit_in_one_of_memory(tmp_path: Path) -> None:
    assert peak_memory(2048, "char", tmp_path) < 1024

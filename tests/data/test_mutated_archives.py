"""Damaged and hostile archives are unpacked, or refused by one sentence; nothing lands outside of their folder.

`make test-slow` tries 10,000.
"""

from __future__ import annotations

import gzip
import io
import lzma
import random
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.mutations import STRANGE, change_bytes, no_longer_than, nothing_outside

from clearhead.data import catalogue, hub
from clearhead.data.archives import unpack_tar
from clearhead.data.images import read_npz
from clearhead.errors import ClearheadError, DataError, DownloadError, RunError
from clearhead.interop.formats.base.torch_file import load_torch

SECONDS, PART = 5.0, 500
ENTRY = catalogue.Entry("toy", "text", "a toy", "none", ("toy.tar",))
FILES = {"toy/one.tsv": b"one\tuno\tme\n" * 9, "toy/deep/two.txt": b"two\n" * 50, "three.bin": bytes(range(256)) * 3}
NAMES = ["../evil", "/evil", "a/../../evil", "toy", "toy/one.tsv/x", ".", "", "a" * 5000, "a\0b", "\udcff", "C:/evil"]
KINDS = (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE)


def tar(chance: random.Random) -> bytes:
    """An archive whose members may be anything, whole or damaged, before or after it is compressed."""
    packed, odd = io.BytesIO(), chance.randrange(3) == 0
    with tarfile.open(fileobj=packed, mode="w", format=chance.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT))) as out:
        for name, content in FILES.items():
            member = tarfile.TarInfo(chance.choice(NAMES) if odd and chance.randrange(2) else name)
            member.size = len(content)
            if odd and chance.randrange(2):
                member.type, member.linkname = chance.choice(KINDS), chance.choice(NAMES)
            if chance.randrange(9) == 0:
                member.pax_headers = {chance.choice(["size", "path", "GNU.sparse.size"]): str(chance.choice(STRANGE))}
            out.addfile(member, io.BytesIO(content) if member.isreg() else None)
    data = packed.getvalue()
    data = change_bytes(data, chance) if chance.randrange(2) else data
    data = chance.choice((bytes, gzip.compress, lzma.compress))(data)
    return data if odd else change_bytes(data, chance)


def zipped(chance: random.Random) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, content in FILES.items():
            archive.writestr(name, content)
    return change_bytes(packed.getvalue(), chance)


def npz(chance: random.Random) -> bytes:
    packed = io.BytesIO()
    save = chance.choice((np.savez, np.savez_compressed))
    save(packed, images=np.ones((5, 7, 3), np.uint8), labels=np.arange(5), names=np.array(list("abcde")))
    return change_bytes(packed.getvalue(), chance)


def saved_tensors(chance: random.Random) -> bytes:
    packed = io.BytesIO()
    torch.save({"model": {"a.weight": torch.ones(5, 3), "b": torch.arange(7)}, "step": 3}, packed)
    return change_bytes(packed.getvalue(), chance)


def open_tar(path: Path, out: Path) -> None:
    with hub._disk_errors(ENTRY):
        unpack_tar(path, out, lambda *_: None)


def open_zip(path: Path, out: Path) -> None:
    with hub._disk_errors(ENTRY):
        catalogue.copy_pairs("pairs.tsv", "toy/one.tsv").make(path, out)
        catalogue.copy_members({"two.txt": "toy/deep/two.txt"}).make(path, out)


ARCHIVES: dict[str, tuple[Callable[[random.Random], bytes], Callable[[Path, Path], object]]] = {
    "tar": (tar, open_tar),
    "zip": (zipped, open_zip),
    "npz": (npz, lambda path, _: read_npz(path)),
    "torch": (saved_tensors, lambda path, _: load_torch(path)),
}


def try_archives(folder: Path, name: str, seeds: range) -> Counter[str]:
    """How often a mutated archive was read and refused; anything else is an error that names its seed."""
    make, read = ARCHIVES[name]
    counts: Counter[str] = Counter()
    for seed in seeds:
        place = folder / str(seed)
        (place / "out").mkdir(parents=True)
        (place / "archive").write_bytes(make(random.Random(f"{name} {seed}")))
        try:
            with no_longer_than(SECONDS), nothing_outside(place / "out", place / "archive"):
                read(place / "archive", place / "out")
            counts["read"] += 1
        except ClearheadError:
            counts["refused"] += 1
        except BaseException as problem:
            raise AssertionError(f"{name}, seed {seed}: {type(problem).__name__}: {problem}") from problem
        assert not [path for path in (place / "out").rglob("*") if path.is_symlink() or path.is_fifo()]
    print(f"{name}, {seeds}: {dict(counts)}")
    return counts


def damaged(path: Path, member: str, flags: int = 0, compression: int = 0) -> Path:
    """A zip whose directory says something else about its member."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, b"one\tuno\n")
    data = bytearray(path.read_bytes())
    place = data.index(b"PK\x01\x02")
    data[place + 8], data[place + 10] = flags, compression
    path.write_bytes(data)
    return path


def test_what_tarfile_and_zipfile_raise_is_one_sentence(tmp_path: Path) -> None:
    member = tarfile.TarInfo("one.tsv")
    member.pax_headers = {"GNU.sparse.size": "many"}
    with tarfile.open(tmp_path / "toy.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(member)
    with pytest.raises(DownloadError, match=r"toy\.tar cannot be unpacked: invalid literal .*'many'; download it"):
        open_tar(tmp_path / "toy.tar", tmp_path)
    unknown = damaged(tmp_path / "unknown.zip", "toy/one.tsv", compression=99)
    with pytest.raises(DownloadError, match=r"unknown\.zip cannot be unpacked: That compression method is not supp"):
        open_zip(unknown, tmp_path)
    secret = damaged(tmp_path / "secret.zip", "toy/one.tsv", flags=1)
    with pytest.raises(DownloadError, match=r"secret\.zip cannot be unpacked: .*encrypted, password required"):
        open_zip(secret, tmp_path)
    arrays = damaged(tmp_path / "arrays.npz", "images.npy", compression=99)
    with pytest.raises(DataError, match="is not an npz file of plain arrays, or is damaged"):
        read_npz(arrays)


def test_a_torch_file_at_which_torch_asserts_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(saved_tensors(random.Random("torch 1434")))
    with pytest.raises(RunError, match=r"a\.pt is damaged or not a file of torch\.save: saved_id must be a tuple"):
        load_torch(tmp_path / "a.pt")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ARCHIVES)
def test_mutated_archives(name: str, tmp_path: Path) -> None:
    assert try_archives(tmp_path, name, range(60))["refused"] > 5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("start", range(0, 2500, PART))
@pytest.mark.parametrize("name", ARCHIVES)
def test_ten_thousand_mutated_archives(name: str, start: int, tmp_path: Path) -> None:
    try_archives(tmp_path, name, range(start, start + PART))

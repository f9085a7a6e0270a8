"""The datasets of `clearhead data get`: licences, files below `$CLEARHEAD_DATA`, addresses, and recipes.

Only training and validation parts are fetched: test parts are for final measurements. A checksum is of the downloaded
bytes, as published by someone other than the server (the comment says who); None means that nobody publishes one, so
the first download is recorded and later ones must equal it.

A recipe turns a download into files that a reader takes. Nothing is ever written to a name that an archive chose:
single members are copied to names given here.
"""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from string import ascii_lowercase
from typing import IO

import numpy as np
from numpy.typing import NDArray

from clearhead.data.archives import archive_errors, check_unpacked
from clearhead.data.treaties import treaties
from clearhead.errors import ConfigError, DownloadError, nearest

MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
TATOEBA_LICENCE = "CC BY 2.0 FR: name Tatoeba in the card of a model trained on it"
CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR_SHAPE = (3, 32, 32)  # (C, H, W): one byte of class, then the planes of red, green and blue
MAX_BATCH = 1 << 26  # bytes of a file of CIFAR-10


# ---- Recipes


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a download becomes files: `make(download, folder)` writes each of `makes` into the folder."""

    makes: tuple[str, ...]
    make: Callable[[Path, Path], None]


def copy_members(names: Mapping[str, str]) -> Recipe:
    """Copy single members of a zip: name of the file -> name in the archive."""

    def make(download: Path, folder: Path) -> None:
        with archive_errors(download), zipfile.ZipFile(download) as archive:
            for name, member in names.items():
                check_unpacked(archive.getinfo(member).file_size, download.stat().st_size)
                with archive.open(member) as source, (folder / name).open("wb") as target:
                    shutil.copyfileobj(source, target)

    return Recipe(tuple(names), make)


def copy_pairs(name: str, member: str) -> Recipe:
    """Copy tab-separated pairs from a zip, without the third column that names the authors."""

    def make(download: Path, folder: Path) -> None:
        with archive_errors(download), zipfile.ZipFile(download) as archive:
            check_unpacked(archive.getinfo(member).file_size, download.stat().st_size)
            with archive.open(member) as source:
                _rewrite(source, folder / name, lambda line: b"\t".join(line.split(b"\t")[:2]))

    return Recipe((name,), make)


def coarse_labels(name: str) -> Recipe:
    """Keep the six coarse classes of TREC: `DESC:manner How …` becomes `DESC How …`."""

    def make(download: Path, folder: Path) -> None:
        with download.open("rb") as source:
            _rewrite(source, folder / name, _coarse_line)

    return Recipe((name,), make)


def cifar_batches(name: str) -> Recipe:
    """Make arrays of CIFAR-10's five binary training batches (the Python version is a pickle, which is unsafe)."""

    def make(download: Path, folder: Path) -> None:
        with archive_errors(download), tarfile.open(download) as archive:
            batches = [_member(archive, f"cifar-10-batches-bin/data_batch_{number}.bin") for number in range(1, 6)]
        images, labels = cifar_arrays(b"".join(batches))
        np.savez(folder / name, images=images, labels=labels, names=np.array(CIFAR_CLASSES))

    return Recipe((name,), make)


def cifar_arrays(records: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Split records of one class byte and 3072 pixel bytes into images (N, 32, 32, 3) and labels (N,)."""
    record = 1 + int(np.prod(CIFAR_SHAPE))
    if not records or len(records) % record:
        raise DownloadError(f"CIFAR-10 has {len(records)} bytes, not a multiple of {record}; download it again")
    rows = np.frombuffer(records, dtype=np.uint8).reshape(-1, record)  # (N, 3073)
    images = rows[:, 1:].reshape(-1, *CIFAR_SHAPE).transpose(0, 2, 3, 1)  # (N, H, W, C)
    return np.ascontiguousarray(images), rows[:, 0].astype(np.int64)


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    source = archive.extractfile(name)
    if source is None:
        raise KeyError(f"{name} is not a file")
    with source:
        return source.read(MAX_BATCH)


def _rewrite(source: IO[bytes], target: Path, change: Callable[[bytes], bytes]) -> None:
    with target.open("wb") as out:
        out.writelines(change(line.rstrip(b"\r\n")) + b"\n" for line in source)


def _coarse_line(line: bytes) -> bytes:
    label, _, text = line.partition(b" ")
    return label.split(b":")[0] + b" " + text


# ---- A generated dataset

INVENTED_LINES = 15_000
INVENTED_WORDS = 6  # different words in a line
INVENTED_LETTERS = (3, 7)  # in a word: fewest, most
INVENTED_LENGTH = 20  # words in a line
INVENTED_SEED = 1


def invented() -> Iterator[str]:
    """Lines of random words that are new in each line: `aqa mjfmxk aqa oubd mjfmxk …`.

    A word is unpredictable the first time and predictable when it returns: a language model gets better within a line
    only by learning from that line (in-context learning), for which it needs induction heads.
    """
    random = Random(INVENTED_SEED)
    for _ in range(INVENTED_LINES):
        words = [
            "".join(random.choices(ascii_lowercase, k=random.randint(*INVENTED_LETTERS))) for _ in range(INVENTED_WORDS)
        ]
        yield " ".join(random.choices(words, k=INVENTED_LENGTH))


# ---- The catalogue


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file on the web; a recipe turns it into other files, without one it is kept as it is."""

    name: str
    address: str
    checksum: str | None  # "sha256:…", "sha1:…" or "md5:…"
    size: int | None = None  # bytes
    recipe: Recipe | None = None

    @property
    def results(self) -> tuple[str, ...]:
        """The names of the files in the end."""
        return self.recipe.makes if self.recipe else (self.name,)


@dataclass(frozen=True, slots=True)
class Use:
    """The reader's options for a dataset, named like the keys of the `data` section of a configuration."""

    encoding: str | None = None
    source: str | None = None
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One dataset; `local` are its files below `$CLEARHEAD_DATA`: a single file, or several in one folder."""

    name: str
    kind: str
    title: str
    licence: str
    local: tuple[str, ...]
    files: tuple[RemoteFile, ...] = ()  # empty: cannot be downloaded
    inside: str = ""  # the folder to use within an unpacked archive
    use: Use = Use()
    make: Callable[[], Iterable[str]] | None = None  # yields the lines of data that is generated

    @property
    def made_file(self) -> str:
        """The name of the file with generated data."""
        return f"{self.name}.{'tsv' if self.kind == 'pairs' else 'txt'}"

    @property
    def size(self) -> int | None:
        """Bytes to download, if every file's size is known."""
        sizes = [file.size for file in self.files]
        return sum(size for size in sizes if size) if sizes and all(sizes) else None


def _multi30k(name: str, size: int, checksum: str) -> RemoteFile:
    return RemoteFile(name, f"{MULTI30K}/{name}", checksum, size)


_ENTRIES = (
    Entry(
        "multi30k",
        kind="pairs",
        title="Multi30k: 29,000 image captions in English, German and French",
        licence="unstated; the images are for non-commercial use",
        local=tuple(f"multi30k/{part}.{language}.gz" for part in ("train", "val") for language in ("en", "de", "fr")),
        files=(  # sha256 of files whose md5 is the one in torchtext
            _multi30k("train.en.gz", 568929, "sha256:d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f"),
            _multi30k("train.de.gz", 637044, "sha256:726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6"),
            _multi30k("train.fr.gz", 604242, "sha256:622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c"),
            _multi30k("val.en.gz", 21650, "sha256:14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28"),
            _multi30k("val.de.gz", 24681, "sha256:f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a"),
            _multi30k("val.fr.gz", 23001, "sha256:ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9"),
        ),
        use=Use(source="en", target="de"),
    ),
    Entry(
        "tatoeba-en-es",
        kind="pairs",
        title="Tatoeba: over 100,000 short English-Spanish pairs, by manythings.org",
        licence=TATOEBA_LICENCE,
        local=("tatoeba/en-es.tsv.gz",),
        files=(
            RemoteFile(  # TensorFlow's frozen copy, used in its tutorials without a checksum
                "spa-eng.zip",
                "https://storage.googleapis.com/download.tensorflow.org/data/spa-eng.zip",
                checksum=None,
                size=2638744,
                recipe=copy_pairs("en-es.tsv", "spa-eng/spa.txt"),
            ),
        ),
    ),
    Entry(
        "tatoeba-en-fr",
        kind="pairs",
        title="Tatoeba: over 100,000 short English-French pairs, by manythings.org",
        licence=TATOEBA_LICENCE,
        local=("tatoeba/en-fr.tsv.gz",),
        files=(
            RemoteFile(  # the frozen copy and checksum of "Dive into Deep Learning"
                "fra-eng.zip",
                "https://d2l-data.s3-accelerate.amazonaws.com/fra-eng.zip",
                "sha1:94646ad1522d915e7b0f9296181140edcf86a4f5",
                recipe=copy_pairs("en-fr.tsv", "fra-eng/fra.txt"),
            ),
        ),
    ),
    Entry(
        "tatoeba-en-de",
        kind="pairs",
        title="Tatoeba: over 100,000 short English-German pairs, by manythings.org",
        licence=TATOEBA_LICENCE,
        local=("tatoeba/en-de.tsv.gz",),
        files=(
            RemoteFile(  # renewed from time to time, so no checksum can be published
                "deu-eng.zip",
                "https://www.manythings.org/anki/deu-eng.zip",
                checksum=None,
                recipe=copy_pairs("en-de.tsv", "deu.txt"),
            ),
        ),
    ),
    Entry(
        "tinyshakespeare",
        kind="text",
        title="Tiny Shakespeare: 1,115,394 characters of plays",
        licence="public domain text",
        local=("tinyshakespeare/input.txt.gz",),
        files=(
            RemoteFile(  # tensorflow_datasets
                "input.txt",
                "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
                "sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
                size=1115394,
            ),
        ),
    ),
    Entry(
        "wikitext2",
        kind="text",
        title="WikiText-2 raw: two million words of good Wikipedia articles",
        licence="CC BY-SA",
        local=("wikitext2/train.txt.gz", "wikitext2/valid.txt.gz"),
        files=(
            RemoteFile(  # the copy that llama.cpp tests with; checksum from the `datasets` library
                "wikitext-2-raw-v1.zip",
                "https://huggingface.co/datasets/ggml-org/ci/resolve/main/wikitext-2-raw-v1.zip",
                "sha256:ef7edb566e3e2b2d31b29c1fdb0c89a4cc683597484c3dc2517919c615435a11",
                size=4721645,
                recipe=copy_members(
                    {"train.txt": "wikitext-2-raw/wiki.train.raw", "valid.txt": "wikitext-2-raw/wiki.valid.raw"}
                ),
            ),
        ),
    ),
    Entry(
        "mnist",
        kind="images",
        title="MNIST: 60,000 handwritten digits, 28 × 28, grey",
        licence="unstated",
        local=("mnist/train-images-idx3-ubyte.gz", "mnist/train-labels-idx1-ubyte.gz"),
        files=(  # tensorflow_datasets, for the same files that torchvision pins by md5
            RemoteFile(
                "train-images-idx3-ubyte.gz",
                f"{MNIST}/train-images-idx3-ubyte.gz",
                "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                size=9912422,
            ),
            RemoteFile(
                "train-labels-idx1-ubyte.gz",
                f"{MNIST}/train-labels-idx1-ubyte.gz",
                "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                size=28881,
            ),
        ),
    ),
    Entry(
        "cifar10",
        kind="images",
        title="CIFAR-10: 50,000 photographs of ten things, 32 × 32, in colour",
        licence="unstated",
        local=("cifar10/train.tar.xz",),
        files=(
            RemoteFile(  # tensorflow_datasets; the authors' page gives md5 c32a1d4ab5d03f1284b67883e8d87530
                "cifar-10-binary.tar.gz",
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                size=170052171,
                recipe=cifar_batches("train.npz"),
            ),
        ),
        inside="train",
    ),
    Entry(
        "sst2",
        kind="labelled",
        title="SST-2: 67,349 phrases of film reviews, good or bad, as in GLUE",
        licence="unstated",
        local=("sst2/train.tsv.gz", "sst2/dev.tsv.gz"),
        files=(
            RemoteFile(  # tensorflow_datasets and the `datasets` library
                "SST-2.zip",
                "https://dl.fbaipublicfiles.com/glue/data/SST-2.zip",
                "sha256:d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa",
                size=7439277,
                recipe=copy_members({"train.tsv": "SST-2/train.tsv", "dev.tsv": "SST-2/dev.tsv"}),
            ),
        ),
    ),
    Entry(
        "trec",
        kind="labelled",
        title="TREC: 5,452 questions in six classes by what they ask for",
        licence="unstated",
        local=("trec/train.txt.gz",),
        files=(
            RemoteFile(  # the `datasets` library
                "train_5500.label",
                "https://cogcomp.seas.upenn.edu/Data/QA/QC/train_5500.label",
                "sha256:9e4c8bdcaffb96ed61041bd64b564183d52793a8e91d84fc3a8646885f466ec3",
                size=335858,
                recipe=coarse_labels("train.txt"),
            ),
        ),
        use=Use(encoding="latin-1"),
    ),
    Entry(
        "gutenberg",
        kind="text",
        title="Project Gutenberg: 17 books, 1.3 million words",
        licence="public domain",
        local=("gutenberg/gutenberg-17books.tar.xz",),
        use=Use(encoding="latin-1"),
    ),
    Entry(
        "flickr8k",
        kind="captions",
        title="Flickr8k: 7,091 photographs, 64 × 64, with five captions each",
        licence="research and education only: never publish the images",
        local=tuple(
            f"flickr8k/{name}" for name in ("captions.tsv.gz", "train.txt.gz", "dev.txt.gz", "images-64px.tar.xz")
        ),
    ),
    Entry(
        "ud-ewt",
        kind="tagged",
        title="Universal Dependencies: 2,001 sentences of the English Web Treebank, its dev part",
        licence="CC BY-SA 4.0",
        local=("ud-ewt/dev.conllu.gz",),
    ),
    Entry(
        "invented",
        kind="text",
        title="Made-up words: 15,000 lines, each with six words of its own",
        licence="public domain: made by this package",
        local=(),
        make=invented,
    ),
    Entry(
        "treaties-en-es",
        kind="pairs",
        title="Treaties and institutions: 6,000 English-Spanish sentences made from lists of words",
        licence="public domain: made by this package",
        local=(),
        make=treaties,
    ),
)

CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}


def find(name: str) -> Entry:
    """The entry of this name; an unknown name is an error that suggests the nearest."""
    if name not in CATALOGUE:
        raise ConfigError(f"unknown dataset {name}; {nearest(name, CATALOGUE)}")
    return CATALOGUE[name]

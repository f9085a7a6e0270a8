"""The run directory is the model: everything that a run leaves behind, and all that is needed to use it.

config.yaml         what it was made from, with every default
tokenizer.json      text <-> ids (where there is text)
model.safetensors   the weights; its metadata holds sizes and labels
adapter.safetensors, base.json    instead of it, for an adapter: what was trained, and the model it belongs to
metrics.jsonl       one line for each measurement
attention/          the attention of one validation example, at each evaluation
times.jsonl         the seconds of training up to each step
card.md             data, sizes, scores, versions and the command; facts as YAML front matter
checkpoints/        where an interrupted run goes on

Some run directories come with the package, under a name. Nothing here imports torch before weights are read.

    Run.open(find("en-es"))        by name or path
    describe(path)                 what a run directory says of itself
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead import config as configuration
from clearhead.config import AnyConfig
from clearhead.errors import ConfigError, RunError, ShapeError
from clearhead.files import (
    cache_folder,
    locked,
    read_lines,
    read_tensors,
    regular_file,
    remove_leftovers,
    write_errors,
    write_tensors,
    write_text,
)
from clearhead.registry import Registry
from clearhead.text import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from clearhead.nn.quantised import Quantised

BUNDLED = Path(__file__).parent / "bundled"  # the run directories that come with the package
FORMAT = "clearhead 1"
NOT_SCORES = ("step", "part", "loss", "sample", "confusion")  # keys of an evaluation in metrics.jsonl
DATA = "data"  # the folder of a run that holds data which was given as Python objects
MAX_TEXT = 1 << 22  # bytes of config.yaml or card.md
MAX_SIZE = 1 << 31  # no size of a model reaches this
LOCK = ".lock"  # is there while a process trains


@dataclass(frozen=True)
class Sizes:
    """The sizes that the data decides; a task uses those that it needs."""

    vocabulary: int = 0
    classes: int = 0
    channels: int = 0
    height: int = 0
    width: int = 0
    pad: int = 0  # the id of the padding token


@dataclass(frozen=True)
class ModelMeta:
    """What the data decides about a model, stored beside its weights."""

    sizes: Sizes
    labels: tuple[str, ...] = ()
    p99_source_length: int = 0  # tokens: 99 % of the training sources are no longer; 0 = unknown

    def to_json(self) -> str:
        """As the metadata of model.safetensors holds it."""
        return json.dumps({"sizes": asdict(self.sizes), "labels": self.labels, "usual": self.p99_source_length})

    @classmethod
    def from_json(cls, text: str) -> ModelMeta:
        """Read what `to_json` wrote; the first version's files do not have every key. Anything else is a ValueError."""
        try:
            values = json.loads(text)
            sizes, labels, usual = Sizes(**values["sizes"]), values["labels"], values.get("usual", 0)
        except (TypeError, KeyError, AttributeError, RecursionError) as problem:
            raise ValueError(f"unexpected values: {problem}") from None
        for number in (*asdict(sizes).values(), usual):
            if type(number) is not int or not 0 <= number < MAX_SIZE:
                raise ValueError(f"{number!r:.40} is not a size")
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise ValueError("the labels are not a list of names")
        if len(labels) != sizes.classes:
            raise ValueError(f"{len(labels)} labels for classes={sizes.classes}")
        if sizes.pad and sizes.pad >= sizes.vocabulary:
            raise ValueError(f"pad={sizes.pad} is not among vocabulary={sizes.vocabulary} tokens")
        return cls(sizes, tuple(labels), usual)


@dataclass(frozen=True)
class Run:
    """A run directory, by its path."""

    path: Path

    @classmethod
    def create(cls, path: Path, config: AnyConfig) -> Run:
        """A new directory; one that holds another run is refused."""
        if (path / "config.yaml").exists():
            raise ConfigError(f"{path} holds another run; go on with `clearhead resume {path}` or choose another --out")
        if path.exists() and (not path.is_dir() or any(entry.name not in (DATA, LOCK) for entry in path.iterdir())):
            raise ConfigError(f"{path} exists and is not an empty folder; choose another --out")
        with write_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            write_text(path / "config.yaml", configuration.dump(config))
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> Run:
        """An existing directory."""
        if not (path / "config.yaml").is_file():
            raise RunError(f"{path} is not a run directory: it has no config.yaml")
        return cls(path)

    @contextmanager
    def training(self) -> Iterator[None]:
        """Keep other processes from training in this directory, and clean up after one that was killed."""
        with write_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        busy = f"{self.path}: another process is training in this folder; wait for it, or stop it"
        with locked(self.path / LOCK, busy):
            for folder in (self.path, self.checkpoints, self.path / "attention"):
                remove_leftovers(folder)
            yield

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def command(self) -> Path:
        """The file with the command that began the run."""
        return self.checkpoints / "command.txt"

    @property
    def data_files(self) -> Path:
        """The file that says what the files of the data were when the run began."""
        return self.checkpoints / "data.json"

    @property
    def converted(self) -> Path:
        """Where copies for other engines are kept: in the run, or in the cache for one that comes with the package."""
        return cache_folder("ct2") / self.path.name if self.path.parent == BUNDLED else self.path / "ct2"

    def save_weights(
        self,
        tensors: Mapping[str, Tensor],
        meta: ModelMeta,
        half: bool = False,
        quantised: Mapping[str, Quantised] | None = None,
    ) -> None:
        """Write the finished weights, in float16 with `half`; those in `quantised` as the blocks that they stand in."""
        blocks = quantised or {}
        stored = {name: each.detach().cpu().contiguous() for name, each in tensors.items() if name not in blocks}
        if half:
            stored = {name: each.half() if each.is_floating_point() else each for name, each in stored.items()}
        stored |= {name: each.rows.contiguous() for name, each in blocks.items()}
        metadata = {"facts": meta.to_json(), "format": FORMAT}
        if blocks:
            metadata["quantised"] = json.dumps({name: each.format for name, each in blocks.items()})
        write_tensors(self.path / "model.safetensors", stored, metadata)

    def load_weights(self) -> tuple[dict[str, Tensor], ModelMeta]:
        """The finished weights: a weight that two parts share is there once, a quantised one as its floats."""
        tensors, quantised, meta = self.load_stored_weights()
        return {**tensors, **{name: each.dequantise() for name, each in quantised.items()}}, meta

    def load_stored_weights(self) -> tuple[dict[str, Tensor], dict[str, Quantised], ModelMeta]:
        """The finished weights as they are stored: those in floats, and those in blocks."""
        path = self.file("model.safetensors")
        if not path.is_file():
            raise RunError(f"{self.path} has no model yet; finish it with `clearhead resume {self.path}`")
        tensors, metadata = read_tensors(path, mapped="quantised")
        if metadata.get("format") != FORMAT:
            raise RunError(f"{path} was written by another version ({metadata.get('format', 'unknown')})")
        try:
            meta = ModelMeta.from_json(metadata.get("facts", ""))
            return *_apart(tensors, json.loads(metadata.get("quantised", "{}"))), meta
        except (ValueError, ShapeError) as problem:
            raise RunError(f"{path} is damaged: its metadata has {problem}") from None

    def load_tokenizer(self) -> Tokenizer | None:
        """The run's tokenizer; None for a model that reads no text, or before there is one."""
        path = self.file("tokenizer.json")
        return Tokenizer.load(path) if path.exists() else None

    def file(self, name: str) -> Path:
        """The path of one of its files; one that is not a file, or leads out of the directory, is an error."""
        return regular_file(self.path / name, self.path)

    def read_text(self, name: str) -> str:
        """A short text file of its own."""
        path = self.file(name)
        try:
            if path.stat().st_size > MAX_TEXT:
                raise RunError(f"{path} is larger than {MAX_TEXT:,} bytes")
            return path.read_text(encoding="utf-8")
        except OSError as problem:
            raise RunError(f"cannot read {path}: {problem.strerror or problem}") from None
        except UnicodeDecodeError:
            raise RunError(f"{path} is not a text file") from None


def _apart(tensors: dict[str, Tensor], formats: object) -> tuple[dict[str, Tensor], dict[str, Quantised]]:
    """Stored tensors: those in floats, and those in blocks of a format; a ValueError where `formats` names others."""
    from clearhead.nn.quantised import Quantised

    if not isinstance(formats, dict) or not formats.keys() <= tensors.keys():
        raise ValueError("formats of tensors that are not there")
    blocks = {name: Quantised(str(format), tensors[name]) for name, format in formats.items()}
    return {name: tensor for name, tensor in tensors.items() if name not in blocks}, blocks


# --- run directories that come with the package ---


def bundled_names() -> list[str]:
    """The names of the models that come with the package."""
    return sorted(path.parent.name for path in BUNDLED.glob("*/config.yaml"))


# What makes a run directory of a path that is none; None: it cannot. Importing foreign models stands higher in the line
# of layers, so it is asked by name.
RESOLVERS: Registry[Callable[[Path], Path | None]] = Registry("resolver", "clearhead.interop.resolvers")


def find(model: str | Path) -> Path:
    """The run directory of a path or a name; an existing directory comes before a name.

    A foreign model, a folder or a file, is imported into the cache.
    """
    path = Path(model)
    if not path.is_dir() and str(path) in bundled_names():
        return BUNDLED / path
    if path.exists() and not (path / "config.yaml").is_file():
        for name in RESOLVERS:
            if found := RESOLVERS[name](path):
                return found
    if path.is_dir():
        return path
    if path.exists():
        raise RunError(f"{model} is neither a run directory nor a file of a model that `clearhead import` reads")
    known = [*bundled_names(), *(str(each.parent) for each in path.parent.glob("*/config.yaml"))]
    close = difflib.get_close_matches(str(path), known, n=1)
    suggestion = f"did you mean {close[0]}? " if close else ""
    raise RunError(
        f"no such run directory or model: {model}; {suggestion}"
        "`clearhead models` lists those that come with the package"
    )


# --- what a run directory says of itself ---


@dataclass(frozen=True)
class Description:
    """What the files of a run directory say of it."""

    name: str
    task: str
    title: str  # the first line of the card's text
    parameters: int | None
    size: int  # bytes of all files
    licence: str  # and whom to credit
    loss: float | None  # on the validation part, of the last evaluation; so are the scores
    scores: dict[str, float]
    sample: str  # of the output at that evaluation
    examples: tuple[str, ...] = ()  # inputs to try it with
    passage: str = ""  # a longer text to try it with


def describe(path: Path) -> Description:
    """What the files of a run directory say of it."""
    run = Run(path)
    facts, text = split_card(read_card(path), str(path / "card.md"))
    lines = read_lines(run.file("metrics.jsonl"))
    evaluations = [line for line in lines if line.get("part") == "validation"]
    measured: dict[str, Any] = evaluations[-1] if evaluations else {}
    paragraphs = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    config = configuration.parse_document(run.read_text("config.yaml"), str(path / "config.yaml"))
    examples = facts.get("examples")
    return Description(
        name=path.name,
        task=str(config.values.get("task", "")),
        title=printable(next(paragraphs, "")),
        parameters=facts["parameters"] if type(facts.get("parameters")) is int else None,
        size=sum(file.stat().st_size for file in path.rglob("*") if file.is_file()),
        licence=printable(facts.get("licence", "")),
        loss=measured["loss"] if _is_number(measured.get("loss")) else None,
        scores={name: value for name, value in measured.items() if name not in NOT_SCORES and _is_number(value)},
        sample=printable(measured.get("sample", "")),
        examples=tuple(map(printable, examples)) if isinstance(examples, list) else (),
        passage=printable(facts.get("passage") or ""),
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def printable(value: object) -> str:
    """A text without the control characters that would command a terminal."""
    return _CONTROL.sub("�", str(value))


_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def read_card(path: Path) -> str:
    """The text of card.md."""
    if not (path / "card.md").exists():
        raise RunError(f"{path} has no card.md: a training writes it when it is finished")
    return printable(Run(path).read_text("card.md"))


def split_card(card: str, origin: str = "card.md") -> tuple[dict[str, Any], str]:
    """The facts of a card's YAML front matter, and the text below it; `origin` is what errors call it."""
    if card.startswith("---\n") and (end := card.find("\n---\n")) > 0:
        _, facts = configuration.parse_yaml(card[4 : end + 1], origin)
        return facts if isinstance(facts, dict) else {}, card[end + 5 :]
    return _facts_of_table(card), card


def _facts_of_table(card: str) -> dict[str, Any]:
    """The first version's cards have no front matter: their first table has the facts."""
    rows = [line.strip("|").split("|") for line in card.splitlines() if line.startswith("|")]
    facts: dict[str, Any] = {row[0].strip(): row[1].strip() for row in reversed(rows) if len(row) > 1}
    parameters = str(facts.get("parameters", "")).replace(",", "")
    return {**facts, "parameters": int(parameters) if re.fullmatch(r"[0-9]{1,18}", parameters) else None}

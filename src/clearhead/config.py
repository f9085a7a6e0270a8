"""The base of typed, frozen configuration: sections, YAML in and out, `section.key=value` overrides.

    config = override(config, ["model.dim=256", "train.seed=7"])
    text = dump(config)

Every value has a default and every key is known: an unknown one is an error that suggests the nearest. The `model`
section belongs to a task; `clearhead.tasks` makes the configuration of a task from its defaults or from a YAML file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, Self, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from clearhead.errors import ConfigError, nearest

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C takes a tenth of the time

# What a YAML text may hold: enough for any configuration, and too little to exhaust stack or memory.
MAX_CHARACTERS = 1 << 20
MAX_DEPTH = 32
MAX_NODES = 50_000  # an alias counts as much as what it stands for

TokenizerKind = Literal["char", "word", "bpe", "bytes", "wordpiece", "unigram"]
ScheduleName = Literal["inverse_sqrt", "cosine", "linear", "stable"]


class Section(BaseModel):
    """One part of the configuration: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), defer_build=True)


class TokenizerConfig(Section):
    """How text becomes token ids."""

    kind: TokenizerKind = Field("bpe", description="tokenizer algorithm")
    size: int = Field(8000, ge=8, description="maximum vocabulary size, special tokens included")
    lowercase: bool = Field(False, description="lowercase text first")


class DataConfig(Section):
    """Where examples come from and how they are grouped."""

    path: str = Field("builtin", description="file, folder, dataset name, aligned files `a,b`, texts `a+b`, `builtin`")
    kind: str | None = Field(None, description="what the path holds, the name of a reader; none = detect it")
    source: str | None = Field(None, description="column or language of the input side")
    target: str | None = Field(None, description="column or language of the output side")
    encoding: str = Field("utf-8", description="text encoding of the files")
    validation: float | None = Field(
        None, ge=0, lt=1, description="share held out where the data has no validation part; none = 5 %, less of much"
    )
    batch_tokens: int = Field(4096, ge=1, description="tokens in one batch, padding included, on its longer side")
    max_length: int = Field(256, ge=1, description="maximum sequence length in tokens")
    augment: float = Field(
        0.0, ge=0, le=1, description="strength of image augmentation, or share of a training text's tokens hidden"
    )
    mirror: bool = Field(False, description="flip half of the training images left to right")
    shift: int = Field(0, ge=0, description="pixels that training images are moved by, at most, in each direction")
    image_size: int | None = Field(
        None, ge=1, description="side of the centre square that images are scaled to; none = as they are if all equal"
    )
    image_fit: Literal["cut", "stretch"] = Field("cut", description="cut the centre of an image, or distort it")
    image_edge: int | None = Field(
        None,
        ge=1,
        description="shorter side that images are scaled to before the cut; none = image_size",
    )
    image_filter: Literal["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"] = Field(
        "bicubic", description="how pixels are computed when an image is scaled"
    )


class TrainConfig(Section):
    """How a model learns."""

    seed: int = Field(1, ge=0, description="random seed")
    max_steps: int | None = Field(2000, ge=0, description="training steps; none = as many as fit into max_minutes")
    max_minutes: float | None = Field(
        None, gt=0, description="time limit in minutes, from reading the data to the last evaluation"
    )
    optimizer: Literal["adamw", "muon"] = Field("adamw", description="muon for the matrices, adamw for the rest")
    learning_rate: float = Field(1e-3, gt=0, description="peak learning rate of adamw")
    matrix_rate: float = Field(0.02, gt=0, description="peak learning rate of muon")
    weight_decay: float = Field(0.01, ge=0, description="weight decay of the matrices")
    betas: tuple[float, float] = Field((0.9, 0.98), description="adamw's decay rates")
    schedule: ScheduleName = Field("inverse_sqrt", description="learning-rate schedule after the warm-up")
    warmup: float = Field(0.1, ge=0, le=1, description="share of the training for the warm-up")
    decay: float = Field(0.3, ge=0, le=1, description="share of the training for the final decay (stable)")
    clip: float | None = Field(1.0, gt=0, description="maximum norm of the gradient; none = no clipping")
    accumulate: int = Field(1, ge=1, description="gradient accumulation: batches per step")
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="label smoothing")
    average: float = Field(0.0, ge=0, lt=1, description="decay of the moving average of the weights (EMA); 0 = none")
    start_from: str | None = Field(
        None, description="run or bundled model whose weights training starts from, where they fit"
    )
    freeze: tuple[str, ...] = Field((), description="parts that are not trained: embedding, encoder, decoder.0-2, …")
    adapter: Literal["lora"] | None = Field(
        None, description="train an adapter beside the frozen weights of start_from"
    )
    rank: int = Field(8, ge=1, description="rank of the adapter's updates (lora)")
    alpha: float = Field(16.0, gt=0, description="an update is scaled by alpha / rank (lora)")
    targets: tuple[str, ...] = Field(
        ("query", "value"), description="linear maps that get an update: query, encoder.0-2.output, … (lora)"
    )
    beam: int = Field(4, ge=1, description="beam width of the last evaluation; 1 = greedy")
    sampling: float = Field(
        0.0, ge=0, le=1, description="scheduled sampling: final share of inputs that are the model's own predictions"
    )
    evaluations: int = Field(6, ge=1, description="evaluations in all, evenly spread; the last one ends the training")
    evaluate_every: int | None = Field(None, ge=1, description="steps between evaluations; none = evenly spread")
    patience: int | None = Field(None, ge=1, description="early stopping: evaluations without improvement")
    metric: str | None = Field(None, description="what early stopping watches: loss or a score; none = the task's")
    board: Literal["auto", "tensorboard", "wandb", "none"] = Field(
        "auto", description="training curves; auto: TensorBoard if it is installed; wandb: offline"
    )
    checkpoint_every: int = Field(500, ge=1, description="steps between checkpoints")
    keep: int = Field(2, ge=1, description="number of checkpoints to keep")
    device: Literal["auto", "cpu", "cuda", "mps"] = Field("auto", description="device")
    precision: Literal["auto", "float32", "bfloat16"] = Field("auto", description="auto: bfloat16 where it is native")
    compile: Literal["auto", "yes", "no"] = Field("auto", description="torch.compile: auto where it is known to help")
    recompute: bool = Field(False, description="activation checkpointing: less memory, more time")
    strategy: Literal["ddp", "fsdp"] = Field("ddp", description="several processes: replicas (ddp) or shards (fsdp)")
    timeout: float = Field(30.0, gt=0, description="several processes: minutes after which one that waits gives up")
    deterministic: bool = Field(True, description="bit-identical weights for the same seed")

    @model_validator(mode="after")
    def _schedule_fits(self) -> Self:
        if self.schedule == "inverse_sqrt" and self.warmup == 0:
            raise ConfigError("schedule=inverse_sqrt falls from where the warm-up ends: warmup must be above 0")
        if self.max_steps is None and self.max_minutes is None:
            raise ConfigError("nothing ends the training: give max_steps or max_minutes")
        return self

    @model_validator(mode="after")
    def _adapter_fits(self) -> Self:
        if self.adapter is not None and self.start_from is None:
            raise ConfigError(f"adapter={self.adapter} needs a trained model beside it: give start_from=RUN")
        if self.adapter is not None and self.freeze:
            raise ConfigError(f"adapter={self.adapter} freezes every weight of start_from: leave out freeze")
        return self


ModelT = TypeVar("ModelT", bound=Section)


class Config(Section, Generic[ModelT]):
    """Everything a run is made from; each task has its own `model` section."""

    task: str = Field(description="the task, a name of `clearhead.tasks`")
    model: ModelT
    tokenizer: TokenizerConfig = Field(default_factory=TokenizerConfig)
    data: DataConfig = Field(default_factory=DataConfig)
    train: TrainConfig = Field(default_factory=TrainConfig)


AnyConfig = Config[Any]  # where the task does not matter
ConfigT = TypeVar("ConfigT", bound=BaseModel)


@dataclass(frozen=True)
class Document:
    """A YAML file before anybody knows what it configures."""

    values: dict[str, Any]
    lines: dict[str, int]  # dotted name -> line
    origin: str  # what errors call it

    def over(self, base: ConfigT) -> ConfigT:
        """The base configuration with these values in place of its own."""
        return _validated(type(base), _merged(base.model_dump(), self.values), self.lines, self.origin)


def read_document(path: Path) -> Document:
    """Read a YAML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        raise ConfigError(f"cannot read {path}: {problem.strerror or problem}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file") from None
    return parse_document(text, str(path))


def parse_document(text: str, origin: str = "configuration") -> Document:
    """Read YAML text; `origin` is what errors call it."""
    tree, values = parse_yaml(text, origin)
    values = {} if values is None else values
    if not isinstance(values, dict):
        raise ConfigError(f"{origin}: expected `section:` headings with `key: value` lines below them")
    return Document(values, dict(_lines(tree, origin)) if tree else {}, origin)


def parse_yaml(text: str, origin: str) -> tuple[yaml.Node | None, Any]:
    """The nodes and the value of YAML text that anybody may have written; `origin` is what errors call it."""
    try:
        _check_size(text)
        loader = LOADER(text)
        tree = loader.get_single_node()
        return tree, None if tree is None else loader.construct_document(tree)
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        reason = getattr(problem, "problem", None) or str(problem).partition("\n")[0]
        raise ConfigError(f"{origin}{line}: not valid YAML ({reason})") from None
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as problem:  # `!!int ''`, 2024-99-99
        raise ConfigError(f"{origin}: not valid YAML (a value that cannot be read: {_cut(problem)})") from None


def _check_size(text: str) -> None:
    """Refuse nesting on which the parser would run out of stack, and aliases that stand for more than memory holds."""
    if len(text) > MAX_CHARACTERS:
        raise yaml.YAMLError(f"it has {len(text):,} characters, more than {MAX_CHARACTERS:,}")
    sizes: dict[str | None, int] = {}  # nodes of each anchor
    open_nodes: list[tuple[str | None, int]] = []  # of each open collection: its anchor, and the nodes before it
    nodes = 0
    for event in yaml.parse(text, Loader=LOADER):
        if isinstance(event, yaml.AliasEvent):
            nodes += sizes.get(event.anchor, 1)
        elif isinstance(event, yaml.ScalarEvent):
            nodes += 1
            sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, nodes))
            nodes += 1
            sizes[event.anchor] = MAX_NODES  # while it is open: a node that holds itself has no end
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            sizes[anchor] = nodes - before
        if len(open_nodes) > MAX_DEPTH:
            raise yaml.YAMLError(f"it is nested more than {MAX_DEPTH} levels deep")
        if nodes > MAX_NODES:
            raise yaml.YAMLError(f"it has more than {MAX_NODES:,} values")


def _cut(value: object, most: int = 80) -> str:
    """A value as an error quotes it."""
    text = str(value)
    return text if len(text) <= most else f"{text[:most]}…"


def override(config: ConfigT, assignments: Sequence[str]) -> ConfigT:
    """Apply `section.key=value` assignments; each value is read as the type of its key."""
    values = config.model_dump()
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise ConfigError(f"{assignment!r} is not of the form section.key=value")
        _assign(config, values, name.strip(), text.strip())
    return _validated(type(config), values, {}, "")


def assignment(name: str, value: object) -> str:
    """`section.key=value` as `override` reads it."""
    if isinstance(value, float):
        return f"{name}={value:g}" if float(f"{value:g}") == value else f"{name}={value!r}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"{name}={','.join(map(str, value))}"
    return f"{name}={'none' if value is None else str(value).lower() if isinstance(value, bool) else value}"


def dump(config: BaseModel) -> str:
    """The whole configuration as YAML, with every default."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def describe(config: BaseModel) -> Iterator[tuple[str, Any, str]]:
    """(dotted name, value, description) of every setting."""
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, Section):
            for key, inner in type(value).model_fields.items():
                yield f"{name}.{key}", getattr(value, key), inner.description or ""
        else:
            yield name, value, field.description or ""


def _assign(config: BaseModel, values: dict[str, Any], name: str, text: str) -> None:
    """Set one dotted name; an unknown one is an error that suggests the nearest."""
    known = {dotted for dotted, _, _ in describe(config)}
    if name not in known:
        raise ConfigError(f"unknown setting {name}; {nearest(name, known)}")
    *sections, key = name.split(".")
    for section in sections:
        values = values[section]
    if text.lower() in ("none", "null") and _may_be_none(type(config), name):
        values[key] = None
    else:
        values[key] = _parts(text) if _holds(type(config), name, tuple) else text  # a tuple is written 0.9,0.98


def _may_be_none(kind: type[BaseModel], name: str) -> bool:
    """Whether a setting is optional; where it is not, `none` is a value like any other (`model.positions=none`)."""
    return _holds(kind, name, type(None))


def _holds(kind: type[BaseModel], name: str, wanted: type) -> bool:
    """Whether a setting may be a value of this type."""
    first, _, rest = name.partition(".")
    annotation: Any = kind.model_fields[first].annotation
    if rest:
        return _holds(annotation, rest, wanted)
    return any(get_origin(each) is wanted or each is wanted for each in (annotation, *get_args(annotation)))


def _parts(text: str) -> list[str | None]:
    """The entries of a tuple."""
    return [None if each.strip().lower() == "none" else each for each in text.split(",")]


def _merged(base: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in values.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = _merged(base[key], value) if both else value
    return merged


def _validated(kind: type[ConfigT], values: dict[str, Any], lines: Mapping[str, int], origin: str) -> ConfigT:
    try:
        return kind.model_validate(values)
    except ValidationError as problem:
        first = problem.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        line = lines.get(name)
        place = f"{origin}, line {line}: " if line else f"{origin}: " if origin else ""
        raise ConfigError(place + _sentence(kind, name, first)) from None


def _sentence(kind: type[BaseModel], name: str, error: Any) -> str:
    if error["type"] == "extra_forbidden":
        known = [dotted for dotted, _, _ in describe(kind.model_validate({}))] + list(kind.model_fields)
        return f"unknown setting {_cut(name)}; {nearest(_cut(name), known)}"
    if error["type"] == "value_error":
        return f"{name}: {error['ctx']['error']}" if name else str(error["ctx"]["error"])
    message = error["msg"][0].lower() + error["msg"][1:]
    return f"{_cut(name)}={_cut(error['input'])}: {message}"


def _lines(node: yaml.Node, origin: str, prefix: str = "") -> Iterator[tuple[str, int]]:
    """(dotted name, line) of every key of a YAML document; a key given twice is an error."""
    if not isinstance(node, yaml.MappingNode):
        return
    seen: dict[str, int] = {}
    for key, value in node.value:
        name, line = f"{prefix}{_cut(key.value)}", key.start_mark.line + 1
        if name in seen:
            raise ConfigError(f"{origin}, line {line}: {name} is set twice; the first is on line {seen[name]}")
        seen[name] = line
        yield name, line
        yield from _lines(value, origin, f"{name}.")

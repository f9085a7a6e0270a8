"""Typed, frozen configuration: defaults for each task, YAML in and out, `section.key=value` overrides.

    config = defaults("translate", size="small")
    config = override(config, ["model.dim=256", "train.seed=7"])
    config = load(Path("recipe.yaml"))
    text = dump(config)

Every value has a default and every key is known: an unknown one is an error that names the nearest right one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator

from clearhead.errors import ConfigError, nearest

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C takes a tenth of the time

Task = Literal["translate", "lm", "classify", "tag", "vision", "caption", "words"]
Size = Literal["tiny", "small", "base"]
TokenizerKind = Literal["char", "word", "bpe", "bytes", "wordpiece", "unigram"]
ScoreName = Literal["dot", "scaled_dot", "additive", "bilinear", "cosine"]
PositionName = Literal["sinusoidal", "learned", "rotary", "alibi", "t5", "none"]
NormName = Literal["layer", "rms", "batch"]
Placement = Literal["before", "after", "around"]
FeedForwardName = Literal["relu", "gelu", "swiglu"]
PoolName = Literal["class", "mean", "last"]
CellName = Literal["rnn", "gru", "lstm"]
ContextName = Literal["last", "sum", "attention"]
ScheduleName = Literal["inverse_sqrt", "cosine", "linear", "stable"]

TASKS: tuple[Task, ...] = get_args(Task)
SIZES: tuple[Size, ...] = get_args(Size)


class Section(BaseModel):
    """One part of the configuration: it cannot be changed, and refuses what it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), defer_build=True)


class TokenizerConfig(Section):
    """How text becomes token ids."""

    kind: TokenizerKind = Field("bpe", description="the scheme that cuts text into tokens")
    size: int = Field(8000, ge=8, description="most tokens in the vocabulary, special ones included")
    lowercase: bool = Field(False, description="fold capitals before cutting")


class DataConfig(Section):
    """Where examples come from and how they are grouped."""

    path: str = Field("builtin", description="file, folder, dataset name, aligned files `a,b`, texts `a+b`, `builtin`")
    kind: str | None = Field(None, description="what the path holds, the name of a reader; none = detect it")
    source: str | None = Field(None, description="column or language of the input side")
    target: str | None = Field(None, description="column or language of the output side")
    encoding: str = Field("utf-8", description="text encoding of the files")
    validation: float = Field(0.05, ge=0, lt=1, description="share held out where the data has no own validation part")
    batch_tokens: int = Field(4096, ge=1, description="padded tokens in one batch, on its longer side")
    max_length: int = Field(256, ge=1, description="longest sequence kept, in tokens")
    augment: float = Field(
        0.0,
        ge=0,
        le=1,
        description="how far training images are turned and moved, or share of a training text's tokens hidden",
    )


class ModelConfig(Section):
    """The sizes and parts of an attention model."""

    dim: int = Field(128, ge=1, description="width of every token vector, D")
    heads: int = Field(4, ge=1, description="attention heads, H")
    layers: int = Field(4, ge=1, description="blocks in each stack")
    kv_heads: int | None = Field(None, ge=1, description="key-value heads shared by groups of heads; none = heads")
    key_dim: int | None = Field(None, ge=1, description="size of one head's queries and keys, d_k; none = dim / heads")
    value_dim: int | None = Field(None, ge=1, description="size of one head's values, d_v; none = dim / heads")
    inner: int | None = Field(None, ge=1, description="width inside the feed-forward part; none = 4 × dim")
    score: ScoreName = Field("scaled_dot", description="how a query is compared with a key")
    hard: bool = Field(False, description="pick one key instead of averaging (straight-through gradient)")
    window: int | None = Field(None, ge=1, description="keys a query may see on each side, itself included")
    positions: PositionName = Field("sinusoidal", description="how order enters the model")
    position_base: float = Field(10000.0, gt=1, description="N of the sinusoidal and rotary positions")
    position_concat: bool = Field(False, description="concatenate input positions instead of adding them")
    max_length: int = Field(1024, ge=1, description="rows of a learned position table")
    norm: NormName = Field("layer", description="normalisation of token vectors")
    placement: Placement = Field("before", description="normalise before, after or around each part of a block")
    feed_forward: FeedForwardName = Field("relu", description="nonlinearity of the feed-forward part")
    bias: bool = Field(True, description="linear maps have a bias")
    dropout: float = Field(0.1, ge=0, lt=1, description="share of the embedding and of each part's output dropped")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="share of the attention weights dropped (slower)")
    inner_dropout: float = Field(0.0, ge=0, lt=1, description="share dropped inside the feed-forward part")
    tied: bool = Field(True, description="the output uses the embedding's matrix")

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.dim % self.heads and not (self.key_dim and self.value_dim):
            raise ConfigError(f"dim={self.dim} is not divisible by heads={self.heads}")
        if self.kv_heads and self.heads % self.kv_heads:
            raise ConfigError(f"heads={self.heads} is not divisible by kv_heads={self.kv_heads}")
        return self


class TranslateModel(ModelConfig):
    """A model that reads one sentence and writes another."""

    architecture: Literal["transformer", "rnn"] = Field("transformer", description="attention, or what came before")
    cell: CellName = Field("gru", description="kind of recurrent cell (rnn)")
    context: ContextName = Field("attention", description="what the decoder sees of the source (rnn)")


class TextModel(ModelConfig):
    """A language model."""

    architecture: Literal["transformer", "rnn"] = Field("transformer", description="attention, or what came before")
    cell: CellName = Field("lstm", description="kind of recurrent cell (rnn)")
    objective: Literal["next", "masked"] = Field("next", description="predict the next token, or masked ones")
    length: int = Field(256, ge=1, description="tokens of running text in one window")


class ClassifyModel(ModelConfig):
    """A classifier of texts."""

    pool: PoolName = Field("mean", description="which vector speaks for the text")


class TagModel(ModelConfig):
    """A tagger has nothing that the others have not."""


class VisionModel(ModelConfig):
    """A classifier of images."""

    patch: int = Field(4, ge=1, description="side of a square patch, in pixels")
    pool: PoolName = Field("class", description="which vector speaks for the image")


class CaptionModel(ModelConfig):
    """A model that describes an image."""

    architecture: Literal["cross", "sequence", "rnn"] = Field(
        "cross", description="a decoder that looks at patches, patches and text as one sequence, or image + rnn"
    )
    patch: int = Field(8, ge=1, description="side of a square patch, in pixels")
    cell: CellName = Field("lstm", description="kind of recurrent cell (rnn)")


class WordsModel(Section):
    """Word vectors: skip-gram."""

    dim: int = Field(100, ge=1, description="numbers in a word vector")
    window: int = Field(5, ge=1, description="words on each side that count as context")
    negatives: int = Field(5, ge=0, description="noise words for each real one; 0 = full softmax")
    subsample: float = Field(1e-3, ge=0, description="frequent words above this share are thinned out; 0 = never")
    min_count: int = Field(5, ge=1, description="rarer words are left out")


class TrainConfig(Section):
    """How a model learns."""

    seed: int = Field(1, ge=0, description="fixes every random choice")
    max_steps: int = Field(2000, ge=0, description="updates of the weights")
    max_minutes: float | None = Field(None, gt=0, description="stop by then; the schedule fits itself to it")
    optimizer: Literal["adamw", "muon"] = Field("adamw", description="muon for the matrices, adamw for the rest")
    learning_rate: float = Field(1e-3, gt=0, description="highest rate of adamw")
    matrix_rate: float = Field(0.02, gt=0, description="highest rate of muon")
    weight_decay: float = Field(0.01, ge=0, description="pull of the matrices towards zero")
    betas: tuple[float, float] = Field((0.9, 0.98), description="memory of adamw's two averages")
    schedule: ScheduleName = Field("inverse_sqrt", description="how the rate falls after the warm-up")
    warmup: float = Field(0.1, ge=0, le=1, description="share of the training in which the rate rises")
    decay: float = Field(0.3, ge=0, le=1, description="share at the end in which it falls (stable)")
    clip: float | None = Field(1.0, gt=0, description="longest gradient; none = any")
    accumulate: int = Field(1, ge=1, description="batches for one update")
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="share of the target spread over all labels")
    average: float = Field(0.0, ge=0, lt=1, description="decay of the running average of the weights; 0 = none")
    start_from: str | None = Field(None, description="a trained model whose weights it begins with, where they fit")
    beam: int = Field(4, ge=1, description="hypotheses kept when the last evaluation translates; 1 = greedy")
    sampling: float = Field(
        0.0, ge=0, le=1, description="share of target tokens taken from the model itself, at the end"
    )
    evaluate_every: int = Field(500, ge=1, description="steps between evaluations")
    patience: int | None = Field(None, ge=1, description="evaluations without improvement before it stops")
    checkpoint_every: int = Field(500, ge=1, description="steps between checkpoints")
    keep: int = Field(2, ge=1, description="checkpoints kept")
    device: Literal["auto", "cpu", "cuda", "mps"] = Field("auto", description="where it computes")
    precision: Literal["auto", "float32", "bfloat16"] = Field("auto", description="auto: bfloat16 where it is native")
    compile: Literal["auto", "yes", "no"] = Field("auto", description="torch.compile: auto where it is known to help")
    recompute: bool = Field(False, description="keep no activations inside blocks: less memory, more time")
    strategy: Literal["ddp", "fsdp"] = Field("ddp", description="many processes: whole copies, or shards")
    deterministic: bool = Field(True, description="the same weights from the same seed, to the last bit")

    @model_validator(mode="after")
    def _schedule_fits(self) -> Self:
        if self.schedule == "inverse_sqrt" and self.warmup == 0:
            raise ConfigError("schedule=inverse_sqrt falls from where the warm-up ends: warmup must be above 0")
        return self


class Config(Section):
    """Everything a run is made from; each task has its own kind of model."""

    task: Task
    model: Any
    tokenizer: TokenizerConfig = Field(default_factory=TokenizerConfig)
    data: DataConfig = Field(default_factory=DataConfig)
    train: TrainConfig = Field(default_factory=TrainConfig)


MODELS: dict[Task, type[ModelConfig | WordsModel]] = {
    "translate": TranslateModel,
    "lm": TextModel,
    "classify": ClassifyModel,
    "tag": TagModel,
    "vision": VisionModel,
    "caption": CaptionModel,
    "words": WordsModel,
}


def _config_of(task: Task, model: type[ModelConfig | WordsModel]) -> type[Config]:
    """The configuration whose model is that of one task."""
    fields: Any = {
        "task": (Literal[task], Field(task, description="which system")),
        "model": (model, Field(default_factory=model)),
    }
    return create_model(f"{task.title()}Config", __base__=Config, **fields)


CONFIGS: dict[Task, type[Config]] = {task: _config_of(task, model) for task, model in MODELS.items()}

_SIZES: dict[Size, dict[str, int]] = {
    "tiny": {"dim": 64, "heads": 2, "layers": 2},
    "small": {"dim": 128, "heads": 4, "layers": 4},
    "base": {"dim": 512, "heads": 8, "layers": 6},
}
_WORD_SIZES: dict[Size, dict[str, int]] = {"tiny": {"dim": 50}, "small": {"dim": 100}, "base": {"dim": 300}}

# What a task changes of the defaults above.
_TASKS: dict[Task, dict[str, dict[str, Any]]] = {
    "translate": {"train": {"label_smoothing": 0.1}},
    "lm": {"model": {"positions": "rotary", "feed_forward": "gelu"}, "tokenizer": {"kind": "bytes"}},
    "classify": {"model": {"positions": "learned", "feed_forward": "gelu"}},
    "tag": {"model": {"positions": "learned", "feed_forward": "gelu"}, "tokenizer": {"kind": "word"}},
    "vision": {"model": {"positions": "learned", "feed_forward": "gelu"}},
    "caption": {"model": {"positions": "learned", "feed_forward": "gelu"}, "tokenizer": {"kind": "word"}},
    "words": {
        "tokenizer": {"kind": "word", "lowercase": True},
        "train": {"learning_rate": 0.025, "schedule": "linear"},
    },
}


def defaults(task: str, size: str = "small") -> Config:
    """The configuration of a task before the user says anything."""
    if task not in TASKS:
        raise ConfigError(f"unknown task {task}; {nearest(task, TASKS)}")
    if size not in SIZES:
        raise ConfigError(f"unknown size {size}; {nearest(size, SIZES)}")
    sections = {name: dict(values) for name, values in _TASKS[task].items()}
    sizes = _WORD_SIZES[size] if task == "words" else _SIZES[size]
    sections["model"] = {**sizes, **sections.get("model", {})}
    return CONFIGS[task].model_validate({"task": task, **sections})


def override(config: Config, assignments: Sequence[str]) -> Config:
    """Apply `section.key=value` words; each value is read as the type the key has."""
    values = config.model_dump()
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise ConfigError(f"{assignment!r} is not of the form section.key=value")
        _assign(config, values, name.strip(), text.strip())
    return _validated(type(config), values, where={}, origin="")


def load(path: str | Path, above: tuple[Path, ...] = ()) -> Config:
    """Read a YAML file; what it leaves out is as in the file that is its `base`, or the default of its task and `size`.

    `above` are the files that led here.
    """
    path = Path(path)
    if path.resolve() in above:
        raise ConfigError(f"{path}: its base leads back to itself")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        raise ConfigError(f"cannot read {path}: {problem.strerror or problem}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file") from None
    return loads(text, str(path), lambda name: load(path.parent / name, (*above, path.resolve())))


def loads(text: str, origin: str = "configuration", load_base: Callable[[str], Config] | None = None) -> Config:
    """Read YAML text; `origin` is what errors call it, `load_base` finds the configuration that it changes."""
    try:
        tree = yaml.compose(text, Loader=LOADER)
        values = yaml.load(text, Loader=LOADER) or {}
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{origin}{line}: not valid YAML ({getattr(problem, 'problem', None) or problem})") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{origin}: expected `section:` headings with `key: value` lines below them")
    where = dict(_lines(tree, origin)) if tree else {}
    try:
        base = _base(values, load_base)
    except ConfigError as problem:
        raise ConfigError(f"{origin}: {problem}") from None
    return _validated(type(base), _merged(base.model_dump(), values), where, origin)


def _base(values: dict[str, Any], load_base: Callable[[str], Config] | None) -> Config:
    """What the values change; takes the keys `base` and `size` out of them."""
    name, size = values.pop("base", None), values.pop("size", None)
    if name is None:
        return defaults(values.get("task", "translate"), size or "small")
    if load_base is None or size is not None:
        raise ConfigError("base stands in a file, and instead of size")
    return load_base(str(name))


def dump(config: Config) -> str:
    """The whole configuration as YAML, every default written out; `loads` gives it back unchanged."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def describe(config: Config) -> Iterator[tuple[str, Any, str]]:
    """(dotted name, value, what it means) for every setting."""
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, Section):
            for key, inner in type(value).model_fields.items():
                yield f"{name}.{key}", getattr(value, key), inner.description or ""
        else:
            yield name, value, field.description or ""


def _assign(config: Config, values: dict[str, Any], name: str, text: str) -> None:
    """Set one dotted name, or say which name was meant."""
    known = {dotted for dotted, _, _ in describe(config)}
    if name not in known:
        raise ConfigError(f"unknown setting {name}; {nearest(name, known)}")
    *sections, key = name.split(".")
    for section in sections:
        values = values[section]
    several = isinstance(values[key], tuple)  # written as 0.9,0.98
    nothing = text.lower() in ("none", "null") and _may_be_none(type(config), name)
    values[key] = None if nothing else text.split(",") if several else text


def _may_be_none(kind: type[BaseModel], name: str) -> bool:
    """Whether a setting has a value that is none; where it has not, `none` is a word like any other."""
    first, _, rest = name.partition(".")
    annotation = kind.model_fields[first].annotation
    return _may_be_none(annotation, rest) if rest else type(None) in get_args(annotation)  # type: ignore[arg-type]


def _merged(base: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in values.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = _merged(base[key], value) if both else value
    return merged


def _validated(kind: type[Config], values: dict[str, Any], where: Mapping[str, int], origin: str) -> Config:
    try:
        return kind.model_validate(values)
    except ValidationError as problem:
        first = problem.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        line = where.get(name)
        place = f"{origin}, line {line}: " if line else f"{origin}: " if origin else ""
        raise ConfigError(place + _sentence(kind, name, first)) from None


def _sentence(kind: type[Config], name: str, error: Any) -> str:
    if error["type"] == "extra_forbidden":
        known = [dotted for dotted, _, _ in describe(kind.model_validate({}))] + list(kind.model_fields)
        return f"unknown setting {name}; {nearest(name, known)}"
    if error["type"] == "value_error":
        return f"{name}: {error['ctx']['error']}" if name else str(error["ctx"]["error"])
    message = error["msg"][0].lower() + error["msg"][1:]
    return f"{name}={error['input']}: {message}"


def _lines(node: yaml.Node, origin: str, prefix: str = "") -> Iterator[tuple[str, int]]:
    """(dotted name, line) of every key of a YAML document; a key given twice is an error."""
    if not isinstance(node, yaml.MappingNode):
        return
    seen: dict[str, int] = {}
    for key, value in node.value:
        name, line = f"{prefix}{key.value}", key.start_mark.line + 1
        if name in seen:
            raise ConfigError(f"{origin}, line {line}: {name} is set twice; the first is on line {seen[name]}")
        seen[name] = line
        yield name, line
        yield from _lines(value, origin, f"{name}.")

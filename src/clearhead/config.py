"""Typed, frozen configuration: defaults for each task, YAML in and out, `section.key=value` overrides.

    config = defaults("translate", size="small")
    config = override(config, ["model.dim=256", "train.seed=7"])
    config = load(Path("recipe.yaml"))
    text = dump(config)

Every value has a default and every key is known: an unknown one is an error that names the nearest right one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from clearhead.errors import ConfigError, nearest

Task = Literal["translate", "lm", "classify", "tag", "vision", "caption", "words"]
Size = Literal["tiny", "small", "base"]
TokenizerKind = Literal["char", "word", "bpe", "bytes", "wordpiece", "unigram"]
DataKind = Literal["pairs", "text", "labelled", "tagged", "images", "captions"]
ScoreName = Literal["dot", "scaled_dot", "additive", "bilinear", "cosine"]
PositionName = Literal["sinusoidal", "learned", "rotary", "alibi", "t5", "none"]
NormName = Literal["layer", "rms", "batch"]
Placement = Literal["before", "after", "around"]
FeedForwardName = Literal["relu", "gelu", "swiglu"]

TASKS: tuple[Task, ...] = get_args(Task)
SIZES: tuple[Size, ...] = get_args(Size)


class Section(BaseModel):
    """One part of the configuration: it cannot be changed, and refuses what it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class TokenizerConfig(Section):
    """How text becomes token ids."""

    kind: TokenizerKind = Field("bpe", description="the scheme that cuts text into tokens")
    size: int = Field(8000, ge=8, description="most tokens in the vocabulary, special ones included")
    lowercase: bool = Field(False, description="fold capitals before cutting")


class DataConfig(Section):
    """Where examples come from and how they are grouped."""

    path: str = Field("builtin", description="file, folder, two aligned files `a,b`, or `builtin`")
    kind: DataKind | None = Field(None, description="what the path holds; none = look and see")
    source: str | None = Field(None, description="column or language of the input side")
    target: str | None = Field(None, description="column or language of the output side")
    encoding: str = Field("utf-8", description="text encoding of the files")
    validation: float = Field(0.05, ge=0, lt=1, description="share held out where the data has no own validation part")
    batch_tokens: int = Field(4096, ge=1, description="padded tokens in one batch, on its longer side")
    max_length: int = Field(256, ge=1, description="longest sequence kept, in tokens")


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
    dropout: float = Field(0.1, ge=0, lt=1, description="share of activations dropped while training")

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.dim % self.heads and not (self.key_dim and self.value_dim):
            raise ConfigError(f"dim={self.dim} is not divisible by heads={self.heads}")
        if self.kv_heads and self.heads % self.kv_heads:
            raise ConfigError(f"heads={self.heads} is not divisible by kv_heads={self.kv_heads}")
        return self


class TrainConfig(Section):
    """How the examples are visited."""

    seed: int = Field(1, ge=0, description="fixes every random choice")


class Config(Section):
    """Everything a run is made from."""

    task: Task = Field("translate", description="which system")
    model: ModelConfig = Field(default_factory=ModelConfig)
    tokenizer: TokenizerConfig = Field(default_factory=TokenizerConfig)
    data: DataConfig = Field(default_factory=DataConfig)
    train: TrainConfig = Field(default_factory=TrainConfig)


_SIZES: dict[Size, dict[str, int]] = {
    "tiny": {"dim": 64, "heads": 2, "layers": 2},
    "small": {"dim": 128, "heads": 4, "layers": 4},
    "base": {"dim": 512, "heads": 8, "layers": 6},
}

# What a task changes of the defaults above.
_TASKS: dict[Task, dict[str, dict[str, Any]]] = {
    "translate": {},
    "lm": {"model": {"positions": "rotary", "feed_forward": "gelu"}, "tokenizer": {"kind": "bytes"}},
    "classify": {"model": {"positions": "learned", "feed_forward": "gelu"}},
    "tag": {"model": {"positions": "learned", "feed_forward": "gelu"}, "tokenizer": {"kind": "word"}},
    "vision": {"model": {"positions": "learned", "feed_forward": "gelu"}},
    "caption": {"model": {"positions": "learned", "feed_forward": "gelu"}, "tokenizer": {"kind": "word"}},
    "words": {"tokenizer": {"kind": "word", "lowercase": True}},
}


def defaults(task: str, size: str = "small") -> Config:
    """The configuration of a task before the user says anything."""
    if task not in TASKS:
        raise ConfigError(f"unknown task {task}; {nearest(task, TASKS)}")
    if size not in SIZES:
        raise ConfigError(f"unknown size {size}; {nearest(size, SIZES)}")
    sections = {name: dict(values) for name, values in _TASKS[task].items()}
    sections["model"] = {**_SIZES[size], **sections.get("model", {})}
    return Config(task=task, **sections)


def override(config: Config, assignments: Sequence[str]) -> Config:
    """Apply `section.key=value` words; each value is read as the type the key has."""
    values = config.model_dump()
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise ConfigError(f"{assignment!r} is not of the form section.key=value")
        _assign(values, name.strip(), text.strip())
    return _validated(values, where={}, origin="")


def load(path: str | Path) -> Config:
    """Read a YAML file; what it leaves out takes the defaults of its task and `size`."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        raise ConfigError(f"cannot read {path}: {problem.strerror or problem}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file") from None
    return loads(text, origin=str(path))


def loads(text: str, origin: str = "configuration") -> Config:
    """Read YAML text; `origin` is what errors call it."""
    try:
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        values = yaml.safe_load(text) or {}
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{origin}{line}: not valid YAML ({getattr(problem, 'problem', None) or problem})") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{origin}: expected `section:` headings with `key: value` lines below them")
    where = dict(_lines(tree, origin)) if tree else {}
    task, size = values.get("task", "translate"), values.pop("size", "small")
    try:
        base = defaults(task, size).model_dump()
    except ConfigError as problem:
        raise ConfigError(f"{origin}: {problem}") from None
    return _validated(_merged(base, values), where, origin)


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


def _assign(values: dict[str, Any], name: str, text: str) -> None:
    """Set one dotted name, or say which name was meant."""
    known = {dotted for dotted, _, _ in describe(Config())}
    if name not in known:
        raise ConfigError(f"unknown setting {name}; {nearest(name, known)}")
    *sections, key = name.split(".")
    for section in sections:
        values = values[section]
    values[key] = None if text.lower() in ("none", "null") else text


def _merged(base: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in values.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = _merged(base[key], value) if both else value
    return merged


def _validated(values: dict[str, Any], where: Mapping[str, int], origin: str) -> Config:
    try:
        return Config.model_validate(values)
    except ValidationError as problem:
        first = problem.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        line = where.get(name)
        place = f"{origin}, line {line}: " if line else f"{origin}: " if origin else ""
        raise ConfigError(place + _sentence(name, first)) from None


def _sentence(name: str, error: Any) -> str:
    if error["type"] == "extra_forbidden":
        known = [dotted for dotted, _, _ in describe(Config())] + list(Config.model_fields)
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

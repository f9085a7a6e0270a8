"""A family of foreign models: how its config.json and its tensors become a model of ours.

A family is one file in `families/`, named by its `model_type`:

    @FAMILIES.register("mine")
    class Mine(Family):
        def plan(self, checkpoint): ...       # Checkpoint -> Plan

`plan` says what the model does (a task), how it is built (the `model` section of its configuration) and where each
tensor goes (a table of names). Everything else is done by `importing.py`, for all families alike.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from clearhead.errors import RunError
from clearhead.interop.checkpoint import Checkpoint
from clearhead.interop.table import Table, within
from clearhead.registry import Registry

# Activations by Hugging Face's names -> ours.
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
GATED = {"silu": "swiglu", "gelu": "geglu", "gelu_tanh": "geglu_tanh", "relu": "reglu"}  # ours -> the gated network


@dataclass(frozen=True)
class Plan:
    """What a checkpoint becomes."""

    task: str
    model: dict[str, Any]  # the `model` section of its configuration
    table: Table  # their names, without the prefix of the body -> ours
    blocks: dict[str, tuple[str, ...]]  # stack -> where a reference may have its blocks, without the body's prefix
    data: dict[str, Any] = field(default_factory=dict)  # the `data` section
    labels: tuple[str, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)  # classes, channels, height, width
    skipped: dict[str, str] = field(default_factory=dict)  # patterns of tensors that are not needed -> why
    roles: dict[str, int | None] = field(default_factory=dict)  # special tokens that config.json decides
    vocabulary: str = ""  # our name of the table whose rows are the tokens; empty: it reads no text
    zeros: tuple[str, ...] = ()  # our tensors that the model does without
    ones: tuple[str, ...] = ()  # our norms that have no gain and no bias there


class Family(ABC):
    """One family of foreign models."""

    in_transformers: ClassVar[bool] = True  # the library can run the original
    prefix: str = ""  # of the body's tensors in a model that has a head: "bert", "model"
    buffers: ClassVar[Mapping[str, str]] = {}  # patterns of tensors that are computed, not learned -> why skipped

    @abstractmethod
    def plan(self, checkpoint: Checkpoint) -> Plan:
        """What becomes of a checkpoint; a RunError names what cannot be imported."""

    def reference_inputs(self, checkpoint: Checkpoint, inputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
        """What `transformers` calls the inputs of our network."""
        return dict(zip(("input_ids", "decoder_input_ids"), inputs, strict=False))


OUTPUTS = ("lm_head", "embed_out")  # of language models
PROBLEM_TYPES = ("single_label_classification", "multi_label_classification")
LABELLERS = ("ForSequenceClassification", "ForTokenClassification")  # heads that name labels


def decoder_plan(settings: ForeignConfig, language_model: Plan) -> Plan:
    """What a decoder-only model becomes: a language model, an embedder, a tagger, or a classifier of the last token."""
    if settings.get("sentence_embedding") is None and settings.head not in LABELLERS:
        return language_model
    body = {name: target for name, target in language_model.table.items() if name not in OUTPUTS}
    own = {name: value for name, value in language_model.model.items() if name not in ("length", "output_bias")}
    encoder = replace(
        language_model,
        model={**own, "causal": True, "tied": False},
        table=within("", "encoder.", body),
        blocks={"encoder": language_model.blocks["decoder"]},
        vocabulary=f"encoder.{language_model.vocabulary}",
    )
    if settings.get("sentence_embedding") is not None:
        unused = {f"{name}.*": "sentence vectors are pooled from the last block" for name in OUTPUTS}
        return sentence_plan(settings, replace(encoder, skipped={**encoder.skipped, **unused}))
    labels = settings.labels
    labeller = replace(encoder, labels=labels, sizes={"classes": len(labels)})
    if settings.head == "ForTokenClassification":
        heads = dict.fromkeys(("score", "classifier"), "output.linear")  # the name differs from family to family
        own = {**encoder.model, "labelled_piece": "first"}
        return replace(labeller, task="tag", model=own, table={**encoder.table, **heads})
    return replace(
        labeller,
        task="classify",
        model={**encoder.model, "pool": "last", "several": settings.several},
        table={**encoder.table, "score": "output.linear"},
        zeros=("output.linear.bias",),
    )


def sentence_plan(settings: ForeignConfig, encoder: Plan) -> Plan:
    """An encoder that gives one vector for a text, as sentence-transformers says, or the mean of its tokens."""
    how = settings.get("sentence_embedding", {})
    dense, width = how.get("dense"), settings.checkpoint.tensors.get("sentence_dense.linear.weight")
    model: dict[str, Any] = {"pool": how.get("pooling", "mean"), "unit_length": how.get("normalise", False)}
    zeros: tuple[str, ...] = ()
    if dense is not None and width is not None:
        model |= {"vector_dim": len(width), "pool_transform": None if dense == "linear" else dense}
        zeros = () if "sentence_dense.linear.bias" in settings.checkpoint.tensors else ("output.transform.linear.bias",)
    trained = encoder.data["max_length"]
    return replace(
        encoder,
        task="embed",
        model={**encoder.model, **model},
        table={**encoder.table, "sentence_dense.linear": "output.transform.linear"},
        data={**encoder.data, "max_length": min(how.get("max_length") or trained, trained)},
        zeros=(*encoder.zeros, *zeros),
    )


FAMILIES: Registry[type[Family]] = Registry("family", package="clearhead.interop.families")


def family_of(checkpoint: Checkpoint, name: str | None = None) -> Family:
    """The family that a checkpoint says it is of, or the one called `name`."""
    model_type = name or checkpoint.config.get("model_type") or _family_of_class(checkpoint)
    if not model_type:
        raise RunError(f"{checkpoint.source}: config.json has no model_type; say --as FAMILY ({_known()})")
    known = str(model_type).replace("-", "_")
    if known not in FAMILIES:
        raise RunError(
            f"{checkpoint.source} is a {model_type} model, which Clearhead cannot import; it knows {_known()}"
        )
    return FAMILIES[known]()


def _family_of_class(checkpoint: Checkpoint) -> str | None:
    """The family whose name a class of transformers begins with: files of 2019 have no model_type."""
    name = ForeignConfig(checkpoint).body.lower()
    return next((each for each in FAMILIES.names() if each.replace("_", "") == name), None)


def _known() -> str:
    return ", ".join(sorted(FAMILIES.names()))


# --- reading config.json ---

_HEAD = re.compile(r"(For[A-Z]\w*|LMHeadModel|MTModel|Model)$")


class ForeignConfig:
    """The values of a config.json; one that is missing or of another kind is a sentence that names it."""

    def __init__(self, checkpoint: Checkpoint):
        self.checkpoint, self.values = checkpoint, checkpoint.config

    def __call__(self, *names: str) -> Any:
        """The first of these that is there and not null."""
        for name in names:
            if self.values.get(name) is not None:
                return self.values[name]
        raise RunError(f"{self.checkpoint.source}: config.json has no {names[0]}")

    def get(self, name: str, default: Any = None) -> Any:
        """A value, or what it is where config.json does not have it."""
        found = self.values.get(name)
        return default if found is None else found

    def size(self, *names: str) -> int:
        """A positive number."""
        value = self(*names)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1 << 24:
            raise self.refuse(names[0])
        return value

    def activation(self, name: str, default: str | None = None) -> str:
        """The name of an activation, by our names; one that we do not have is never replaced by another."""
        value = self.get(name, default) if default else self(name)
        if value not in ACTIVATIONS:
            raise self.refuse(name)
        return ACTIVATIONS[value]

    def gated(self, name: str, default: str) -> str:
        """The gated network with this activation, by our names."""
        value = self.activation(name, default)
        if value not in GATED:
            raise self.refuse(name)
        return GATED[value]

    def tied(self, output: str, embedding: str, usual: bool) -> bool:
        """Whether the output is the embedding: there is no other, or config.json says so and the two are equal."""
        stored = self.checkpoint.tensors
        if output not in stored or not self.get("tie_word_embeddings", usual):
            return output not in stored
        table = next((stored[name] for name in stored if name == embedding or name.endswith(f".{embedding}")), None)
        return table is None or (table.shape == stored[output].shape and bool(torch.equal(table, stored[output])))

    def layer_kinds(self, usual: list[str]) -> list[str]:
        """Whether each block sees everything, or has a window."""
        kinds: list[str] = self.get("layer_types", usual)
        if set(kinds) - {"sliding_attention", "full_attention"}:
            raise self.refuse("layer_types")
        return kinds

    def require(self, name: str, *allowed: Any) -> None:
        """Refuse a value that the family cannot express; a missing one is the first."""
        if self.get(name, allowed[0]) not in allowed:
            raise self.refuse(name)

    def refuse(self, name: str, value: Any = None) -> RunError:
        """The error about a value that cannot be imported; `value` where it stands inside another."""
        value = self.values.get(name) if value is None else value
        return RunError(f"{self.checkpoint.source}: config.json has {name}={value!r}, which Clearhead cannot import")

    @property
    def head(self) -> str:
        """The class without the family: Model, ForMaskedLM, LMHeadModel, …; Model where config.json does not say."""
        found = _HEAD.search(self._class)
        return found[0] if found else "Model"

    @property
    def body(self) -> str:
        """The class without its head: Bert, GPT2, …; empty where config.json does not say."""
        return _HEAD.sub("", self._class)

    @property
    def _class(self) -> str:
        names = self.get("architectures", [])
        return str(names[0]) if names else ""

    def wrong_head(self, *known: str) -> RunError:
        """The error about a head that cannot be imported."""
        name = (self.get("architectures") or ["?"])[0]
        return RunError(
            f"{self.checkpoint.source} is a {name}, which Clearhead cannot import; "
            f"of this family it imports …{', …'.join(known)}"
        )

    def check_decoder(self, causal_lm: str = "ForCausalLM") -> None:
        """Refuse a head that `decoder_plan` has no task for."""
        if self.head not in (causal_lm, "Model", *LABELLERS):
            raise self.wrong_head(causal_lm, *LABELLERS)

    @property
    def several(self) -> bool:
        """Whether each label has a probability of its own; a single label always has."""
        if self.get("problem_type", PROBLEM_TYPES[0]) not in PROBLEM_TYPES:
            raise RunError(f"{self.refuse('problem_type')}; it imports {' and '.join(PROBLEM_TYPES)}")
        return self.get("problem_type") == "multi_label_classification" or len(self.labels) == 1

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes, in order; those of one name are told apart by their numbers."""
        named = self.get("id2label")
        if named:
            names = [str(named[key]) for key in sorted(named, key=int)]
            times = Counter(names)
            return tuple(name if times[name] == 1 else f"{name} ({number})" for number, name in enumerate(names))
        return tuple(f"LABEL_{number}" for number in range(self.get("num_labels", 2)))

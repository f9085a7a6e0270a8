"""Transfer: a new model starts from the weights of a trained one, where the two have parts in common.

    trained for           a new model for       takes over
    the same task         the same task         every weight of the same name; a layer that gives labels, if they are
                                                the same labels
    lm, classify, tag     lm, classify, tag     the encoder: token vectors, positions, blocks
    words                 anything with text    the vectors of the tokens that are words

A weight fits if its shape is the same; the others keep their random initialisation. The tokenizer comes with the
weights, since a row of an embedding means nothing without it. Word vectors are found by the word itself, so there the
new run trains its own tokenizer.

    V tokens of the new model, D width
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.config import AnyConfig, TokenizerKind
from clearhead.errors import ConfigError
from clearhead.models.build import token_dim, token_embeddings
from clearhead.run import BUNDLED, Run, bundled_names, find
from clearhead.tasks import TASKS, run_config
from clearhead.tasks.base.adapters import is_adapter, weight_files
from clearhead.tasks.base.network import load_weights
from clearhead.tasks.base.task import Task
from clearhead.text import Tokenizer
from clearhead.text.schemes import SPACE

PARTS = ("tokens.", "stack.")  # of a text encoder
# What a token that begins a word begins with; a character is never a word, so `char` has none.
WORD_MARKS: dict[TokenizerKind, str] = {"word": "", "wordpiece": "", "bpe": SPACE, "unigram": SPACE, "bytes": " "}
# Settings that change what a weight means and not its shape.
MEANINGS = ("heads", "score", "hard", "window", "positions", "position_base", "norm", "placement", "feed_forward")
LISTED = 6  # most names in a sentence


def start_run(config: AnyConfig) -> Run | None:
    """The run of `train.start_from`, if any; one that does not fit is refused before any data is read."""
    name = config.train.start_from
    if name is None:
        return None
    # The name of a bundled model, or a path; a foreign model is imported.
    bundled = name in bundled_names() and not Path(name).is_dir()
    run = Run(find(name) if bundled or Path(name).exists() else Path(name))
    if not (run.path / "config.yaml").is_file():
        raise ConfigError(f"train.start_from={name} is not a run directory: it has no config.yaml")
    if not weight_files(run) and not is_adapter(run):
        raise ConfigError(f"train.start_from={name} has no model yet; finish it with `clearhead resume {name}`")
    _check_task(run, config)
    _check_adapter(run, config)
    _check_width(run, config)
    return run


def start_tokenizer(trained: Run, config: AnyConfig) -> Tokenizer | None:
    """The tokenizer that comes with the weights; None where only word vectors are taken."""
    return None if _gives_vectors(run_config(trained).task, config.task) else trained.load_tokenizer()


def transfer(trained: Run, model: nn.Module, task: Task[Any]) -> list[str]:
    """Copy what fits from a trained run into a new model; returns sentences that say what was copied."""
    if _gives_vectors(run_config(trained).task, task.config.task):
        assert task.tokenizer is not None
        return [take_vectors(trained, model, task.tokenizer)]
    return take_weights(trained, model, task)


# --- weights ---


@torch.no_grad()
def take_weights(trained: Run, model: nn.Module, task: Task[Any]) -> list[str]:
    """Copy every weight that has the same role and shape in both models."""
    theirs, meta = load_weights(trained, run_config(trained))
    there, here = run_config(trained), task.config
    own = _saved_tensors(model)
    taken = fitting(own, theirs, here.task, there.task, meta.labels == task.meta.labels)
    for name, found in taken.items():
        own[name].copy_(theirs[found])
    if not taken:
        raise ConfigError(
            f"train.start_from={trained.path}: none of its {len(theirs)} tensors has the name and shape of one of the "
            f"{len(own)} of this model; give both the same model.architecture"
        )
    if here.task != there.task and here.train.adapter is None:  # an adapter leaves every row of its base as it is
        _clear_padding(model)
    tokenizer = "" if task.tokenizer is None else " and its tokenizer"
    return [_summary(trained, own, list(taken), tokenizer), *_other_meanings(trained, here, taken)]


def taken_names(trained: Run, model: nn.Module, task: Task[Any]) -> dict[str, str]:
    """The tensors that `transfer` copies: the name in the new model -> the name in the trained one."""
    theirs, meta = load_weights(trained, run_config(trained))
    there, same_labels = run_config(trained).task, meta.labels == task.meta.labels
    return fitting(_saved_tensors(model), theirs, task.config.task, there, same_labels)


def fitting(
    own: Mapping[str, Tensor], theirs: Mapping[str, Tensor], here: str, there: str, same_labels: bool
) -> dict[str, str]:
    """The tensors of a new model that have a counterpart of the same shape: its name -> the counterpart's."""
    names = {name: counterpart(name, here, there, same_labels) or "" for name in own}
    return {name: found for name, found in names.items() if found in theirs and theirs[found].shape == own[name].shape}


def counterpart(name: str, here: str, there: str, same_labels: bool = True) -> str | None:
    """The name in a model of task `there` of a weight in a model of task `here`; None if it has no counterpart."""
    if here == there:
        return name if same_labels or not name.startswith("output.") else None
    ours, theirs = TASKS[here].text_encoder, TASKS[there].text_encoder
    if ours is None or theirs is None or not name.startswith(ours):
        return None
    part = name.removeprefix(ours)
    return theirs + part if part.startswith(PARTS) else None


def _saved_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers; a shared one has its first name."""
    saved = model.state_dict().keys()
    named = chain[tuple[str, Tensor]](model.named_parameters(), model.named_buffers())
    return {name: tensor for name, tensor in named if name in saved}


def _clear_padding(model: nn.Module) -> None:
    """A language model never reads padding, so its row there may hold anything; an encoder's is zero."""
    for part in model.modules():
        if isinstance(part, nn.Embedding) and part.padding_idx is not None:
            part.weight[part.padding_idx] = 0.0


def _summary(trained: Run, own: dict[str, Tensor], taken: list[str], tokenizer: str) -> str:
    """How many weights were copied, and which are new."""
    weights = {name: tensor.numel() for name, tensor in own.items() if isinstance(tensor, nn.Parameter)}
    parameters = sum(weights.get(name, 0) for name in taken)
    new = [name for name in own if name not in taken]
    return (
        f"begins with {len(taken)} of {len(own)} tensors of {_shown(trained)} "
        f"({parameters:,} of {sum(weights.values()):,} parameters){tokenizer}{_listed(new)}"
    )


def _shown(run: Run) -> str:
    """A run as the user names it."""
    return run.name if run.path.parent == BUNDLED else str(run.path)


def _listed(new: list[str]) -> str:
    if not new:
        return ""
    more = len(new) - LISTED
    return f"; new: {', '.join(new[:LISTED])}" + (f" and {more} more" if more > 0 else "")


def _other_meanings(trained: Run, config: AnyConfig, taken: Iterable[str]) -> list[str]:
    """A sentence about settings that change what the copied blocks compute."""
    there, here = run_config(trained).model, config.model
    other = [key for key in MEANINGS if getattr(there, key, None) != getattr(here, key, None)]
    if not other or not any(".blocks." in name for name in taken):
        return []
    settings = " ".join(f"model.{key}={_written(getattr(there, key))}" for key in other)
    return [f"its blocks were trained with {settings}; add this to the command, or their weights mean something else"]


def _written(value: object) -> str:
    """As on the command line."""
    return str(value).lower()


# --- word vectors ---


@torch.no_grad()
def take_vectors(trained: Run, model: nn.Module, tokenizer: Tokenizer) -> str:
    """Copy the vector of every token that is a word, scaled to the length of the random ones."""
    theirs = trained.load_tokenizer()
    assert theirs is not None
    vectors = load_weights(trained, run_config(trained))[0]["center.weight"].float()  # SkipGram.vectors
    words = words_in_common(tokenizer, theirs)
    if not words:
        raise ConfigError(
            f"train.start_from={trained.path}: none of the {len(tokenizer):,} tokens of this model is one of its "
            "words; choose tokenizer.kind=word, and text in the same language"
        )
    here, there = list(words.keys()), list(words.values())
    for embedding in token_embeddings(model):
        table = embedding.table.weight.clone()  # (V, D)
        scale = _mean_length(table[here]) / _mean_length(vectors[there])
        table[here] = scale * vectors[there]
        embedding.start_from(table)
    return (
        f"begins with the vectors of {len(set(there)):,} of {len(theirs.word_ids()):,} words of {_shown(trained)}, "
        f"for {len(here):,} of {len(tokenizer):,} tokens"
    )


def words_in_common(here: Tokenizer, there: Tokenizer) -> dict[int, int]:
    """The tokens of one tokenizer that are whole words of the other: id -> id of the word."""
    mark = WORD_MARKS.get(here.kind)
    if mark is None:
        return {}
    pieces = enumerate(here.pieces(range(len(here))))
    candidates = {index: piece.removeprefix(mark) for index, piece in pieces if piece.startswith(mark)}
    known = set(there.word_ids())
    cut = zip(candidates, there.encode_batch(list(candidates.values())), strict=True)
    return {index: ids[0] for index, ids in cut if len(ids) == 1 and ids[0] in known}


def _mean_length(vectors: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=-1)
    return lengths.mean()


# --- what fits what ---


def _gives_vectors(there: str, here: str) -> bool:
    return TASKS[there].gives_word_vectors and TASKS[here].takes_word_vectors


def _related(there: str, here: str) -> bool:
    encoders = TASKS[here].text_encoder is not None and TASKS[there].text_encoder is not None
    return here == there or encoders or _gives_vectors(there, here)


def _check_task(trained: Run, config: AnyConfig) -> None:
    here, there = config.task, run_config(trained).task
    if not _related(there, here):
        fitting = " or ".join(task for task in TASKS if _related(task, here))
        raise ConfigError(
            f"train.start_from={trained.path} is a model for {there}, which has nothing for one for {here}; "
            f"choose a model for {fitting}"
        )


def _check_adapter(trained: Run, config: AnyConfig) -> None:
    """An adapter stands beside the weights of one file."""
    if config.train.adapter is None:
        return
    if is_adapter(trained):
        raise ConfigError(
            f"train.start_from={trained.path} is an adapter itself; "
            f"make a model of it first: clearhead merge {trained.path} --out DIR"
        )
    if _gives_vectors(run_config(trained).task, config.task):
        raise ConfigError(
            f"train.adapter={config.train.adapter} needs a whole model, and train.start_from={trained.path} "
            "has word vectors only; leave out train.adapter"
        )


def _check_width(trained: Run, config: AnyConfig) -> None:
    """Every matrix of a model reads or gives token vectors, so none fits a model of another width."""
    vectors = _gives_vectors(run_config(trained).task, config.task)
    there, here = run_config(trained).model.dim, token_dim(config.model) if vectors else config.model.dim
    if there != here:
        what = "word vectors of dim" if vectors else "model.dim"
        raise ConfigError(
            f"train.start_from={trained.path} has {what} {there} and this model {here}, so nothing fits; "
            f"say model.dim={there} or start from another"
        )

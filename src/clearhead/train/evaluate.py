"""`clearhead eval`: scores of a finished model, on its validation part or on all of another dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from clearhead.data.dataset import read
from clearhead.data.memory import write_examples
from clearhead.errors import ConfigError
from clearhead.run import DATA, Run
from clearhead.tasks import TASKS, run_config
from clearhead.tasks.base.in_context import FORMAT, Shots, continuation_logprobs, draw_shots
from clearhead.tasks.base.metrics import accuracy, confusion_matrix
from clearhead.tasks.base.network import load_network
from clearhead.tasks.base.own import NOTHING, Own
from clearhead.tasks.base.predictor import load
from clearhead.tasks.base.task import Evaluation, Task, Workspace, read_dataset
from clearhead.train.device import Device


@dataclass(frozen=True)
class Confusion:
    """Confusion matrix: rows are right labels, columns predictions."""

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]  # (C, C)

    def classes(self) -> Iterator[dict[str, Any]]:
        """Number of examples, precision, recall and F1 of each label."""
        predicted = [sum(column) for column in zip(*self.counts, strict=True)]
        for place, (label, row) in enumerate(zip(self.labels, self.counts, strict=True)):
            wanted, hits = sum(row), row[place]
            yield {
                "label": label,
                "examples": wanted,
                "precision": _share(hits, predicted[place]),
                "recall": _share(hits, wanted),
                "F1": _share(2 * hits, wanted + predicted[place]),
            }

    def largest(self, most: int = 10) -> list[tuple[str, str, int]]:
        """(right label, predicted label, count), the most frequent mistakes first."""
        mistakes = [
            (right, taken, count)
            for right, row in zip(self.labels, self.counts, strict=True)
            for taken, count in zip(self.labels, row, strict=True)
            if right != taken and count
        ]
        return sorted(mistakes, key=lambda mistake: -mistake[2])[:most]


@dataclass(frozen=True)
class Detailed(Evaluation):
    """An evaluation with the name of its data and, for labels, the confusion matrix."""

    data: str = ""
    confusion: Confusion | None = None

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        document = {"data": self.data, "loss": self.loss, "scores": [asdict(score) for score in self.scores]}
        if self.confusion is not None:
            document |= {"classes": list(self.confusion.classes()), "confusion": asdict(self.confusion)}
        return document | {"sample": self.sample}


def evaluate(
    run: str | Path,
    data: Any = None,
    note: Callable[[str], None] = lambda _text: None,
    own: Own = NOTHING,
) -> Detailed:
    """Score the finished model of a run on its validation part, or on every example of other data of the same kind.

    `data` is what `clearhead.train` takes; Python data is written to a temporary folder.
    """
    place = Run.open(Path(run))
    config = run_config(place)
    network, meta = load_network(place, config, own)
    # Where it was trained may not be here.
    device = Device.choose(config.train.model_copy(update={"device": "auto"}), note).torch_device
    with _folder(place, data) as folder:
        workspace = Workspace(folder, own.tokenizer or place.load_tokenizer(), meta, whole=data is not None)
        if data is not None:
            kind, is_path = TASKS[config.task].data_kind, isinstance(data, str | Path)
            path = str(data) if is_path else str(write_examples(_parts(data), kind, folder / DATA))
            config = config.model_copy(update={"data": config.data.model_copy(update={"path": path})})
            workspace = replace(workspace, dataset=read_dataset(config, kind, workspace))
            if is_path and workspace.dataset is not None and workspace.dataset.columns:
                note(f"{path}: {workspace.dataset.columns}")
        task = TASKS[config.task](config, workspace)
        task.use_full_evaluation()
        for text in task.notes:
            note(text)
        found = task.evaluate(network.to(device), device)
        confusion = _confusion(task, network, meta.labels)
    return Detailed(found.loss, found.scores, found.sample, config.data.path, confusion)


@dataclass(frozen=True)
class InContext(Detailed):
    """The evaluation of a language model that has read some examples before each text."""

    shots: int = 0
    predicted: tuple[str, ...] = ()  # the label of each text

    def document(self) -> dict[str, Any]:
        return super().document() | {"shots": self.shots, "predicted": list(self.predicted)}


def evaluate_in_context(
    path: str | Path,
    data: str,
    shots: Sequence[int],
    *,
    seed: int = 0,
    form: str = FORMAT,
    words: Mapping[str, str] | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> list[InContext]:
    """Score a language model on labelled texts: after each number of random examples, its label is the likeliest one.

    The examples come from the training part of the data, and the validation part is scored; of data without parts, all
    but the examples. `words` are written in the place of labels: {"0": "negative", "1": "positive"}.
    """
    model: Any = load(path)
    model.require("generate")
    dataset, words = read(data, kind="labelled", validation=0), words or {}
    train, held_out = ([(each.text, each.label) for each in part] for part in (dataset.train, dataset.validation))
    labels = sorted({label for _, label in (*train, *held_out)})
    if unknown := words.keys() - set(labels):
        raise ConfigError(f"{data} has no label {min(unknown)}; it has {', '.join(labels[:9])}")
    names = [words.get(label, label) for label in labels]
    drawn, others = draw_shots(train, max(shots), seed)
    scored = held_out or [train[number] for number in others]  # the same texts for every number of examples
    right = [labels.index(label) for _, label in scored]
    evaluations = []
    for turn, count in enumerate(shots):
        examples = [train[number] for number in drawn[:count]]
        prompts = Shots([(text, words.get(label, label)) for text, label in examples], form)
        texts, endings = [prompts.prompt(text) for text, _ in scored], [prompts.continuation(name) for name in names]
        found = continuation_logprobs(model, texts, endings, _later(on_progress, turn, len(shots)))
        predicted = found.argmax(-1).tolist()
        evaluations.append(
            InContext(
                loss=float(nn.functional.cross_entropy(found, torch.tensor(right))),
                scores=(accuracy(predicted, right),),
                sample=texts[0] + endings[predicted[0]],
                data=data,
                confusion=_matrix(predicted, right, labels),
                shots=count,
                predicted=tuple(labels[number] for number in predicted),
            )
        )
    return evaluations


def _later(on_progress: Callable[[int, int], None], turn: int, turns: int) -> Callable[[int, int], None]:
    """The progress of one of several turns, as that of all."""
    return lambda done, total: on_progress(turn * total + done, turns * total)


def save_shots_figure(evaluations: Sequence[InContext], path: Path, model: str) -> None:
    """Draw the accuracy of a model against the number of examples."""
    from clearhead.look.render.figure import COLOURS, PAGE, Figure, new_figure

    counts = [str(each.shots) for each in evaluations]
    with new_figure(PAGE, PAGE / 2) as fig:
        axes = fig.add_subplot()
        values = [100 * each.scores[0].value for each in evaluations]
        axes.plot(counts, values, marker="o", color=COLOURS[0])
        axes.set(xlabel="examples in the prompt", ylabel="accuracy (%)")
        axes.set_title(
            f"{Path(model).name} on {evaluations[0].data}, {len(evaluations[0].predicted):,} texts", loc="left"
        )
        axes.spines[["top", "right"]].set_visible(False)
    Figure(fig).save(path)


@contextmanager
def _folder(run: Run, data: Any) -> Iterator[Path]:
    """The run's checkpoint folder with its prepared data, or a temporary one for other data."""
    if data is None and run.checkpoints.is_dir():
        yield run.checkpoints
        return
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _parts(data: Any) -> Mapping[str, Any]:
    """Python data as a dict of parts."""
    return data if isinstance(data, Mapping) and "train" in data else {"train": data}


def _confusion(task: Task[Any], network: nn.Module, labels: tuple[str, ...]) -> Confusion | None:
    with torch.inference_mode():
        found = task.predictions(network)
    if found is None:
        return None
    return _matrix(*found, labels)


def _matrix(predicted: Sequence[int], right: Sequence[int], labels: Sequence[str]) -> Confusion:
    counts = confusion_matrix(predicted, right, range(len(labels)))
    return Confusion(tuple(labels), tuple(tuple(row) for row in counts))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0

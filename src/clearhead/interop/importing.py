"""From a foreign model to a run directory, with a report of what became of every tensor.

    report = import_model(Path("all-MiniLM-L6-v2"), Path("runs/minilm"))
    print(report.text())

Everything is read and checked before anything is written, and the run directory appears only when it is complete.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor, nn

from clearhead import __version__
from clearhead import config as configuration
from clearhead.config import AnyConfig
from clearhead.errors import ClearheadError, ConfigError, RunError
from clearhead.files import write_errors, write_text
from clearhead.interop.checkpoint import Checkpoint, read_checkpoint
from clearhead.interop.family import Family, Plan, family_of
from clearhead.interop.table import Table, matching, place, row_orders, translated
from clearhead.interop.tokenizer_files import make_tokenizer
from clearhead.nn.quantised import Quantised
from clearhead.run import ModelMeta, Run, Sizes
from clearhead.tasks import TASKS, default_config
from clearhead.tasks.base.network import parameter_count, tied_names
from clearhead.text import Tokenizer

BATCH_TOKENS = 1024  # of a language model that is evaluated or trained on
LISTED = 5  # most names in a sentence
_NORM_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}  # in files of 2018
_OLD_NORM = re.compile(f"(?:{'|'.join(map(re.escape, _NORM_NAMES))})$")
_LAYER = re.compile(r"blocks\.(\d+)\.")


@dataclass(frozen=True)
class Imported:
    """A foreign model as ours, not yet written."""

    checkpoint: Checkpoint
    family: Family
    plan: Plan
    config: AnyConfig
    meta: ModelMeta
    tokenizer: Tokenizer | None
    tensors: dict[str, Tensor]  # under our names
    used: list[str]  # their names
    skipped: dict[str, str]  # their names -> why
    parameters: int
    quantised: dict[str, Quantised] = field(default_factory=dict)  # those of the tensors that are stored in blocks


@dataclass
class Report:
    """What became of a foreign model, for people and for the card."""

    source: str
    family: str
    task: str
    precision: str
    parameters: int
    used: list[str]
    skipped: dict[str, str]
    checks: list[str] = field(default_factory=list)  # sentences: tokens and tensors compared with a reference

    @property
    def verb(self) -> str:
        """What the model can be asked for."""
        return TASKS[self.task].predictor.verb

    def text(self) -> str:
        """Some lines of Markdown."""
        lines = [
            f"{len(self.used)} tensors used ({self.parameters:,} parameters, stored as {self.precision}), "
            f"{len(self.skipped)} skipped, none left over."
        ]
        for reason in dict.fromkeys(self.skipped.values()):
            names = [name for name, why in self.skipped.items() if why == reason]
            lines.append(f"- skipped because {reason}: {listed(names)}")
        return "\n".join([*lines, *(f"- {check}" for check in self.checks)])

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "source": self.source,
            "family": self.family,
            "task": self.task,
            "precision": self.precision,
            "parameters": self.parameters,
            "used": len(self.used),
            "skipped": self.skipped,
            "checks": self.checks,
        }


def import_model(path: Path, out: Path, family: str | None = None) -> Report:
    """Turn a foreign model into a run directory."""
    refuse_existing(out)
    imported = prepare_import(path, family, expand=False)
    report = report_of(imported)
    write_run(imported, out, report)
    return report


def refuse_existing(out: Path) -> None:
    """Refuse a place that holds something, before anything is read."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} exists and is not an empty folder; choose another --out")


def report_of(imported: Imported) -> Report:
    """The report before anything is compared with a reference."""
    return Report(
        str(imported.checkpoint.source),
        str(imported.checkpoint.config.get("model_type", "")),
        imported.plan.task,
        imported.checkpoint.precision,
        imported.parameters,
        imported.used,
        imported.skipped,
    )


def prepare_import(path: Path, family: str | None = None, expand: bool = True) -> Imported:
    """Read a foreign model and put every tensor in its place."""
    return prepare_checkpoint(read_checkpoint(path), family, expand)


def prepare_checkpoint(checkpoint: Checkpoint, name: str | None = None, expand: bool = True) -> Imported:
    """Put every tensor of a foreign model in its place; without `expand`, what is in blocks has only its shape."""
    path, family = checkpoint.source, family_of(checkpoint, name)
    try:
        plan = family.plan(checkpoint)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        if isinstance(problem, ClearheadError):
            raise
        raise RunError(
            f"{path}: its config.json is not one of a {checkpoint.config.get('model_type')} model "
            f"({type(problem).__name__}: {problem})"
        ) from None
    body = _without_prefix(checkpoint.tensors, family.prefix)
    skipped = dict(matching(list(body), {**family.buffers, **plan.skipped}))
    real = {name: full for name, full in body.items() if name not in skipped}
    quantised, shapes_of = _quantised(checkpoint, real, plan.table)
    found = translated(_View(real, checkpoint.tensors, {} if expand else shapes_of), plan.table)
    if found.left_over:
        if (stored := checkpoint.config.get("quantization_config")) is not None:
            how = stored.get("quant_method", "unknown") if isinstance(stored, dict) else stored
            raise RunError(
                f"{path}: its weights are stored by quantization_config ({how}), which Clearhead cannot read; "
                "import the original, or a GGUF file"
            )
        raise RunError(
            f"{path}: {len(found.left_over)} tensors have no place in a {plan.task} model: {listed(found.left_over)}"
        )
    _check_layers(path, found.tensors, plan.model)
    tokenizer, vocabulary = _tokenizer(checkpoint, plan, found.tensors)
    config = _config(checkpoint, plan, tokenizer)
    sizes = Sizes(vocabulary=vocabulary, pad=tokenizer.pad if tokenizer else 0, **plan.sizes)
    with torch.device("meta"):  # only names and shapes: sizes that lie take no memory
        network = TASKS[plan.task].build(config.model, sizes)
    shapes = network.state_dict()
    found.tensors.update({name: torch.zeros(shapes[name].shape) for name in plan.zeros})
    for name in plan.ones:
        found.tensors |= {f"{name}.weight": torch.ones(shapes[f"{name}.weight"].shape)}
        found.tensors |= {f"{name}.bias": torch.zeros(shapes[f"{name}.bias"].shape)}
    _check(path, found.tensors, network)
    return Imported(
        checkpoint,
        family,
        plan,
        config,
        ModelMeta(sizes, plan.labels),
        tokenizer,
        found.tensors,
        found.used,
        {**checkpoint.skipped, **skipped},
        parameter_count(network),
        quantised,
    )


def _quantised(
    checkpoint: Checkpoint, names: Mapping[str, str], table: Table
) -> tuple[dict[str, Quantised], dict[str, tuple[int, int]]]:
    """The matrices that the checkpoint stores in blocks and that become ours by taking their rows, under our names.

    Then the shapes that they have there, by their names in the file.
    """
    found: dict[str, Quantised] = {}
    shapes: dict[str, tuple[int, int]] = {}
    for name, full in names.items():
        target = place(name, table)
        if target is None or full not in checkpoint.quantised:
            continue
        blocks = checkpoint.quantised[full]()
        try:
            orders = row_orders(blocks.shape[0], target.cut)
        except RuntimeError:  # it does not fit its config.json, which is said when the tensor itself is cut
            continue
        if orders is not None and len(orders) == len(target.names):
            shapes[full] = blocks.shape
            parts = (Quantised(blocks.format, blocks.rows[order]) for order in orders)
            found.update(zip(target.names, parts, strict=True))
    return found, shapes


def _without_prefix(names: Mapping[str, Tensor], prefix: str) -> dict[str, str]:
    """Names without the prefix of the body, and with today's names of a norm's tensors -> the names in the file."""
    shorter = {name.removeprefix(f"{prefix}.") if prefix else name: name for name in names}
    return {_OLD_NORM.sub(lambda old: _NORM_NAMES[old[0]], name): full for name, full in shorter.items()}


class _View(dict[str, Tensor]):
    """Tensors by their shorter names, each read when it is asked for; of those in `shapes` there is only the shape."""

    def __init__(self, names: dict[str, str], tensors: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, int]]):
        super().__init__()
        self.names, self.tensors, self.shapes = names, tensors, shapes

    def __iter__(self) -> Any:
        return iter(self.names)

    def __getitem__(self, name: str) -> Tensor:
        full = self.names[name]
        return torch.zeros(()).expand(self.shapes[full]) if full in self.shapes else self.tensors[full]


def _tokenizer(checkpoint: Checkpoint, plan: Plan, tensors: Mapping[str, Tensor]) -> tuple[Tokenizer | None, int]:
    """Our tokenizer, and the number of tokens that the model has vectors for."""
    if not plan.vocabulary:
        return None, 0
    if plan.vocabulary not in tensors:
        raise RunError(f"{checkpoint.source} has no token vectors ({plan.vocabulary})")
    size = len(tensors[plan.vocabulary])
    if checkpoint.tokenizer is None:
        raise RunError(f"{checkpoint.source} has no tokenizer: neither tokenizer.json nor the files to make one of")
    return make_tokenizer(checkpoint.tokenizer, size, checkpoint.config, plan.roles, str(checkpoint.source)), size


def _config(checkpoint: Checkpoint, plan: Plan, tokenizer: Tokenizer | None) -> AnyConfig:
    sections: dict[str, Any] = {"task": plan.task, "model": plan.model, "data": plan.data}
    if plan.task in ("lm", "masked_lm"):  # the logits of a batch take memory: tokens × vocabulary
        sections["data"] = {"batch_tokens": BATCH_TOKENS, **plan.data}
    if tokenizer is not None:
        sections["tokenizer"] = {"kind": tokenizer.kind, "size": max(8, len(tokenizer))}
    try:
        return configuration.Document(sections, {}, "config.json").over(default_config(plan.task))
    except ConfigError as problem:
        raise RunError(f"{checkpoint.source}: its config.json gives no model: {problem}") from None


def _check_layers(path: Path, tensors: Mapping[str, Tensor], model: Mapping[str, Any]) -> None:
    """Refuse more layers than there are tensors for, before memory is taken for them."""
    wanted = model.get("layers", 0)
    found = {int(number[1]) for name in tensors if (number := _LAYER.search(name))}
    if not model.get("shared_layers") and len(found) < wanted:
        raise RunError(f"{path} lacks the tensors of {wanted - len(found):,} of its {wanted:,} layers")


def _check(path: Path, tensors: Mapping[str, Tensor], network: nn.Module) -> None:
    """Every weight of ours has come from somewhere, in its shape."""
    tied, expected = tied_names(network), network.state_dict()
    if missing := sorted(expected.keys() - tensors.keys() - tied.keys()):
        raise RunError(f"{path} lacks {len(missing)} tensors of this model: {listed(missing)}")
    if unknown := sorted(tensors.keys() - expected.keys()):
        raise RunError(f"{path}: {len(unknown)} tensors have no place in this model: {listed(unknown)}")
    for name, tensor in tensors.items():
        have, want = tuple(tensor.shape), tuple(expected[name].shape)
        if have != want:
            raise RunError(f"{path}: {name} has the shape {have} where its config.json says {want}")


def listed(names: list[str]) -> str:
    """Some names, and how many more there are."""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


# --- the run directory ---


def write_run(imported: Imported, out: Path, report: Report) -> None:
    """Write a run directory beside its place, and move it there when it is complete."""
    temporary = out.with_name(f".{out.name}.{os.getpid()}")
    with write_errors(out):
        temporary.mkdir(parents=True)
        try:
            run = Run(temporary)
            write_text(temporary / "config.yaml", configuration.dump(imported.config))
            if imported.tokenizer is not None:
                imported.tokenizer.save(temporary / "tokenizer.json")
            run.save_weights(imported.tensors, imported.meta, quantised=imported.quantised)
            write_text(temporary / "card.md", _card(imported, out.name, report))
            if out.is_dir():
                out.rmdir()  # it is empty
            temporary.rename(out)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _card(imported: Imported, name: str, report: Report) -> str:
    title, family = TASKS[imported.plan.task].title, report.family
    front = {
        "library_name": "clearhead",
        "model_name": name,
        "task": imported.plan.task,
        "licence": _licence(imported.checkpoint.source),
        "parameters": imported.parameters,
        "imported_from": report.source,
        "family": family,
    }
    facts = yaml.safe_dump(front, sort_keys=False, allow_unicode=True, width=1000)
    return (
        f"---\n{facts}---\n# {name}\n\n{title} of the family {family}, imported from `{report.source}` "
        f"by Clearhead {__version__}.\n\n## Report of the import\n\n{report.text()}\n"
    )


def _licence(source: Path) -> str:
    """What the front matter of a README.md says."""
    try:
        text = (source / "README.md").read_text(encoding="utf-8") if source.is_dir() else ""
        facts = yaml.safe_load(text[4 : text.index("\n---", 4)]) if text.startswith("---\n") else {}
    except (OSError, ValueError, yaml.YAMLError):
        return ""
    return str(facts.get("license") or "") if isinstance(facts, dict) else ""

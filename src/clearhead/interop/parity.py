"""Import with a comparison: the report says how equal the model is to its original."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from clearhead.errors import RunError
from clearhead.interop.checkpoint import FORMATS
from clearhead.interop.importing import Imported, Report, prepare_import, refuse_existing, report_of, write_run
from clearhead.interop.reference import (
    CLASSES,
    compare_tensors,
    compare_tokens,
    has_reference,
    load_reference,
    reason_of,
)
from clearhead.models.build import without_initialisation
from clearhead.tasks import TASKS
from clearhead.tasks.base.network import tied_names


def import_and_compare(path: Path, out: Path, family: str | None = None, compare: bool = True) -> Report:
    """Turn a foreign model into a run directory, and say in its card how far it is from its original."""
    refuse_existing(out)
    imported = prepare_import(path, family)
    report = report_of(imported)
    if compare and imported.plan.task in CLASSES and imported.family.in_transformers:
        nothing = ["not compared: transformers is not installed"]
        report.checks += compare_import(imported) if has_reference() else nothing
    write_run(imported, out, report)
    return report


def compare_import(imported: Imported) -> list[str]:
    """Sentences: how texts are cut, and how far each block and the logits are from those of `transformers`."""
    found = []
    if imported.tokenizer is not None and FORMATS["huggingface"]().can_read(imported.checkpoint.source):
        try:
            found.append(compare_tokens(imported.tokenizer, imported.checkpoint)[0])
        except Exception as problem:  # of another library, whose version may not know this tokenizer
            found.append(f"tokens not compared: transformers cannot load its tokenizer ({reason_of(problem)})")
    try:
        reference = load_reference(imported.checkpoint, imported.plan.task)
    except Exception as problem:  # of another library, whose version may not know this model
        return [*found, f"not compared: transformers cannot load it ({reason_of(problem)})"]
    try:
        return [*found, compare_tensors(imported_network(imported), imported, reference).sentence()]
    except RunError as problem:
        return [*found, f"not compared: {problem}"]


def imported_network(imported: Imported) -> nn.Module:
    """The network of a model that was not written yet."""
    with without_initialisation():
        network = TASKS[imported.plan.task].build(imported.config.model, imported.meta.sizes)
    tensors = imported.tensors
    tied = {name: tensors[first] for name, first in tied_names(network).items() if first in tensors}
    network.load_state_dict({name: tensor.float() for name, tensor in {**tensors, **tied}.items()})
    return network.eval()

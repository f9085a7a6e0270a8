"""An imported model beside its original, run by `transformers`: every block, the logits, and how texts are cut.

    parity = compare_tensors(network, imported)
    parity.first_drift          # the first block that differs by more than TOLERANCE, or None

The reference reads the files by itself wherever it can: nothing that our reader does wrong can hide.

    B batch, T tokens, D width, V vocabulary
"""

from __future__ import annotations

import contextlib
import importlib.util
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import RunError
from clearhead.interop.checkpoint import FORMATS, Checkpoint
from clearhead.interop.importing import Imported
from clearhead.interop.nasty import NASTY_TEXTS
from clearhead.look.build import run_probes
from clearhead.text import Tokenizer

TOLERANCE = 1e-4  # of the largest number of a tensor, or of 1
LENGTH, TARGET = 23, 11  # tokens of the text, and of its target, on which tensors are compared
CLASSES = {  # of transformers, by task
    "lm": "AutoModelForCausalLM",
    "masked_lm": "AutoModelForMaskedLM",
    "classify": "AutoModelForSequenceClassification",
    "tag": "AutoModelForTokenClassification",
    "embed": "AutoModel",
    "translate": "AutoModelForSeq2SeqLM",
    "vision": "AutoModelForImageClassification",
}


@dataclass(frozen=True)
class Difference:
    """How far one tensor is from the reference's."""

    name: str  # encoder.3.hidden, logits
    largest: float  # of the differences
    scale: float  # the largest number of the reference, at least 1

    @property
    def drifts(self) -> bool:
        return not self.largest <= TOLERANCE * self.scale


@dataclass(frozen=True)
class Parity:
    """The differences in the order of computation."""

    differences: list[Difference]

    @property
    def worst(self) -> Difference:
        return max(self.differences, key=lambda each: each.largest / each.scale)

    @property
    def first_drift(self) -> Difference | None:
        return next((each for each in self.differences if each.drifts), None)

    def sentence(self) -> str:
        """What people read."""
        if self.first_drift is not None:
            first = self.first_drift
            return f"differs from transformers: first at {first.name}, by {first.largest:.2g}"
        worst = f"worst {self.worst.largest:.1g} ({self.worst.name})"
        return f"equal to transformers in {len(self.differences)} tensors; {worst}"


def has_reference() -> bool:
    """Whether `transformers` is installed."""
    return importlib.util.find_spec("transformers") is not None


def load_reference(checkpoint: Checkpoint, task: str) -> nn.Module:
    """The original, by `transformers`: from its own files, or with the tensors of another format."""
    transformers: Any = import_module("transformers")
    if task not in CLASSES:
        raise RunError(f"{checkpoint.source}: there is no reference for a model of the task {task}")
    kind = getattr(transformers, _class_of(checkpoint, task))
    with _quiet():
        if FORMATS["huggingface"]().can_read(checkpoint.source):
            model = kind.from_pretrained(checkpoint.source, dtype=torch.float32, attn_implementation="eager")
        else:
            values = {name: value for name, value in checkpoint.config.items() if name != "model_type"}
            settings = transformers.AutoConfig.for_model(checkpoint.config["model_type"], **values)
            weights = {name: each.float() for name, each in checkpoint.tensors.items()}
            if hasattr(kind, "from_config"):  # an Auto class, which needs a path
                with torch.device("meta"):
                    kind = type(kind.from_config(settings))
            model = kind.from_pretrained(None, config=settings, state_dict=weights, attn_implementation="eager")
    found: nn.Module = model.eval()
    return found


def _class_of(checkpoint: Checkpoint, task: str) -> str:
    """The name of the class that runs it: an encoder by itself has one of its own."""
    name = str((checkpoint.config.get("architectures") or [""])[0])
    return name if task == "embed" and name.endswith("EncoderModel") else CLASSES[task]


def reason_of(problem: Exception) -> str:
    """The first line of what another library says."""
    return str(problem).splitlines()[0][:120] if str(problem) else type(problem).__name__


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings and bars of transformers."""
    logging: Any = import_module("transformers.utils.logging")
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        logging.enable_progress_bar()


@torch.no_grad()
def compare_tensors(network: nn.Module, imported: Imported, reference: nn.Module | None = None) -> Parity:
    """Every block's output and the logits for one input."""
    reference = load_reference(imported.checkpoint, imported.plan.task) if reference is None else reference
    inputs = example_inputs(imported)
    ours = run_probes(network, inputs, *(f"{stack}.*.hidden" for stack in imported.plan.blocks), "logits")
    try:
        theirs = reference_tensors(reference, imported, inputs)
    except (IndexError, RuntimeError, TypeError, ValueError) as problem:  # of another library
        raise RunError(f"transformers cannot run it ({reason_of(problem)})") from None
    if imported.plan.task == "embed":
        theirs.pop("logits", None)
    found = []
    for name, expected in theirs.items():
        if name not in ours:
            raise RunError(f"the reference has a {name}, and ours has not")
        found.append(difference(name, ours[name], expected))
    return Parity(found)


def difference(name: str, ours: Tensor, theirs: Tensor) -> Difference:
    """How far apart two tensors are; as far as can be if their shapes differ."""
    if ours.shape != theirs.shape:
        return Difference(name, float("inf"), 1.0)
    ours, theirs = ours.float(), theirs.float()
    return Difference(name, float((ours - theirs).abs().max()), max(1.0, float(theirs.abs().max())))


def example_inputs(imported: Imported) -> tuple[Tensor, ...]:
    """What both networks read: ids, an image, or a source and a target; always the same."""
    generator, sizes = torch.Generator().manual_seed(1), imported.meta.sizes
    if imported.plan.task == "vision":
        return (torch.rand(1, sizes.channels, sizes.height, sizes.width, generator=generator) * 2 - 1,)
    tokenizer = imported.tokenizer
    assert tokenizer is not None
    longest = imported.config.data.max_length
    special = {tokenizer.pad, tokenizer.stop, *tokenizer.suffix, imported.plan.model.get("separator")}
    ids = torch.randint(sizes.vocabulary, (4 * LENGTH,), generator=generator).tolist()
    ids = [each for each in ids if each not in special]
    source = torch.tensor([tokenizer.framed(ids[:LENGTH], longest)])
    if imported.plan.task != "translate":
        return (source,)
    return source, torch.tensor([[tokenizer.start, *ids[LENGTH : LENGTH + TARGET]]])


def reference_tensors(reference: nn.Module, imported: Imported, inputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """The same tensors of the reference, by our names of the probes."""
    seen: dict[str, Tensor] = {}
    with contextlib.ExitStack() as hooks:
        for stack, places in imported.plan.blocks.items():
            for block in _blocks(reference, imported.family.prefix, places):
                hooks.callback(block.register_forward_hook(_recorder(seen, stack)).remove)
        output = reference(**imported.family.reference_inputs(imported.checkpoint, inputs))
    if getattr(output, "logits", None) is not None:
        seen["logits"] = output.logits
    return seen


def _blocks(reference: nn.Module, prefix: str, places: tuple[str, ...]) -> list[nn.Module]:
    modules = dict(reference.named_modules())
    for name in (name for place in places for name in (f"{prefix}.{place}", place)):
        if name in modules:
            return list(modules[name].children())
    raise RunError(f"transformers has no {places[0]} in this model: another version of it may")


def _recorder(seen: dict[str, Tensor], stack: str) -> Any:
    """A hook that numbers the calls: a block whose weights are shared is called once for each layer."""

    def record(_block: nn.Module, _inputs: Any, output: Any) -> None:
        number = sum(name.startswith(f"{stack}.") for name in seen)
        seen[f"{stack}.{number}.hidden"] = output[0] if isinstance(output, tuple) else output

    return record


# --- tokens ---


def compare_tokens(tokenizer: Tokenizer, checkpoint: Checkpoint) -> tuple[str, bool]:
    """A sentence, and whether the reference cuts a corpus of nasty texts in the same way."""
    transformers: Any = import_module("transformers")
    prompt = checkpoint.config.get("sentence_embedding", {}).get("prompt", "")
    with _quiet():
        theirs = transformers.AutoTokenizer.from_pretrained(checkpoint.source)
        for text in NASTY_TEXTS:
            expected = theirs(f"{prompt}{text}" if text else text, split_special_tokens=True)["input_ids"]
            found = [*tokenizer.prefix, *tokenizer.encode(text), *tokenizer.suffix]
            if found != expected:
                return f"cuts {text!r} into {found}, and transformers into {expected}", False
    return f"cuts {len(NASTY_TEXTS)} nasty texts as transformers does", True

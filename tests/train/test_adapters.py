"""An adapter is trained beside a frozen base, saved alone, loaded with its base, and merged; peft learns the same."""

from __future__ import annotations

import gc
import json
import shutil
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import AdamW

import clearhead
from clearhead.cli.main import _run
from clearhead.engines.native.engine import NativeEngine
from clearhead.engines.native.library import load_library
from clearhead.errors import ConfigError, RunError
from clearhead.files import read_tensors
from clearhead.nn.lora import LoRALinear, lora_layers
from clearhead.run import Run
from clearhead.tasks import run_config
from clearhead.tasks.base.network import load_weights
from clearhead.train import board, checkpoints
from clearhead.train.evaluate import evaluate
from clearhead.train.loop import Callbacks, Trainer
from clearhead.train.merge import merge
from clearhead.train.pack import pack
from clearhead.train.start import make_trainer, resume, run_training

SHAPE = {"model.dim": 28, "model.heads": 2, "model.layers": 2, "model.inner": 29, "model.dropout": 0.1}
STEPS = {
    "data.batch_tokens": 300,
    "train.evaluations": 1,
    "data.validation": 0.2,
    "train.max_steps": 3,
    "train.device": "cpu",
}
LORA = {"train.adapter": "lora", "train.rank": 3, "train.alpha": 7, "train.optimizer": "adamw"}


def grey(number: int) -> Any:
    return np.full((8, 12, 3), 5 * number, np.uint8)


PAIRS = [(f"a {a} {b}", f"{b} {a} a") for a in "bcdefg" for b in "hijklm"]
LABELLED = [(f"{'good' if i % 2 else 'bad'} film {i}", "pos" if i % 2 else "neg") for i in range(37)]
DATA: dict[str, Any] = {
    "translate": PAIRS,
    "lm": [f"line {i} of a long text" for i in range(67)],
    "masked_lm": [f"line {i} of a long text" for i in range(67)],
    "classify": LABELLED,
    "tag": [(["a", f"dog{i}"], ["D", "N"]) for i in range(29)],
    "vision": [(grey(i), "dark" if i < 10 else "light") for i in range(23)],
    "caption": [(grey(i), "a dark thing" if i < 10 else "a light thing") for i in range(23)],
}


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished translator."""
    folder = tmp_path_factory.mktemp("translator") / "base"
    trained("translate", str(folder))
    return folder


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(board, "find_spec", lambda _name: None)


@pytest.fixture
def base(translator: Path) -> None:
    """It lies in the working directory."""
    shutil.copytree(translator, "base")


def trained(task: str, out: str, data: Any = None, **settings: Any) -> Any:
    given = {**SHAPE, **STEPS, **settings}
    return clearhead.train(task, data=data or DATA[task], out=out, progress=False, **given)


def adapted(task: str, out: str, base: str = "base", data: Any = None, **settings: Any) -> Any:
    return trained(task, out, data, **{"train.start_from": base, "train.learning_rate": 0.03, **LORA, **settings})


def at_start(out: str, base: str = "base", **settings: Any) -> Trainer:
    """The trainer of an adapter before its first step."""
    adapted("translate", out, base, **settings)
    config = run_config(Run(Path(out)))
    shutil.rmtree(Path(out, "checkpoints"))
    Path(out, "checkpoints").mkdir()
    return make_trainer(Run(Path(out)), config, Callbacks())


def weights_of(run: str) -> dict[str, Tensor]:
    return load_weights(Run(Path(run)), run_config(Run(Path(run))))[0]


# --- trained, saved, loaded, merged ---


@pytest.mark.parametrize("architecture", ["cross", "sequence"])
def test_captioners_of_both_kinds_are_adapted(architecture: str) -> None:
    check_adapter("caption", **{"model.architecture": architecture, "model.patch": 4, "data.max_length": 7})


@pytest.mark.parametrize("task", ["translate", "lm", "masked_lm", "classify", "tag", "vision"])
def test_every_attention_model_is_adapted(task: str) -> None:
    check_adapter(task, **({"model.patch": 4} if task == "vision" else {}))


def check_adapter(task: str, **settings: Any) -> None:
    trained(task, "base", **settings)
    base = Path("base/model.safetensors").read_bytes()
    adapted(task, "new", **{name: settings[name] for name in settings if name.startswith("data.")})
    assert Path("base/model.safetensors").read_bytes() == base
    assert not Path("new/model.safetensors").exists()

    # The frozen weights are the base's, and every update has moved.
    theirs, tensors = weights_of("base"), read_tensors(Path("new/adapter.safetensors"))[0]
    layers = {name.removesuffix(".a") for name in tensors}
    layers = {name for name in layers if not name.endswith(".b")}
    assert tensors.keys() == {f"{name}.{matrix}" for name in layers for matrix in "ab"}
    assert {name.rpartition(".")[2] for name in layers} == {"query", "value"}
    assert all(tensors[f"{name}.b"].any() for name in layers)
    merged = weights_of("new")
    assert merged.keys() == theirs.keys()
    for name, tensor in merged.items():
        layer = name.removesuffix(".weight")
        update = 7 / 3 * tensors[f"{layer}.b"] @ tensors[f"{layer}.a"] if layer in layers else torch.zeros(())
        torch.testing.assert_close(tensor, theirs[name] + update, rtol=1e-6, atol=1e-6)

    # Loaded, packed and merged it computes the same.
    assert _run(["merge", "new", "--out", "merged"], debug=True) == 0
    pack(Path("new"), Path("packed"))
    scores = [evaluate(run) for run in ("new", "merged", "packed")]
    assert [each.loss for each in scores] == pytest.approx([scores[0].loss] * 3, rel=1e-5)
    lines = Path("new/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[-1])["loss"] == pytest.approx(scores[0].loss, rel=1e-5)
    assert run_config(Run(Path("merged"))).train.adapter is None
    assert evaluate("base").loss != pytest.approx(scores[0].loss, rel=1e-4)


@pytest.mark.usefixtures("base")
def test_an_adapter_is_small_and_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    clearhead.train(
        "translate", data=PAIRS, out="new", **{**STEPS, **LORA, "train.start_from": "base", "train.targets": "query"}
    )
    note = "an adapter of rank 3 for 6 matrices (query); the others are frozen"
    assert note in capsys.readouterr().err
    assert Path("new/adapter.safetensors").stat().st_size < 0.2 * Path("base/model.safetensors").stat().st_size
    assert "| adapter | LoRA of rank 3, alpha 7, for query |" in Path("new/card.md").read_text(encoding="utf-8")
    (newest,) = checkpoints.saved(Path("new/checkpoints"))
    assert read_tensors(newest / "weights.safetensors")[0].keys() == (
        read_tensors(Path("new/adapter.safetensors"))[0].keys()
    )


def test_other_labels_and_another_task_train_their_own_output_layer() -> None:
    trained("masked_lm", "base", data=[text for text, _ in LABELLED] * 3)
    adapted("classify", "new")
    tensors = read_tensors(Path("new/adapter.safetensors"))[0]
    assert {"output.linear.weight", "output.linear.bias"} <= tensors.keys()
    assert "encoder.stack.blocks.1.self_attention.query.a" in tensors
    assert not any("tokens" in name for name in tensors)
    model = clearhead.load("new")
    assert model.classify("good film 3").label in ("pos", "neg")
    theirs = weights_of("base")
    assert torch.equal(weights_of("new")["encoder.tokens.tokens.table.weight"], theirs["tokens.tokens.table.weight"])
    adapted("classify", "newer", base="base", data=[(text, text.split()[0]) for text, _ in LABELLED])
    assert clearhead.load("newer").meta.labels == ("bad", "good")


@pytest.mark.usefixtures("base")
def test_a_model_goes_on_from_an_adapter_with_all_its_weights() -> None:
    adapted("translate", "new")
    expected = weights_of("new")
    trained("translate", "further", **{"train.start_from": "new", "train.max_steps": 0})
    for name, tensor in weights_of("further").items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=0)


# --- freezing ---


@pytest.mark.usefixtures("base")
def test_frozen_parts_end_as_they_began() -> None:
    trained("translate", "new", **{"train.start_from": "base", "train.freeze": "encoder,embedding,decoder.0"})
    theirs, own = weights_of("base"), weights_of("new")
    kept = {name for name in own if torch.equal(own[name], theirs[name])}
    frozen = ("encoder.", "source.", "target.", "output.", "decoder.blocks.0.")
    assert kept == {name for name in own if name.startswith(frozen)}
    assert "| frozen | encoder, embedding, decoder.0 |" in Path("new/card.md").read_text(encoding="utf-8")


def test_a_bundled_model_is_a_start() -> None:
    settings = {**STEPS, "train.max_steps": 0, "train.freeze": "embedding"}
    model = clearhead.train("translate", data=PAIRS, out="new", start_from="en-es", progress=False, **settings)
    theirs = clearhead.load("en-es").network.state_dict()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in model.network.state_dict().items())


# --- resuming ---


class StoppedError(Exception):
    """Stands for a kill in the middle of a run."""


@pytest.mark.parametrize("step", [1, 4])
@pytest.mark.usefixtures("base")
def test_a_stopped_adapter_ends_in_the_same_bits(step: int) -> None:
    adapted("translate", "whole", **{"train.max_steps": 7, "train.checkpoint_every": 3, "train.average": 0.9})
    config = run_config(Run(Path("whole")))

    def stop(found: Any, _progress: object) -> None:
        if found.step == step:
            raise StoppedError

    with pytest.raises(StoppedError):
        run_training(config, Path("stopped"), "test", Callbacks(on_step=stop))
    resume(Path("stopped"))
    assert Path("stopped/adapter.safetensors").read_bytes() == Path("whole/adapter.safetensors").read_bytes()
    assert Path("stopped/metrics.jsonl").read_bytes() == Path("whole/metrics.jsonl").read_bytes()


@pytest.mark.usefixtures("base")
def test_early_stopping_keeps_the_best_adapter() -> None:
    settings = {"train.max_steps": 6, "train.evaluate_every": 2, "train.patience": 1, "train.metric": "loss"}
    adapted("translate", "new", **settings)
    assert not any("base" in name for name in read_tensors(Path("new/checkpoints/best.safetensors"))[0])
    lines = [json.loads(line) for line in Path("new/metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = [line["loss"] for line in lines if line["part"] == "validation"]
    assert losses[-1] == pytest.approx(min(losses), rel=1e-5)


# --- the base ---


@pytest.mark.usefixtures("base")
def test_a_changed_or_missing_base_is_one_sentence() -> None:
    adapted("translate", "new")
    base = Path("base").resolve()
    trained("translate", "other", **{"train.seed": 2})
    shutil.copyfile("other/model.safetensors", "base/model.safetensors")
    for use in (clearhead.load, lambda run: resume(Path(run))):
        with pytest.raises(RunError, match=f"^new is an adapter for {base}, whose weights have changed since it was"):
            use("new")
    shutil.rmtree("base")
    with pytest.raises(RunError, match=f"^new is an adapter for {base}, which is not there; put that run directory"):
        clearhead.load("new")
    assert _run(["merge", "new", "--out", "merged"], debug=False) == 2
    assert not Path("merged").exists()
    Path("new/base.json").write_text("{", encoding="utf-8")
    with pytest.raises(RunError, match=r"^new is an adapter whose base\.json is missing or damaged; train it again$"):
        clearhead.load("new")


def test_base_and_adapter_move_together() -> None:
    trained("translate", "runs/base")
    expected = adapted("translate", "runs/new", base="runs/base").translate("a b h")
    Path("runs").rename("elsewhere")
    assert clearhead.load("elsewhere/new").translate("a b h") == expected


def test_a_bundled_model_can_be_the_base() -> None:
    settings = {**STEPS, "train.adapter": "lora", "train.learning_rate": 0.01}
    model = clearhead.train("translate", data=PAIRS, out="new", start_from="en-es", progress=False, **settings)
    assert json.loads(Path("new/base.json").read_text(encoding="utf-8"))["path"] == "en-es"
    assert model.network.decoder.blocks[0].self_attention.query.base.weight.shape == (192, 192)
    assert model.translate("thank you")


# --- many adapters, one base ---


def storages(model: Any) -> dict[int, int]:
    """The bytes of the weights by address."""
    stores = (weight.untyped_storage() for weight in model.network.parameters())
    return {store.data_ptr(): store.nbytes() for store in stores}


@pytest.mark.usefixtures("base")
def test_adapters_and_their_base_are_in_memory_once() -> None:
    adapted("translate", "a")
    adapted("translate", "b", **{"train.seed": 2, "train.targets": "key,inner"})
    for order in (("base", "a", "b"), ("a", "base", "b"), ("b", "a", "base")):
        check_memory(order)


def check_memory(order: tuple[str, ...]) -> None:
    """Three models in the memory of one and of two adapters, whichever is loaded first."""
    pytest.importorskip("prometheus_client", reason="needs clearhead[studio]")
    from clearhead.serve.registry import Service

    expected = {name: clearhead.load(name).translate(["a b h", "a g m"]) for name in order}
    alone = sum(storages(clearhead.load("base")).values())
    own = sum(
        tensor.numel() * 4 for name in "ab" for tensor in read_tensors(Path(name, "adapter.safetensors"))[0].values()
    )
    gc.collect()  # what was loaded above is gone
    service = Service.load([f"{name}={name}" for name in order])
    try:
        models = {name: service.models[name].model for name in order}
        together: dict[int, int] = {}
        for model in models.values():
            together |= storages(model)
        assert sum(together.values()) == alone + own
        assert {name: model.translate(["a b h", "a g m"]) for name, model in models.items()} == expected
    finally:
        service.close()


@pytest.mark.usefixtures("base")
def test_a_base_that_was_trained_in_place_is_not_shared() -> None:
    adapted("translate", "a")
    base = clearhead.load("base")
    expected = {name: tensor.clone() for name, tensor in clearhead.load("a").network.state_dict().items()}
    with torch.no_grad():
        base.network.decoder.blocks[0].self_attention.key.weight.add_(1.0)
    loaded = clearhead.load("a")
    assert all(torch.equal(tensor, expected[name]) for name, tensor in loaded.network.state_dict().items())


@pytest.mark.usefixtures("base")
def test_the_base_stays_trainable_beside_its_adapters() -> None:
    adapted("translate", "a")
    base, _adapter = clearhead.load("base"), clearhead.load("a")
    assert all(parameter.requires_grad for parameter in base.network.parameters())
    assert not any(isinstance(part, LoRALinear) for part in base.network.modules())


@pytest.mark.skipif(load_library() is None, reason="no C compiler on this machine")
@pytest.mark.usefixtures("base")
def test_native_code_runs_an_adapter_and_writes_what_torch_writes() -> None:
    adapted("translate", "new", **{"train.targets": "query,key,value,output,inner,outer"})
    slow, fast = clearhead.load("new", engine="torch"), clearhead.load("new", engine="compiled")
    texts = [source for source, _ in PAIRS[:7]]
    assert slow.translate(texts) == fast.translate(texts)
    assert isinstance(fast.engines.stepper(), NativeEngine)


@pytest.mark.skipif(load_library() is None, reason="no C compiler on this machine")
@pytest.mark.usefixtures("base")
def test_native_code_has_the_matrices_that_no_adapter_changes_once() -> None:
    adapted("translate", "a")
    models = [clearhead.load(name, engine="compiled") for name in ("base", "a")]
    base, adapter = (model.engines.stepper().layout for model in models)
    for one, other in zip(base.blocks, adapter.blocks, strict=True):
        assert one.feed_forward.inner.panels == other.feed_forward.inner.panels
        assert one.self.output.panels == other.self.output.panels
        assert one.self.project.panels != other.self.project.panels  # queries, keys and values are one matrix
        assert one.cross.source.panels != other.cross.source.panels
    with torch.no_grad():
        models[0].network.decoder.blocks[0].feed_forward.inner.weight.add_(1.0)
    changed = clearhead.load("base", engine="compiled")
    assert changed.engines.stepper().layout.blocks[0].feed_forward.inner.panels not in (
        base.blocks[0].feed_forward.inner.panels,
        None,
    )


# --- peft ---


def peft_model(network: nn.Module, start: nn.Module) -> Any:
    """peft's adapter of a network, with the same A and B as ours."""
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=3, lora_alpha=7, target_modules=["query", "value"])
    model = peft.get_peft_model(network, config)
    with torch.no_grad():
        for name, part in lora_layers(start):
            theirs = model.base_model.model.get_submodule(name)
            theirs.lora_A["default"].weight.copy_(part.a)
            theirs.lora_B["default"].weight.copy_(part.b)
    return model


@pytest.mark.usefixtures("base")
def test_peft_learns_the_same_from_the_same_batches() -> None:
    pytest.importorskip("peft")
    steady = {"train.schedule": "stable", "train.warmup": 0, "train.decay": 0, "train.max_steps": 20}
    settings = {**steady, "train.label_smoothing": 0.1, "model.dropout": 0, "train.clip": 1.0}
    trainer = at_start("new", **{**settings, "train.learning_rate": 0.01})
    theirs = peft_model(clearhead.load("base").network.train(), trainer.model)
    for module in theirs.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    for part in theirs.modules():  # of the fused kernel
        if hasattr(part, "dropout") and isinstance(part.dropout, float):
            part.dropout = 0.0
    parameters = [parameter for parameter in theirs.parameters() if parameter.requires_grad]
    optimizer = AdamW(parameters, lr=0.01, betas=trainer.config.betas, weight_decay=trainer.config.weight_decay)
    found: list[float] = []
    trainer.callbacks = Callbacks(on_step=lambda step, _progress: found.append(step.loss))
    wanted: list[float] = []
    for examples in islice(trainer.cursor.forever(), 20):
        trainer.update([examples])
        loss, count = trainer.task.loss(theirs, trainer.task.batch(examples), 0.1)
        (loss / count).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        wanted.append(float((loss / count).detach()))
    assert found == pytest.approx(wanted, abs=1e-5)
    assert wanted[-1] < wanted[0] - 0.05
    for name, part in lora_layers(trainer.model):
        other = theirs.base_model.model.get_submodule(name)
        torch.testing.assert_close(part.a, other.lora_A["default"].weight, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(part.b, other.lora_B["default"].weight, rtol=1e-4, atol=1e-4)


# --- mistakes ---


@pytest.mark.usefixtures("base")
def test_what_cannot_be_adapted_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match="adapter=lora needs a trained model beside it: give start_from=RUN"):
        trained("translate", "new", **LORA)
    with pytest.raises(ConfigError, match="adapter=lora freezes every weight of start_from: leave out freeze"):
        adapted("translate", "new", **{"train.freeze": "encoder"})
    adapted("translate", "a")
    with pytest.raises(ConfigError, match=r"start_from=.*/a is an adapter itself; .*: clearhead merge .*/a --out DIR"):
        adapted("translate", "new", base="a")
    with pytest.raises(RunError, match=r"^base is a whole model: name the one to merge it --with"):
        merge(Path("base"), Path("merged"))
    with pytest.raises(ConfigError, match="base is there already; choose another --out"):
        merge(Path("a"), Path("base"))
    trained("lm", "words", **{"model.architecture": "rnn"})
    with pytest.raises(ConfigError, match=r"train\.adapter=lora needs blocks of attention, and this model has none"):
        adapted("lm", "new", base="words")
    assert not Path("new").exists()


def test_word_vectors_are_no_base() -> None:
    Path("text.txt").write_text("".join(f"a {a} sees a {b}\n" for a, b in PAIRS) * 9, encoding="utf-8")
    settings = {**SHAPE, "train.max_steps": 2, "train.start_from": "words"}
    clearhead.train("words", data="text.txt", out="words", dim=28, min_count=1, max_steps=2, progress=False)
    with pytest.raises(ConfigError, match=r"adapter=lora needs a whole model, and train\.start_from=.*/words has word"):
        clearhead.train("classify", data=LABELLED, out="new", progress=False, **settings, **LORA)

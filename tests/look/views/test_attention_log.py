"""Where one validation example looks is kept at each evaluation, and training does not notice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.config import AnyConfig
from clearhead.data import builtin
from clearhead.errors import RunError
from clearhead.files import read_tensors, write_tensors
from clearhead.look.inputs import MAX_LOGGED
from clearhead.look.views.history import MAX_PATCHES, AttentionSnapshot, attention_weights, read_attention
from clearhead.nn import causal_mask
from clearhead.run import Run
from clearhead.tasks import default_config, override_config
from clearhead.tasks.base.task import Task
from clearhead.tasks.translate import Translate
from clearhead.train.loop import Callbacks, Trainer
from clearhead.train.start import make_trainer, resume, run_training

SMALL = ["model.dim=12", "model.heads=3", "model.layers=2", "data.batch_tokens=300"]
LONG = " ".join("abcdefghij" * 3)  # 59 characters

# data, settings, and the kinds of attention with their numbers of queries and keys
CASES: dict[str, tuple[str, str, list[str], dict[str, tuple[int, int]]]] = {
    "translate": (
        "translate",
        "pairs.tsv",
        [],
        {"encoder.self": (6, 6), "decoder.self": (4, 4), "decoder.cross": (4, 6)},
    ),
    "recomputed": (
        "translate",
        "pairs.tsv",
        ["train.recompute=true"],
        {"encoder.self": (6, 6), "decoder.self": (4, 4), "decoder.cross": (4, 6)},
    ),
    "long": (
        "translate",
        "long.tsv",
        [],
        {"encoder.self": (MAX_LOGGED, MAX_LOGGED), "decoder.self": (4, 4), "decoder.cross": (4, MAX_LOGGED)},
    ),
    "rnn": ("translate", "pairs.tsv", ["model.architecture=rnn", "model.context=attention"], {"decoder.cross": (4, 6)}),
    "lm": ("lm", "book.txt", ["model.length=53"], {"decoder.self": (MAX_LOGGED, MAX_LOGGED)}),
    "lm masked": ("lm", "book.txt", ["model.length=31", "model.objective=masked"], {"encoder.self": (31, 31)}),
    "classify": ("classify", "days.csv", [], {"encoder.self": (8, 8)}),
    "tag": ("tag", "builtin", [], {}),
    "vision": ("vision", "builtin", ["model.patch=7"], {"encoder.self": (17, 17)}),
    "many patches": ("vision", "builtin", ["model.patch=2"], {"encoder.self": (MAX_PATCHES, MAX_PATCHES)}),
    "caption": ("caption", "builtin", ["tokenizer.kind=word"], {}),
    "caption sequence": ("caption", "builtin", ["tokenizer.kind=word", "model.architecture=sequence"], {}),
    "caption rnn": ("caption", "builtin", ["tokenizer.kind=word", "model.architecture=rnn"], {}),
}
KINDS = {
    "tag": {"encoder.self"},
    "caption": {"encoder.self", "decoder.self", "decoder.cross"},
    "caption sequence": {"decoder.self"},
    "caption rnn": {"encoder.self"},
}


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = builtin.examples
    monkeypatch.setattr(builtin, "examples", lambda kind: whole(kind)[::97])
    monkeypatch.chdir(tmp_path)
    pairs = [(f"{a} {b} {a}", f"{b} {a}") for a in "abcdefgh" for b in "ijklmnop"]
    days = [f"{a} {b} day,{'good' if a < 'd' else 'bad'}" for a in "abcdefgh" for b in "ijklmnop"]
    Path("pairs.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in pairs), encoding="utf-8")
    Path("long.tsv").write_text("".join(f"{s} {LONG}\t{t}\n" for s, t in pairs), encoding="utf-8")
    Path("days.csv").write_text("text,label\n" + "\n".join(days) + "\n", encoding="utf-8")
    Path("book.txt").write_text("".join(f"{s} and {t}\n" for s, t in pairs) * 3, encoding="utf-8")


def make_config(task: str, data: str, *more: str) -> AnyConfig:
    tokens = ["tokenizer.kind=char"] if task in ("translate", "lm", "classify") else []
    words = [f"data.path={data}", "data.validation=0.1", *tokens, *SMALL, *more]
    return override_config(default_config(task, "tiny"), words)


def started(config: AnyConfig, out: str = "run") -> Trainer:
    return make_trainer(Run.create(Path(out), config), config, Callbacks())


def evaluated(config: AnyConfig) -> tuple[Any, AttentionSnapshot]:
    trainer = started(config)
    trainer.evaluate()
    return trainer, read_attention(Path("run/attention/step-00000000.safetensors"))


@pytest.mark.parametrize("name", CASES)
def test_every_layer_of_every_kind_is_kept_with_its_words(name: str) -> None:
    task, data, settings, sizes = CASES[name]
    _, found = evaluated(make_config(task, data, *settings))
    assert set(found.edges) == KINDS.get(name, set(sizes))
    layers, heads = (1, 1) if name == "rnn" else (2, 3)
    assert set(found.weights) == {kind.replace(".", f".{n}.") for kind in found.edges for n in range(layers)}
    for layer, weights in found.weights.items():
        kind = f"{layer.split('.')[0]}.{layer.split('.')[2]}"
        rows, columns = (len(words) for words in found.edges[kind])
        assert (rows, columns) == sizes.get(kind, (rows, columns))
        assert weights.shape == (heads, rows, columns)
        assert weights.dtype == torch.float16
        if max(rows, columns) < MAX_PATCHES:
            torch.testing.assert_close(weights.float().sum(-1), torch.ones(heads, rows), rtol=0, atol=2e-3)


def test_they_are_the_weights_that_the_model_uses() -> None:
    trainer, found = evaluated(make_config("translate", "pairs.tsv"))
    pair, block = trainer.task.held_out.pairs[0], trainer.model.decoder.blocks[0]
    words = trainer.task.tokenizer
    ids = torch.tensor([[words.start, *words.encode(pair.target)]])
    with torch.no_grad():
        x = block.residual1.norm(trainer.model.eval().target(ids))
        wanted = block.self_attention.weights(x, mask=causal_mask(ids.size(1)))[0]
    torch.testing.assert_close(found.weights["decoder.0.self"], wanted.half(), rtol=0, atol=1e-3)
    source, target = [*pair.source, words.token(words.stop)], [*pair.target, words.token(words.stop)]
    assert found.edges["encoder.self"] == (source, source)
    assert found.edges["decoder.cross"] == (target, source)
    assert found.edges["decoder.self"][0] == [words.token(words.start), *pair.target]


def test_patches_are_called_by_their_places() -> None:
    _, found = evaluated(make_config("vision", "builtin", "model.patch=14"))
    assert found.edges["encoder.self"][0] == ["class", "1,1", "1,2", "2,1", "2,2"]


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("lm", ["model.length=31", "model.architecture=rnn"]),
        ("translate", ["model.architecture=rnn", "model.context=last"]),
    ],
)
def test_a_model_without_attention_keeps_nothing(task: str, settings: list[str]) -> None:
    started(make_config(task, "book.txt" if task == "lm" else "pairs.tsv", *settings)).evaluate()
    assert not Path("run/attention").exists()


def test_looking_draws_no_numbers_and_leaves_the_mode() -> None:
    trainer = started(make_config("translate", "pairs.tsv", "model.dropout=0.5"))
    example, before = trainer.task.example(), torch.get_rng_state()
    assert example is not None
    trainer.model.train()
    once, again = attention_weights(trainer.model, example), attention_weights(trainer.model, example)
    assert trainer.model.training
    assert torch.equal(torch.get_rng_state(), before)
    for name, weights in once.items():
        torch.testing.assert_close(weights, again[name], rtol=0, atol=0)


RUN = [
    "model.dropout=0.2",
    "train.average=0.9",
    "train.evaluate_every=3",
    "train.checkpoint_every=2",
    "train.max_steps=7",
]


def contents(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).glob("attention/*")}


def test_training_is_the_same_with_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_config("translate", "pairs.tsv", *RUN)
    run_training(config, Path("with"), "test")
    monkeypatch.setattr(Translate, "example", Task.example)
    run_training(config, Path("without"), "test")
    assert list(contents("with")) != []
    assert contents("without") == {}
    assert Path("with/metrics.jsonl").read_bytes() == Path("without/metrics.jsonl").read_bytes()
    ours, theirs = (read_tensors(Path(run) / "model.safetensors")[0] for run in ("with", "without"))
    for name, weight in ours.items():
        torch.testing.assert_close(weight, theirs[name], rtol=0, atol=0)


class StoppedError(Exception):
    """Stands for a kill in the middle of a run."""


def test_a_resumed_run_leaves_the_same_files() -> None:
    def stop(found: Any, _progress: object) -> None:
        if found.step == 5:
            raise StoppedError

    config = make_config("translate", "pairs.tsv", *RUN)
    run_training(config, Path("whole"), "test")
    with pytest.raises(StoppedError):
        run_training(config, Path("stopped"), "test", Callbacks(on_step=stop))
    Path("stopped/attention/step-00000003.safetensors").write_bytes(b"torn")
    checkpoint = Path("stopped/checkpoints/step-00000004")
    (checkpoint / "state.json").unlink()  # so that it goes on from step 2
    resume(Path("stopped"))
    assert sorted(contents("whole")) == [f"step-0000000{step}.safetensors" for step in (3, 6, 7)]
    assert contents("stopped") == contents("whole")


def test_another_file_is_refused(tmp_path: Path) -> None:
    write_tensors(tmp_path / "other.safetensors", {"a": torch.ones(2)})
    with pytest.raises(RunError, match=r"other\.safetensors is not a file of attention weights: its metadata"):
        read_attention(tmp_path / "other.safetensors")

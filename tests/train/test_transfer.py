"""A new model begins with a trained one's weights where they fit, keeps its own elsewhere, and says which are which."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import clearhead
from clearhead.cli.main import _run
from clearhead.config import AnyConfig
from clearhead.data import builtin
from clearhead.errors import ConfigError, RunError
from clearhead.files import read_tensors
from clearhead.run import ModelMeta, Run, Sizes
from clearhead.tasks import default_config, override_config, run_config
from clearhead.tasks.base.network import build_network, load_network, load_weights, save_weights
from clearhead.text import Tokenizer
from clearhead.train import board, checkpoints
from clearhead.train.distributed import ProcessGroup
from clearhead.train.dry_run import estimate
from clearhead.train.evaluate import evaluate
from clearhead.train.loop import Callbacks, Trainer
from clearhead.train.start import make_trainer, resume, run_training, with_absolute_paths
from clearhead.train.transfer import LISTED, counterpart, start_run, words_in_common

SHAPE = ["model.dim=22", "model.heads=2", "model.layers=1", "model.inner=29", "model.max_length=53"]
STEPS = ["data.batch_tokens=300", "train.max_steps=3", "data.validation=0.1", "train.device=cpu"]
COLOURS, ANIMALS = ("red", "green", "blue", "black", "white"), ("cat", "dog", "fox", "hen", "owl", "horse", "mouse")
DATA = {"lm": "prose.txt", "classify": "animals.csv", "tag": "tags.tsv", "translate": "pairs.tsv", "words": "prose.txt"}
TEXTS = {"lm", "classify", "tag", "translate"}


class StoppedError(Exception):
    """Stands for a kill in the middle of a run."""


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(board, "find_spec", lambda _name: None)
    prose = "".join(f"The {a} {b} sees the {c}.\n" for a in COLOURS for b in ANIMALS for c in ANIMALS)
    Path("prose.txt").write_text(prose, encoding="utf-8")
    rows = [(f"the {a} {b} sleeps", "bird" if b in ("hen", "owl") else "beast") for a in COLOURS for b in ANIMALS]
    Path("animals.csv").write_text("text,label\n" + "".join(f"{x},{y}\n" for x, y in rows), encoding="utf-8")
    renamed = [(text, label.replace("beast", "mammal")) for text, label in rows]
    Path("renamed.csv").write_text("text,label\n" + "".join(f"{x},{y}\n" for x, y in renamed), encoding="utf-8")
    Path("colours.csv").write_text("text,label\n" + "".join(f"{x},{x.split()[1]}\n" for x, _ in rows), encoding="utf-8")
    tags = "".join(f"the\tD\n{a}\tA\n{b}\tN\n\n" for a in COLOURS for b in ANIMALS)
    Path("tags.tsv").write_text(tags, encoding="utf-8")
    pairs = "".join(f"the {a} {b}\t{b} {a}\n" for a in COLOURS for b in ANIMALS)
    Path("pairs.tsv").write_text(pairs, encoding="utf-8")


@pytest.fixture
def few_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = builtin.examples
    monkeypatch.setattr(builtin, "examples", lambda kind: whole(kind)[:: 37 if kind == "text" else 19])


def made(task: str, *more: str) -> AnyConfig:
    shape = SHAPE if task in TEXTS else ["model.dim=22"] if task == "words" else SHAPE[:4]
    kind = {"lm": ["tokenizer.kind=bpe", "tokenizer.size=97", "model.length=13", "model.positions=learned"]}
    data = [f"data.path={DATA[task]}"] if task in DATA else []
    words = [*data, *shape, *STEPS, *kind.get(task, []), *more]
    return override_config(default_config(task, "tiny"), words)


def finished(out: str, task: str, *more: str) -> dict[str, Tensor]:
    """Train a model and give its weights."""
    run_training(made(task, *more), Path(out), "test")
    return load_weights(Run(Path(out)), run_config(Run(Path(out))))[0]


def begun(task: str, *more: str, out: str = "new") -> tuple[Trainer, list[str]]:
    """A model at step 0, and what was said about it."""
    config, notes = made(task, *more), list[str]()
    return make_trainer(Run.create(Path(out), config), config, Callbacks(on_note=notes.append)), notes


def fresh(trainer: Trainer) -> dict[str, Tensor]:
    """The weights with which the same model would begin on its own."""
    torch.manual_seed(trainer.config.seed)
    return build_network(trainer.task.config, trainer.task.meta.sizes).state_dict()


def same(left: Tensor, right: Tensor) -> bool:
    return left.shape == right.shape and torch.equal(left, right)


# --- weights ---


@pytest.mark.parametrize("objective", ["next", "masked"])
@pytest.mark.parametrize("task", ["classify", "tag"])
def test_a_language_model_gives_its_encoder(task: str, objective: str) -> None:
    theirs = finished("lm", "lm", f"model.objective={objective}")
    trainer, notes = begun(task, "train.start_from=lm")
    own, alone = trainer.model.state_dict(), fresh(trainer)
    pad = trainer.task.meta.sizes.pad
    for name, tensor in own.items():
        if name.startswith("output."):
            assert same(tensor, alone[name])
            continue
        expected = theirs[name.removeprefix("encoder.")].clone()
        if name == "encoder.tokens.tokens.table.weight":
            assert expected[pad].any()
            expected[pad] = 0
        assert same(tensor, expected)
    taken = [name for name in own if name.startswith("encoder.")]
    numbers = sum(own[name].numel() for name in taken)
    total = sum(tensor.numel() for tensor in own.values())
    assert notes[-1] == (
        f"begins with {len(taken)} of {len(own)} tensors of lm ({numbers:,} of {total:,} parameters) "
        "and its tokenizer; new: output.linear.weight, output.linear.bias"
    )
    assert Path("new/tokenizer.json").read_bytes() == Path("lm/tokenizer.json").read_bytes()
    assert trainer.task.tokenizer is not None
    assert trainer.task.tokenizer.kind == "bpe"


def test_a_classifier_reads_exactly_as_the_masked_model_did() -> None:
    finished("lm", "lm", "model.objective=masked")
    trainer, _ = begun("classify", "train.start_from=lm")
    language_model: Any = load_network(Run(Path("lm")), run_config(Run(Path("lm"))))[0]
    classifier: Any = trainer.model.eval()
    ids = torch.randint(6, trainer.task.meta.sizes.vocabulary, (3, 11))
    ids[1, 7:] = ids[2, 5:] = trainer.task.meta.sizes.pad
    real = ids != trainer.task.meta.sizes.pad
    with torch.no_grad():
        assert same(classifier.encoder(ids)[real], language_model.read(ids)[real])


def test_a_classifier_gives_a_language_model_and_a_tagger_its_encoder() -> None:
    theirs = finished("classifier", "classify")
    for task, prefix in (("lm", ""), ("tag", "encoder.")):
        trainer, _ = begun(task, "train.start_from=classifier", out=task)
        own = trainer.model.state_dict()
        for part in ("tokens.positions.table.weight", "stack.blocks.0.feed_forward.inner.weight"):
            assert same(own[prefix + part], theirs[f"encoder.{part}"])


def test_the_output_of_a_tagger_is_not_that_of_a_classifier_with_as_many_labels() -> None:
    assert counterpart("output.linear.weight", "tag", "classify") is None
    assert counterpart("output.linear.weight", "classify", "lm") is None
    assert counterpart("output.linear.weight", "lm", "lm") == "output.linear.weight"
    assert counterpart("encoder.stack.norm.weight", "tag", "lm") == "stack.norm.weight"
    assert counterpart("tokens.tokens.table.weight", "lm", "tag") == "encoder.tokens.tokens.table.weight"


@pytest.mark.parametrize("task", ["translate", "lm", "words"])
def test_the_same_task_goes_on_with_every_weight(task: str) -> None:
    theirs = finished("old", task)
    trainer, notes = begun(task, "train.start_from=old")
    own = trainer.model.state_dict()
    assert own.keys() == theirs.keys()
    assert all(same(own[name], theirs[name]) for name in own)
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    count = len(list(trainer.model.parameters()))
    assert notes[-1] == (
        f"begins with {count} of {count} tensors of old ({parameters:,} of {parameters:,} parameters) and its tokenizer"
    )


@pytest.mark.parametrize(
    ("data", "taken"), [("animals.csv", True), ("renamed.csv", False), ("colours.csv", False)], ids=str
)
def test_the_layer_of_the_labels_is_taken_over_for_the_same_labels_only(data: str, taken: bool) -> None:
    theirs = finished("old", "classify")
    trainer, notes = begun("classify", "train.start_from=old", f"data.path={data}")
    own, alone = trainer.model.state_dict(), fresh(trainer)
    for name in own:
        assert same(own[name], theirs[name] if taken or not name.startswith("output.") else alone[name])
    assert notes[-1].endswith("tokenizer" if taken else "; new: output.linear.weight, output.linear.bias")


def test_an_image_classifier_learns_other_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL")
    whole = builtin.examples
    monkeypatch.setattr(builtin, "examples", lambda kind: whole(kind)[::19])
    theirs = finished("old", "vision", "model.patch=7")
    monkeypatch.setattr(builtin, "examples", lambda kind: [each for each in whole(kind)[::19] if each.label > "c"])
    trainer, notes = begun("vision", "train.start_from=old", "model.patch=7")
    own = trainer.model.state_dict()
    assert own["output.linear.weight"].shape != theirs["output.linear.weight"].shape
    assert all(same(own[name], theirs[name]) for name in own if not name.startswith("output."))
    assert notes[-1].endswith("parameters); new: output.linear.weight, output.linear.bias")


def test_what_has_another_shape_keeps_its_own_start() -> None:
    theirs = finished("lm", "lm")
    trainer, notes = begun("classify", "train.start_from=lm", "model.max_length=59", "model.layers=2")
    own, alone = trainer.model.state_dict(), fresh(trainer)
    table = "encoder.tokens.positions.table.weight"
    assert same(own[table], alone[table])
    second = [name for name in own if ".blocks.1." in name]
    assert all(same(own[name], alone[name]) for name in second)
    assert same(own["encoder.stack.norm.weight"], theirs["stack.norm.weight"])
    listed = [table, *second][:LISTED]
    assert notes[-1].endswith(f"; new: {', '.join(listed)} and {len(second) + 3 - LISTED} more")


def test_an_output_of_its_own_does_not_replace_a_tied_embedding() -> None:
    theirs = finished("untied", "lm", "model.tied=false")
    assert not torch.equal(theirs["output.linear.weight"], theirs["tokens.tokens.table.weight"])
    trainer, _ = begun("lm", "train.start_from=untied")
    assert same(trainer.model.state_dict()["output.linear.weight"], theirs["tokens.tokens.table.weight"])
    theirs = finished("tied", "translate")
    trainer, _ = begun("translate", "train.start_from=tied", "model.tied=false", out="parted")
    own = trainer.model.state_dict()
    assert all(same(own[name], theirs[name]) for name in own)


def test_statistics_of_batch_norms_are_taken_over() -> None:
    theirs = finished("lm", "lm", "model.norm=batch")
    trainer, notes = begun("classify", "train.start_from=lm", "model.norm=batch")
    own = trainer.model.state_dict()
    statistics = [name for name in own if "running" in name]
    assert len(statistics) > 2
    assert all(same(own[name], theirs[name.removeprefix("encoder.")]) for name in statistics)
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    assert f"of {parameters:,} parameters)" in notes[-1]


def test_settings_that_change_what_a_weight_means_are_named() -> None:
    finished("lm", "lm", "model.positions=rotary", "model.heads=1")
    _, notes = begun("classify", "train.start_from=lm")
    assert notes[-1] == (
        "its blocks were trained with model.heads=1 model.positions=rotary; "
        "add this to the command, or their weights mean something else"
    )
    _, notes = begun("classify", "train.start_from=lm", "model.positions=rotary", "model.heads=1", out="alike")
    assert notes[-1].startswith("begins with ")


def test_the_average_begins_there_too() -> None:
    theirs = finished("lm", "lm")
    trainer, _ = begun("classify", "train.start_from=lm", "train.average=0.9")
    averaged = trainer.ema.state_dict()
    assert same(averaged["encoder.stack.norm.bias"], theirs["stack.norm.bias"])


def test_small_weights_of_a_packed_model_are_read() -> None:
    theirs = finished("lm", "lm")
    facts = load_weights(Run(Path("lm")), run_config(Run(Path("lm"))))[1]
    save_weights(Run(Path("lm")), run_config(Run(Path("lm"))), theirs, facts, half=True)
    trainer, _ = begun("classify", "train.start_from=lm")
    name = "stack.blocks.0.feed_forward.inner.weight"
    assert same(trainer.model.state_dict()[f"encoder.{name}"], theirs[name].half().float())


# --- word vectors ---


def words_run(*more: str) -> tuple[Tensor, Tokenizer]:
    theirs = finished("words", "words", "model.min_count=1", *more)
    tokenizer = Run(Path("words")).load_tokenizer()
    assert tokenizer is not None
    return theirs["center.weight"], tokenizer


@pytest.mark.parametrize(
    ("task", "tables"),
    [
        ("classify", ["encoder.tokens.tokens.table.weight"]),
        ("lm", ["tokens.tokens.table.weight"]),
        ("translate", ["target.tokens.table.weight", "source.tokens.table.weight"]),
    ],
)
def test_tokens_that_are_words_begin_with_their_vectors(task: str, tables: list[str]) -> None:
    vectors, words = words_run()
    trainer, notes = begun(task, "train.start_from=words", "tokenizer.kind=word", "model.tied=false")
    own, alone, tokenizer = trainer.model.state_dict(), fresh(trainer), trainer.task.tokenizer
    assert tokenizer is not None
    assert len(tokenizer) != len(words)
    known = [i for i in range(len(tokenizer)) if tokenizer.token(i).lower() in ("the", "sees", *COLOURS, *ANIMALS)]
    assert len(known) >= 13
    ids = [words.id(tokenizer.token(i).lower()) for i in known]
    for table in tables:
        expected = alone[table].clone()
        scale = alone[table][known].norm(dim=1).mean() / vectors[ids].norm(dim=1).mean()
        expected[known] = vectors[ids] * scale
        torch.testing.assert_close(own[table], expected, rtol=1e-6, atol=0)
        torch.testing.assert_close(own[table][known].norm(dim=1).mean(), alone[table][known].norm(dim=1).mean())
    others = own.keys() - {*tables}
    assert all(same(own[name], alone[name]) for name in others)
    assert notes[-1] == (
        f"begins with the vectors of {len(set(ids))} of {len(words) - 7} words of words, "
        f"for {len(known)} of {len(tokenizer)} tokens"
    )


TEXT = ["The cat sees the cat. The dog sees theories and catsup, catsup and theories."] * 9


@pytest.mark.parametrize("kind", ["word", "wordpiece", "bpe", "unigram", "bytes"])
def test_only_whole_words_are_words(kind: Any) -> None:
    size = {"bytes": 330}.get(kind, 90)
    there = Tokenizer.train("word", ["the cat sees , the . dog s"], size=60, lowercase=True)
    here = Tokenizer.train(kind, TEXT, size=size)
    found = {here.token(i): there.token(word) for i, word in words_in_common(here, there).items()}
    mark = {"bpe": "▁", "unigram": "▁", "bytes": "Ġ"}.get(kind, "")
    assert found[f"{mark}cat"] == "cat"
    assert (found.get(f"{mark}sees") == "sees") == (f"{mark}sees" in map(here.token, range(len(here))))
    assert all(token.startswith(mark) and not token.startswith("##") for token in found)
    assert all(token.removeprefix(mark).lower() == word for token, word in found.items())
    assert not {"[UNK]", "[PAD]", ",", f"{mark},", "."} & found.keys()


def test_capitals_count_as_the_word_vectors_take_them() -> None:
    here = Tokenizer.train("word", TEXT, size=60)
    for lowercase, expected in ((True, {"The", "the"}), (False, {"the"})):
        there = Tokenizer.train("word", ["the cat"], size=60, lowercase=lowercase)
        assert {here.token(i) for i in words_in_common(here, there)} == {*expected, "cat"}


def test_characters_are_no_words() -> None:
    there = Tokenizer.train("word", ["a cat is I"], size=60)
    assert words_in_common(Tokenizer.train("char", ["a cat is I"], size=60), there) == {}


# --- resuming ---


def stopping_at(step: int) -> Callbacks:
    def stop(found: Any, _progress: object) -> None:
        if found.step == step:
            raise StoppedError

    return Callbacks(on_step=stop)


def files(run: str) -> dict[str, object]:
    """What a finished run leaves, as it can be compared."""
    tensors, header = read_tensors(Path(run) / "model.safetensors")
    weights = {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}
    return {"weights": weights, "header": header, "metrics": Path(run, "metrics.jsonl").read_text(encoding="utf-8")}


LONGER = ["train.max_steps=7", "train.checkpoint_every=3", "train.average=0.9"]


@pytest.mark.parametrize("source", ["lm", "words"])
@pytest.mark.parametrize("step", [1, 4])
def test_a_stopped_run_ends_in_the_same_bits(source: str, step: int) -> None:
    finished("old", source)
    config = made("classify", "train.start_from=old", "tokenizer.kind=word", *LONGER)
    run_training(config, Path("whole"), "test")
    with pytest.raises(StoppedError):
        run_training(config, Path("stopped"), "test", stopping_at(step))
    if step > 3:
        shutil.rmtree("old")
    resume(Path("stopped"))
    assert files("stopped") == files("whole")
    shutil.rmtree("old", ignore_errors=True)
    assert evaluate("stopped").loss == pytest.approx(
        json.loads(str(files("whole")["metrics"]).splitlines()[-1])["loss"]
    )
    assert clearhead.load("stopped").classify("the red hen sleeps").label in ("bird", "beast")


def test_a_run_whose_checkpoints_are_all_damaged_begins_again_with_the_same_weights() -> None:
    finished("old", "lm")
    config = made("classify", "train.start_from=old", *LONGER)
    run_training(config, Path("whole"), "test")
    with pytest.raises(StoppedError):
        run_training(config, Path("stopped"), "test", stopping_at(4))
    (only,) = checkpoints.saved(Path("stopped/checkpoints"))
    (only / "weights.safetensors").write_bytes(b"torn")
    resume(Path("stopped"))
    assert files("stopped") == files("whole")


def test_resuming_without_a_checkpoint_needs_the_trained_run() -> None:
    finished("old", "lm")
    config = made("classify", "train.start_from=old", *LONGER)
    with pytest.raises(StoppedError):
        run_training(config, Path("stopped"), "test", stopping_at(2))
    shutil.rmtree("old")
    with pytest.raises(ConfigError, match=r"train\.start_from=.*/old is not a run directory: it has no config\.yaml"):
        resume(Path("stopped"))
    assert Path("stopped/config.yaml").is_file()


def test_a_run_resumes_from_another_folder_than_it_began_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished("old", "lm")
    config = made("classify", "train.start_from=old", *LONGER)
    run_training(config, Path("whole"), "test")
    with pytest.raises(StoppedError):
        run_training(config, Path("stopped"), "test", stopping_at(2))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    resume(tmp_path / "stopped")
    assert files(str(tmp_path / "stopped")) == files(str(tmp_path / "whole"))


def test_the_name_of_a_bundled_model_stays_a_name() -> None:
    config = override_config(default_config("classify", "tiny"), ["train.start_from=shakespeare"])
    assert with_absolute_paths(config).train.start_from == "shakespeare"


def test_shards_are_cut_from_what_was_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = finished("lm", "lm")
    spread: list[Tensor] = []

    def keep(_group: ProcessGroup, model: nn.Module) -> None:
        spread.append(model.state_dict()["encoder.stack.norm.bias"].clone())

    monkeypatch.setattr(ProcessGroup, "shard", keep)
    begun("classify", "train.start_from=lm")
    assert same(spread[0], theirs["stack.norm.bias"])


# --- mistakes ---


def refused(sentence: str, task: str, *more: str) -> None:
    with pytest.raises(ConfigError) as found:
        run_training(made(task, *more), Path("runs/new"), "test")
    assert str(found.value).replace(f"{Path.cwd()}/", "") == sentence
    assert not Path("runs").exists()


def test_another_width_is_named() -> None:
    finished("lm", "lm")
    refused(
        "train.start_from=lm has model.dim 22 and this model 26, so nothing fits; "
        "say model.dim=22 or start from another",
        "classify",
        "train.start_from=lm",
        "model.dim=26",
        "data.path=missing.csv",
    )
    finished("words", "words", "model.dim=19")
    refused(
        "train.start_from=words has word vectors of dim 19 and this model 22, so nothing fits; "
        "say model.dim=19 or start from another",
        "classify",
        "train.start_from=words",
    )


def test_tasks_without_a_part_in_common_are_named() -> None:
    finished("lm", "lm")
    refused(
        "train.start_from=lm is a model for lm, which has nothing for one for translate; "
        "choose a model for translate or words",
        "translate",
        "train.start_from=lm",
    )
    refused(
        "train.start_from=lm is a model for lm, which has nothing for one for words; choose a model for words",
        "words",
        "train.start_from=lm",
    )


def test_what_is_no_finished_run_is_named() -> None:
    refused("train.start_from=nowhere is not a run directory: it has no config.yaml", "tag", "train.start_from=nowhere")
    Run.create(Path("half"), made("lm"))
    refused(
        "train.start_from=half has no model yet; finish it with `clearhead resume half`", "tag", "train.start_from=half"
    )


def test_words_of_which_the_tokenizer_has_none_are_named() -> None:
    finished("words", "words")
    refused(
        "train.start_from=words: none of the 28 tokens of this model is one of its words; "
        "choose tokenizer.kind=word, and text in the same language",
        "classify",
        "train.start_from=words",
        "tokenizer.kind=char",
    )


@pytest.mark.usefixtures("few_examples")
def test_models_of_one_task_without_a_common_weight_are_named() -> None:
    config = made("caption")
    sizes = Sizes(vocabulary=31, channels=3, height=16, width=24)
    save_weights(Run.create(Path("cross"), config), config, build_network(config, sizes).state_dict(), ModelMeta(sizes))
    with pytest.raises(ConfigError, match=r"start_from=cross: none of its \d+ tensors has the name and shape"):
        begun("caption", "train.start_from=cross", "model.architecture=sequence")


def test_a_damaged_model_leaves_nothing_behind() -> None:
    finished("lm", "lm")
    Path("lm/model.safetensors").write_bytes(b"torn")
    with pytest.raises(RunError, match=r"lm/model\.safetensors is damaged"):
        run_training(made("classify", "train.start_from=lm"), Path("runs/new"), "test")
    assert not Path("runs").exists()


def test_without_the_setting_there_is_no_run_to_start_from() -> None:
    assert start_run(made("lm")) is None


# --- from the command line ---


@pytest.mark.usefixtures("few_examples")
def test_pre_train_and_classify(capsys: pytest.CaptureFixture[str]) -> None:
    small = [*SHAPE, "data.batch_tokens=500", "data.max_length=50", "train.max_steps=3", "model.positions=learned"]
    masked = ["model.objective=masked", "model.length=17", "tokenizer.size=300"]
    classify = ["train", "classify", "--data", "builtin", *small, "train.start_from=lm"]
    assert _run(["train", "lm", "--data", "builtin", "--out", "lm", *small, *masked], debug=False) == 0
    assert _run([*classify, "--dry-run"], debug=False) == 0
    found = re.search(r"^begins with (\d+) of (\d+) tensors of .*/lm \(", capsys.readouterr().err, re.MULTILINE)
    assert found is not None
    assert int(found[1]) == int(found[2]) - 2
    assert _run([*classify, "--out", "reviews"], debug=False) == 0
    assert "and its tokenizer; new: output.linear.weight, output.linear.bias" in capsys.readouterr().err
    assert "| started from | the weights of `lm`, where they fit |\n" in Path("reviews/card.md").read_text("utf-8")
    assert "begun with" not in Path("lm/card.md").read_text("utf-8")
    assert _run([*classify, "--out", "wide", "model.dim=24"], debug=False) == 2
    assert "has model.dim 22 and this model 24" in capsys.readouterr().err
    assert not Path("wide").exists()


def test_a_dry_run_leaves_nothing_behind() -> None:
    finished("lm", "lm")
    before = sorted(Path().rglob("*"))
    notes: list[str] = []
    found = estimate(made("classify", "train.start_from=lm"), notes.append)
    assert notes[-1].startswith("begins with ")
    assert found.parameters["encoder.tokens"] == 22 * (len(Tokenizer.load("lm/tokenizer.json")) + 53)
    assert sorted(Path().rglob("*")) == before

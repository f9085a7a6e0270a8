"""A run directory from a stranger: whatever its files hold, it is opened, or refused by one sentence.

Seeded mutations of every file of small models; `make test-slow` tries 10,000.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from PIL import Image
from tests.mutations import change_bytes, change_tree, no_longer_than, nothing_outside

import clearhead
from clearhead.errors import ClearheadError, ConfigError, RunError
from clearhead.files import append_line, write_text
from clearhead.run import ModelMeta, Run, Sizes, describe, read_card
from clearhead.tasks import TASKS, default_config, override_config, run_config
from clearhead.tasks.base.network import _AtMost, _outline, build_network, save_weights, tied_names
from clearhead.tasks.caption import Captioner
from clearhead.text import Tokenizer

TEXT = "we are eating bread and they are reading a good book about bread"
SMALL = ["model.dim=12", "model.heads=3", "model.layers=2", "model.inner=29"]
MODELS = {  # name -> task, settings, tokenizer
    "lm": ("lm", ["model.positions=rotary"], "bytes"),
    "translate": ("translate", ["model.positions=learned"], "bpe"),
    "classify": ("classify", ["model.ngrams=2"], "word"),
    "tag": ("tag", ["model.norm=rms"], "wordpiece"),
    "vision": ("vision", [], None),
    "caption": ("caption", ["data.max_length=5"], "unigram"),
    "rnn": ("lm", ["model.architecture=rnn"], "char"),
    "words": ("words", [], "word"),
}
SECONDS = 5.0  # that any of them may take


def make_run(path: Path, name: str) -> Path:
    """A finished run directory with random weights."""
    task, settings, kind = MODELS[name]
    small = SMALL[:1] if task == "words" else SMALL
    config = override_config(default_config(task), [*small, *settings])
    run = Run.create(path, config)
    tokenizer = None if kind is None else Tokenizer.train(kind, [TEXT], size=300)  # type: ignore[arg-type]
    if tokenizer is not None:
        tokenizer.save(path / "tokenizer.json")
    count = 0 if tokenizer is None else len(tokenizer)
    sizes = Sizes(vocabulary=count, classes=3, channels=1, height=8, width=8)
    torch.manual_seed(3)
    save_weights(run, config, build_network(config, sizes).state_dict(), ModelMeta(sizes, ("a", "b", "c"), 7))
    front = {"parameters": 1234, "examples": [TEXT], "licence": "free", "metrics": {"loss": 1.5}}
    write_text(path / "card.md", f"---\n{yaml.safe_dump(front)}---\n# It\n\nA model.\n")
    for step in (5, 7):
        append_line(path / "metrics.jsonl", {"step": step, "part": "train", "loss": 2.0})
        append_line(
            path / "metrics.jsonl", {"step": step, "part": "validation", "loss": 2.0, "bleu": 1.0, "sample": "x"}
        )
    return path


def use(path: Path) -> str:
    """What somebody would do with it: `opened`, or the sentence that refuses it."""
    warnings.simplefilter("ignore")  # damaged weights are numbers too, and may be too large to add
    try:
        describe(path)
        model = clearhead.load(path)
        item: Any = TEXT
        if model.reads == "image":
            item = Image.new("L", (8, 8), 77)
        elif model.reads == "words":
            item = "bread"
        model.answer(item, max_tokens=4)
    except ClearheadError as error:
        return str(error)
    return "opened"


# --- mutations ---


def change_header(data: bytes, chance: random.Random) -> bytes:
    """A safetensors file with another header, its length right."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    if chance.randrange(2):
        facts = change_tree(json.loads(header["__metadata__"]["facts"]), chance)
        header["__metadata__"]["facts"] = json.dumps(facts)
    else:
        header = change_tree(header, chance)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


def change_lines(data: bytes, chance: random.Random) -> bytes:
    lines = [json.loads(line) for line in data.splitlines()]
    return b"".join(json.dumps(change_tree(line, chance)).encode() + b"\n" for line in lines)


def change_card(data: bytes, chance: random.Random) -> bytes:
    _, front, text = data.decode().split("---\n")
    return f"---\n{yaml.safe_dump(change_tree(yaml.safe_load(front), chance))}---\n{text}".encode()


CHANGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "config.yaml": lambda data, chance: yaml.safe_dump(change_tree(yaml.safe_load(data), chance)).encode(),
    "tokenizer.json": lambda data, chance: json.dumps(change_tree(json.loads(data), chance)).encode(),
    "model.safetensors": change_header,
    "metrics.jsonl": change_lines,
    "card.md": change_card,
}


def change(path: Path, name: str, chance: random.Random) -> str:
    """Change one file of a run directory; returns how."""
    file, kind = path / name, chance.randrange(10)
    if kind == 0:
        file.unlink()
        new = chance.choice(["gone", "folder", "pipe", "link", "loop", "empty"])
        if new == "folder":
            file.mkdir()
        elif new == "pipe":
            os.mkfifo(file)
        elif new == "link":
            file.symlink_to(chance.choice(["/dev/zero", "/etc/passwd", "/", "nothing", "/dev/stdin"]))
        elif new == "loop":
            file.symlink_to(file)
        elif new == "empty":
            file.touch()
        return f"{name}: {new}"
    how = change_bytes if kind < 4 else CHANGES[name]
    file.write_bytes(how(file.read_bytes(), chance))
    return f"{name}: {how.__name__}"


def try_mutations(folder: Path, name: str, seeds: range) -> dict[str, int]:
    """How often a mutated run was opened and refused; anything else is an error that names its seed."""
    original, counts, slowest = make_run(folder / "original", name), {"opened": 0, "refused": 0}, 0.0
    assert use(original) == "opened"
    for seed in seeds:
        chance = random.Random(f"{name} {seed}")
        shutil.copytree(original, folder / "run")
        names = [each for each in CHANGES if (original / each).exists()]
        names = chance.sample(names, k=chance.choice([1, 1, 1, 2]))
        done = ", ".join(change(folder / "run", each, chance) for each in names)
        began = time.process_time()
        try:
            with no_longer_than(SECONDS), nothing_outside(folder / "run"):
                answer = use(folder / "run")
        except BaseException as problem:
            raise AssertionError(f"{name}, seed {seed}: {done}: {type(problem).__name__}: {problem}") from problem
        slowest = max(slowest, time.process_time() - began)
        assert answer, f"{name}, seed {seed}: {done}: an empty sentence"
        counts["opened" if answer == "opened" else "refused"] += 1
        shutil.rmtree(folder / "run")
    print(f"{name}: {counts}, slowest {slowest:.2f} s")
    return counts


# --- what a stranger would try ---


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", "lm")


def with_settings(path: Path, **settings: int) -> None:
    values = yaml.safe_load((path / "config.yaml").read_text(encoding="utf-8"))
    values["model"].update(settings)
    (path / "config.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")


@pytest.mark.parametrize(
    "settings",
    [
        {"dim": 21_000, "layers": 100_000},
        {"layers": 100_000},
        {"inner": 10**9},
        {"key_dim": 10**8, "value_dim": 10**8},
        {"heads": 60_000, "key_dim": 10_000, "value_dim": 10_000},
    ],
    ids=str,
)
def test_a_model_far_larger_than_its_weights_is_refused_before_it_is_built(
    stranger: Path, settings: dict[str, int]
) -> None:
    with_settings(stranger, **settings)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sentence = r"run: model\.safetensors does not fit config\.yaml: config\.yaml describes a far larger model$"
    with no_longer_than(SECONDS), pytest.raises(RunError, match=sentence):
        clearhead.load(stranger)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kB


@pytest.mark.parametrize("name", ["attention", "recurrent"])
def test_every_own_model_fits_into_what_its_weights_allow(name: str) -> None:
    for task in TASKS.builtin():
        words = ["model.architecture=rnn"] if name == "recurrent" else ["model.positions=rotary"]
        try:
            config = override_config(default_config(task, "tiny"), words)
        except ClearheadError:
            continue  # it has no such setting
        sizes = Sizes(vocabulary=31, classes=3, channels=3, height=8, width=8)
        try:
            network = build_network(config, sizes)
        except ClearheadError:
            continue
        tied = tied_names(network)
        stored = [tensor for each, tensor in network.state_dict().items() if each not in tied]
        with _AtMost(3 * sum(tensor.numel() for tensor in stored) + 100_000, 2 * len(stored)):
            _outline(config, sizes)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000, "it is nested more than 32 levels deep"),
        ("- " * 40_000, "it is nested more than 32 levels deep"),
        ("{a: " * 40_000, "it is nested more than 32 levels deep"),
        ("a: &a [x, x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)), ""),
        ("a: &a [1, *a]\n", "it has more than 50,000 values"),
        ("x: " + "y" * 2_000_000, "it has 2,000,00[34] characters, more than 1,048,576"),
        ("x: !!int ''\n", "a value that cannot be read"),
        ("x: !!timestamp y\n", "a value that cannot be read"),
        ("x: " + "9" * 5000, "a value that cannot be read"),
    ],
    ids=["brackets", "dashes", "braces", "laughs", "itself", "long", "number", "date", "digits"],
)
def test_yaml_that_would_exhaust_the_parser_is_one_sentence(stranger: Path, text: str, reason: str) -> None:
    for name in ("config.yaml", "card.md"):
        before = (stranger / name).read_bytes()
        (stranger / name).write_text(text if name == "config.yaml" else f"---\n{text}\n---\n# x\n", encoding="utf-8")
        with no_longer_than(SECONDS), pytest.raises(ConfigError, match=rf"{name}.*: not valid YAML \(.*{reason}"):
            describe(stranger)
        (stranger / name).write_bytes(before)


@pytest.mark.parametrize("name", ["config.yaml", "tokenizer.json", "model.safetensors", "card.md", "metrics.jsonl"])
def test_pipes_devices_and_links_out_of_the_folder_are_refused(stranger: Path, name: str, tmp_path: Path) -> None:
    file = stranger / name
    file.replace(tmp_path / "real")
    os.mkfifo(file)
    with no_longer_than(SECONDS):
        assert re.search(rf"{name} is not a file|no config\.yaml", use(stranger))
    file.unlink()
    file.symlink_to("/dev/zero")
    with no_longer_than(SECONDS):
        assert "outside of" in use(stranger)
    file.unlink()
    file.symlink_to(tmp_path / "real")
    assert "outside of" in use(stranger)
    file.unlink()
    (tmp_path / "real").replace(stranger / "other")
    file.symlink_to("other")  # it stays inside
    assert use(stranger) == "opened"


def test_the_configuration_of_a_run_reads_no_other_file(stranger: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("password: 123\n", encoding="utf-8")
    (stranger / "config.yaml").write_text("base: ../secret.yaml\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"config\.yaml: base stands in a file") as raised:
        run_config(Run(stranger))
    assert "123" not in str(raised.value)


def test_a_tokenizer_with_more_tokens_than_the_network_is_refused(stranger: Path) -> None:
    Tokenizer.train("bytes", [TEXT, "other words: übermäßig"], size=340).save(stranger / "tokenizer.json")
    with pytest.raises(RunError, match=r"run/tokenizer\.json has \d+ tokens, and the network knows only \d+$"):
        clearhead.load(stranger)


def test_a_caption_has_an_end_whatever_the_configuration_says(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "caption")
    text = (run / "config.yaml").read_text(encoding="utf-8")
    (run / "config.yaml").write_text(text.replace("max_length: 5\n", f"max_length: {2**40}\n"), encoding="utf-8")
    model = Captioner.load(run)
    image = Image.new("L", (8, 8), 77)
    assert model.prepare(image).max_tokens == 1000


def test_word_vectors_without_a_word_are_one_sentence(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "words")
    document = json.loads((run / "tokenizer.json").read_text(encoding="utf-8"))
    document["model"]["vocab"] = {
        token: number for token, number in document["model"]["vocab"].items() if token[0] == "["
    }
    (run / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    assert "bread" in use(run)


def test_a_card_cannot_command_the_terminal(stranger: Path) -> None:
    front = '---\nlicence: "free\\x1b]0;title\\x07"\nexamples: 3\nparameters: many\n---\n'
    (stranger / "card.md").write_text(f"{front}# x\n\n\x1b[2Jtitle\n", encoding="utf-8")
    found = describe(stranger)
    assert "\x1b" not in read_card(stranger) + found.licence + found.title
    assert found.examples == ()
    assert found.parameters is None


# --- mutations of every file ---


@pytest.mark.parametrize("name", MODELS)
def test_a_mutated_run_is_opened_or_refused_by_a_sentence(name: str, tmp_path: Path) -> None:
    counts = try_mutations(tmp_path, name, range(30))
    assert counts["refused"] > 5


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_ten_thousand_mutated_runs(name: str, tmp_path: Path) -> None:
    try_mutations(tmp_path, name, range(30, 1280))


def test_what_is_read_or_written_outside_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "secret").touch()
    deeds: list[Callable[[], object]] = [
        (tmp_path / "secret").read_text,
        (tmp_path / "run" / "link").read_text,
        lambda: (tmp_path / "new").write_text("x", encoding="utf-8"),
        lambda: (tmp_path / "new").rename(tmp_path / "run" / "new"),
        lambda: list(tmp_path.iterdir()),
        lambda: os.system("true"),
    ]
    for deed in deeds:
        with pytest.raises(AssertionError, match=r"open|rename|listdir|system"), nothing_outside(tmp_path / "run"):
            deed()
    with nothing_outside(tmp_path / "run"):
        (tmp_path / "run" / "new").write_text("x", encoding="utf-8")

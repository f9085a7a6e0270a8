"""Networks, tokenizers and datasets of the user's own classes: trained, saved as far as they can be, and loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from torch import Tensor, nn

import clearhead
from clearhead.cli.main import _run
from clearhead.errors import ConfigError, DataError, RunError, TextError
from clearhead.files import read_tensors
from clearhead.run import Run, Sizes
from clearhead.tasks import run_config
from clearhead.tasks.base.own import Own
from clearhead.text import SPECIALS, Tokenizer
from clearhead.text.own import OwnTokenizer, as_tokenizer
from clearhead.train import board
from clearhead.train.start import resume

PAIRS = [(f"a{a}{b}", f"{b}{a}a") for a in "bcdefg" for b in "hijklm"]
LABELLED = [(f"{'good' if i % 2 else 'bad'} film {i}", "pos" if i % 2 else "neg") for i in range(37)]
STEPS = {"train.max_steps": 3, "train.evaluations": 1, "data.validation": 0.2, "data.batch_tokens": 200}


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(board, "find_spec", lambda _name: None)


class BagOfWords(nn.Module):
    """(B, T) -> (B, C)."""

    def __init__(self, vocabulary: int, classes: int):
        super().__init__()
        self.table = nn.EmbeddingBag(vocabulary, classes)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids)


class Bigrams(nn.Module):
    """(B, T) -> (B, T, V)."""

    def __init__(self, vocabulary: int):
        super().__init__()
        self.table = nn.Embedding(vocabulary, vocabulary)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids)


class SourceAndBigrams(nn.Module):
    """(B, S), (B, T) -> (B, T, V)."""

    def __init__(self, vocabulary: int):
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, vocabulary), nn.Embedding(vocabulary, vocabulary)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.target(target) + self.source(source).mean(1, keepdim=True)


class Letters:
    """A tokenizer: one id for each lowercase letter."""

    def encode(self, text: str) -> list[int]:
        return [ord(letter) - ord("a") for letter in text if "a" <= letter <= "z"]

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(ord("a") + index) for index in ids)

    def __len__(self) -> int:
        return 26


def train(task: str, data: Any, **given: Any) -> Any:
    return clearhead.train(task, data=data, out="run", progress=False, **STEPS, **given)


# --- networks ---


def test_a_network_of_its_own_class_classifies() -> None:
    network = BagOfWords(401, 2)
    start = network.table.weight.detach().clone()
    model = train("classify", LABELLED, model=network, **{"tokenizer.size": 400})
    assert model.network is network
    assert not torch.equal(network.table.weight, start)
    stored = read_tensors(Path("run/model.safetensors"))[0]
    assert stored.keys() == {"table.weight"}  # as outside of Clearhead
    assert torch.equal(stored["table.weight"], network.table.weight)
    assert run_config(Run(Path("run"))).train.optimizer == "adamw"

    again = clearhead.load("run", model=BagOfWords(401, 2))
    assert again.classify("good film 3") == model.classify("good film 3")
    assert clearhead.evaluate("run", model=BagOfWords(401, 2)).loss > 0


def test_a_function_builds_the_network_for_the_sizes_of_the_data() -> None:
    built: list[Sizes] = []

    def build(sizes: Sizes) -> nn.Module:
        built.append(sizes)
        return BagOfWords(sizes.vocabulary, sizes.classes)

    model = train("classify", LABELLED, model=build)
    assert (built[0].vocabulary, built[0].classes) == (len(model.tokenizer), 2)
    assert clearhead.load("run", model=build).classify("good film 3") == model.classify("good film 3")


@pytest.mark.parametrize("beams", [1, 3])
def test_a_network_with_only_forward_generates(beams: int) -> None:
    model = train("translate", PAIRS, model=lambda sizes: SourceAndBigrams(sizes.vocabulary))
    written = model.translate(["abh", "agm"], beam_width=beams)
    network, special = model.network, model.special
    for text, found in zip(["abh", "agm"], written, strict=True):
        if beams == 1:  # greedy search by hand
            source, ids = torch.tensor([[*model.tokenizer.encode(text), special.stop]]), [special.start]
            while (
                len(ids) < 40 and (token := int(network(source, torch.tensor([ids]))[0, -1].argmax())) != special.stop
            ):
                ids.append(token)
            assert model.tokenizer.decode(ids[1:]).startswith(found)
    text = train_lm()
    assert text.generate("line", max_tokens=5, temperature=0.0) == text.generate("line", max_tokens=5, temperature=0.0)


def train_lm() -> Any:
    lines = [f"line {i} of a long text" for i in range(67)]
    build = lambda sizes: Bigrams(sizes.vocabulary)  # noqa: E731
    return clearhead.train("lm", data=lines, out="lm", model=build, progress=False, **STEPS)


def test_a_run_says_what_it_needs() -> None:
    train("classify", LABELLED, model=lambda sizes: BagOfWords(sizes.vocabulary, sizes.classes))
    sentence = (
        r"^run has a model of your own class BagOfWords; load it from Python: "
        r"clearhead\.load\('run', model=BagOfWords\(…\)\)$"
    )
    for use in (clearhead.load, clearhead.evaluate, lambda run: resume(Path(run))):
        with pytest.raises(RunError, match=sentence):
            use("run")
    assert _run(["classify", "run", "good"], debug=False) == 2
    with pytest.raises(RunError, match=r"^run: model\.safetensors does not fit Bigrams: table\.weight has the shape"):
        clearhead.load("run", model=Bigrams(5))


def test_a_stopped_run_goes_on_with_the_same_network() -> None:
    def build(sizes: Sizes) -> nn.Module:
        return BagOfWords(sizes.vocabulary, sizes.classes)

    train("classify", LABELLED, model=build)
    before = Path("run/model.safetensors").read_bytes()
    resume(Path("run"), own=Own.of(build))
    assert Path("run/model.safetensors").read_bytes() == before


# --- tokenizers ---


def test_a_tokenizer_of_its_own_class_is_used_as_it_is() -> None:
    letters = Letters()
    model = train("translate", PAIRS, tokenizer=letters, dim=12, heads=2, layers=1)
    assert model.meta.sizes.vocabulary == 26 + len(SPECIALS)
    assert model.tokenizer.encode("cab") == [2, 0, 1]
    assert not Path("run/tokenizer.json").exists()
    found = model.translate("abh")
    assert clearhead.load("run", tokenizer=Letters()).translate("abh") == found
    with pytest.raises(RunError, match=r"run has a tokenizer of your own class Letters; load it .*tokenizer=Letters"):
        clearhead.load("run")


def test_a_tokenizer_of_ours_and_of_the_library_is_saved() -> None:
    ours = Tokenizer.train("char", ["".join(pair) for pair in PAIRS], size=60)
    train("translate", PAIRS, tokenizer=ours, dim=12, heads=2, layers=1)
    loaded = clearhead.load("run")
    assert loaded.tokenizer.encode("abh") == ours.encode("abh")
    library = tokenizers.Tokenizer.from_file("run/tokenizer.json")
    assert type(as_tokenizer(library)) is Tokenizer


def test_any_tokenizer_of_the_library_serves() -> None:
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "dog": 1, "?": 2}, unk_token="?"))
    library.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    wrapped = as_tokenizer(library)
    assert isinstance(wrapped, OwnTokenizer)
    assert len(wrapped) == 3 + len(SPECIALS)
    assert wrapped.encode("a dog barks") == [0, 1, 2]
    assert wrapped.decode([wrapped.start, 0, 1, wrapped.stop]) == "a dog"
    assert wrapped.pieces([1, wrapped.pad]) == ["dog", "[PAD]"]
    assert (wrapped.id("dog"), wrapped.id("[PAD]"), wrapped.token(wrapped.pad)) == (1, 3, "[PAD]")


def test_what_is_no_tokenizer_is_one_sentence() -> None:
    with pytest.raises(TextError, match=r"^dict is no tokenizer: it needs encode\(text\) and decode\(ids\)$"):
        as_tokenizer({})
    with pytest.raises(TextError, match=r"^str is no tokenizer: it needs"):
        as_tokenizer("letters")

    class Wrong(Letters):
        def encode(self, text: str) -> list[int]:
            return [26]

    with pytest.raises(TextError, match=r"^Wrong gave the id 26 for 'abh', and it has 26 tokens$"):
        as_tokenizer(Wrong()).encode("abh")


# --- datasets ---


def test_a_dataset_needs_only_a_length_and_items() -> None:
    class Reviews:
        """As torch.utils.data.Dataset: no end but its length."""

        def __len__(self) -> int:
            return len(LABELLED)

        def __getitem__(self, index: int) -> tuple[str, str]:
            return LABELLED[index % len(LABELLED)]

    model = train("classify", Reviews(), dim=12, heads=2, layers=1)
    assert model.meta.labels == ("neg", "pos")
    assert len(Path("run/data/train.jsonl").read_text(encoding="utf-8").splitlines()) == len(LABELLED)


def test_what_cannot_be_used_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"^model=7 is neither a torch\.nn\.Module nor a function that builds one$"):
        train("classify", LABELLED, model=7)
    with pytest.raises(ConfigError, match=r"^model= gave dict, which is not a torch\.nn\.Module$"):
        train("classify", LABELLED, model=lambda _sizes: {})
    with pytest.raises(ConfigError, match=r"^train\.adapter cannot be combined with model=: an adapter belongs to"):
        train("classify", LABELLED, model=BagOfWords(5, 2), adapter="lora", start_from="en-es")
    with pytest.raises(DataError, match="int is not a list, an iterator, a DataFrame or a dataset of examples"):
        train("classify", 7)
    assert not Path("run").exists()


def test_a_network_of_ones_own_reads_ids_alone() -> None:
    """The recipe of `tag` chooses features of words, which such a network knows nothing of."""
    tagged = [(["a", f"dog{i}"], ["D", "N"]) for i in range(37)]
    for task, data, network in (
        ("tag", tagged, lambda sizes: nn.Embedding(sizes.vocabulary, sizes.classes)),
        ("classify", LABELLED, lambda sizes: BagOfWords(sizes.vocabulary, sizes.classes)),
    ):
        clearhead.train(task, data=data, out=task, model=network, progress=False, **STEPS)
        assert run_config(Run.open(Path(task))).model.features == 0

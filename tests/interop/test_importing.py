"""Importing: what is written, what is said, and what is refused."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.optional import optional

import clearhead
from clearhead.cli.main import _run
from clearhead.errors import ClearheadError, ConfigError, RunError
from clearhead.interop.family import FAMILIES
from clearhead.interop.formats.base.gguf_architectures import ARCHITECTURES
from clearhead.interop.importing import import_model
from clearhead.run import find, read_card

from .originals import ORIGINALS

optional("transformers", reason="the originals are built by transformers")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    for name in ("llama", "llama tied, sharded", "bert classify", "bert tag", "bert masked"):
        ORIGINALS[name].save(folder / name)
    return folder


@pytest.fixture
def theirs(saved: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    shutil.copytree(saved / "llama", tmp_path / "llama")
    return tmp_path / "llama"


def change(path: Path, **values: Any) -> None:
    """Change some values of a JSON file; None removes one."""
    known = {**json.loads(path.read_text()), **values}
    path.write_text(json.dumps({name: value for name, value in known.items() if value is not None}))


# --- what is written ---


def test_the_documentation_lists_every_family_and_architecture() -> None:
    text = (Path(__file__).parents[2] / "docs" / "interop.md").read_text(encoding="utf-8")
    table, rest = text.split("| family | becomes |")[1].split("A GGUF file has an architecture instead: ")
    rows = [row.split("|")[1] for row in table.splitlines() if row.count("|") > 2]
    listed = {name.strip() for row in rows for name in row.split(",")} - {"---"}
    assert listed == set(FAMILIES.names())
    names = re.sub(r"\(.*?\)", "", rest.split(".\n")[0]).replace(" and ", ", ").split(",")
    assert {name.strip() for name in names} == set(ARCHITECTURES)


def test_the_command_reports_and_the_card_has_the_report(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(["import", str(saved / "llama"), "--out", str(tmp_path / "run")], debug=True) == 0
    said = capsys.readouterr().out
    assert "tensors used" in said
    assert "none left over" in said
    assert "nasty texts as transformers does" in said
    assert "equal to transformers in 4 tensors" in said
    card = read_card(tmp_path / "run")
    assert "equal to transformers in 4 tensors" in card
    assert "family: llama" in card
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        *("card.md", "config.yaml", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    ]


def test_the_report_as_json(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["import", str(saved / "llama tied, sharded"), "--out", str(tmp_path / "run"), "--no-compare", "--json"]
    assert _run(words, debug=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["task"], found["used"], found["precision"]) == ("lm", 29, "float32")


def test_half_precision_stays_as_it_is(theirs: Path, tmp_path: Path) -> None:
    tensors = load_file(theirs / "model.safetensors")
    save_file({name: each.half() for name, each in tensors.items()}, theirs / "model.safetensors", {"format": "pt"})
    report = import_model(theirs, tmp_path / "run")
    assert report.precision == "float16"
    stored = load_file(tmp_path / "run" / "model.safetensors")
    assert {each.dtype for each in stored.values()} == {torch.float16}
    assert clearhead.load(tmp_path / "run").generate("we", max_tokens=3, temperature=0.0)


def test_a_foreign_path_is_a_model_and_is_imported_once(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))
    assert _run(["generate", str(theirs), "we are", "--max-tokens", "3", "--temperature", "0"], debug=True) == 0
    assert capsys.readouterr().out.startswith("we are")
    first = find(theirs)
    assert first.is_relative_to(tmp_path / "cache")
    assert first.name == "llama"
    stamp = (first / "model.safetensors").stat().st_mtime_ns
    assert find(theirs) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == stamp
    os.utime(theirs / "config.json", ns=(1, 1))
    assert find(theirs) != first


def test_a_bin_file_is_read(theirs: Path, tmp_path: Path) -> None:
    torch.save(load_file(theirs / "model.safetensors"), theirs / "pytorch_model.bin")
    expected = load_file(theirs / "model.safetensors")
    (theirs / "model.safetensors").unlink()
    import_model(theirs, tmp_path / "run")
    stored = load_file(tmp_path / "run" / "model.safetensors")
    assert torch.equal(stored["stack.norm.weight"], expected["model.norm.weight"])


def test_norms_under_their_first_names(saved: Path, tmp_path: Path) -> None:
    """Files of 2018 call gain and shift gamma and beta."""
    shutil.copytree(saved / "bert classify", tmp_path / "theirs")
    tensors = load_file(tmp_path / "theirs" / "model.safetensors")
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    renamed = {
        next((name.replace(new, first) for new, first in old.items() if name.endswith(new)), name): tensor
        for name, tensor in tensors.items()
    }
    assert any(name.endswith("gamma") for name in renamed)
    save_file(renamed, tmp_path / "theirs" / "model.safetensors", {"format": "pt"})
    import_model(tmp_path / "theirs", tmp_path / "run")
    stored = load_file(tmp_path / "run" / "model.safetensors")
    assert torch.equal(stored["encoder.tokens.norm.weight"], tensors["bert.embeddings.LayerNorm.weight"])


def test_tokens_that_a_translator_begins_with_and_never_writes(tmp_path: Path) -> None:
    """As generation_config.json says: Marian never writes padding, BART begins with <s>."""
    ORIGINALS["marian"].save(tmp_path / "theirs")
    import_model(tmp_path / "theirs", tmp_path / "free")
    path = tmp_path / "theirs" / "generation_config.json"
    free = clearhead.load(tmp_path / "free")
    first = free.generate_ids(free.prepare("we are"), max_tokens=3, beam_width=1)[0]
    change(path, bad_words_ids=[[first]], forced_bos_token_id=97)
    import_model(tmp_path / "theirs", tmp_path / "bound")
    bound = clearhead.load(tmp_path / "bound")
    ids = bound.generate_ids(bound.prepare("we are"), max_tokens=9, beam_width=1)
    assert ids[0] == 97
    assert first not in ids
    assert bound.translate("we are", beam_width=1, max_tokens=9) == bound.tokenizer.decode(ids)


def test_classify_tag_and_fill_in(saved: Path, tmp_path: Path) -> None:
    for name in ("bert classify", "bert tag", "bert masked"):
        import_model(saved / name, tmp_path / name)
    classified = clearhead.load(tmp_path / "bert classify").classify("we are eating bread")
    assert set(classified.probabilities) == {"no", "perhaps", "yes"}
    tags = clearhead.load(tmp_path / "bert tag").tag("we are eating bread")
    assert [word for word, _ in tags] == ["we", "are", "eating", "bread"]
    masked = clearhead.load(tmp_path / "bert masked")
    filled = masked.fill_in("we are<mask> bread")
    assert filled.startswith("we are")
    assert filled.endswith(" bread")
    assert "<mask>" not in filled


def test_tags_stand_at_the_first_piece_as_in_the_original(saved: Path, tmp_path: Path) -> None:
    import transformers

    import_model(saved / "bert tag", tmp_path / "run")
    ours = clearhead.load(tmp_path / "run")
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(saved / "bert tag").eval()
    words = ["the", "animal", "crosses", "the", "street"]
    pieces = ours.tokenizer.encode_words(words)
    ids = torch.tensor([[2, *(token for word in pieces for token in word), 3]])
    with torch.no_grad():
        best = theirs(ids).logits[0].argmax(-1).tolist()
    firsts = [1 + sum(len(word) for word in pieces[:number]) for number in range(len(words))]
    expected = [theirs.config.id2label[best[place]] for place in firsts]
    assert [tag for _, tag in ours.tag(" ".join(words))] == expected


# --- what is refused: one sentence, and nothing is written ---


def refused(path: Path, out: Path, match: str, kind: type[ClearheadError] = RunError, **options: Any) -> None:
    with pytest.raises(kind, match=match) as caught:
        import_model(path, out, **options)
    assert "\n" not in str(caught.value)
    assert not out.exists()
    assert [each for each in out.parent.iterdir() if each.name.startswith(".")] == []


def test_an_unknown_architecture(theirs: Path, tmp_path: Path) -> None:
    change(theirs / "config.json", model_type="mamba")
    refused(theirs, tmp_path / "run", "is a mamba model, which Clearhead cannot import; it knows albert, bart, bert")


def test_an_unknown_head(theirs: Path, tmp_path: Path) -> None:
    change(theirs / "config.json", architectures=["LlamaForQuestionAnswering"])
    refused(theirs, tmp_path / "run", "is a LlamaForQuestionAnswering, which Clearhead cannot import")


def test_another_family_on_demand(theirs: Path, tmp_path: Path) -> None:
    change(theirs / "config.json", model_type="mine")
    assert import_model(theirs, tmp_path / "run", family="llama").task == "lm"


def test_an_activation_is_never_replaced(theirs: Path, tmp_path: Path) -> None:
    change(theirs / "config.json", hidden_act="mish")
    refused(theirs, tmp_path / "run", "config.json has hidden_act='mish', which Clearhead cannot import")


def test_a_size_that_lies(theirs: Path, tmp_path: Path) -> None:
    change(theirs / "config.json", intermediate_size=59)
    refused(theirs, tmp_path / "run", r"has the shape \(42, 53\) where its config.json says \(42, 59\)")


def test_absurd_sizes(theirs: Path, tmp_path: Path) -> None:
    change(theirs / "config.json", hidden_size=10**12)
    refused(theirs, tmp_path / "run", "config.json has hidden_size=1000000000000, which Clearhead cannot import")


def test_absurd_layers_take_no_memory(theirs: Path, tmp_path: Path) -> None:
    change(theirs / "config.json", num_hidden_layers=2_000_000)
    refused(theirs, tmp_path / "run", "lacks the tensors of 1,999,997 of its 2,000,000 layers")


def test_a_missing_value(theirs: Path, tmp_path: Path) -> None:
    change(theirs / "config.json", num_attention_heads=None)
    refused(theirs, tmp_path / "run", "config.json has no num_attention_heads")


def test_a_tensor_too_many_and_one_too_few(theirs: Path, tmp_path: Path) -> None:
    tensors = load_file(theirs / "model.safetensors")
    save_file({**tensors, "model.extra": torch.ones(3)}, theirs / "model.safetensors")
    refused(theirs, tmp_path / "run", "1 tensors have no place in a lm model: extra")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, theirs / "model.safetensors")
    refused(theirs, tmp_path / "run", "lacks 1 tensors of this model: stack.blocks.1.feed_forward.inner.weight")


def test_a_truncated_file(theirs: Path, tmp_path: Path) -> None:
    path = theirs / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    refused(theirs, tmp_path / "run", "is damaged or not a safetensors file")


def test_a_header_that_lies(theirs: Path, tmp_path: Path) -> None:
    path = theirs / "model.safetensors"
    path.write_bytes((2**60).to_bytes(8, "little") + path.read_bytes()[8:])
    refused(theirs, tmp_path / "run", "is damaged or not a safetensors file")


class Harmful:
    """A pickle that runs code."""

    def __reduce__(self) -> Any:
        return os.system, ("touch harmed",)


def test_a_pickle_that_runs_code(theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (theirs / "model.safetensors").unlink()
    (theirs / "pytorch_model.bin").write_bytes(pickle.dumps({"model.norm.weight": Harmful()}))
    refused(theirs, tmp_path / "run", "holds something other than tensors, or is damaged")
    assert not (tmp_path / "harmed").exists()


def test_a_folder_without_weights_or_tokenizer(theirs: Path, tmp_path: Path) -> None:
    (theirs / "tokenizer.json").unlink()
    refused(theirs, tmp_path / "run", "has no tokenizer: neither tokenizer.json nor the files to make one of")
    (theirs / "model.safetensors").unlink()
    refused(theirs, tmp_path / "run", "has no weights: neither model.safetensors nor pytorch_model.bin")


def test_a_broken_tokenizer(theirs: Path, tmp_path: Path) -> None:
    (theirs / "tokenizer.json").write_text('{"model": 7}')
    refused(theirs, tmp_path / "run", "is not a tokenizer.json", ClearheadError)


def test_an_index_that_leads_out_of_the_folder(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved / "llama tied, sharded", tmp_path / "theirs")
    index = tmp_path / "theirs" / "model.safetensors.index.json"
    values = json.loads(index.read_text())
    values["weight_map"]["model.norm.weight"] = "../secret.safetensors"
    index.write_text(json.dumps(values))
    refused(tmp_path / "theirs", tmp_path / "run", "leads out of the folder: ../secret.safetensors")
    values["weight_map"]["model.norm.weight"] = "model-00009-of-00009.safetensors"
    index.write_text(json.dumps(values))
    refused(tmp_path / "theirs", tmp_path / "run", "its weights are incomplete: model-00009-of-00009.safetensors")


def test_a_folder_that_is_not_empty(theirs: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").write_text("x")
    with pytest.raises(ConfigError, match="exists and is not an empty folder; choose another --out"):
        import_model(theirs, tmp_path / "run")


def test_what_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert _run(["import", str(tmp_path / "notes.txt"), "--out", str(tmp_path / "run")], debug=False) == 2
    assert "is not a model in a format that Clearhead reads" in capsys.readouterr().err
    assert _run(["import", str(tmp_path / "nothing"), "--out", str(tmp_path / "run")], debug=False) == 2
    assert "there is no such file or folder" in capsys.readouterr().err


# --- scores ---


def test_an_imported_model_is_scored_on_data(saved: Path, tmp_path: Path) -> None:
    import_model(saved / "llama", tmp_path / "lm")
    (tmp_path / "text.txt").write_text("we are eating bread and the dog sees a small cat\n" * 40)
    assert score_of(tmp_path / "lm", tmp_path / "text.txt", "perplexity") > 1
    import_model(saved / "bert classify", tmp_path / "classify")
    rows = "we are eating bread\tyes\nthe dog sees a cat\tno\nit was tired\tperhaps\n"
    (tmp_path / "rows.tsv").write_text(f"text\tlabel\n{rows}")
    classified = clearhead.load(tmp_path / "classify").classify([row.split("\t")[0] for row in rows.splitlines()])
    right = sum(each.label == row.split("\t")[1] for each, row in zip(classified, rows.splitlines(), strict=True))
    assert score_of(tmp_path / "classify", tmp_path / "rows.tsv", "accuracy") == pytest.approx(right / 3)


def score_of(run: Path, data: Path, name: str) -> float:
    return {score.name: score.value for score in clearhead.evaluate(run, data).scores}[name]

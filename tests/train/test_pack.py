"""A packed run is small and still the same model; tied weights are stored once, and what is missing is named."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import clearhead
from clearhead.errors import ConfigError, RunError
from clearhead.files import read_tensors, write_tensors
from clearhead.run import ModelMeta, Run, Sizes
from clearhead.tasks import default_config, override_config, run_config
from clearhead.tasks.base.network import build_network, load_network, load_weights, save_weights
from clearhead.text import Tokenizer
from clearhead.train.pack import MOMENTS, evenly, pack, thinned

SENTENCES = ("we are eating bread", "she reads a red book")
SETTINGS = ["model.dim=24", "model.heads=3", "model.layers=2", "model.inner=29", "model.positions=t5"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    torch.manual_seed(3)
    run = Run.create(tmp_path / "run", override_config(default_config("translate"), SETTINGS))
    vocabulary = Tokenizer.train("char", SENTENCES)
    vocabulary.save(run.path / "tokenizer.json")
    sizes = Sizes(vocabulary=len(vocabulary), pad=vocabulary.pad)
    save_weights(run, run_config(run), build_network(run_config(run), sizes).state_dict(), ModelMeta(sizes))
    (run.path / "card.md").write_text("# run\n", encoding="utf-8")
    (run.path / "times.jsonl").write_text("{}\n", encoding="utf-8")
    (run.path / "checkpoints" / "step-00000004").mkdir(parents=True)
    return run


def logits(path: Path) -> torch.Tensor:
    model = clearhead.load(path)
    source, target = (torch.tensor([model.tokenizer.encode(text)]) for text in SENTENCES)
    with torch.inference_mode():
        written: torch.Tensor = model.network(source, target)
    return written


def test_a_packed_model_says_the_same(run: Run, tmp_path: Path) -> None:
    pack(run.path, tmp_path / "small")
    torch.testing.assert_close(logits(tmp_path / "small"), logits(run.path), rtol=0, atol=0)
    said = [clearhead.load(path).translate(SENTENCES[0]) for path in (run.path, tmp_path / "small")]
    assert said[0] == said[1]


def test_in_half_precision_nearly_the_same(run: Run, tmp_path: Path) -> None:
    parts = {part.name: part for part in pack(run.path, tmp_path / "half", half=True)}
    torch.testing.assert_close(logits(tmp_path / "half"), logits(run.path), rtol=0, atol=1e-2)
    assert not torch.equal(logits(tmp_path / "half"), logits(run.path))
    assert parts["model.safetensors"].after < 0.6 * parts["model.safetensors"].before
    pack(tmp_path / "half", tmp_path / "again")
    assert (tmp_path / "again" / "model.safetensors").stat().st_size == parts["model.safetensors"].after


def test_only_what_is_needed_is_packed(run: Run, tmp_path: Path) -> None:
    parts = pack(run.path, tmp_path / "new" / "small")
    kept = {path.name for path in (tmp_path / "new" / "small").iterdir()}
    assert kept == {"config.yaml", "tokenizer.json", "card.md", "model.safetensors"}
    assert {part.name for part in parts if part.after is None} == {"checkpoints", "times.jsonl"}
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["small"]


def test_a_place_that_is_taken_and_a_run_without_a_model_are_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(ConfigError, match="taken is there already; choose another --out"):
        pack(run.path, tmp_path / "taken")
    (run.path / "model.safetensors").unlink()
    with pytest.raises(RunError, match="has no model yet; finish it with `clearhead resume"):
        pack(run.path, tmp_path / "small")
    assert not list(tmp_path.glob("*small*"))


def test_everyone_may_read_what_was_written(run: Run) -> None:
    (run.path / "by hand").touch()
    wanted = (run.path / "by hand").stat().st_mode
    assert {(run.path / name).stat().st_mode for name in ("config.yaml", "model.safetensors")} == {wanted}


# --- tied weights ---

TIED = {
    "source.tokens.table.weight": "target.tokens.table.weight",
    "output.linear.weight": "target.tokens.table.weight",
    "encoder.blocks.1.self_attention.relative.table.weight": "encoder.blocks.0.self_attention.relative.table.weight",
    "decoder.blocks.1.self_attention.relative.table.weight": "decoder.blocks.0.self_attention.relative.table.weight",
}


def test_a_tied_weight_is_stored_once_and_loaded_under_all_its_names(run: Run) -> None:
    stored, (whole, _) = load_file(run.path / "model.safetensors"), load_weights(run, run_config(run))
    assert whole.keys() - stored.keys() == TIED.keys()
    for name, first in TIED.items():
        torch.testing.assert_close(whole[name], stored[first], rtol=0, atol=0)
    network, _ = load_network(run, run_config(run))
    assert network.output.linear.weight is network.target.tokens.table.weight


def test_a_file_that_holds_every_copy_is_loaded_too(run: Run) -> None:
    wanted, (whole, _) = logits(run.path), load_weights(run, run_config(run))
    path = run.path / "model.safetensors"
    write_tensors(path, whole, read_tensors(path)[1])
    assert load_file(path).keys() >= TIED.keys()
    torch.testing.assert_close(logits(run.path), wanted, rtol=0, atol=0)


def changed(tensors: dict[str, torch.Tensor], change: str) -> dict[str, torch.Tensor]:
    name = "encoder.norm.weight"
    if change == "more":
        return {**tensors, "heart": torch.ones(1)}
    if change == "shape":
        return {**tensors, name: torch.ones(7)}
    return {key: tensor for key, tensor in tensors.items() if key != name}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("less", r"it lacks encoder\.norm\.weight$"),
        ("more", "the model has no heart$"),
        ("shape", r"encoder\.norm\.weight has the shape \(7,\) where \(24,\) is expected$"),
    ],
)
def test_weights_that_do_not_fit_are_named(run: Run, change: str, sentence: str) -> None:
    path = run.path / "model.safetensors"
    tensors, header = read_tensors(path)
    write_tensors(path, changed(tensors, change), header)
    with pytest.raises(RunError, match=rf"run: model\.safetensors does not fit config\.yaml: {sentence}"):
        load_network(run, run_config(run))


def test_a_weight_missing_under_its_first_name_is_missing(run: Run) -> None:
    path = run.path / "model.safetensors"
    tensors, header = read_tensors(path)
    del tensors["target.tokens.table.weight"]
    write_tensors(path, tensors, header)
    names = r"output\.linear\.weight, source\.tokens\.table\.weight, target\.tokens\.table\.weight"
    with pytest.raises(RunError, match=f"it lacks {names}$"):
        load_network(run, run_config(run))


# --- what is thinned ---


def measured(steps: int, every: int) -> list[str]:
    lines = []
    for step in range(1, steps + 1):
        lines.append({"step": step, "part": "train", "loss": 1 / step, "rate": 1.0, "tokens": 100})
        if step % every == 0:
            lines.append({"step": step, "part": "validation", "loss": 1 / step, "sample": "señor " * 5})
    return [json.dumps(line, ensure_ascii=False) + "\n" for line in lines]


def test_short_metrics_stay_as_they_are_but_for_a_torn_line() -> None:
    lines = measured(13, 5)
    assert thinned([*lines, '{"step": 14, "pa']) == lines


def test_long_metrics_keep_every_evaluation_and_some_steps() -> None:
    lines = measured(4001, 100)
    kept = thinned(lines)
    assert 45_000 < len("".join(kept).encode()) <= 50_000
    records = [json.loads(line) for line in kept]
    assert [each["step"] for each in records if each["part"] == "validation"] == list(range(100, 4001, 100))
    steps = [each["step"] for each in records if each["part"] == "train"]
    assert (steps[0], steps[-1]) == (1, 4001)
    apart = [after - before for before, after in itertools.pairwise(steps)]
    assert max(apart) - min(apart) <= 1
    assert [each["step"] for each in records] == sorted(each["step"] for each in records)


def test_evaluations_alone_can_be_too_many() -> None:
    kept = thinned(measured(60, 1), room=3000)
    assert 2500 < len("".join(kept).encode()) <= 3000
    steps = [record["step"] for line in kept if (record := json.loads(line))["part"] == "validation"]
    assert (steps[0], steps[-1]) == (1, 60)
    assert 20 < len(steps) < 60


def test_places_are_evenly_spaced_and_fit() -> None:
    assert evenly([3, 3, 3], 9) == [0, 1, 2]
    assert evenly([3, 3, 3], 8) == [0, 2]
    assert evenly([3, 3, 3], 5) == [2]
    assert evenly([3, 3, 3], 2) == []
    assert evenly([], 5) == []
    assert evenly([1] * 23, 1000, most=3) == [0, 11, 22]


@pytest.mark.parametrize(("size", "count"), [(100, MOMENTS), (190_000, 5), (2_000_000, 0)])
def test_some_moments_of_attention_are_kept(run: Run, tmp_path: Path, size: int, count: int) -> None:
    (run.path / "attention").mkdir()
    for step in range(1, 18):
        (run.path / "attention" / f"step-{step:08d}.safetensors").write_bytes(bytes(size))
    pack(run.path, tmp_path / "small")
    kept = sorted(path.stem for path in (tmp_path / "small").glob("attention/*"))
    assert len(kept) == count
    if kept:
        assert (kept[0], kept[-1]) == ("step-00000001", "step-00000017")

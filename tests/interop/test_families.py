"""Every family, built by `transformers` with odd sizes: equal in every block and logit, and in what it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.optional import optional
from torch.testing import assert_close

from clearhead.errors import ProbeError
from clearhead.interop.importing import import_model, prepare_import, report_of, write_run
from clearhead.interop.reference import compare_tensors, example_inputs
from clearhead.interop.table import restored, translated
from clearhead.look.probes import capture
from clearhead.look.views.steps import steps
from clearhead.tasks.base.predictor import load

from .originals import ORIGINALS, START, STOP, save_tokenizer

optional("transformers", reason="the originals are built by transformers")

PROMPT = "we are eating"
GENERATED = 9


@pytest.fixture(scope="module", params=ORIGINALS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The original, what was read of its files, and our predictor."""
    original = ORIGINALS[request.param]
    folder = tmp_path_factory.mktemp("interop")
    theirs = original.save(folder / "theirs")
    imported = prepare_import(folder / "theirs")
    write_run(imported, folder / "ours", report_of(imported))
    return original, theirs, imported, load(folder / "ours")


@torch.no_grad()
def test_every_block_and_logit_is_equal(model: Any) -> None:
    original, theirs, imported, ours = model
    assert imported.plan.task == original.task
    parity = compare_tensors(ours.network, imported, theirs)
    layers = {"decoder": 0, "encoder": 0}
    for stack in imported.plan.blocks:
        layers[stack] = len(list(ours.network.stacks()[stack].blocks))
    assert len(parity.differences) == sum(layers.values()) + (original.task != "embed")
    assert [each.name for each in parity.differences if each.largest > 1e-4] == []
    inputs = example_inputs(imported)
    if original.task != "embed":
        expected = theirs(**imported.family.reference_inputs(imported.checkpoint, inputs)).logits
        assert_close(ours.network(*inputs), expected, atol=1e-4, rtol=1e-4)


def test_it_writes_the_same_text(model: Any) -> None:
    original, theirs, _, ours = model
    if original.task == "lm":
        ids = torch.tensor([ours.prompt_ids(PROMPT)])
        written = theirs.generate(ids, max_new_tokens=GENERATED, do_sample=False, pad_token_id=0)[0].tolist()
        assert ours.generate(PROMPT, max_tokens=GENERATED, temperature=0.0) == ours.tokenizer.decode(written)
        torch_only = load(ours.folder, engine="torch")
        assert torch_only.generate(PROMPT, max_tokens=GENERATED, temperature=0.0) == ours.tokenizer.decode(written)
    if original.task == "translate":
        prepared = ours.prepare(PROMPT)
        written = theirs.generate(prepared.sources[0], max_new_tokens=GENERATED, do_sample=False, num_beams=1)[0]
        assert ours.translate(PROMPT, beam_width=1, max_tokens=GENERATED) == ours.tokenizer.decode(written.tolist())


def test_nothing_is_lost(model: Any) -> None:
    """The table of names backwards gives every tensor that was used in its shape, and forwards again the same bits."""
    imported = model[2]
    layers = max(imported.config.model.layers, imported.config.model.decoder_layers or 0)
    theirs = restored(imported.tensors, imported.plan.table, layers)
    prefix = f"{imported.family.prefix}."
    stored = {name.removeprefix(prefix): tensor for name, tensor in imported.checkpoint.tensors.items()}
    used = {name: theirs[name] for name in imported.used}
    assert {name: tensor.shape for name, tensor in used.items()} == {name: stored[name].shape for name in used}
    again = translated(used, imported.plan.table)
    assert again.left_over == []
    made = {*imported.plan.zeros, *(f"{name}.{end}" for name in imported.plan.ones for end in ("weight", "bias"))}
    stored_by_them = {name: each for name, each in imported.tensors.items() if name not in made}
    assert_close(again.tensors, stored_by_them, rtol=0, atol=1e-6)


def test_it_can_be_looked_at(model: Any) -> None:
    original, _, _, ours = model
    item: Any = torch.zeros(21, 21, 3, dtype=torch.uint8).numpy() if original.task == "vision" else PROMPT
    seen = ours.look(item)
    for kind, weights in seen.weights.items():
        assert len(weights) == len(seen.scores[kind])
        for layer in weights:
            assert_close(layer.sum(-1), torch.ones(layer.shape[:-1]))
    assert ours.answer(item)
    for kind, weights in seen.weights.items():
        if kind == "decoder.cross":
            continue
        for layer in range(len(weights)):
            query = weights[layer].size(1) - 1
            shown = steps(seen, layer, 1, query, kind)
            wrote = seen.hidden[kind.split(".")[0]][layer + 1][query]
            assert_close(shown.steps[-1].value, wrote, atol=1e-4, rtol=1e-4)


def test_cells_colour_what_a_translator_reads(model: Any) -> None:
    original, _, _, ours = model
    if original.task != "translate":
        return
    shown = ours.view("cells", "We are (eating) bread. " * 2, unit="encoder.1.hidden:5")
    ids = torch.tensor([ours.tokenizer.encode("We are (eating) bread. " * 2)])
    with torch.no_grad(), capture(ours.network, "encoder.1.hidden") as seen:
        ours.network(ids, torch.tensor([[ours.tokenizer.start]]))
    assert_close(shown.values, seen["encoder.1.hidden"][0, :, 5])
    ranked = ours.view("cells", "We are (eating) bread. " * 2)
    assert all(each.layer.startswith("encoder.") for each in ranked.ranking)
    with pytest.raises(ProbeError, match=r"decoder\.0\.hidden reads what is written"):
        ours.view("cells", PROMPT, unit="decoder.0.hidden:5")


def test_the_engine_says_what_it_lacks(model: Any) -> None:
    from clearhead.engines.native.engine import NativeEngine

    original, _, _, ours = model
    if original.task in ("lm", "translate"):
        assert (NativeEngine.unsupported_features(ours.network) == []) == original.engine


def test_the_second_text_of_a_pair_is_the_second_segment(tmp_path: Path) -> None:
    theirs = ORIGINALS["bert classify"].save(tmp_path / "theirs")
    imported = prepare_import(tmp_path / "theirs")
    write_run(imported, tmp_path / "ours", report_of(imported))
    ours = load(tmp_path / "ours")
    ids = torch.tensor([[START, 71, 83, 97, STOP, 101, 103, STOP]])
    kinds = torch.tensor([[0, 0, 0, 0, 0, 1, 1, 1]])
    with torch.no_grad():
        assert_close(ours.network(ids), theirs(ids, token_type_ids=kinds).logits, atol=1e-4, rtol=1e-4)


def test_a_decoder_classifies_by_its_last_token(tmp_path: Path) -> None:
    """Its tokenizer puts nothing before or after a text, and texts of unequal length are padded at their end."""
    theirs = ORIGINALS["llama classify"].save(tmp_path / "theirs")
    save_tokenizer(tmp_path / "theirs")
    import_model(tmp_path / "theirs", tmp_path / "ours")
    ours, texts = load(tmp_path / "ours"), ["we are", "The animal didn't cross the street", "a small cat"]
    for text, found in zip(texts, ours.classify(texts), strict=True):
        with torch.no_grad():
            expected = theirs(torch.tensor([ours.tokenizer.encode(text)])).logits[0].softmax(-1)
        assert_close(torch.tensor(list(found.probabilities.values())), expected, atol=1e-4, rtol=1e-4)
        assert list(found.probabilities) == ["no", "perhaps", "yes"]


@pytest.mark.parametrize("name", ["llama", "bert classify", "t5"])
def test_one_step_has_the_same_gradient(tmp_path: Path, name: str) -> None:
    """Of one family of each shape: decoder, encoder, both."""
    theirs = ORIGINALS[name].save(tmp_path / "theirs")
    imported = prepare_import(tmp_path / "theirs")
    write_run(imported, tmp_path / "ours", report_of(imported))
    ours, inputs = load(tmp_path / "ours"), example_inputs(imported)
    logits = ours.network(*inputs)
    expected = theirs(**imported.family.reference_inputs(imported.checkpoint, inputs)).logits
    probe = torch.randn_like(logits)
    (logits * probe).sum().backward()
    (expected * probe).sum().backward()
    found = {each: weight.grad for each, weight in ours.network.named_parameters() if weight.grad is not None}
    theirs_by_name = dict(theirs.named_parameters())
    for row in ("query", "feed_forward.outer"):
        mine = next(each for each in found if row in each and each.endswith("weight"))
        theirs_name = next(
            full
            for full in theirs_by_name
            if translated(
                {full.removeprefix(f"{imported.family.prefix}."): theirs_by_name[full]}, imported.plan.table
            ).tensors.keys()
            == {mine}
        )
        expected_gradient = theirs_by_name[theirs_name].grad
        assert_close(found[mine], expected_gradient, atol=1e-4 * float(expected_gradient.abs().max()), rtol=1e-4)

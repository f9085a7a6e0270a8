"""From a foreign file to a run that answers as its own program does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import clearhead

importing = pytest.importorskip("clearhead.interop.importing")


def test_a_ctranslate2_model_translates_as_the_library(published: Path, tmp_path: Path) -> None:
    library = pytest.importorskip("ctranslate2")
    folder = published / "aren-transliteration"
    importing.import_model(folder, tmp_path / "run")
    model = clearhead.load(tmp_path / "run", engine="torch")
    words = ["آزوف", "محمد", "بيروت", "القاهرة", "شمس"]
    theirs = library.Translator(str(folder), intra_threads=1).translate_batch(
        [list(word) for word in words], beam_size=1
    )
    assert [model.translate(word, beam_width=1) for word in words] == ["".join(each.hypotheses[0]) for each in theirs]


def test_a_llama2c_model_tells_its_story(published: Path, tmp_path: Path) -> None:
    importing.import_model(published / "stories260k" / "stories260K.bin", tmp_path / "run")
    text = clearhead.load(tmp_path / "run").generate("Once upon a time", max_tokens=30, temperature=0.0)
    assert text.startswith("Once upon a time, there was a little girl named Lily. She loved to play")


def test_word_vectors_have_the_neighbours_of_gensim(tmp_path: Path) -> None:
    gensim = pytest.importorskip("gensim")
    from gensim.models.fasttext import load_facebook_vectors

    path = Path(gensim.__file__).parent / "test" / "test_data" / "lee_fasttext_new.bin"
    if not path.is_file():
        pytest.skip("this gensim does not carry lee_fasttext_new.bin")
    importing.import_model(path, tmp_path / "run")
    model, theirs = clearhead.load(tmp_path / "run"), load_facebook_vectors(str(path))
    for word in ("Mr", "the", "Australian"):
        ours, wanted = model.neighbours(word, 7), theirs.most_similar(word, topn=7)
        assert [each for each, _ in ours] == [each for each, _ in wanted]
        assert [near for _, near in ours] == pytest.approx([near for _, near in wanted], abs=1e-5)


def test_smollm2_chats_by_its_own_template(smollm2: Path, tmp_path: Path) -> None:
    importing.import_model(smollm2, tmp_path / "run")
    model: Any = clearhead.load(tmp_path / "run", engine="exact")  # “The” and “L” are 0.08 nats apart
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    assert model.chat_template.render(asked).endswith("<|im_end|>\n<|im_start|>assistant\n")
    assert "".join(model.chat(asked, max_tokens=12, temperature=0.0)) == "The capital of France is Paris."
    with torch.no_grad():
        last = model.network(torch.tensor([model.tokenizer.encode("The capital of France is")]))[0, -1].log_softmax(-1)
    assert float(last.max()) == pytest.approx(-0.2581, abs=2e-4)

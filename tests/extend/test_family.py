"""A family of foreign models in one file outside the package: imported, equal, used."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.testing import assert_close

import clearhead
from clearhead.errors import RunError
from clearhead.interop.importing import import_model
from clearhead.registry import PLUGINS

HERE = Path(__file__).parent
SIZES = {"hidden_size": 36, "num_attention_heads": 6, "num_key_value_heads": 2, "num_hidden_layers": 3}
SIZES |= {"intermediate_size": 53, "max_position_embeddings": 61, "vocab_size": 31}


def test_a_family_from_outside_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers", reason="the original is built by transformers")
    torch.manual_seed(1)
    rope = {"rope_type": "default", "rope_theta": 300.0}
    config = transformers.SeedOssConfig(**SIZES, head_dim=10, rms_norm_eps=1e-3, rope_parameters=rope)
    theirs = transformers.SeedOssForCausalLM(config).eval()
    with torch.no_grad():
        for name, bias in theirs.named_parameters():
            if name.endswith("bias"):
                bias.normal_()
    theirs.save_pretrained(tmp_path / "theirs")
    words = {word: number for number, word in enumerate(["<unk>", "</s>", "we", "are", "eating", "bread"])}
    library = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=library, eos_token="</s>", unk_token="<unk>")
    fast.save_pretrained(tmp_path / "theirs")
    with pytest.raises(RunError, match="is a seed_oss model, which Clearhead cannot import; it knows albert"):
        import_model(tmp_path / "theirs", tmp_path / "ours")
    monkeypatch.setenv(PLUGINS, str(HERE / "family_plugin.py"))
    import_model(tmp_path / "theirs", tmp_path / "ours")
    ours = clearhead.load(tmp_path / "ours")
    ids = torch.randint(31, (2, 17))
    with torch.no_grad():
        assert_close(ours.network(ids), theirs(ids).logits, atol=1e-4, rtol=1e-4)
    assert ours.generate("we are", max_tokens=3, temperature=0.0).startswith("we are")

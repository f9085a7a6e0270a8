from __future__ import annotations

from pathlib import Path

import pytest
import torch

from clearhead.errors import ConfigError
from clearhead.look.capture import captured
from clearhead.look.figures import save_heatmap
from clearhead.nn import Decoder, DecoderBlock, length_mask


def small_decoder() -> Decoder:
    torch.manual_seed(1)
    return Decoder([DecoderBlock(12, 3) for _ in range(2)]).double()


def test_captured_weights_are_those_that_made_the_output() -> None:
    decoder, x, memory = small_decoder(), *torch.randn(2, 2, 5, 12).double()
    mask = length_mask(torch.tensor([3, 5]))
    layer = decoder.blocks[1].cross_attention
    values = {}
    keep = layer.kernel.register_forward_hook(lambda _, given, out: values.update(v=given[2], mixed=out))
    with captured({"cross": layer}) as seen:
        decoder(x, memory, memory_mask=mask)
    keep.remove()
    assert seen["cross"].shape == (2, 3, 5, 5)
    torch.testing.assert_close(seen["cross"] @ values["v"], values["mixed"])
    assert seen["cross"][0, :, :, 3:].eq(0).all()


def test_nothing_changes_and_the_hooks_are_gone_whatever_happens() -> None:
    decoder, x, memory = small_decoder(), *torch.randn(2, 2, 5, 12).double()
    layer, before = decoder.blocks[0].self_attention, decoder(x, memory)
    seen = {}

    def interrupted() -> None:
        with captured({"self": layer}) as recorded:
            torch.testing.assert_close(decoder(x, memory), before, rtol=0, atol=0)
            seen.update(recorded)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        interrupted()
    assert not layer._forward_pre_hooks
    decoder(2 * x, memory)
    torch.testing.assert_close(seen["self"], layer.weights(x, mask=torch.ones(5, 5).tril().bool()))


def test_a_heatmap_has_its_words_as_text(tmp_path: Path) -> None:
    weights = torch.tensor([[0.9, 0.1, 0.0], [0.05, 0.15, 0.8]])
    save_heatmap(tmp_path / "a.svg", weights, ["el", "coche"], ["the", "red", "car"], title="cross")
    picture = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert all(f">{word}<" in picture for word in ("el", "coche", "the", "red", "car", "0.90", "0.80", "cross"))
    assert ">0.05<" not in picture
    save_heatmap(tmp_path / "a.png", weights, ["el", "coche"], ["the", "red", "car"])
    assert (tmp_path / "a.png").stat().st_size > 5000


def test_a_figure_that_cannot_be_drawn_is_one_sentence(tmp_path: Path) -> None:
    weights = torch.ones(1, 1)
    with pytest.raises(ConfigError, match=r"cannot draw .*a\.gif: choose a name that ends in \.svg, \.pdf, \.png"):
        save_heatmap(tmp_path / "a.gif", weights, ["a"], ["b"])
    with pytest.raises(ConfigError, match=r"cannot write .*: No such file or directory"):
        save_heatmap(tmp_path / "no" / "a.svg", weights, ["a"], ["b"])

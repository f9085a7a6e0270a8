from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from clearhead.bench import charlm
from clearhead.bench.charlm import SETTINGS, Trained, character_ids, peer_rate, random_windows, results, write_parts
from clearhead.bench.peers import Gpt, Peer
from clearhead.data.examples import Dataset
from clearhead.run import Sizes
from clearhead.tasks import default_config, override_config
from clearhead.tasks.base.network import build_network
from clearhead.text import SPECIALS

SMALL = Gpt(layers=1, dim=6, heads=2, block=7, batch=3, vocabulary=5)
TEXT = "abcde\r\n" * 100


def test_our_model_is_no_larger_than_the_peers() -> None:
    model = build_network(override_config(default_config("lm"), SETTINGS), Sizes(vocabulary=65 + len(SPECIALS)))
    assert charlm.parameter_count(model) <= charlm.PARAMETERS * 1e6


def test_nine_tenths_are_learned_from_and_the_rest_is_held_out(tmp_path: Path) -> None:
    parts = write_parts(TEXT + "xyz", tmp_path)
    train, held_out = character_ids(parts)
    assert (len(train), len(held_out)) == (632, 71)
    names = sorted(set(TEXT + "xyz"))
    assert "".join(names[i] for i in [*train.tolist(), *held_out.tolist()]) == TEXT + "xyz"


def test_the_peers_rate_is_nanogpts() -> None:
    assert peer_rate(0) == pytest.approx(1e-3 / 101)
    assert peer_rate(99) == pytest.approx(1e-3 * 100 / 101)
    assert peer_rate(100) == pytest.approx(1e-3)
    assert peer_rate(1050) == pytest.approx((1e-3 + 1e-4) / 2)
    assert peer_rate(2000) == peer_rate(2999) == pytest.approx(1e-4)


def test_windows_are_running_text_from_anywhere() -> None:
    torch.manual_seed(0)
    rows = torch.cat([random_windows(torch.arange(10), SMALL) for _ in range(40)])
    assert rows.shape == (120, 8)
    assert torch.equal(rows - rows[:, :1], torch.arange(8).expand(120, 8))
    assert set(rows[:, 0].tolist()) == {0, 1, 2}


class Counting(nn.Module):
    """Knows that the next number is one more, as surely as `sure` says."""

    def __init__(self, size: int, sure: float):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(sure))
        self.size = size
        self.asked: list[int] = []

    def forward(self, ids: Tensor) -> Tensor:
        self.asked += ids.flatten().tolist()
        return self.weight * nn.functional.one_hot((ids + 1) % self.size, self.size).float()


@pytest.mark.parametrize("count", [8, 9, 15, 30])
def test_every_character_but_the_first_is_predicted_once(count: int) -> None:
    model = Counting(31, sure=2.0)
    loss = charlm.validation_loss(Peer(model, model), torch.arange(count), SMALL)
    assert model.asked == list(range(count - 1))
    assert loss == pytest.approx(math.log(math.exp(2) + 30) - 2)
    assert model.training


def test_a_peer_that_misses_the_target_loss_stops_at_max_steps(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    write_parts("abcdefghijklm" * 30, tmp_path)
    found = charlm.train_peer(tmp_path, seed=1, size=replace(SMALL, vocabulary=13), max_steps=3)
    assert found.steps == 3
    assert found.loss == pytest.approx(math.log(13), abs=0.2)
    assert found.seconds > 0


def test_a_peer_stops_at_the_target_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr(charlm, "FIRST_EVALUATION", 3)
    monkeypatch.setattr(charlm, "EVALUATE_EVERY", 2)
    write_parts("abcde" * 60, tmp_path)  # of five characters even a model that knows nothing is right often enough
    found = charlm.train_peer(tmp_path, seed=1, size=SMALL, max_steps=11)
    assert found.steps == 4
    assert found.loss <= charlm.TARGET_LOSS


def test_ours_is_trained_to_the_end_of_its_schedule(tmp_path: Path) -> None:
    write_parts("to be or not to be\n" * 40, tmp_path)
    small = (*SETTINGS, "model.dim=8", "model.heads=2", "model.layers=1", "data.batch_tokens=128", "train.max_steps=3")
    found = charlm.train_ours(tmp_path, seed=1, settings=small)
    assert found.steps == 3
    assert 0 < found.loss < 5
    assert found.seconds > 0


def test_results_compare_medians_and_the_worst_loss() -> None:
    ours = [Trained(10, 1.87, 500, 800_000), Trained(12, 1.89, 500, 800_000), Trained(50, 1.86, 500, 800_000)]
    theirs = [Trained(60, 1.88, 1900, 809_856), Trained(48, 1.87, 1800, 809_856), Trained(40, 1.88, 1700, 809_856)]
    found = {result.what: result for result in results(ours, theirs)}
    loss = found["clearhead: loss, highest of all rounds"]
    ratio = found["training seconds, clearhead / transformers"]
    assert (loss.value, loss.holds) == (1.89, False)
    assert (ratio.value, ratio.holds) == (0.25, True)
    assert found["clearhead: parameters"].holds is True
    assert len(list(results(ours, []))) == 3


@pytest.mark.parametrize("peers", [False, True])
def test_every_round_has_its_seed_and_the_whole_text(monkeypatch: pytest.MonkeyPatch, peers: bool) -> None:
    asked: list[tuple[str, int, str]] = []

    def train(who: str, seconds: float, parts: Path, seed: int) -> Trained:
        names = ("train.txt", "validation.txt")
        asked.append((who, seed, "".join((parts / name).read_bytes().decode() for name in names)))
        return Trained(seconds, 1.4, 100, 7)

    monkeypatch.setattr(charlm, "read", lambda *_, **__: Dataset("text", [TEXT], [], ""))
    monkeypatch.setattr(charlm, "train_ours", partial(train, "ours", 30.0))
    monkeypatch.setattr(charlm, "train_peer", partial(train, "peer", 60.0))
    found = {each.what: each.value for each in charlm.run(peers)}
    who = ("ours", "peer") if peers else ("ours",)
    assert asked == [(name, seed, TEXT) for seed in range(1, charlm.ROUNDS + 1) for name in who]
    assert found.get("training seconds, clearhead / transformers") == (0.5 if peers else None)

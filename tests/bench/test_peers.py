"""The peers' models are the ones that ours is compared with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from clearhead.bench.peers import PEERS, RATE, Gpt, Peer
from clearhead.bench.train import our_trainer
from clearhead.tasks.base.network import parameter_count

SIZE = Gpt(layers=2, dim=21, heads=3, block=11, batch=5, vocabulary=17)


@pytest.fixture(params=PEERS)
def peer(request: pytest.FixtureRequest) -> Peer:
    pytest.importorskip(request.param.replace("-", "_"))
    torch.manual_seed(0)
    return PEERS[request.param](SIZE)


def test_the_model_of_transformers_has_as_many_parameters_as_ours(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    theirs = PEERS["transformers"](SIZE).model
    assert parameter_count(our_trainer(SIZE, tmp_path).model) == parameter_count(theirs)


def test_the_model_of_x_transformers_lacks_only_the_shifts_of_norms(tmp_path: Path) -> None:
    pytest.importorskip("x_transformers")
    theirs = PEERS["x-transformers"](SIZE).model
    ours = our_trainer(SIZE, tmp_path, bias=False).model
    assert matrices(theirs) == matrices(ours)
    norms = 2 * SIZE.layers + 1
    assert parameter_count(ours) - parameter_count(theirs) == norms * SIZE.dim


def matrices(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters() if parameter.ndim >= 2)


def test_logits_have_a_number_for_every_token_of_the_vocabulary(peer: Peer) -> None:
    ids = torch.randint(SIZE.vocabulary, (SIZE.batch, SIZE.block))
    assert peer.logits(ids).shape == (SIZE.batch, SIZE.block, SIZE.vocabulary)


def test_a_token_sees_none_after_it(peer: Peer) -> None:
    ids = torch.randint(SIZE.vocabulary, (SIZE.batch, SIZE.block))
    changed = torch.cat((ids[:, :7], (ids[:, 7:] + 1) % SIZE.vocabulary), dim=1)
    assert_close(peer.logits(ids)[:, :7], peer.logits(changed)[:, :7])


def test_updates_lower_the_loss(peer: Peer) -> None:
    rows = torch.randint(SIZE.vocabulary, (SIZE.batch, SIZE.block + 1))
    before = peer.loss(rows).item()
    for _ in range(5):
        peer.update(rows)
    assert peer.loss(rows).item() < before
    assert all(parameter.grad is None for parameter in peer.model.parameters())


def test_matrices_alone_decay_and_the_rate_can_be_set(peer: Peer) -> None:
    assert [(group["lr"], group["weight_decay"]) for group in peer.optimizer.param_groups] == [(RATE, 0.1), (RATE, 0.0)]
    assert all(p.ndim < 2 for p in peer.optimizer.param_groups[1]["params"])
    peer.set_rate(0.25)
    assert [group["lr"] for group in peer.optimizer.param_groups] == [0.25, 0.25]

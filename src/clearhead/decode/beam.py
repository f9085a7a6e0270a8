"""Beam search: keep the K likeliest beginnings, and stop when no beginning can still win.

B sentences, K beams, V vocabulary
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from clearhead.decode.greedy import greedy
from clearhead.decode.stepper import Stepper


@dataclass
class _Beams:
    """The open hypotheses of all sentences that are not decided yet."""

    sentence: Tensor  # (B,) which sentence each group of K rows belongs to
    score: Tensor  # (B, K) float32, log-probability so far
    ids: Tensor  # (B, K, written)


@dataclass(order=True)
class Hypothesis:
    """A finished sentence: its score, log-probability over length^penalty, and its tokens without start and stop."""

    score: float
    ids: list[int] = field(compare=False)


@torch.inference_mode()
def beam_search(
    model: Stepper, state: Any, first: Tensor, *, stop: int, longest: int, beams: int = 4, penalty: float = 1.0
) -> list[list[Hypothesis]]:
    """Continue each row from its first token, (B,): up to K finished hypotheses for each, the best first."""
    count, device = len(first), first.device
    finished: list[list[Hypothesis]] = [[] for _ in range(count)]
    state = model.reorder(state, torch.arange(count, device=device).repeat_interleave(beams))
    score = torch.full((count, beams), -torch.inf, device=device)
    score[:, 0] = 0.0  # all K rows are the same at first: only one of them may speak
    open_ = _Beams(torch.arange(count, device=device), score, first.new_empty(count, beams, 0))
    ids = first.repeat_interleave(beams).unsqueeze(1)  # (B × K, 1)
    for written in range(1, longest + 1):
        logits, state = model.step(ids, state)
        open_, rows = _extend(open_, logits[:, -1], stop, written, penalty, finished)
        decided = _decided(open_, finished, written, longest, penalty, beams)
        if decided.all():
            break
        open_, rows = _without(open_, rows, ~decided)
        state, ids = model.reorder(state, rows), open_.ids[:, :, -1].reshape(-1, 1)
    _close(open_, finished, penalty)
    return [sorted(found, reverse=True)[:beams] for found in finished]


def likeliest(model: Stepper, state: Any, first: Tensor, *, stop: int, longest: int, beams: int) -> list[list[int]]:
    """The best hypothesis for each row; one beam is greedy search."""
    if beams == 1:
        return greedy(model, state, first, stop=stop, longest=longest)
    found = beam_search(model, state, first, stop=stop, longest=longest, beams=beams)
    return [hypotheses[0].ids for hypotheses in found]


def _extend(
    open_: _Beams, logits: Tensor, stop: int, written: int, penalty: float, finished: list[list[Hypothesis]]
) -> tuple[_Beams, Tensor]:
    """Every beam by every token; those that stop are finished, the K best others go on. Rows say where from."""
    count, beams = open_.score.shape
    size = logits.size(-1)
    score = open_.score.unsqueeze(-1) + logits.float().log_softmax(-1).view(count, beams, size)  # (B, K, V)
    best, place = score.flatten(1).topk(min(2 * beams, beams * size), dim=1)  # (B, 2K)
    beam, token = place // size, place % size
    stops = token == stop
    for i, j in stops.nonzero().tolist():
        if j < beams and best[i, j] > -torch.inf:  # a stop below the K best would not have been kept
            found = Hypothesis(float(best[i, j]) / written**penalty, open_.ids[i, beam[i, j]].tolist())
            finished[int(open_.sentence[i])].append(found)
    chosen = best.masked_fill(stops, -torch.inf).topk(beams, dim=1).indices  # (B, K)
    beam, token = beam.gather(1, chosen), token.gather(1, chosen)
    rows = (torch.arange(count, device=beam.device).unsqueeze(1) * beams + beam).flatten()  # (B × K,)
    ids = torch.cat((open_.ids.flatten(0, 1)[rows].view(count, beams, -1), token.unsqueeze(-1)), dim=-1)
    return _Beams(open_.sentence, best.masked_fill(stops, -torch.inf).gather(1, chosen), ids), rows


def _decided(
    open_: _Beams, finished: list[list[Hypothesis]], written: int, longest: int, penalty: float, beams: int
) -> Tensor:
    """(B,) whether K are finished and no open beam can beat the worst of them, however it goes on."""
    furthest = longest if penalty > 0 else written + 1  # where a score can only fall, longer is the best case
    possible = open_.score[:, 0] / furthest**penalty
    done = []
    for sentence, hope in zip(open_.sentence.tolist(), possible.tolist(), strict=True):
        best = sorted((found.score for found in finished[sentence]), reverse=True)[:beams]
        done.append(len(best) == beams and (beams == 1 or best[-1] >= hope))  # one beam is greedy: the first stop ends
    return torch.tensor(done, device=open_.score.device)


def _without(open_: _Beams, rows: Tensor, keep: Tensor) -> tuple[_Beams, Tensor]:
    """Decided sentences leave the batch."""
    if keep.all():
        return open_, rows
    beams = open_.score.size(1)
    rows = rows.view(-1, beams)[keep].flatten()
    return _Beams(open_.sentence[keep], open_.score[keep], open_.ids[keep]), rows


def _close(open_: _Beams, finished: list[list[Hypothesis]], penalty: float) -> None:
    """At the longest length, open beams count as they are, for sentences that finished none."""
    for i, sentence in enumerate(open_.sentence.tolist()):
        if not finished[sentence] and open_.ids.size(-1):
            score = float(open_.score[i, 0]) / open_.ids.size(-1) ** penalty
            finished[sentence].append(Hypothesis(score, open_.ids[i, 0].tolist()))

"""States of a recurrent language model can be merged: texts that begin at different times share a step."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from clearhead.models.config import RecurrentConfig
from clearhead.models.rnn import RnnLanguageModel


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_merged_rows_equal_separate_ones(cell: str) -> None:
    torch.manual_seed(3)
    model = RnnLanguageModel(RecurrentConfig(dim=7, heads=1, layers=2, cell=cell, dropout=0.0), 13).eval()
    prompts = [torch.tensor([[5, 2, 11]]), torch.tensor([[3, 7], [12, 1]])]
    read = [model.step(prompt, model.start()) for prompt in prompts]
    merged = model.merge([state for _, state in read])
    after = torch.tensor([[4], [9], [6]])
    together, _ = model.step(after, merged)
    apart = [model.step(ids, state)[0] for ids, (_, state) in zip(after.split([1, 2]), read, strict=True)]
    assert_close(together, torch.cat(apart))

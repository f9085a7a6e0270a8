"""One model for each task and architecture, the same for the same seed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from clearhead.config import AnyConfig
from clearhead.errors import ConfigError
from clearhead.models.captioner import CrossCaptioner, SequenceCaptioner
from clearhead.models.classifier import Classifier, Tagger
from clearhead.models.lm import LanguageModel, MaskedLanguageModel
from clearhead.models.rnn import RnnCaptioner, RnnLanguageModel, RnnSeq2Seq
from clearhead.models.seq2seq import Seq2Seq
from clearhead.models.vit import VisionTransformer
from clearhead.models.word2vec import SkipGram
from clearhead.run import Sizes
from clearhead.tasks import TASKS, default_config, override_config
from clearhead.tasks.base.network import build_network

DATA = Sizes(vocabulary=97, classes=7, channels=3, height=16, width=24, pad=0)
CASES: list[tuple[str, list[str], type[nn.Module]]] = [
    ("translate", [], Seq2Seq),
    ("translate", ["model.architecture=rnn"], RnnSeq2Seq),
    ("lm", [], LanguageModel),
    ("lm", ["model.objective=masked"], MaskedLanguageModel),
    ("masked_lm", [], MaskedLanguageModel),
    ("lm", ["model.architecture=rnn"], RnnLanguageModel),
    ("classify", [], Classifier),
    ("tag", [], Tagger),
    ("vision", [], VisionTransformer),
    ("caption", [], CrossCaptioner),
    ("caption", ["model.architecture=sequence"], SequenceCaptioner),
    ("caption", ["model.architecture=rnn"], RnnCaptioner),
    ("words", [], SkipGram),
]
every_case = pytest.mark.parametrize(("task", "settings", "kind"), CASES, ids=lambda case: str(case))


def configured(task: str, settings: list[str], size: str = "tiny") -> AnyConfig:
    return override_config(default_config(task, size), settings)


@every_case
def test_the_right_model(task: str, settings: list[str], kind: type[nn.Module]) -> None:
    assert type(build_network(configured(task, settings), DATA)) is kind


def test_every_task_is_here() -> None:
    assert {task for task, _, _ in CASES} == set(TASKS.builtin())


@every_case
def test_the_same_seed_gives_the_same_weights(task: str, settings: list[str], kind: type[nn.Module]) -> None:
    def weights(seed: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(seed)
        return build_network(configured(task, settings), DATA).state_dict()

    one, same, other = weights(5), weights(5), weights(6)
    assert all(one[name].equal(same[name]) for name in one)
    assert any(not one[name].equal(other[name]) for name in one)


@pytest.mark.parametrize("size", ["tiny", "small", "base"])
@every_case
def test_every_size_can_be_built(task: str, settings: list[str], kind: type[nn.Module], size: str) -> None:
    with torch.device("meta"):
        assert type(build_network(configured(task, settings, size), DATA)) is kind


def test_a_recurrent_network_cannot_fill_in_masked_tokens() -> None:
    config = configured("lm", ["model.architecture=rnn", "model.objective=masked"])
    with pytest.raises(ConfigError, match=r"choose the task lm or model\.architecture=transformer"):
        build_network(config, DATA)


@pytest.mark.parametrize("task", ["vision", "caption"])
def test_patches_that_do_not_cover_the_images_are_refused(task: str) -> None:
    with pytest.raises(ConfigError, match=r"patch=5 does not divide images of 16 × 24; choose another model\.patch"):
        build_network(configured(task, ["model.patch=5"]), DATA)

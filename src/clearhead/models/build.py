"""From a configuration to the model it describes, ready to train."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from clearhead.config import Config
from clearhead.errors import ConfigError
from clearhead.models.captioner import CrossCaptioner, SequenceCaptioner
from clearhead.models.classifier import Classifier, Tagger
from clearhead.models.config import (
    CaptionModel,
    ClassifyModel,
    TagModel,
    TextModel,
    TranslateModel,
    VisionModel,
    WordsModel,
)
from clearhead.models.initialise import initialise
from clearhead.models.lm import LanguageModel, MaskedLanguageModel
from clearhead.models.rnn import RnnCaptioner, RnnLanguageModel, RnnSeq2Seq
from clearhead.models.seq2seq import Seq2Seq
from clearhead.models.vit import VisionTransformer
from clearhead.models.word2vec import SkipGram


@dataclass(frozen=True)
class Sizes:
    """What the data decides about a model; a task uses those that it has."""

    vocabulary: int = 0
    classes: int = 0
    channels: int = 0
    height: int = 0
    width: int = 0
    pad: int = 0  # the id of the padding token


def build(config: Config, sizes: Sizes) -> nn.Module:
    """The model of a task, its weights started from torch's current seed."""
    return initialise(_assembled(config, sizes))


def _assembled(config: Config, sizes: Sizes) -> nn.Module:
    match config.model:
        case TranslateModel() as model:
            return _translator(model, sizes)
        case TextModel() as model:
            return _language_model(model, sizes)
        case ClassifyModel() as model:
            return Classifier(model, sizes.vocabulary, sizes.classes, sizes.pad)
        case TagModel() as model:
            return Tagger(model, sizes.vocabulary, sizes.classes, sizes.pad)
        case VisionModel() as model:
            _check_patches(model.patch, sizes)
            return VisionTransformer(model, sizes.channels, sizes.height, sizes.width, sizes.classes)
        case CaptionModel() as model:
            _check_patches(model.patch, sizes)
            return _captioner(model, sizes)
        case WordsModel() as model:
            return SkipGram(sizes.vocabulary, model.dim)
    raise ConfigError(f"there is no model for the task {config.task}")


def _translator(model: TranslateModel, sizes: Sizes) -> nn.Module:
    match model.architecture:
        case "transformer":
            return Seq2Seq(model, sizes.vocabulary, sizes.pad)
        case "rnn":
            return RnnSeq2Seq(model, sizes.vocabulary, sizes.pad)


def _language_model(model: TextModel, sizes: Sizes) -> nn.Module:
    match model.architecture, model.objective:
        case "transformer", "next":
            return LanguageModel(model, sizes.vocabulary, sizes.pad)
        case "transformer", "masked":
            return MaskedLanguageModel(model, sizes.vocabulary, sizes.pad)
        case "rnn", "next":
            return RnnLanguageModel(model, sizes.vocabulary, sizes.pad)
    raise ConfigError(
        f"objective={model.objective} with architecture={model.architecture}: a recurrent network does not see what "
        "comes after a masked token; choose model.objective=next or model.architecture=transformer"
    )


def _captioner(model: CaptionModel, sizes: Sizes) -> nn.Module:
    image = (sizes.channels, sizes.height, sizes.width)
    match model.architecture:
        case "cross":
            return CrossCaptioner(model, sizes.vocabulary, *image, sizes.pad)
        case "sequence":
            return SequenceCaptioner(model, sizes.vocabulary, sizes.channels, sizes.pad)
        case "rnn":
            return RnnCaptioner(model, sizes.vocabulary, *image, sizes.pad)


def _check_patches(patch: int, sizes: Sizes) -> None:
    """Before any image is read: the patches must cover it."""
    if sizes.height % patch or sizes.width % patch:
        raise ConfigError(
            f"patch={patch} does not divide images of {sizes.height} × {sizes.width}; choose another model.patch"
        )

"""What a model says about itself, so that `look` and `engines` need not know it by its class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import nn

from clearhead.models.assemble import TokenInput
from clearhead.nn import Decoder, Encoder, TokenOutput


class Model(nn.Module):
    """The base of all systems."""

    is_causal_lm: ClassVar[bool] = False  # predicts each token of a text from those before it

    def stacks(self) -> dict[str, nn.Module]:
        """What reads tokens layer by layer: an `encoder`, a `decoder` (it predicts tokens), or both in this order."""
        return {}


class TransformerDecoder(Model, ABC):
    """A Transformer that generates tokens: engines run its decoder stack step by step."""

    output: TokenOutput

    @property
    @abstractmethod
    def decoder_input(self) -> TokenInput:
        """The embedding of generated tokens."""

    @property
    @abstractmethod
    def decoder_stack(self) -> Encoder | Decoder:
        """The blocks between a token and the prediction of the next."""

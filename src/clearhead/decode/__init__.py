"""Logits -> ids: ways to write a sequence token by token. A model is known only as a Stepper."""

from clearhead.decode.beam import beam_search, likeliest
from clearhead.decode.greedy import greedy
from clearhead.decode.sampling import sample
from clearhead.decode.stepper import Stepper

__all__ = ["Stepper", "beam_search", "greedy", "likeliest", "sample"]

"""What one service takes on, and what one request may ask for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Every number that keeps one client from taking the service away from the others."""

    rows: int = 64  # texts or images that a model computes together
    queue: int = 256  # of them that may wait for each model
    seconds: float = 60.0  # from the whole request to the whole answer
    patience: float = 10.0  # seconds for a client to send its request, and to take each part of the answer
    connections: int = 1000  # open at a time; one more closes that which has been silent longest

    body: int = 8_000_000  # bytes of a request
    bodies: int = 256_000_000  # bytes of all requests that are being answered
    characters: int = 10_000  # of a text
    texts: int = 128  # in a request
    tokens: int = 8192  # that a request may have written
    context: int = 2048  # tokens of a prompt and what is written after it; less where a model reads less
    seen: int = 200  # tokens of a text that is looked into
    pixels: int = 16_000_000  # of an image

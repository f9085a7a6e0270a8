"""How much a service accepts at a time, and how much one request may ask for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Every limit that keeps one client from taking the service away from the others."""

    rows: int = 64  # batch size: texts or images that a model computes together
    queue: int = 256  # texts or images that may wait for each model
    seconds: float = 60.0  # request timeout, from the complete request to the complete response
    patience: float = 10.0  # seconds for a client to send its request, and to read each part of the response
    connections: int = 1000  # open connections; one more closes the one that has been idle longest

    body: int = 8_000_000  # bytes of a request
    bodies: int = 256_000_000  # bytes of all requests in progress
    characters: int = 10_000  # of a text
    texts: int = 128  # in a request
    tokens: int = 8192  # generated for a request
    context: int = 2048  # tokens of a prompt and its continuation; less for a model with a shorter context
    seen: int = 200  # tokens of a text whose attention is returned
    pixels: int = 16_000_000  # of an image

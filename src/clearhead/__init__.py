"""Clearhead: train, run, serve and look inside every transformer of the lectures."""

__version__ = "0.1.0"

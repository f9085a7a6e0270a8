"""Inputs that the page suggests: chosen ones for the models that come with the package, else the predictor's own."""

from __future__ import annotations

from clearhead.serve.capabilities import Predictor

SHAKESPEARE = ("ROMEO:\nBut soft, what light", "First Citizen:\nBefore we proceed", "KING RICHARD:\nO,")
CHOSEN = {
    "en-es": (
        "She has a red car.",
        "The dog sees the cat.",
        "we are eating bread",
        "I'm not hungry yet.",
        "The animal didn't cross the street because it was too tired.",
    ),
    "shakespeare": SHAKESPEARE,
    "shakespeare-lstm": SHAKESPEARE,
    "invented": ("zog plim zog quav plim qu", "tim forn badu forn tim ba"),
}
PASSAGE = """MENENIUS:
What work's, my countrymen, in hand? where go you
With bats and clubs? The matter? speak, I pray you.

First Citizen:
Our business is"""


def examples(predictor: Predictor) -> list[str]:
    """Return inputs for a model, best first; none if it does not read texts."""
    return list(CHOSEN.get(predictor.name) or predictor.examples())


def passage(predictor: Predictor) -> str:
    """Return a longer text for a language model, with several lines and speakers where it knows plays."""
    return PASSAGE if predictor.name.startswith("shakespeare") else predictor.passage()

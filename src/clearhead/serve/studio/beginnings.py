"""Texts to begin with: what shows best what a model does, or what it wrote or read itself while it was trained."""

from __future__ import annotations

from clearhead.run import Description

PLAYS = ("ROMEO:\nBut soft, what light", "First Citizen:\nBefore we proceed", "KING RICHARD:\nO,")
ENGLISH = (
    "She has a red car.",
    "The dog sees the cat.",
    "we are eating bread",
    "I'm not hungry yet.",
    "The animal didn't cross the street because it was too tired.",
)
OF_MODELS = {
    "en-es": ENGLISH,
    "shakespeare": PLAYS,
    "shakespeare-lstm": PLAYS,
    "invented": ("zog plim zog quav plim qu", "tim forn badu forn tim ba"),
}
OF_TASKS = {
    "translate": ENGLISH,
    "classify": ("a warm, funny film", "two hours that I will never get back"),
    "tag": ("the old dog sees a small cat",),
}
PASSAGE = """MENENIUS:
What work's, my countrymen, in hand? where go you
With bats and clubs? The matter? speak, I pray you.

First Citizen:
Our business is"""
LETTERS = 24  # of a text that a language model wrote


def beginnings(about: Description) -> list[str]:
    """Texts for a model, the best first; none where it does not read texts."""
    if about.name in OF_MODELS:
        return list(OF_MODELS[about.name])
    return [text for text in (_own(about),) if text] or list(OF_TASKS.get(about.task, ()))


def passage(about: Description) -> str:
    """A longer text for a language model, with lines and what else its units might follow."""
    return PASSAGE if about.name.startswith("shakespeare") else about.sample


def _own(about: Description) -> str:
    """What a translator was asked at its last evaluation, or how the text begins that a language model wrote."""
    match about.task:
        case "translate":
            return about.sample.partition(" → ")[0]
        case "lm":
            words = about.sample[:LETTERS]
            return words.rpartition(" ")[0] or words
    return ""

"""A vector of one sentence put into another."""

from __future__ import annotations

from typing import Any

from .conftest import Ask

OWN, DONOR = "the old house with water", "we are eating bread"


def test_both_sentences_and_both_answers_are_shown(ask: Ask) -> None:
    found = ask("patch", model="translator", text=OWN, donor=DONOR)
    assert found["states"][0] == "encoder.embedded"
    assert "decoder.1.hidden" in found["states"]
    assert found["changed"]["output"] == found["own"]["output"]  # nothing is patched
    assert all(row["divergence"] == 0 for row in found["rows"])
    for side in ("own", "donor"):
        for state, sizes in found[side]["sizes"].items():
            assert len(sizes) == len(found[side]["tokens"][state.split(".")[0]]), (side, state)


def test_patching_every_token_brings_the_answer_of_the_donor(ask: Ask) -> None:
    """The encoder of the donor in all its tokens: the decoder sees the donor's memory."""
    own, donor = DONOR, "we are eating water"
    plain = ask("patch", model="translator", text=own, donor=donor)
    tokens = plain["own"]["tokens"]["encoder"]
    assert len(tokens) == len(plain["donor"]["tokens"]["encoder"])
    patches = [{"state": "encoder.1.hidden", "taken": token, "token": token} for token in range(len(tokens))]
    found = ask("patch", model="translator", text=own, donor=donor, patches=patches)
    assert found["changed"]["output"] == plain["donor"]["output"]
    assert found["rows"][0]["divergence"] > 0
    single: Any = ask("patch", model="translator", text=own, donor=donor, patches=patches[-2:-1])
    assert single["own"] == plain["own"]


def test_what_cannot_be_patched_is_one_sentence(ask: Ask) -> None:
    asked = {"model": "translator", "text": OWN, "donor": DONOR}
    wrong = {"state": "encoder.0.self.query", "taken": 0, "token": 0}
    assert ask("patch", **asked, patches=[wrong])[1].startswith("'encoder.0.self.query' is not the input or output")
    assert ask("patch", **asked, patches=[{**wrong, "state": "encoder.0.hidden", "taken": 40}])[1].startswith("'we are")

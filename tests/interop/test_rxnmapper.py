"""RXNMapper's published ALBERT: one of its heads maps the atoms of a reaction, and we see that head.

The package maps atoms by layer 10, head 5 (Schwaller et al., 2021). `rxnmapper.json` has the examples of its own tests:
the reaction as the model reads it, the atom before the arrow for each atom after it, and the published confidence.

    P atoms after the arrow, R atoms before it
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from torch import Tensor

import clearhead
from clearhead.interop.importing import import_model

from .test_real_models import rxnmapper

EXAMPLES = json.loads((Path(__file__).parent / "rxnmapper.json").read_text(encoding="utf-8"))
SMILES = r"\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*|\$|%[0-9]{2}|[0-9]"
LAYER, HEAD, NEAR = 10, 5, 90.0  # NEAR: how much likelier atoms are mapped to each other whose neighbours are


@pytest.fixture(scope="module")
def albert(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The published folder, with the tokenizer that the package has in code."""
    folder = tmp_path_factory.mktemp("rxnmapper")
    shutil.copytree(rxnmapper(), folder / "theirs")
    words = (folder / "theirs" / "vocab.txt").read_text(encoding="utf-8").splitlines()
    library = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.Split(Regex(SMILES), "isolated")
    library.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(word, words.index(word)) for word in ("[CLS]", "[SEP]")]
    )
    library.save(str(folder / "theirs" / "tokenizer.json"))
    import_model(folder / "theirs", folder / "ours")
    return clearhead.load(folder / "ours")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each["reaction"])
def test_the_head_gives_the_published_mapping(albert: Any, example: dict[str, Any]) -> None:
    seen = albert.look(example["reaction"])
    tokens = ["[CLS]", *re.findall(SMILES, example["reaction"]), "[SEP]"]
    weights = seen.weights["encoder.self"][LAYER][HEAD]
    assert len(tokens) == len(weights)
    found, confidence = mapped(tokens, weights.double())
    assert found == example["mapping"]
    assert confidence == pytest.approx(example["confidence"], abs=1e-4)


def mapped(tokens: list[str], weights: Tensor) -> tuple[list[int], float]:
    """For each atom after the arrow the number of one before it or -1, and how sure that is; weights (T, T)."""
    atoms = [place for place, token in enumerate(tokens) if is_atom(token)]
    arrow = tokens.index(">>")
    before, after = [each for each in atoms if each < arrow], [each for each in atoms if each > arrow]
    attention = weights[after][:, before] + weights[before][:, after].T  # (P, R)
    attention *= torch.tensor([[element(tokens[a]) == element(tokens[b]) for b in before] for a in after])
    near = neighbours(tokens)
    near_before, near_after = near[before][:, before], near[after][:, after]
    boost, found, confidence = torch.ones_like(attention), [-1] * len(after), 1.0
    for _ in after:
        scores = attention * boost
        scores = torch.nan_to_num(scores / scores.sum(1, keepdim=True))
        place = int(scores.max(1).values.argmax())
        best = int(scores[place].argmax())
        if scores[place, best] < 1e-8:
            break
        found[place] = best
        confidence *= float(scores[place, best])
        boost[torch.outer(near_after[place], near_before[best])] *= NEAR
        boost[place] = boost[:, best] = 0.0
    return found, confidence


def is_atom(token: str) -> bool:
    return token not in ("[CLS]", "[SEP]") and (token[0].isalpha() or token[0] in "[*")


def element(token: str) -> str:
    """The symbol of an atom: aromatic ones are written small, and * is any."""
    found = re.match(r"\[?\d*([A-Z][a-z]?|[a-z]{1,2}|\*)", token)
    assert found is not None
    return found[1].capitalize()


def neighbours(tokens: list[str]) -> Tensor:
    """(T, T): which atoms have a bond in SMILES; branches are in parentheses, rings open and close with a number."""
    bonds = torch.zeros(len(tokens), len(tokens), dtype=torch.bool)
    last: int | None = None
    branches: list[int | None] = []
    rings: dict[str, int] = {}
    for place, token in enumerate(tokens):
        if is_atom(token):
            if last is not None:
                bonds[last, place] = bonds[place, last] = True
            last = place
        elif token == "(":
            branches.append(last)
        elif token == ")":
            last = branches.pop()
        elif token in (".", ">>"):
            last = None
        elif token[-1].isdigit() and last is not None:
            if (other := rings.pop(token, None)) is None:
                rings[token] = last
            else:
                bonds[other, last] = bonds[last, other] = True
    return bonds

"""Small documents of every format that the views read; their sizes differ, so that no two can be mixed up."""

from __future__ import annotations

import math
from typing import Any

import torch
from tests.look.networks import small_network
from torch import Tensor

from clearhead.look.build import compute_look
from clearhead.look.inputs import PreparedInput
from clearhead.look.views.xray import XRay

SOURCE = ["the", "red", "car", "[STOP]", "five"]
TARGET = ["el", "coche", "rojo"]
LAYERS, HEADS = 2, 3
CHOICES = tuple(f"word{number}" for number in range(13))


def weights(visible: Tensor, seed: int = 1, heads: int = HEADS, layers: int = LAYERS) -> Tensor:
    """(layers, heads, T, S): random, each row a share of 1."""
    random = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(layers, heads, *visible.shape, generator=random)
    return scores.masked_fill(~visible, -math.inf).softmax(-1)


def attended(rows: list[str], columns: list[str], causal: bool = False, **sizes: int) -> dict[str, Any]:
    """One kind of attention."""
    visible = torch.ones(len(rows), len(columns), dtype=torch.bool)
    visible = visible.tril() if causal else visible
    return {
        "rows": rows,
        "columns": columns,
        "causal": causal,
        "visible": visible.tolist(),
        "weights": weights(visible, **sizes).tolist(),
    }


def look(**parts: Any) -> dict[str, Any]:
    """A translation with all three kinds of attention."""
    return {
        "format": "clearhead-look-1",
        "model": "en-es",
        "task": "translate",
        "text": "the red car",
        "tokens": {"encoder": SOURCE, "decoder": TARGET},
        "attention": {
            "encoder.self": attended(SOURCE, SOURCE, seed=1),
            "decoder.self": attended(TARGET, TARGET, causal=True, seed=2),
            "decoder.cross": attended(TARGET, SOURCE, seed=3),
        },
        "output": "el coche rojo",
        "probabilities": [],
        "image": None,
        "grid": None,
        "class_token": False,
        **parts,
    }


def image_look() -> dict[str, Any]:
    """An image of 4 × 6 pixels in 2 × 3 patches, and a class token before them."""
    tokens = ["class", *(f"{row},{column}" for row in (1, 2) for column in (1, 2, 3))]
    return look(
        model="digits",
        task="vision",
        text="seven.png",
        attention={"encoder.self": attended(tokens, tokens, seed=4, layers=3)},
        output="7",
        probabilities=[[["7", 0.9], ["1", 0.08]]],
        image=[[[40 * row + 10 * column] for column in range(6)] for row in range(4)],
        grid=[2, 3],
        class_token=True,
    )


def steps() -> dict[str, Any]:
    """Scores, a mask, weights, weighted values and their sum."""
    scores, values = [3.0, -1.5, 0.25, 2.0, 9.0], torch.arange(10.0).view(5, 2) - 4
    shares = torch.tensor([0.7, 0.02, 0.05, 0.23, 0.0])
    recorded: list[tuple[str, str, Any, list[str] | None]] = [
        ("score", "s_j = q · k_j", [4 * score for score in scores], SOURCE),
        ("scale", "s_j = q · k_j / √d_k,  d_k = 16", scores, SOURCE),
        ("mask", "s_j + L_j", [*scores[:4], None], SOURCE),
        ("softmax", "a_j = exp(s_j) / Σ_t exp(s_t)", shares.tolist(), SOURCE),
        ("weight", "a_j v_j", (shares[:, None] * values).tolist(), SOURCE),
        ("sum", "z = Σ_j a_j v_j", (shares @ values).tolist(), None),
    ]
    return {
        "format": "clearhead-steps-1",
        "kind": "decoder.cross",
        "layer": 1,
        "head": 2,
        "query": 1,
        "rows": TARGET,
        "columns": SOURCE,
        "steps": [
            {
                "name": name,
                "equation": equation,
                "value": value,
                "shape": [],
                "labels": labels,
                "file": "nn/attention.py",
                "line": 41 + number,
                "source": f"return line_{number}",
            }
            for number, (name, equation, value, labels) in enumerate(recorded)
        ],
    }


def steps_with_vectors() -> dict[str, Any]:
    """The same steps with vectors that give them: five keys of two numbers."""
    document = steps()
    vectors = {
        "q": [[1.0, 2.0], [4.0, -2.0], [0.0, 1.0]],
        "k": [[3.0, 0.0], [-1.0, 1.0], [1.0, 1.5], [2.0, 0.0], [9.0, 0.0]],
    }
    values = (torch.arange(10.0).view(5, 2) - 4).tolist()
    scores = document["steps"][1]["value"]
    matrices = {"scale": [scores, scores, scores], "softmax": [document["steps"][3]["value"]] * 3}
    return {**document, "vectors": {**vectors, "v": values}, "matrices": matrices}


def xray() -> dict[str, Any]:
    """A translator of two blocks with three heads, whose sizes all differ."""
    return small_xray("translate").to_json()


def small_xray(task: str, **settings: Any) -> XRay:
    network = small_network(task, **settings)
    source, read = torch.tensor([[4, 9, 12, 5]]), (2, 11, 8)
    written = {"decoder": ["[START]", *TARGET[:2]], "output": TARGET}
    prepared = PreparedInput((source,), read, encoder=SOURCE[:4], text="the red car", choices=CHOICES, **written)
    if task == "lm":
        prepared = PreparedInput(prompt=read, decoder=written["decoder"], text="the red car", choices=CHOICES)
    if task == "classify":
        prepared = PreparedInput((source,), encoder=SOURCE[:4], text="the red car")
    return XRay.of(compute_look(network, prepared, lambda _: "el coche", model="small", task=task))


def beam() -> dict[str, Any]:
    """Two beams; the one that is behind at first finishes as the best."""
    known = [
        (None, 0, "[START]", 1.0, "kept"),
        (0, 1, "el", 0.4, "kept"),
        (0, 1, "la", 0.5, "kept"),
        (0, 1, "un", 0.1, "dropped"),
        (1, 2, "coche", 0.9, "kept"),
        (2, 2, "auto", 0.3, "kept"),
        (2, 2, "casa", 0.2, "dropped"),
        (4, 3, "[STOP]", 0.8, "finished"),
    ]
    nodes: list[dict[str, Any]] = []
    for parent, step, token, probability, state in known:
        own = math.log(probability)
        total = own + (0.0 if parent is None else nodes[parent]["total"])
        node = {"id": len(nodes), "parent": parent, "step": step, "token": token, "probability": own}
        nodes.append({**node, "total": total, "score": total / max(1, step), "state": state})
    return {"format": "clearhead-beam-1", "source": "the car", "nodes": nodes, "best": 7}


def cells() -> dict[str, Any]:
    """A text of two lines; one unit follows the place in the line, the values of another are here too."""
    text = "To be,\nor not"
    place = [index if index < 7 else index - 7 for index in range(len(text))]
    first, second = "decoder.1.hidden", "decoder.0.hidden"
    ranking = [(first, 17, "line position", 0.83), (second, 5, "case", -0.61), (second, 6, "quotes", 0.2)]
    return {
        "format": "clearhead-cells-1",
        "tokens": list(text),
        "layer": first,
        "unit": 17,
        "values": [each / 3 - 1 for each in place],
        "units": [{"layer": second, "unit": 5, "values": [float(letter.isupper()) for letter in text]}],
        "ranking": [
            {"layer": layer, "unit": unit, "feature": feature, "correlation": correlation}
            for layer, unit, feature, correlation in ranking
        ],
    }


def scaling() -> dict[str, Any]:
    """The scale for keys of four sizes."""
    sizes = (1, 4, 16, 64)
    scaled = [{"size": size, "variance": 1.0, "largest": 0.2, "evenness": 0.9, "gradient": 0.3} for size in sizes]
    plain = [{**row, "variance": float(row["size"]), "largest": 1 - 0.7 / row["size"]} for row in scaled]
    return {"format": "clearhead-scaling-1", "keys": 32, "scaled": scaled, "plain": plain}


def induction() -> dict[str, Any]:
    """Two layers of three heads; head 1 of layer 1 repeats."""
    scores = {"induction": [[0.02, 0.03, 0.01], [0.04, 0.91, 0.05]], "previous": [[0.8, 0.1, 0.1], [0.1, 0.1, 0.1]]}
    rest = {"repeated": [[0.05] * 3] * 2, "chance": 0.021, "first": 5.2, "second": 1.3}
    return {"format": "clearhead-induction-1", **scores, **rest}


def importance() -> dict[str, Any]:
    """By ablation: the model is better off without one head."""
    heads = {"encoder.0.self": [0.3, -0.1, 0.02], "encoder.1.self": [0.1, 0.2, 0.0], "decoder.0.cross": [0.9, 0.4, 0.1]}
    return {"format": "clearhead-importance-1", "method": "ablation", "loss": 1.7, "heads": heads}


def lens() -> dict[str, Any]:
    """Three answers after each of two layers and before them."""
    layers = [[[[word, share], ["otro", 0.1]] for word in TARGET] for share in (0.2, 0.5, 0.9)]
    numbers = {"probability": [[0.2] * 3, [0.5] * 3, [0.9] * 3], "rank": [[1, 0, 2], [0, 0, 1], [0, 0, 0]]}
    return {"format": "clearhead-lens-1", "tokens": ["[START]", *TARGET[:2]], "layers": layers, **numbers}


def attribution(name: str) -> dict[str, Any]:
    """What the second of three answers rests on."""
    shown = {"rows": TARGET, "query": 1, "tokens": SOURCE, "values": [0.1, -0.4, 0.9, 0.0, 0.2], "image": None}
    text = {"model": "en-es", "text": "the red car", "output": "el coche rojo", "grid": None}
    return {"format": f"clearhead-{name}-1", **text, **shown}


def relevance() -> dict[str, Any]:
    return attribution("relevance")


def gradients() -> dict[str, Any]:
    return attribution("gradients")


def positions() -> dict[str, Any]:
    """Seven positions of six numbers."""
    vectors = [[math.sin(place / 3 ** (entry / 2)) for entry in range(6)] for place in range(7)]
    products = [[sum(a * b for a, b in zip(one, other, strict=True)) for other in vectors] for one in vectors]
    by_distance = [[1.0 / (1 + distance) for distance in range(7)]]
    shown = {"vectors": vectors, "products": [products], "by_distance": by_distance, "similarity": products}
    return {"format": "clearhead-positions-1", "scheme": "sinusoidal", **shown}


def history() -> dict[str, Any]:
    """Cross-attention at three evaluations."""
    visible = torch.ones(len(TARGET), len(SOURCE), dtype=torch.bool)
    films = [weights(visible, seed=seed).tolist() for seed in (5, 6, 7)]
    attention = {"decoder.cross": {"rows": TARGET, "columns": SOURCE, "weights": films}}
    return {"format": "clearhead-history-1", "model": "en-es", "steps": [10, 20, 40], "attention": attention}


def flow() -> dict[str, Any]:
    """The flow between five tokens; its rows do not sum to 1."""
    shares = [[1.0 / (1 + abs(row - column)) for column in range(5)] for row in range(5)]
    text = {"model": "en-es", "text": "the red car", "kind": "encoder.self"}
    return {"format": "clearhead-flow-1", "tokens": SOURCE, "shares": shares, **text}


def long_look(tokens: int = 64, layers: int = 4, heads: int = 12) -> dict[str, Any]:
    """As many tokens and heads as a view has to be quick at."""
    words = [f"w{number}" for number in range(tokens)]
    return look(attention={"decoder.self": attended(words, words, causal=True, layers=layers, heads=heads)}, output="")

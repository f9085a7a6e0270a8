"""A vector of one sentence put into another: two inputs side by side, and what the patches do to the answer.

T tokens, D width, V vocabulary or labels
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from torch import Tensor

from clearhead.errors import ProbeError
from clearhead.look.build import run_probes
from clearhead.look.changes import Index, PatchChange
from clearhead.look.interventions import divergence
from clearhead.look.look import Look
from clearhead.look.probes import probes
from clearhead.look.record import rounded
from clearhead.serve.errors import ERROR_RESPONSES
from clearhead.serve.inputs import ServiceDep
from clearhead.serve.registry import ServedModel
from clearhead.studio.changes import ChangedBody, changed_model, original_answer
from clearhead.studio.inputs import Document, InputBody, compute_json, continues_text, read_input

router = APIRouter(responses=ERROR_RESPONSES)

STATE = re.compile(r"(encoder|decoder)\.(embedded|\d+\.hidden)")
SHOWN = 5  # answers of each position


class Patch(BaseModel):
    """A vector of a token of the donor, and the token that gets it."""

    state: Annotated[str, Field(max_length=60)]
    taken: Index
    token: Index


class PatchBody(InputBody):
    """Two texts; the vectors of the donor are put into the run of the other."""

    donor: Annotated[str, Field(max_length=2000)]
    patches: Annotated[list[Patch], Field(max_length=32)] = []


@router.post("/patch")
async def patch(body: PatchBody, request: Request, service: ServiceDep) -> Document:
    """The tokens of both texts, the states that can be taken, and the answers before and after the patches."""
    served = service.get(body.model)
    item = await read_input(body, served)
    await read_input(body.model_copy(update={"text": body.donor}), served)
    return await compute_json(request, served, lambda: compare(served, item, body))


def compare(served: ServedModel, item: Any, body: PatchBody) -> Document:
    """Run both texts, and the first once more with the patches."""
    model = served.model
    states = [name for name in probes(model.network) if STATE.fullmatch(name)]
    if not states:
        raise ProbeError(f"{served.name} has no blocks whose states could be patched")
    own, theirs = _look(served, item), _look(served, body.donor)
    changes = [PatchChange(donor=body.donor, **each.model_dump()) for each in body.patches]
    asked = ChangedBody(model=body.model, text=body.text, image=body.image, changes=changes, beams=1)
    with_patches = changed_model(served, item, asked, own)
    with with_patches.open():
        after, answer = with_patches.look(), with_patches.answer()
    return {
        "format": "clearhead-patch-1",
        "model": served.name,
        "task": model.task,
        "states": states,
        "own": _shown(served, own, states),
        "donor": _shown(served, theirs, states),
        "changed": {"output": answer},
        "rows": _rows(own, after),
    }


def _look(served: ServedModel, item: Any) -> Look:
    """A look at the text that the model writes greedily, as the donor's states are taken."""
    model = served.model
    found: Look = model.look(item, beam_width=1) if model.generates and not continues_text(served) else model.look(item)
    return found


def _shown(served: ServedModel, look: Look, states: list[str]) -> Document:
    """A text with its tokens, its answer, and the length of each vector of each state, (T,)."""
    seen = run_probes(look.require_network(), look.inputs, *states)
    sizes = {name: rounded(seen[name][0].float().norm(dim=-1).cpu()) for name in states}
    return {"text": look.text, "tokens": look.tokens, "output": original_answer(served, look), "sizes": sizes}


def _rows(before: Look, after: Look) -> list[Document]:
    """For each position the likeliest answers before and after, and how far the two distributions are apart."""
    assert before.logits is not None
    assert after.logits is not None
    one, other = (each.reshape(-1, each.size(-1)).float() for each in (before.logits, after.logits))  # (T, V)
    apart = divergence(one, other)
    words = before.tokens.get("decoder", [""])
    return [
        {
            "after": words[row] if len(words) == len(one) else "",
            "divergence": float(apart[row]),
            "before": _likeliest(one[row], before.choices),
            "now": _likeliest(other[row], before.choices),
        }
        for row in range(len(one))
    ]


def _likeliest(logits: Tensor, names: tuple[str, ...]) -> list[list[Any]]:
    best = logits.softmax(-1).topk(min(SHOWN, len(logits)))
    return [
        [names[i] if names else str(i), p] for i, p in zip(best.indices.tolist(), rounded(best.values), strict=True)
    ]

"""The parts between the input and the first block: tokens, positions, patches."""

from __future__ import annotations

import torch
from torch import nn

from clearhead.look.graph.calls import Call
from clearhead.look.graph.parts import GraphBuilder
from clearhead.nn import (
    ClassToken,
    ExtraTokens,
    InputPositions,
    PatchEmbedding,
    TokenEmbedding,
    add_positions,
    concatenate_positions,
)
from clearhead.nn.embedding import cut_patches
from clearhead.nn.norm import NativeNorm


class EmbeddingParts(GraphBuilder):
    """The embedding of a stack."""

    def input(self, stack: str) -> str:
        """The embedding of a stack: every module that was called on the way to it."""
        with self.group(f"{stack}.input", "input", "Embedding", "From tokens to vectors, one for each token."):
            ends: list[str] = []
            known: dict[int, str] = {}  # the part that holds a tensor
            for number, call in enumerate(self.calls.before[stack]):
                x = [known[id(each)] for each in call.inputs if id(each) in known]
                part = self.embedding(f"{stack}.input.{number}", stack, call, x)
                ends = [*(end for end in ends if end not in x), part]
                known[id(call.output)] = part
            embedded = self.seen[f"{stack}.embedded"][0]
            last = self.parts[ends[-1]] if ends else None
            if last is not None and len(ends) == 1 and torch.equal(last.value, embedded.float().cpu()):
                return self.rename(last.id, f"{stack}.embedded")
            if self.changed and last is not None and len(ends) == 1 and last.value.shape == embedded.shape:
                return self.as_seen(self.rename(last.id, f"{stack}.embedded"))
            return self.add(
                f"{stack}.embedded", "function", "embedded", embedded, ends, rows=stack, symbol="x",
                equation="x", about="The vectors that the first block reads.",
            )  # fmt: skip

    def embedding(self, id: str, stack: str, call: Call, x: list[str]) -> str:
        """One module between the tokens and the first block."""
        module, value = call.module, call.output[0]
        rows = stack if value.size(0) == len(self.axes[stack]) else self.some_rows(stack, value.size(0))
        code = (type(module).forward, "return ")
        match module:
            case TokenEmbedding():
                details = {"ids": call.inputs[0][0].tolist(), "scale": module.scale}
                about = "Each token is a number, and the number chooses a row of a learned table: the token's vector."
                return self.add(
                    id, "lookup", "token", value, rows=rows, symbol="e", about=about, code=code, details=details,
                    equation="e_t = √D · W_emb[id_t]" if module.scale != 1 else "e_t = W_emb[id_t]",
                )  # fmt: skip
            case InputPositions() if module.combine in (add_positions, concatenate_positions):
                vectors = module.encode(value.size(0), call.start).expand(value.size(0), -1)
                if self.changed:  # those that met the tokens
                    own = call.inputs[0][0]
                    vectors = value - own if module.combine is add_positions else value[:, own.size(-1) :]
                at = self.add(
                    f"{id}.positions", "given", "position", vectors, rows=rows, symbol="p",
                    equation="p_t", about="A vector for each place, so that the order of the tokens is known.",
                    code=(type(module).encode, "return "),
                )  # fmt: skip
                added = module.combine is add_positions
                equation = "x_t = e_t + p_t" if added else "x_t = [e_t; p_t]"
                about = "Token and place in one vector: what it is, and where it stands."
                op = "add" if added else "concat"
                code = (add_positions if added else concatenate_positions, "return ")
                return self.add(
                    id, op, "token + position", value, [*x, at], symbol="x", equation=equation, about=about, code=code
                )
            case PatchEmbedding():
                pixels = self.add(
                    f"{id}.pixels", "given", "pixels", cut_patches(call.inputs[0], module.patch)[0], rows=rows,
                    symbol="u", equation="patches of the image",
                    about="The image cut into squares; each square is one row of its pixels.",
                    code=(cut_patches, "return "),
                )  # fmt: skip
                about = "One matrix turns the pixels of each square into a vector: a token of the image."
                return self.linear(
                    id, "patch", value, [pixels], module.linear, symbol="e", equation="e = u E", about=about, code=code
                )
            case ClassToken() | ExtraTokens():
                about = "A learned vector in front of the others, with a place of its own."
                return self.add(
                    id, "prepend", "with class token", value, x, rows=rows, symbol="e", about=about, code=code,
                    equation="[class; e_1; …; e_N]", details={"count": value.size(0) - call.inputs[0].size(1)},
                )  # fmt: skip
        if x and (isinstance(module, NativeNorm) or type(module) is nn.Linear):
            if type(module) is not nn.Linear:
                return self.norm(id, call.module, x[0])
            return self.linear(
                id, "projection", value, x, module, symbol="x", equation="x W + b", code=code,
                about="To the width of the blocks.",
            )  # fmt: skip
        name = {
            "SegmentEmbedding": "with segment",
            "NgramEmbedding": "with n-grams",
            "FeatureEmbedding": "with features",
        }
        return self.add(
            id, "function", name.get(type(module).__name__, type(module).__name__), value, x, rows=rows, symbol="x",
            equation="x + W[…]", about=(type(module).__doc__ or "").split("\n")[0], code=code,
        )  # fmt: skip

    def some_rows(self, stack: str, count: int) -> str:
        """The axis of some tokens of a stack: patches without the class token, or the last of them."""
        tokens = self.axes[stack]
        taken = tokens[-count:] if not tokens[:count] or stack == "encoder" else tokens[:count]
        name = f"{stack}.{count}"
        self.axes[name] = taken if len(taken) == count else [str(number) for number in range(count)]
        return name

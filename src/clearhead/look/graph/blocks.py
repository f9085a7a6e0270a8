"""The parts of a block: norms, attention with its heads, feed-forward, residual connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.look.graph.parts import GraphBuilder, code_line
from clearhead.look.views.steps import Code
from clearhead.nn import (
    DecoderBlock,
    Explicit,
    MultiHeadAttention,
    ParallelBlock,
    RelativePositions,
    Residual,
    pick_one,
    softmax,
)
from clearhead.nn.attention import split_heads
from clearhead.nn.norm import NoNorm
from clearhead.nn.positions import Rotary
from clearhead.nn.scores import dot_scale, score_equation


class BlockParts(GraphBuilder):
    """A block of attention and feed-forward."""

    def block(self, at: str, block: Any, x: str, memory: str | None) -> str:
        hidden = self.seen[f"{at}.hidden"][0]
        if isinstance(block, ParallelBlock):
            a = self.attention(
                f"{at}.self", block.self_attention, self.norm(f"{at}.self.norm", block.residual1.norm, x)
            )
            f = self.feed_forward(
                f"{at}.feed_forward", block.feed_forward, self.norm(f"{at}.norm", block.residual2.norm, x)
            )
            about = "What attention and feed-forward found is added to the vector of each token."
            own = torch.stack([self.parts[each].value for each in (x, a, f)]).sum(0) if self.changed else hidden
            added = self.add(
                f"{at}.hidden", "add", "add", own, [x, a, f], symbol="x", equation="x + a + f", about=about,
                code=(ParallelBlock.forward, "return "),
            )  # fmt: skip
            return self.as_seen(added)
        if not isinstance(getattr(block, "self_attention", None), MultiHeadAttention):
            return self.add(f"{at}.hidden", "function", "block", hidden, [x], symbol="x", about=_first_line(block))
        x = self.residual(
            f"{at}.self", block.residual1, x, lambda y: self.attention(f"{at}.self", block.self_attention, y)
        )
        last = block.residual2
        if isinstance(block, DecoderBlock):
            x = self.residual(
                f"{at}.cross", block.residual2, x,
                lambda y: self.attention(f"{at}.cross", block.cross_attention, y, memory),
            )  # fmt: skip
            last = block.residual3
        x = self.residual(
            f"{at}.feed_forward", last, x, lambda y: self.feed_forward(f"{at}.feed_forward", block.feed_forward, y)
        )
        return self.as_seen(self.rename(x, f"{at}.hidden"))

    def residual(self, at: str, residual: Residual, x: str, sublayer: Callable[[str], str]) -> str:
        """Norms, sublayer and sum, in the order that the residual connection has them."""
        form = residual.native_form()
        if form is None:
            z = sublayer(x)
            value = residual(self.parts[x].value[None], lambda _: self.parts[z].value[None])[0]
            return self.add(
                f"{at}.added", "function", "add & norm", value, [x, z], symbol="x", equation=residual.equation
            )
        y = x if form.before is None else self.norm(f"{at}.norm", form.before, x)
        z = sublayer(y)
        z = z if form.inside is None else self.norm(f"{at}.inside", form.inside, z)
        about = "The result is added to what was there: the residual stream keeps everything, and each part adds to it."
        x = self.add(
            f"{at}.added", "add", "add", self.parts[x].value + self.parts[z].value, [x, z], symbol="x",
            equation="x ← x + z", about=about, code=(type(residual).forward, "return "),
        )  # fmt: skip
        return x if form.after is None else self.norm(f"{at}.after", form.after, x)

    def attention(self, at: str, layer: MultiHeadAttention, y: str, memory: str | None = None) -> str:
        stack, number, part = at.split(".")
        crosses = memory is not None
        name = "Cross-attention" if crosses else "Self-attention"
        about = (
            "Each token being written looks at the tokens of the input, and takes what it needs."
            if crosses
            else "Each token looks at the others, and takes from them what it needs."
        )
        equation = (
            "softmax(Q Kᵀ / √d_k) V" if dot_scale(layer.kernel.score, 1) is not None else "softmax(score(Q, K)) V"
        )
        with self.group(
            at, "attention", name, about, equation=equation, code=(MultiHeadAttention.forward, "self.kernel")
        ):
            return self.heads(at, f"{stack}.{part}", int(number), layer, y, memory or y)

    def heads(self, at: str, kind: str, number: int, layer: MultiHeadAttention, y: str, memory: str) -> str:
        record = self.look.attention[kind]
        group = layer.heads // layer.kv_heads
        q = self.projected(f"{at}.query", layer, layer.query, layer.query_norm, y, record.query[number], 1)
        k = self.projected(f"{at}.key", layer, layer.key, layer.key_norm, memory, record.key[number], group)
        v = self.linear(
            f"{at}.value", "value", record.value[number], [memory], layer.value, symbol="v", equation="v_j = x_j W_V",
            about="What a token gives to those that look at it.", details={"group": group, "size": layer.value_dim},
            code=(MultiHeadAttention.keys_and_values, "split_heads(self.value"),
        )  # fmt: skip
        places = torch.arange(record.visible.size(0)), torch.arange(record.visible.size(1))
        visible = record.visible
        if layer.window is not None:  # it sees less far than other layers
            visible = visible & ((places[1] - places[0].unsqueeze(1)).abs() < layer.window)
        if self.changed:  # so may any layer
            visible = self.seen[f"{at}.visible"][0].cpu()
        bias = None if layer.relative.bias is None else layer.relative.bias(*places)
        return self.weigh(
            at,
            layer.kernel.explicit(),
            (q, k, v),
            (record.scores[number], record.weights[number]),
            visible,
            bias,
            layer.output,
        )

    def projected(
        self, id: str, layer: MultiHeadAttention, linear: nn.Linear, norm: nn.Module, x: str, value: Tensor, group: int
    ) -> str:
        """Queries or keys: a matrix, then perhaps a norm and the rotation by the position."""
        name = id.split(".")[-1]
        letter, whose = ("q", "i") if name == "query" else ("k", "j")
        about = "What a token is looking for." if letter == "q" else "What a token can be found by."
        equation = f"{letter}_{whose} = x_{whose} W_{letter.upper()}"
        code = (MultiHeadAttention.project, "q =") if letter == "q" else (MultiHeadAttention.keys_and_values, "keys =")
        details = {"group": group, "size": layer.key_dim}
        rotates = type(layer.relative).rotate is not RelativePositions.rotate
        more: dict[str, Any] = {"symbol": letter, "about": about, "code": code}
        if not rotates and isinstance(norm, NoNorm):
            return self.linear(id, name, value, [x], linear, equation=equation, details=details, **more)
        split = split_heads(self.through(linear, x)[None], linear.out_features // layer.key_dim)
        plain = split[0].repeat_interleave(group, 0)  # (H, T, D)
        made = self.linear(
            f"{id}.projected",
            f"{name} before its place",
            plain,
            [x],
            linear,
            equation=equation,
            details=details,
            **more,
        )
        if not isinstance(norm, NoNorm):
            normed = norm(split)[0].repeat_interleave(group, 0)
            made = self.add(f"{id}.normed", "function", f"normed {name}", normed, [made], equation="Norm(x)", **more)
            if not rotates:
                return self.rename(made, id)
        more["about"] = f"The {name} turned by an angle that grows with its place, so that scores know distances."
        more["code"] = (type(layer.relative).rotate, "return ")
        if not isinstance(layer.relative, Rotary):
            return self.add(id, "function", name, value, [made], **more)
        cos, sin = layer.relative.cos_sin(0, value.size(1))
        equation = f"{letter}_{whose} = R_{whose} x_{whose} W_{letter.upper()}"
        return self.add(id, "rotate", name, value, [made], equation=equation, details={"cos": cos, "sin": sin}, **more)

    def weigh(
        self,
        at: str,
        kernel: Explicit,
        qkv: tuple[str, str, str],
        known: tuple[Tensor, Tensor],
        visible: Tensor,
        bias: Tensor | None,
        output: nn.Module | None,
    ) -> str:
        """Scores, weights, weighted values and, where there is a matrix for it, the heads combined."""
        q, k, v = qkv
        scores, weights = known
        keys, scale = self.parts[k].rows, dot_scale(kernel.score, self.parts[q].value.size(-1))
        equation = score_equation(kernel.score) or "s_ij = score(q_i, k_j)"
        details = {"scale": scale, **({} if bias is None else {"bias": bias})}
        s = self.add(
            f"{at}.scores", "function" if scale is None else "score", "score", scores, [q, k], columns=keys, symbol="s",
            equation=equation.replace("s_j", "s_ij").replace("q ", "q_i ", 1) if scale is not None else equation,
            about="How well each query fits each key: the sum of the products of their numbers.",
            code=_score_code(kernel.score), details=details,
        )  # fmt: skip
        if self.changed and scale is not None:
            made = self.parts[q].value @ self.parts[k].value.mT * scale + (0 if bias is None else bias.float().cpu())
            self.as_seen(s, scores, made)
        hard = kernel.normalize is pick_one
        a = self.add(
            f"{at}.weights", "pick" if hard else "softmax", "weight", weights, [s], columns=keys, symbol="a",
            equation="a_ij = 1 for the best key" if hard else "a_ij = exp(s_ij) / Σ_t exp(s_it)",
            about="The scores of a query as shares that sum to 1; what the mask hides gets 0.",
            code=(pick_one, "hard = ") if hard else (softmax, "masked_fill" if not visible.all() else "scores.softmax"),
            details={} if visible.all() else {"visible": visible},
        )  # fmt: skip
        mixed = self.parts[a].value @ self.parts[v].value
        z = self.add(
            f"{at}.mixed", "mix", "weighted sum", mixed, [a, v], symbol="z", equation="z_i = Σ_j a_ij v_j",
            about="The values of all keys, each multiplied by its weight, and added up.",
            code=(Explicit.forward, "share_heads(v"),
        )  # fmt: skip
        self.as_seen(z)
        if output is None:
            return z
        value = self.seen[f"{at}.output"][0]
        return self.linear(
            f"{at}.output", "heads combined", value, [z], output, symbol="o", equation="o = [z^1 … z^H] W_O",
            about="The results of all heads side by side, mixed by one matrix.",
            code=(MultiHeadAttention.forward, "self.output("),
        )  # fmt: skip

    def feed_forward(self, at: str, layer: Any, y: str) -> str:
        about = "A small network that works on each token by itself: wide inside, with a threshold for each number."
        with self.group(at, "feed_forward", "Feed-forward", about, equation=layer.equation, code=code_line(layer)):
            inner, output = self.seen[f"{at}.inner"][0], self.seen[f"{at}.output"][0]
            form = layer.native_form()
            code = (type(layer).forward, "return ")
            if form is None:
                h = self.add(f"{at}.inner", "function", "inner", inner, [y], symbol="h", code=code)
            else:
                up = self.linear(
                    f"{at}.up", "up", self.through(form.inner, y), [y], form.inner, symbol="u",
                    equation="u = y W_1 + b_1", code=code,
                    about="Wider: each number looks for one pattern in the token's vector.",
                )  # fmt: skip
                phi = [form.activation, up]
                if form.gate is not None:
                    gate = self.linear(
                        f"{at}.gate", "gate", self.through(form.gate, y), [y], form.gate, symbol="g",
                        equation="g = y W_g", code=code,
                        about="Decides how much of each number passes.",
                    )  # fmt: skip
                    phi = [form.activation, gate]
                terms = [[phi]] if form.gate is None else [[phi, ["", up]]]
                equation = "h = φ(u)" if form.gate is None else "h = φ(g) · u"
                about = f"φ is {form.activation}: patterns that were not found become small or 0."
                h = self.products(f"{at}.inner", "activation", inner, terms, "h", equation, about, code)
            return self.linear(
                f"{at}.output", "down", output, [h], layer.outer, symbol="f", equation="f = h W_2 + b_2", code=code,
                about="Back to the width of the token's vector.",
            )  # fmt: skip


def _first_line(module: object) -> str:
    return (type(module).__doc__ or "").split("\n")[0]


def _score_code(score: Any) -> Code:
    if isinstance(score, nn.Module):
        return type(score).forward, "return "
    return (score, "return ") if hasattr(score, "__code__") else (Explicit.weights, "self.score(")

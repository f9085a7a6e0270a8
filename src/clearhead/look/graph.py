"""A model as one graph: every tensor between the text and the answer, what it is computed from, and how.

    graph = model_graph(look)
    graph.parts["decoder.1.cross.scores"].inputs        ("decoder.1.cross.query", "decoder.1.cross.key")
    graph.groups["decoder.1"].items                     what stands in the block, in the order of the computation

The graph is read off the parts of the model (their residual form, their norms, their score) and the probes of one
forward pass, so a translator, a language model, a Vision Transformer, a recurrent network and an imported model are all
described by the same code. A part that says nothing about itself is a `function` of its inputs.

The operation of a part (`Part.op`) says how each of its numbers is made, and its `details` are what that needs besides
the inputs, so that any number can be followed back:

    lookup  given                  a row of a table; a tensor that nothing is computed for
    add  norm  linear  activation  x + z;  γ (x - μ) / σ + β;  x W + b;  φ(x)
    rotate  score  softmax  mix    rotary positions;  c q · k + b;  exp s / Σ exp s;  Σ_j a_j v_j
    products                       Σ of products of numbers in the same place: gates, gated feed-forward
    shift  concat  prepend  pool   the row before;  side by side;  rows in front;  one row of many
    logits  probability            the likeliest choices of each row, and their shares

    H heads, T tokens, S keys, D width
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.look.calls import Call, Calls
from clearhead.look.probes import cell_states, layer_state, one_layer, stacks
from clearhead.look.record import LIKELIEST, LookRecord
from clearhead.look.views.steps import Code, source_line
from clearhead.models.rnn import AttentionDecoder, ContextDecoder
from clearhead.nn import (
    ClassToken,
    Decoder,
    DecoderBlock,
    Encoder,
    Explicit,
    ExtraTokens,
    FlattenOutput,
    InputPositions,
    MultiHeadAttention,
    ParallelBlock,
    PatchEmbedding,
    PooledVector,
    Recurrent,
    RelativePositions,
    Residual,
    SequenceOutput,
    State,
    TokenEmbedding,
    add_positions,
    concatenate_positions,
    first_token,
    last_token,
    mean_token,
    pick_one,
    softmax,
)
from clearhead.nn.attention import join_heads, split_heads
from clearhead.nn.embedding import cut_patches
from clearhead.nn.norm import NativeNorm, NoNorm
from clearhead.nn.positions import Rotary
from clearhead.nn.scores import dot_scale, score_equation

POOLED = {first_token: "first", mean_token: "mean", last_token: "last"}


@dataclass(frozen=True, eq=False)
class Part:
    """One tensor, and how it is computed from others."""

    id: str  # the probe's name where there is one
    op: str
    name: str
    value: Tensor  # (T, D), or (H, T, D)
    rows: str  # the axis of its rows: a name in `Graph.axes`
    inputs: tuple[str, ...] = ()
    columns: str = ""  # the axis of its columns; empty for the numbers of a vector
    symbol: str = ""
    equation: str = ""
    about: str = ""  # one plain sentence
    code: Code | None = None
    details: dict[str, Any] = field(default_factory=dict)  # numbers, strings and tensors that `op` needs
    weight: tuple[Tensor, ...] = ()  # each (out, in), one for each input of a linear map

    @property
    def heads(self) -> int | None:
        return self.value.size(0) if self.value.dim() == 3 else None


@dataclass(frozen=True)
class Group:
    """Parts and groups that belong together: a stack, a block, an attention layer."""

    id: str
    kind: str  # model, stack, input, block, attention, feed_forward, cell or output
    name: str
    about: str = ""
    equation: str = ""
    code: Code | None = None
    items: list[str] = field(default_factory=list)  # ids, in the order of the computation


@dataclass(frozen=True)
class Graph:
    """A whole model for one input; the group "" holds the rest."""

    axes: dict[str, list[str]]  # by name: a label for each row or column
    groups: dict[str, Group]
    parts: dict[str, Part]

    def of_group(self, group: str) -> list[Part]:
        """The parts inside a group, however deep."""
        found: list[Part] = []
        for item in self.groups[group].items:
            found += [self.parts[item]] if item in self.parts else self.of_group(item)
        return found


@torch.no_grad()
def model_graph(look: LookRecord) -> Graph:
    """The graph of the network that computed a look, with every tensor of the forward pass on its inputs."""
    return _Builder(look).build()


class _Builder:
    """Adds parts and groups in the order in which the model computes them."""

    def __init__(self, look: LookRecord):
        self.look, self.network = look, look.require_network()
        self.stacks = stacks(self.network)
        self.parts: dict[str, Part] = {}
        self.groups = {"": Group("", "model", look.model)}
        self.open: list[Group] = [self.groups[""]]
        self.axes = {stack: list(tokens) for stack, tokens in look.tokens.items()}
        for kind, record in look.attention.items():
            stack = kind.split(".")[0]
            self.axes.setdefault(stack, list(record.columns))
        self.calls = Calls(self.network, self.stacks)
        self.seen = self.calls.run(look)

    def build(self) -> Graph:
        ends: dict[str, str] = {}  # the last part of each stack
        for name, stack in self.stacks.items():
            title = {"encoder": "Encoder", "decoder": "Decoder"}.get(name, name)
            about = {
                "encoder": "Reads the whole input: every token can look at every other.",
                "decoder": "Writes one token at a time: each token sees only those before it.",
            }.get(name, "")
            with self.group(name, "stack", title, about):
                x = self.input(name)
                ends[name] = self.stack(name, stack, x, ends.get("encoder"))
        if ends:
            with self.group("output", "output", "Output", "From the last vectors to the answer."):
                self.output(list(ends)[-1], list(ends.values())[-1])
        return Graph(self.axes, self.groups, self.parts)

    # --- adding ---

    def group(self, id: str, kind: str, name: str, about: str = "", **more: Any) -> _Open:
        return _Open(self, Group(id, kind, name, about, **more))

    def add(self, id: str, op: str, name: str, value: Tensor, inputs: Sequence[str] = (), **more: Any) -> str:
        """Add a part to the open group -> its id; its rows are those of its first input unless given."""
        value = value.detach().float().cpu()
        rows = more.pop("rows", None) or (self.parts[inputs[0]].rows if inputs else self.open[1].id)
        self.parts[id] = Part(id, op, name, value, rows, tuple(inputs), **more)
        self.open[-1].items.append(id)
        return id

    def linear(self, id: str, name: str, value: Tensor, inputs: Sequence[str], *layers: nn.Module, **more: Any) -> str:
        """A part that a matrix computes; of another module only the inputs are known."""
        plain = [each for each in layers if type(each) is nn.Linear]
        if len(plain) < len(layers):
            return self.add(id, "function", name, value, inputs, **more)
        biases = [each.bias for each in plain if each.bias is not None]
        details = {**more.pop("details", {}), **({"bias": sum(biases)} if biases else {})}
        weight = tuple(each.weight.detach() for each in plain)
        return self.add(id, "linear", name, value, inputs, weight=weight, details=details, **more)

    def norm(self, id: str, module: nn.Module, x: str) -> str:
        """Add Norm(x), unless the module leaves x alone."""
        if isinstance(module, NoNorm):
            return x
        value = module.to(self.parts[x].value)(self.parts[x].value[None])[0]
        about = "Brings each token's vector to the same mean and size, so that no token is louder than another."
        more: dict[str, Any] = {"op": "function", "equation": "Norm(x)"}
        if isinstance(module, NativeNorm) and (form := module.native_form()).kind in ("layer", "rms"):
            equation = {"layer": "y = γ (x - μ) / σ + β", "rms": "y = γ x / √(mean of x²)"}[form.kind]
            found = {"gain": form.gain, "shift": form.shift}
            tensors = {name: each for name, each in found.items() if each is not None}
            more = {"op": "norm", "equation": equation, "details": {"norm": form.kind, "eps": form.eps, **tensors}}
        code = (type(module).forward, "return ")
        return self.add(id, more.pop("op"), "norm", value, [x], symbol="y", about=about, code=code, **more)

    # --- from the input to the first block ---

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

    def rename(self, old: str, new: str) -> str:
        items = self.open[-1].items
        self.parts[new] = Part(**{**vars(self.parts.pop(old)), "id": new})
        items[items.index(old)] = new
        return new

    # --- stacks ---

    def stack(self, name: str, stack: Any, x: str, memory: str | None) -> str:
        """The blocks or cells of a stack -> its last part."""
        if isinstance(stack, Encoder | Decoder):
            for number, block in enumerate(stack.blocks):
                about = "Attention moves information between the tokens, then a small network works on each token."
                with self.group(f"{name}.{number}", "block", f"Block {number}", about, code=_code(block)):
                    x = self.block(f"{name}.{number}", block, x, memory)
            return self.norm(f"{name}.norm", stack.norm, x)
        call = self.calls.stack[name]
        cells = stack if isinstance(stack, Recurrent) else stack.network
        first: State | None = call.kwargs.get("state") if isinstance(stack, Recurrent) else call.args[2]
        if isinstance(stack, AttentionDecoder) and memory is not None:
            with self.group(f"{name}.0.cross", "attention", "Attention", "The last state looks back at the input."):
                context = self.alignment(f"{name}.0.cross", stack, memory)
            x = self.concat(f"{name}.read", [x, context], "[y_t; c_t]", "The token read and its context side by side.")
        if isinstance(stack, ContextDecoder):
            summary = call.args[1].summary[0]  # (D,)
            given = self.add(
                f"{name}.context", "function", "context", summary.expand(len(self.axes[name]), -1),
                [memory] if memory else [], rows=name, symbol="c", equation="c",
                about="One vector for the whole input, the same at every step.",
            )  # fmt: skip
            x = self.concat(f"{name}.read", [x, given], "[y_t; c]", "The token read and the context side by side.")
        for layer in range(cells.network.num_layers):
            kind = cells.network.mode.split("_")[0]
            about = "Reads one token after the other; all it knows of the text is its state."
            with self.group(f"{name}.{layer}", "cell", f"{kind} layer {layer}", about, code=_code(cells)):
                x = self.cell(f"{name}.{layer}.cell", cells, layer, x, first)
        return x

    def concat(self, id: str, inputs: list[str], equation: str, about: str) -> str:
        tensors = (self.parts[each].value for each in inputs)
        value = torch.cat([each if each.dim() == 2 else join_heads(each[None])[0] for each in tensors], dim=-1)
        return self.add(id, "concat", "input", value, inputs, symbol="x", equation=equation, about=about)

    # --- a block ---

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
            return self.add(
                f"{at}.hidden", "add", "add", hidden, [x, a, f], symbol="x", equation="x + a + f", about=about,
                code=(ParallelBlock.forward, "return "),
            )  # fmt: skip
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
        return self.rename(x, f"{at}.hidden")

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

    # --- attention ---

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
        split = split_heads(linear(self.parts[x].value[None]), linear.out_features // layer.key_dim)
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
            normed = norm(plain)
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
        if output is None:
            return z
        value = self.seen[f"{at}.output"][0]
        return self.linear(
            f"{at}.output", "heads combined", value, [z], output, symbol="o", equation="o = [z^1 … z^H] W_O",
            about="The results of all heads side by side, mixed by one matrix.",
            code=(MultiHeadAttention.forward, "self.output("),
        )  # fmt: skip

    def alignment(self, at: str, decoder: AttentionDecoder, memory: str) -> str:
        """The attention of a recurrent decoder: one head, whose query is the state before each step."""
        record, stack = self.look.attention[at.replace(".0.", ".")], at.split(".")[0]
        q = self.add(
            f"{at}.query", "shift", "query", record.query[0], rows=stack, symbol="q", equation="q_t = s_{t-1}",
            about="The state before the step: what the decoder knows so far.",
            details={"of": f"{stack}.{decoder.network.network.num_layers - 1}.cell.hidden", "step": 1},
        )  # fmt: skip
        k, v = (
            self.add(
                f"{at}.{name}", "same", name, getattr(record, name)[0], [memory], symbol=name[0], equation="h_i",
                about="A state of the encoder, for each token of the input.",
            )
            for name in ("key", "value")
        )  # fmt: skip
        kernel = Explicit(decoder.score, decoder.normalize)
        return self.weigh(at, kernel, (q, k, v), (record.scores[0], record.weights[0]), record.visible, None, None)

    # --- feed-forward ---

    def feed_forward(self, at: str, layer: Any, y: str) -> str:
        about = "A small network that works on each token by itself: wide inside, with a threshold for each number."
        with self.group(at, "feed_forward", "Feed-forward", about, equation=layer.equation, code=_code(layer)):
            inner, output = self.seen[f"{at}.inner"][0], self.seen[f"{at}.output"][0]
            x, form = self.parts[y].value, layer.native_form()
            code = (type(layer).forward, "return ")
            if form is None:
                h = self.add(f"{at}.inner", "function", "inner", inner, [y], symbol="h", code=code)
            else:
                up = self.linear(
                    f"{at}.up", "up", form.inner(x), [y], form.inner, symbol="u", equation="u = y W_1 + b_1", code=code,
                    about="Wider: each number looks for one pattern in the token's vector.",
                )  # fmt: skip
                phi = [form.activation, up]
                if form.gate is not None:
                    gate = self.linear(
                        f"{at}.gate", "gate", form.gate(x), [y], form.gate, symbol="g", equation="g = y W_g", code=code,
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

    # --- recurrent layers ---

    def cell(self, at: str, cells: Recurrent, layer: int, x: str, first: State | None) -> str:
        """The gates and states of one layer; in both directions if it reads both ways."""
        alone = one_layer(cells, layer)
        before = None if first is None else layer_state(cells, first, layer)
        value = self.parts[x].value[None]
        states, _ = alone(value, state=before)
        memory = cell_states(alone, value, None, before) if alone.has_cell_state else None
        size, ways = alone.network.hidden_size, 2 if alone.network.bidirectional else 1
        made = []
        for way in range(ways):
            here = slice(way * size, (way + 1) * size)
            end = at if ways == 1 else f"{at}.{('forward', 'backward')[way]}"
            h = states[0, :, here]
            c = None if memory is None else memory[0, :, here]
            starts = [torch.zeros(size)] * 2
            if before is not None:
                starts = [part[way, 0] for part in (before.hidden, before.cell) if part is not None]
            made.append(self.direction(end, alone, way, x, h, c, starts))
        if ways == 1:
            return made[0]
        return self.add(
            f"{at}.hidden", "concat", "states", states[0], made, symbol="h", equation="h_t = [→h_t; ←h_t]",
            about="What was read before the token and after it, side by side.",
        )  # fmt: skip

    def direction(
        self, at: str, alone: Recurrent, way: int, x: str, h: Tensor, c: Tensor | None, starts: Sequence[Tensor]
    ) -> str:
        network, mode = alone.network, alone.network.mode
        suffix = "_reverse" if way else ""
        w_ih, w_hh = (getattr(network, f"weight_{name}_l0{suffix}") for name in ("ih", "hh"))
        b_ih, b_hh = (getattr(network, f"bias_{name}_l0{suffix}") for name in ("ih", "hh"))
        step = -1 if way else 1
        earlier = self.shifted(f"{at}.before", "state before", f"{at}.hidden", h, starts[0], step)
        inputs, size = self.parts[x].value, h.size(-1)
        last = self.parts[earlier].value

        def gate(name: str, number: int, symbol: str, squash: str, about: str) -> str:
            rows = slice(number * size, (number + 1) * size)
            bias = b_ih[rows] + b_hh[rows]
            value = getattr(torch, squash)(inputs @ w_ih[rows].T + last @ w_hh[rows].T + bias)
            return self.add(
                f"{at}.{name}", "linear", name, value, [x, earlier], symbol=symbol, about=about,
                equation=f"{symbol}_t = {'σ' if squash == 'sigmoid' else 'tanh'}(x_t W + h_{{t-1}} U + b)",
                weight=(w_ih[rows].detach(), w_hh[rows].detach()), details={"bias": bias, "activation": squash},
                code=(Recurrent.forward, "self.network("),
            )  # fmt: skip

        if mode == "LSTM" and c is not None:
            kept = self.shifted(f"{at}.memory.before", "memory before", f"{at}.memory", c, starts[1], step)
            new = gate("input", 0, "i", "sigmoid", "How much of what is new is written.")
            keep = gate("forget", 1, "f", "sigmoid", "How much of the old memory is kept.")
            content = gate("content", 2, "g", "tanh", "What is new.")
            expose = gate("output", 3, "o", "sigmoid", "How much of the memory is shown.")
            memory = self.products(
                f"{at}.memory",
                "memory",
                c,
                [[["", keep], ["", kept]], [["", new], ["", content]]],
                "c",
                "c_t = f_t c_{t-1} + i_t g_t",
                "What is kept, plus what is new.",
            )
            return self.products(
                f"{at}.hidden",
                "state",
                h,
                [[["", expose], ["tanh", memory]]],
                "h",
                "h_t = o_t tanh(c_t)",
                "What the cell shows of its memory.",
            )
        if mode == "GRU":
            rows = [slice(number * size, (number + 1) * size) for number in range(3)]
            r = gate("reset", 0, "r", "sigmoid", "How much of the old state the new content may use.")
            z = gate("update", 1, "z", "sigmoid", "How much of the old state stays.")
            inside = last @ w_hh[rows[2]].T + b_hh[rows[2]]
            value = torch.tanh(inputs @ w_ih[rows[2]].T + b_ih[rows[2]] + self.parts[r].value * inside)
            n = self.add(
                f"{at}.content", "function", "content", value, [x, earlier, r], symbol="n",
                equation="n_t = tanh(x_t W + b + r_t (h_{t-1} U + c))", about="What is new.",
            )  # fmt: skip
            return self.products(
                f"{at}.hidden",
                "state",
                h,
                [[["1 -", z], ["", n]], [["", z], ["", earlier]]],
                "h",
                "h_t = (1 - z_t) n_t + z_t h_{t-1}",
                "Partly new, partly the state before.",
            )
        return self.rename(gate("hidden.gate", 0, "h", "tanh", "The state after each token."), f"{at}.hidden")

    def shifted(self, id: str, name: str, of: str, states: Tensor, first: Tensor, step: int) -> str:
        """The state before each token, which a later part holds."""
        first = first.to(states)[None]
        value = torch.cat((first, states[:-1]) if step > 0 else (states[1:], first))
        about = "The state after the token before; nothing has been read before the first."
        return self.add(
            id, "shift", name, value, rows=self.open[1].id, symbol="h", equation="h_{t-1}" if step > 0 else "h_{t+1}",
            about=about, details={"of": of, "step": step},
        )  # fmt: skip

    def products(
        self,
        id: str,
        name: str,
        value: Tensor,
        terms: list[list[list[str]]],  # added up; the factors of each are [function, part]
        symbol: str,
        equation: str,
        about: str,
        code: Code = (Recurrent.forward, "self.network("),
    ) -> str:
        inputs = [each[1] for term in terms for each in term]
        more: dict[str, Any] = {"symbol": symbol, "equation": equation, "about": about, "code": code}
        return self.add(id, "products", name, value, inputs, details={"terms": terms}, **more)

    # --- the answer ---

    def output(self, stack: str, x: str) -> None:
        call = self.calls.output
        if call is None or self.look.logits is None:
            return
        module, read = call.module, call.inputs[0][0]  # (T, D)
        code = (type(module).forward, "return ")
        if len(read) < len(self.parts[x].value):  # a captioner predicts from its words alone
            rows = self.some_rows_at_end(stack, len(read))
            x = self.add(
                "output.words", "tail", "words", read, [x], rows=rows, symbol="x", equation="x",
                about="The vectors of the words, without those of the image.",
            )  # fmt: skip
        if isinstance(module, PooledVector | SequenceOutput):
            self.axes["answer"] = ["answer"]
            how = POOLED.get(module.pool, "")
            real = call.inputs[1] if len(call.inputs) > 1 else None
            pooled = module.pool(read[None], real)
            about = {
                "first": "The vector of the class token stands for the whole input.",
                "mean": "The average of the vectors of all tokens.",
                "last": "The vector of the last token stands for the whole input.",
            }.get(how, "One vector for the whole input.")
            x = self.add(
                "output.pooled", "pool" if how else "function", "pooled", pooled, [x], rows="answer", symbol="c",
                equation={"first": "c = x_0", "mean": "c = (1 / T) Σ_t x_t", "last": "c = x_T"}.get(how, "c = pool(x)"),
                about=about, code=(module.pool, "return "), details={"pool": how},
            )  # fmt: skip
        if isinstance(module, PooledVector):
            self.add(
                "logits", "function", "vector", self.look.logits[None], [x], symbol="c", equation="c / |c|",
                about="The vector that the model answers with.", code=code,
            )  # fmt: skip
            return
        transform = getattr(module, "transform", nn.Identity())
        if not isinstance(transform, nn.Identity):
            value = transform(self.parts[x].value[None])[0]
            x = self.add(
                "output.transform", "function", "transform", value, [x], symbol="x", equation="Norm(φ(x W + b))",
                about="One more layer before the output.", code=(type(transform).forward, "return "),
            )  # fmt: skip
        self.likeliest(module, x, code)

    def likeliest(self, module: Any, x: str, code: Code) -> None:
        """The logits and probabilities of the likeliest choices of each row."""
        assert self.look.logits is not None
        logits = self.look.logits.reshape(-1, self.look.logits.size(-1)).float()  # (T, V)
        best = logits.topk(min(LIKELIEST, logits.size(-1)))
        ids, names = best.indices.tolist(), self.look.choices
        words = [[names[each] if names else str(each) for each in row] for row in ids]
        linear: Any = module.linear
        plain = type(linear) is nn.Linear and isinstance(getattr(module, "cap", nn.Identity()), nn.Identity)
        exact = plain and not isinstance(module, FlattenOutput)
        chosen: dict[str, Any] = {"ids": ids, "names": words}
        if exact and linear.bias is not None:
            chosen["bias"] = linear.bias[best.indices]  # (T, K)
        rows = self.parts[x].rows if len(logits) == len(self.parts[x].value) else "answer"
        self.axes.setdefault("answer", ["answer"])
        weight = (linear.weight.detach(),) if exact else ()
        many = f"{logits.size(-1):,}"
        z = self.add(
            "logits", "logits" if exact else "function", "logits", best.values, [x], rows=rows, symbol="l",
            equation="l = x W_out" + (" + b" if "bias" in chosen else ""), code=code, details=chosen, weight=weight,
            about=f"One number for each of the {many} possible answers; the ten highest of each row are shown.",
        )  # fmt: skip
        total = logits.logsumexp(-1)  # (T,)
        self.add(
            "probabilities", "probability", "probability", (best.values - total.unsqueeze(-1)).exp(), [z], symbol="p",
            equation="p_w = exp(l_w) / Σ_u exp(l_u)", details={"names": words, "total": total},
            about="The logits as shares that sum to 1 over all possible answers.", code=(softmax, "scores.softmax"),
        )  # fmt: skip

    def some_rows_at_end(self, stack: str, count: int) -> str:
        self.axes["words"] = self.axes[stack][-count:]
        return "words"


class _Open:
    """`with builder.group(…):` what is added belongs to the group."""

    def __init__(self, builder: _Builder, group: Group):
        self.builder, self.group = builder, group

    def __enter__(self) -> None:
        self.builder.open[-1].items.append(self.group.id)
        self.builder.groups[self.group.id] = self.group
        self.builder.open.append(self.group)

    def __exit__(self, *_: object) -> None:
        self.builder.open.pop()


# --- the code of a part ---


def _code(module: nn.Module) -> Code:
    """The line of a block or layer that says what it does."""
    line = {Recurrent: "self.network(", ParallelBlock: "attended ="}.get(type(module), "return ")
    return type(module).forward, "self.self_attention(" if line == "return " and hasattr(module, "residual1") else line


def _first_line(module: object) -> str:
    return (type(module).__doc__ or "").split("\n")[0]


def _score_code(score: Any) -> Code:
    if isinstance(score, nn.Module):
        return type(score).forward, "return "
    return (score, "return ") if hasattr(score, "__code__") else (Explicit.weights, "self.score(")


def code_of(code: Code | None) -> tuple[str, int, str]:
    """File, line and text of the code of a part; empty where there is none to show."""
    if code is None:
        return "", 0, ""
    import linecache

    from clearhead.look.views.steps import PACKAGE

    try:
        file, line = source_line(*code)
    except (OSError, StopIteration, TypeError):  # written in C, or typed into a notebook
        return "", 0, ""
    return file, line, linecache.getline(str(PACKAGE / file), line).strip()

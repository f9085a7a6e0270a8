"""One query's attention as the lectures teach it: a recorded sequence of steps, each with its numbers.

    score -> scale -> mask -> softmax -> weight -> sum -> heads combined -> add & norm -> feed-forward -> add & norm

The first six steps belong to one head, the others to the whole block. Scores other than the scaled dot product have no
scale, positions inside the heads add a step, and in a decoder block cross-attention may stand in between. Each step
names the file and line of the package that computes it.

    H heads, S keys, D key size, V value size
"""

from __future__ import annotations

import inspect
import linecache
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from clearhead.look.probes import stacks
from clearhead.look.record import KINDS, AttentionRecord, LookRecord, rounded
from clearhead.look.render.figure import GREY, NARROW, SLIDE, Figure, font_size, max_height, new_figure
from clearhead.look.render.labels import label_edges, token_label
from clearhead.look.render.matrix import Scale, draw_matrix, write_numbers
from clearhead.look.view import VIEWS, LookView, ViewOptions
from clearhead.models.rnn import AttentionDecoder
from clearhead.nn import (
    Decoder,
    DecoderBlock,
    Encoder,
    EncoderBlock,
    Explicit,
    MultiHeadAttention,
    ParallelBlock,
    Residual,
    additive_mask,
    attention,
    dot,
    pick_one,
    scaled_dot,
    softmax,
)
from clearhead.nn.attention import Normalize, join_heads
from clearhead.nn.scores import Score, score_equation

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MplFigure
    from matplotlib.gridspec import GridSpec
    from rich.console import Console

FORMAT = "clearhead-steps-1"
PACKAGE = Path(__file__).parents[2]
EQUATION_SIZE = 0.75  # of the font size of a step's name
MATRIX_HEIGHT = 2.2  # of the height of a vector

Code = tuple[Callable[..., Any], str]  # a function, and a part of the line in it that computes the step


@dataclass(frozen=True)
class Step:
    """One step: its name in the lectures, its equation, its value, and the line of code that computes it."""

    name: str
    equation: str
    value: Tensor
    labels: list[str] | None  # a token for each row of the value
    file: str  # relative to the package; absolute if it lies outside
    line: int

    @property
    def source(self) -> str:
        return linecache.getline(str(PACKAGE / self.file), self.line).strip()

    def to_json(self) -> dict[str, Any]:
        """Nested lists; a masked score, which is -∞, is null."""
        if self.value.isfinite().all():
            value = rounded(self.value)
        else:
            value = [number if math.isfinite(number) else None for number in self.value.tolist()]
        return {
            "name": self.name,
            "equation": self.equation,
            "value": value,
            "shape": list(self.value.shape),
            "labels": self.labels,
            "file": self.file,
            "line": self.line,
            "source": self.source,
        }


@dataclass(frozen=True, eq=False)
class Vectors:
    """The queries, keys and values of one head, and what every query made of them."""

    query: Tensor  # (T, D)
    key: Tensor  # (S, D)
    value: Tensor  # (S, V)
    scores: Tensor  # (T, S): scaled, with the position bias, before the mask
    weights: Tensor  # (T, S)
    visible: Tensor  # (T, S)

    @classmethod
    def of(cls, seen: AttentionRecord, layer: int, head: int) -> Vectors:
        q, k, v = seen.query[layer][head], seen.key[layer][head], seen.value[layer][head]
        return cls(q, k, v, seen.scores[layer][head], seen.weights[layer][head], seen.visible)

    def to_json(self, steps: Sequence[Step]) -> dict[str, Any]:
        """`vectors` of all queries and keys, and `matrices`: what each step is for all queries at once."""
        products, names = self.query @ self.key.T, {step.name for step in steps}  # (T, S)
        last = next(name for name in ("your change", "position", "scale", "score") if name in names)
        masked = self.scores.masked_fill(~self.visible, -math.inf)
        matrices = {
            "softmax": self.weights,
            "pick one": self.weights,
            "sum": self.weights @ self.value,
            last: self.scores,
        }
        if "scale" in names:
            scaled = products / math.sqrt(self.query.size(-1))
            matrices = {"score": products, "scale": scaled, **matrices}
        found = {name: rounded(each) for name, each in matrices.items() if name in names}
        if "mask" in names:
            found["mask"] = [[None if math.isinf(each) else each for each in row] for row in rounded(masked)]
        vectors = {"q": rounded(self.query), "k": rounded(self.key), "v": rounded(self.value)}
        return {"vectors": vectors, "matrices": found}


@VIEWS.register("steps")
@dataclass(frozen=True)
class Steps(LookView):
    """One query, from its score to the output of the block."""

    page = "steps"

    kind: str
    layer: int
    head: int
    query: int
    steps: list[Step]
    rows: list[str] = field(default_factory=list)  # the tokens of the queries
    columns: list[str] = field(default_factory=list)  # the tokens of the keys
    title: str = ""
    vectors: Vectors | None = None
    about: str = ""  # what an example shows

    @classmethod
    def of(cls, look: LookRecord, options: ViewOptions) -> Steps:
        """By default the last layer, the first head and the token in the middle."""
        seen = look.pick(options.kind, options.layer, options.head)
        query = options.query_index(seen.rows)
        layer = seen.layers - 1 if options.layer is None else options.layer
        return steps(look, layer, options.head or 0, len(seen.rows) // 2 if query is None else query, options.kind)

    def __getitem__(self, name: str) -> Tensor:
        """The value of the last step of this name."""
        return {step.name: step.value for step in self.steps}[name]

    def to_json(self) -> dict[str, Any]:
        found = {
            "format": FORMAT,
            "kind": self.kind,
            "layer": self.layer,
            "head": self.head,
            "query": self.query,
            "rows": self.rows,
            "columns": self.columns,
            "steps": [step.to_json() for step in self.steps],
            **({"about": self.about} if self.about else {}),
        }
        return found if self.vectors is None else {**found, **self.vectors.to_json(self.steps)}

    def show(self, console: Console) -> None:
        console.print(f"{self.kind}, layer {self.layer}, head {self.head}, query {self.rows[self.query]}\n")
        for number, step in enumerate(self.steps, start=1):
            few = ", ".join(f"{entry:.2f}" for entry in step.value.flatten()[:5].tolist())
            shape = " × ".join(map(str, step.value.shape))
            numbers = f"({few}{', …' if step.value.numel() > 5 else ''})  {shape}"
            console.print(f"{number:>2} {step.name:<15} {step.equation}", soft_wrap=True)
            console.print(f"   {numbers:<48} {step.file}:{step.line}", style="dim", soft_wrap=True)

    def figure(self, width: float = SLIDE) -> Figure:
        """A row for each step: name and equation at the left, above the numbers in a narrow column."""
        heights = [MATRIX_HEIGHT if step.value.dim() == 2 else 1.0 for step in self.steps]
        beside = width > NARROW
        line = font_size(width) / 72
        height = min(max_height(width, 2.2), ((2.9 if beside else 4.2) * sum(heights) + 7) * line)
        size = min(0.8 * font_size(width), 0.4 * 72 * (height - 6 * line) / sum(heights))
        longest = max(len(step.equation) for step in self.steps) * 0.55 * EQUATION_SIZE * size / 72  # inches
        widths = (longest, width - longest) if beside else (1.0,)
        token = token_label(self.rows[self.query]) if self.rows else str(self.query)
        which = f"{KINDS.get(self.kind, self.kind)}, layer {self.layer}, head {self.head}"
        with new_figure(width, height) as fig:
            fig.suptitle(f"{which}: the query of “{token}”", x=0.01, ha="left")
            grid = fig.add_gridspec(len(heights), len(widths), height_ratios=heights, width_ratios=widths)
            for number, step in enumerate(self.steps):
                _draw_step(fig, grid, number, step, size)
        return Figure(fig)


def _draw_step(fig: MplFigure, grid: GridSpec, number: int, step: Step, size: float) -> None:
    axes = fig.add_subplot(grid[number, -1])
    values = step.value if step.value.dim() == 2 else step.value.unsqueeze(0)  # (S, V), or (1, S)
    shown = values.T if step.value.dim() == 2 else values  # keys stay columns
    scale = Scale.of(shown)
    draw_matrix(axes, shown, scale)
    if number == 0 and step.labels:
        label_edges(axes, (), step.labels)
    if step.value.dim() == 1:
        write_numbers(axes, shown, scale)
    if grid.ncols > 1:
        left = fig.add_subplot(grid[number, 0])
        left.set_axis_off()
        left.text(0, 0.55, f"{number + 1} {step.name}", va="bottom", fontsize=size, in_layout=False)
        left.text(0, 0.45, step.equation, va="top", fontsize=EQUATION_SIZE * size, color=GREY, in_layout=False)
    else:
        axes.set_title(f"{number + 1} {step.name}   {step.equation}", fontsize=size, loc="left", pad=2)


# --- the steps ---


@torch.no_grad()
def steps(look: LookRecord, layer: int, head: int, query: int, kind: str | None = None, changed: bool = False) -> Steps:
    """The steps of one query of a look; if its network is not known, they end with the sum of one head.

    With `changed` the network has interventions open: what they add to the scores is a step of its own.
    """
    kind = look.kind(kind)
    seen = look.pick(kind, layer, head, query)
    stack = None if look.network is None else stacks(look.network).get(kind.split(".")[0])
    inputs = _HeadInputs.of(seen, layer, head, query)
    match stack:
        case Encoder() | Decoder():
            block: Any = stack.blocks[layer]
            own = block.cross_attention if kind == "decoder.cross" else block.self_attention
            inputs = inputs.through(own, query)
            if changed:
                inputs = inputs.as_seen(seen.scores[layer][head, query], seen.weights[layer][head, query])
            found = [*_head_steps(inputs), *_block_steps(look, block, kind, layer, query)]
        case AttentionDecoder():
            aligned = replace(inputs, score=stack.score, normalize=stack.normalize)
            code = (AttentionDecoder.align, "self.network(")
            state = _step("state", "s_t = g(y_t, s_{t-1}, z)", look.hidden["decoder"][-1][query], code)
            found = [*_head_steps(aligned), state]
        case _:
            found = _head_steps(inputs.with_known(seen.scores[layer][head, query], seen.weights[layer][head, query]))
    title, vectors = f"{look.model}: {look.text}", Vectors.of(seen, layer, head)
    return Steps(kind, layer, head, query, found, seen.rows, seen.columns, title, vectors)


def attention_steps(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None, score: Score = scaled_dot
) -> list[Step]:
    """query (D,), keys (S, D), values (S, V), mask (S,) -> the steps; the value of the last is the output (V,)."""
    return _head_steps(_HeadInputs(query[None, None], keys[None], values, 0, mask, score))


# --- the examples of the lectures ---


@dataclass(frozen=True)
class Example:
    """Attention by hand: the numbers that a lecture gives, or vectors chosen so that they give its numbers."""

    name: str
    about: str
    queries: dict[str, list[float]]
    keys: dict[str, list[float]]
    values: list[list[float]]
    query: int = 0

    def steps(self) -> Steps:
        q, k, v = (torch.tensor(each) for each in (list(self.queries.values()), list(self.keys.values()), self.values))
        weights = softmax(scaled_dot(q, k))
        seen = torch.ones_like(weights, dtype=torch.bool)
        found = [replace(step, labels=step.labels and list(self.keys)) for step in self._computed(q, k, v)]
        vectors = Vectors(q, k, v, scaled_dot(q, k), weights, seen)
        return Steps(
            "example", 0, 0, self.query, found, list(self.queries), list(self.keys), self.name, vectors, self.about
        )

    def _computed(self, q: Tensor, k: Tensor, v: Tensor) -> list[Step]:
        inputs = _HeadInputs(q[None, self.query : self.query + 1], k[None], v, 0, labels=list(self.keys))
        return _head_steps(inputs)


def examples() -> list[Example]:
    """The lectures' own examples of attention, to open and to step through."""
    water, money = [2.0, 0.0], [0.0, 2.0]
    bank = [1.0, 1.0]
    thinking = [2.0] * 16 + [1.0] * 16 + [0.0] * 16 + [-1.0] * 16
    return [
        Example(
            "Thinking machines: 112 and 96",
            "d_k = 64, so scores are divided by 8: 112 and 96 become 14 and 12, and their softmax 0.88 and 0.12.",
            {"Thinking": thinking},
            {
                "Thinking": [2.0] * 32 + [0.0] * 16 + [-1.0] * 16,
                "Machines": [2.0] * 16 + [1.0] * 16 + [3.0] * 16 + [-1.0] * 16,
            },
            [[1.0, 0.0, 2.0, -1.0], [0.0, 1.0, -1.0, 3.0]],
        ),
        Example(
            "Step by step: 102 and 99",
            "D_K = 3: divided by √3, 102 and 99 become 58.9 and 57.2, and their softmax 0.85 and 0.15.",
            {"word 1": [3.0, 5.0, 7.0]},
            {"word 1": [9.0, 8.0, 5.0], "word 2": [8.0, 8.0, 5.0]},
            [[1.0, 2.0, 0.0], [0.0, -1.0, 4.0]],
        ),
        Example(
            "Which food is mexican?",
            "The query asks for mexican food; burrito and taco have keys like it, so the average of price, calories "
            "and salt is mostly theirs.",
            {"mexican": [2.0, 0.0]},
            {"burrito": [1.5, 0.2], "taco": [1.2, -0.3], "sushi": [-1.0, 0.4], "apple": [-2.0, 0.1]},
            [[9.0, 700.0, 1.9], [4.0, 210.0, 0.7], [14.0, 350.0, 1.1], [1.0, 95.0, 0.0]],
        ),
        Example(
            "A bank by the river",
            "“bank” alone is half water, half money. Beside “river” it takes more from river: water wins.",
            {"river": water, "bank": bank},
            {"river": water, "bank": bank},
            [water, bank],
            query=1,
        ),
        Example(
            "A bank account",
            "The same “bank”, the same numbers; beside “account” money wins. This is what context does.",
            {"bank": bank, "account": money},
            {"bank": bank, "account": money},
            [bank, money],
        ),
    ]


# --- one head ---


@dataclass(frozen=True)
class _HeadInputs:
    """One query of one head, and the parts of its attention."""

    query: Tensor  # (H, 1, D), of all heads: a score may have parameters for each
    keys: Tensor  # (H, S, D)
    values: Tensor  # (S, V), of this head
    head: int
    mask: Tensor | None = None  # (S,), None if nothing is hidden from any query
    score: Score = scaled_dot
    normalize: Normalize = softmax
    bias: Tensor | None = None  # (S,) added for the distance between query and key
    change: Tensor | None = None  # (S,) added by an intervention
    scores: Tensor | None = None  # (S,) if only they are known, and not the function that computes them
    weights: Tensor | None = None  # (S,) likewise
    labels: list[str] | None = None
    add_bias: Code = (attention, "scores + bias")
    weigh_values: Code = (attention, "weights @ v")

    @classmethod
    def of(cls, seen: AttentionRecord, layer: int, head: int, query: int) -> _HeadInputs:
        mask = None if seen.visible.all() else seen.visible[query]
        q, k, v = seen.query[layer][:, query : query + 1], seen.key[layer], seen.value[layer][head]
        return cls(q, k, v, head, mask, labels=seen.columns)

    def through(self, layer: MultiHeadAttention, query: int) -> _HeadInputs:
        """With the score, bias and softmax of a layer, whose explicit path is the equation."""
        equation, bias, mask = layer.kernel.explicit(), None, self.mask
        places = torch.arange(self.keys.size(-2), device=self.keys.device)
        if layer.window is not None:  # it sees less far than other layers
            near = (places - query).abs() < layer.window
            mask = near if mask is None else mask & near
        if layer.relative.bias is not None:
            bias = layer.relative.bias(places[query : query + 1], places)[self.head, 0]  # (S,)
        return replace(
            self,
            score=equation.score,
            normalize=equation.normalize,
            bias=bias,
            mask=mask,
            add_bias=(Explicit.weights, "scores + added"),
            weigh_values=(Explicit.forward, "share_heads(v"),
        )

    def as_seen(self, scores: Tensor, weights: Tensor) -> _HeadInputs:
        """With what an intervention added to the recorded scores (S,), and what it hid: weights (S,) that are 0."""
        made = self.score(self.query, self.keys)[self.head, 0] + (0 if self.bias is None else self.bias)
        hidden = (weights == 0) & scores.isfinite()
        mask = ~hidden if self.mask is None else self.mask & ~hidden
        return replace(
            self,
            change=None if torch.allclose(made, scores, rtol=1e-3, atol=1e-3) else scores - made,
            mask=None if mask.all() else mask,
        )

    def with_known(self, scores: Tensor, weights: Tensor) -> _HeadInputs:
        """With recorded scores (S,) and weights (S,), unless a scaled dot product gives these scores."""
        fits = torch.allclose(scaled_dot(self.query, self.keys)[self.head, 0], scores, rtol=1e-4, atol=1e-5)
        return replace(self, scores=None if fits else scores, weights=weights)


def _head_steps(inputs: _HeadInputs) -> list[Step]:
    found = _score_steps(inputs)
    if inputs.bias is not None:
        equation = "s_j + b_j,  b_j from the distance between query and key"
        found.append(_step("position", equation, found[-1].value + inputs.bias, inputs.add_bias))
    if inputs.change is not None:
        equation = "s_j + c_j,  c_j is what you changed"
        found.append(_step("your change", equation, found[-1].value + inputs.change, inputs.add_bias))
    scores, mask = found[-1].value, inputs.mask
    if mask is not None:
        equation = "s_j + L_j,  L_j = 0 where key j may be seen, -∞ where not"
        found.append(_step("mask", equation, scores + additive_mask(mask, scores.dtype), (softmax, "masked_fill")))
    weights = inputs.normalize(scores, mask) if inputs.weights is None else inputs.weights  # (S,)
    weighted = weights.unsqueeze(-1) * inputs.values  # (S, V)
    found += [_weigh_step(inputs, weights), _step("weight", "a_j v_j", weighted, inputs.weigh_values)]
    of_keys = [replace(step, labels=inputs.labels) for step in found]
    return [*of_keys, _step("sum", "z = Σ_j a_j v_j", weighted.sum(0), inputs.weigh_values)]


def _score_steps(inputs: _HeadInputs) -> list[Step]:
    """Two steps for the scaled dot product, one for every other score."""
    q, k, score = inputs.query, inputs.keys, inputs.score
    if inputs.scores is not None:
        return [_step("score", "s_j = score(q, k_j)", inputs.scores, (Explicit.weights, "self.score("))]
    if score is not scaled_dot:
        equation = score_equation(score) or "s_j = score(q, k_j)"
        return [_step("score", equation, score(q, k)[inputs.head, 0], _score_code(score))]
    products = dot(q, k)[inputs.head, 0]  # (S,)
    scale = f"s_j = q · k_j / √d_k,  d_k = {q.size(-1)}"
    return [
        _step("score", "q · k_j", products, (dot, "return ")),
        _step("scale", scale, products / math.sqrt(q.size(-1)), (scaled_dot, "return ")),
    ]


def _score_code(score: Score) -> Code:
    """The line that computes the score; of a function from outside the package, its first line."""
    if isinstance(score, nn.Module):
        return type(score).forward, "return "
    if not inspect.isfunction(score):
        return Explicit.weights, "self.score("
    return score, "return " if score_equation(score) else ""


def _weigh_step(inputs: _HeadInputs, weights: Tensor) -> Step:
    if inputs.normalize is pick_one:
        equation = "a_j = 1 for the key with the best score, 0 for the others"
        return _step("pick one", equation, weights, (pick_one, "hard = "))
    line = "scores.softmax" if inputs.mask is None else "masked_fill"
    return _step("softmax", "a_j = exp(s_j) / Σ_t exp(s_t)", weights, (softmax, line))


# --- the block around it ---


@dataclass(frozen=True)
class _Sublayer:
    """A sublayer of a block, and the residual connection around it."""

    name: str
    equation: str
    compute: Callable[[Tensor], Tensor]
    residual: Residual
    code: Code


def _block_steps(look: LookRecord, block: EncoderBlock | DecoderBlock, kind: str, layer: int, query: int) -> list[Step]:
    """From the heads of one kind of attention to the output of the block."""
    x = look.hidden[kind.split(".")[0]][layer][query]  # the input of the block at this token
    before = 1 if kind == "decoder.cross" else 0
    (own, output, x), *later = list(_run(_sublayers(look, block, kind, layer, query), x))[before:]
    combined = _step("heads combined", own.equation, output, (MultiHeadAttention.forward, "self.output("))
    found = [combined, _add_norm_step(own.residual, x)]
    for sublayer, output, x in later:
        found += [_step(sublayer.name, sublayer.equation, output, sublayer.code), _add_norm_step(sublayer.residual, x)]
    return found


def _run(sublayers: list[_Sublayer], x: Tensor) -> Iterator[tuple[_Sublayer, Tensor, Tensor]]:
    """Each sublayer, its output (D,), and the vector of the token after it, x (D,)."""
    for sublayer in sublayers:
        outputs: list[Tensor] = []

        def compute(y: Tensor, sublayer: _Sublayer = sublayer, outputs: list[Tensor] = outputs) -> Tensor:
            outputs.append(sublayer.compute(y))
            return outputs[0]

        x = sublayer.residual(x.view(1, 1, -1), compute).flatten()
        yield sublayer, outputs[0].flatten(), x


def _sublayers(look: LookRecord, block: Any, kind: str, layer: int, query: int) -> list[_Sublayer]:
    """In order: self-attention, cross-attention in a decoder block, feed-forward."""

    def attention_sublayer(kind: str, own: MultiHeadAttention, residual: Residual) -> _Sublayer:
        seen = look.attention[kind]
        mixed = seen.weights[layer][:, query : query + 1] @ seen.value[layer]  # (H, 1, V)
        output = own.output(join_heads(mixed[None]))  # (1, 1, D)
        code = DecoderBlock.forward, "self.cross_attention("
        return _Sublayer("cross-attention", "z = [z_1 … z_H] W_O", lambda _: output, residual, code)

    own = attention_sublayer(f"{kind.split('.')[0]}.self", block.self_attention, block.residual1)
    if isinstance(block, ParallelBlock):  # the feed-forward network reads what attention reads
        x = look.hidden[kind.split(".")[0]][layer][query]
        output = block.feed_forward(block.residual2.norm(x))
        feed_forward = _feed_forward(block.feed_forward, block.residual2)
        return [own, replace(feed_forward, compute=lambda _: output)]
    if isinstance(block, EncoderBlock):
        return [own, _feed_forward(block.feed_forward, block.residual2)]
    cross = attention_sublayer("decoder.cross", block.cross_attention, block.residual2)
    return [own, cross, _feed_forward(block.feed_forward, block.residual3)]


def _feed_forward(network: nn.Module, residual: Residual) -> _Sublayer:
    equation = f"z = {getattr(network, 'equation', 'FFN(y)')},  y = {residual.reads}"
    return _Sublayer("feed-forward", equation, network, residual, (type(network).forward, "return "))


def _add_norm_step(residual: Residual, x: Tensor) -> Step:
    return _step("add & norm", f"x ← {residual.equation}", x, (type(residual).forward, "return "))


# --- the line of code of an equation ---


def _step(name: str, equation: str, value: Tensor, code: Code) -> Step:
    return Step(name, equation, value, None, *source_line(*code))


@cache
def source_line(function: Callable[..., Any], text: str) -> tuple[str, int]:
    """The file of a function, relative to the package, and the number of its first line that contains a text."""
    lines, first = inspect.getsourcelines(function)
    file = Path(inspect.getsourcefile(function) or "")
    number = next(number for number, line in enumerate(lines) if text in line)
    inside = file.is_relative_to(PACKAGE)
    return (file.relative_to(PACKAGE) if inside else file).as_posix(), first + number

"""The parts of recurrent layers: gates and states, and the attention of a recurrent decoder."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from clearhead.look.graph.blocks import BlockParts
from clearhead.look.probes import cell_states, layer_state, one_layer
from clearhead.models.rnn import AttentionDecoder
from clearhead.nn import (
    Explicit,
    Recurrent,
    State,
)


class CellParts(BlockParts):
    """A recurrent layer."""

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

// What each token came from, as a maximum flow through all layers.
//
// data: Flow, format "clearhead-flow-1". chosen: {token: {side: "query"|"key", index}}.

import { partLabel } from "./controls.js";
import { h, roomIn } from "./dom.js";
import { frame, handle, title, widget } from "./frame.js";
import { t } from "./i18n.js";
import { amountLegend } from "./legend.js";
import { lines } from "./lines.js";
import { matrix } from "./matrix.js";
import { partName } from "./names.js";
import { extent, format, largest, visible } from "./numbers.js";

export const FORMAT = "clearhead-flow-1";

const BESIDE = 900; // units; a wider element shows matrix and pipes beside each other
const LINES_UP_TO = 80; // tokens; beyond, the matrix is clearer
const SIDES = { query: t("at the top"), key: t("in the input") };
const NOTE = t("Every attention weight is a pipe. The flow is the most that could run from a token of the last layer " +
  "to an input token. Rows do not sum to 1: each pair has all pipes to itself.");

/** Show the flow between tokens in an element: {update, destroy}. */
export function mount(element, data, options = {}) {
  let chosen = validChoice(data, options.chosen ?? {});
  const saved = { json: () => data, picture: () => view.figure };
  const view = frame(element, { name: "flow", label: t("Attention flow"), draw, ...saved }, options);

  function draw() {
    const most = extent(data.shares) || 1;
    const colours = view.palette();
    title(view.heading, [data.text ?? t("Attention flow")],
      t("{model} · {kind}: from each token of the last layer (rows) to each input token (columns)",
        { model: data.model ?? "", kind: partName(data.kind) }));
    const head = { rows: data.tokens, columns: data.tokens, weights: data.shares };
    const [room, piped] = [roomIn(view.figure), data.tokens.length <= LINES_UP_TO];
    const half = piped && room > BESIDE ? room / 2 - 24 : room;
    const drawn = matrix(head, Math.min(half, 900), colours, { onHover: say, least: 0.05,
      onPick: ({ query }) => pin({ side: "query", index: query }),
      paint: (value) => colours.weight(value / most) });
    const pipes = piped ? lines({ ...head, sides: SIDES, tallest: 54 }, Math.max(260, half),
      { onHover: sayToken, onPin: pin }) : null;

    function say(cell) {
      drawn?.isolate(cell);
      if (!cell) return view.say(t("Point at a cell to read its flow."));
      const [to, from] = [data.tokens[cell.query], data.tokens[cell.key]].map(visible);
      return view.say(`${to} ← ${from}: ${format(data.shares[cell.query][cell.key])}`);
    }

    function sayToken(token) {
      pipes.isolate(token ?? chosen.token);
      view.say(token ? sentence(data, token) : t("Point at a cell to read its flow."));
    }

    function pin(token) {
      const same = token?.side === chosen.token?.side && token?.index === chosen.token?.index;
      chosen = { token: same ? null : token };
      options.onChange?.(chosen);
      pipes?.isolate(chosen.token);
    }

    view.figure.replaceChildren(h("div", { class: "ch-halves" },
      h("div", {}, drawn.element, amountLegend(colours, [t("no flow"), t("flow {value}", { value: format(most) })]),
        h("p", { class: "ch-note" }, NOTE)),
      pipes ? h("div", {}, partLabel(t("How much can reach one word: click another one, or a row")),
        pipes.element) : ""));
    pipes?.isolate(chosen.token);
    say(null);
  }

  return handle(view, (next, requested = chosen) => {
    data = next;
    chosen = validChoice(data, requested);
  });
}

/** The requested token where the data has it; a word in the middle at first, as all pipes at once are a tangle. */
function validChoice({ tokens }, { token }) {
  const known = token === null || token?.index < tokens.length;
  return { token: known ? token : { side: "query", index: Math.floor(tokens.length / 2) } };
}

function sentence({ tokens, shares }, { side, index }) {
  const amounts = side === "query" ? shares[index] : shares.map((row) => row[index]);
  const most = largest(amounts, 3).map((place) => `${visible(tokens[place])} ${format(amounts[place])}`).join(", ");
  return `${visible(tokens[index])} ${side === "query" ? "←" : "→"} ${most}`;
}

export default widget(mount);

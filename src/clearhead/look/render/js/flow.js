// What each token came from, as a maximum flow through all layers.
//
// data: Flow, format "clearhead-flow-1". chosen: {}.

import { h, roomIn } from "./dom.js";
import { frame, handle, title, widget } from "./frame.js";
import { t } from "./i18n.js";
import { amountLegend } from "./legend.js";
import { matrix } from "./matrix.js";
import { extent, format, visible } from "./numbers.js";

export const FORMAT = "clearhead-flow-1";

const NOTE = t("Every attention weight is a pipe. The flow is the most that could run from a token of the last layer " +
  "to an input token. Rows do not sum to 1: each pair has all pipes to itself.");

/** Show the flow between tokens in an element: {update, destroy}. */
export function mount(element, data, options = {}) {
  const saved = { json: () => data, picture: () => view.figure };
  const view = frame(element, { name: "flow", label: t("Attention flow"), draw, ...saved }, options);

  function draw() {
    const most = extent(data.shares) || 1;
    const colours = view.palette();
    title(view.heading, [data.text ?? t("Attention flow")],
      t("{model} · {kind}: from each token of the last layer (rows) to each input token (columns)",
        { model: data.model ?? "", kind: data.kind }));
    const head = { rows: data.tokens, columns: data.tokens, weights: data.shares };
    const drawn = matrix(head, Math.min(roomIn(view.figure), 900), colours,
      { onHover: say, paint: (value) => colours.weight(value / most), least: 0.05 });
    function say(cell) {
      drawn?.isolate(cell);
      if (!cell) return view.say(t("Point at a cell to read its flow."));
      const [to, from] = [data.tokens[cell.query], data.tokens[cell.key]].map(visible);
      return view.say(`${to} ← ${from}: ${format(data.shares[cell.query][cell.key])}`);
    }
    view.figure.replaceChildren(drawn.element, amountLegend(colours, [t("no flow"), t("flow {value}",
      { value: format(most) })]),
      h("p", { class: "ch-note" }, NOTE));
    say(null);
  }

  return handle(view, (next) => { data = next; });
}

export default widget(mount);

// What each token came from, as a maximum flow through all layers.
//
// data: Flow, format "clearhead-flow-1". chosen: {}.

import { h, roomIn } from "./dom.js";
import { frame, handle, title, widget } from "./frame.js";
import { amountLegend } from "./legend.js";
import { matrix } from "./matrix.js";
import { extent, format, visible } from "./numbers.js";

export const FORMAT = "clearhead-flow-1";

/** Show the flow between tokens in an element: {update, destroy}. */
export function mount(element, data, options = {}) {
  const view = frame(element, { name: "flow", label: "Attention flow", draw, json: () => data, picture: () => view.figure }, options);

  function draw() {
    const most = extent(data.shares) || 1;
    const colours = view.palette();
    title(view.heading, [data.text ?? "Attention flow"], `${data.model ?? ""} · ${data.kind}: from each token of the last layer (rows) to each input token (columns)`);
    const head = { rows: data.tokens, columns: data.tokens, weights: data.shares };
    const drawn = matrix(head, Math.min(roomIn(view.figure), 900), colours, { onHover: say, paint: (value) => colours.weight(value / most), least: 0.05 });
    function say(cell) {
      drawn?.isolate(cell);
      view.say(cell ? `${visible(data.tokens[cell.query])} ← ${visible(data.tokens[cell.key])}: ${format(data.shares[cell.query][cell.key])}` : "Point at a cell to read its flow.");
    }
    view.figure.replaceChildren(drawn.element, amountLegend(colours, ["no flow", `flow ${format(most)}`]),
      h("p", { class: "ch-note" }, "Every attention weight is a pipe. The flow is the most that could run from a token of the last layer to an input token. Rows do not sum to 1: each pair has all pipes to itself."));
    say(null);
  }

  return handle(view, (next) => { data = next; });
}

export default widget(mount);

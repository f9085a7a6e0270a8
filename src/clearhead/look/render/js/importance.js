// How much each head matters, measured over held-out examples.
//
// data: Importance, format "clearhead-importance-1". chosen: {kind, layer, head}.

import { meter, partLabel } from "./controls.js";
import { h, roomIn } from "./dom.js";
import { frame, handle, title, widget } from "./frame.js";
import { t } from "./i18n.js";
import { amountLegend, signedLegend } from "./legend.js";
import { partName } from "./names.js";
import { extent, format, largest } from "./numbers.js";
import { headTable, isTurned } from "./table.js";

export const FORMAT = "clearhead-importance-1";

const BEST = 6; // heads in the list of those that matter most
const MEANING = {
  gradient: t("How strongly the loss reacts when a head is turned down a little: the stronger the colour, " +
    "the more the head matters."),
  ablation: t("How much the loss rises without the head: blue heads are needed, " +
    "the model is better off without red ones."),
};
const NAMES = { "encoder.self": t("Encoder"), "decoder.self": t("Decoder"), "decoder.cross": t("Cross-attention") };

/** Show the importance of all heads in an element: {update, destroy}. */
export function mount(element, data, options = {}) {
  let chosen = { ...options.chosen };
  const saved = { json: () => data, picture: () => view.figure };
  const view = frame(element, { name: "importance", label: t("Importance of heads"), draw, ...saved }, options);

  function draw() {
    const tables = byKind(data.heads);
    const [count, most] = [Object.keys(tables).length, extent(Object.values(data.heads)) || 1];
    title(view.heading, [t("Which heads matter")],
      t("by {method}, on held-out examples · loss of the whole model {loss}",
        { method: t(data.method), loss: format(data.loss) }));
    const colours = view.palette();
    const room = roomIn(view.figure);
    const across = Object.values(tables).some((values) => isTurned(values, room)) ? 1
      : Math.min(count, room > 900 ? 3 : 1);
    const width = Math.max(260, (room - 48 * (across - 1)) / across - 1);
    const table = ([kind, values]) => headTable({ name: NAMES[kind] ?? kind, values, most }, width, colours, {
      chosen: chosen.kind === kind ? chosen : null,
      onHover: (place) => say(kind, values, place),
      onPick: (place) => pick(kind, place),
    });
    const legend = Object.values(data.heads).flat().some((value) => value < 0)
      ? signedLegend(colours, most) : amountLegend(colours, [t("does not matter"), t("most: {value}",
        { value: format(most) })]);
    view.figure.replaceChildren(h("div", { class: "ch-pair" }, Object.entries(tables).map(table)),
      h("div", { class: "ch-halves" }, h("div", {}, legend, h("p", { class: "ch-note" }, MEANING[data.method] ?? "")),
        ranking(data.heads, most)));
  }

  /** The heads that matter most, by their plain names. */
  function ranking(heads, most) {
    const all = Object.entries(heads).flatMap(([name, row]) => row.map((value, head) => ({ name, head, value })));
    const best = largest(all.map(({ value }) => value), Math.min(BEST, all.length)).map((place) => all[place]);
    const line = ({ name, head, value }) => h("li", {}, h("span", { title: `${name}:${head}` },
      t("{part}, head {head}", { part: partName(name), head })), meter(value / most),
    h("span", { class: "ch-number" }, format(value)));
    return h("div", { class: "ch-most" }, partLabel(t("The heads that matter most")),
      h("ul", { class: "ch-rivals" }, best.map(line)));
  }

  function pick(kind, place) {
    chosen = { kind, ...place };
    options.onChange?.(chosen);
    draw();
  }

  function say(kind, values, place) {
    if (!place) return;
    const { layer, head } = place;
    view.say(t("{kind}, layer {layer}, head {head}: {value}",
      { kind: NAMES[kind] ?? kind, layer, head, value: format(values[layer][head]) }));
  }

  return handle(view, (next, requested = chosen) => {
    data = next;
    chosen = requested;
  });
}

/** encoder.0.self, encoder.1.self, … -> {"encoder.self": (layers, heads)}. */
function byKind(heads) {
  const tables = {};
  for (const [name, row] of Object.entries(heads)) {
    const [stack, , part] = name.split(".");
    (tables[`${stack}.${part}`] ??= []).push(row);
  }
  return tables;
}

export default widget(mount);

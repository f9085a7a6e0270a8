// Position vectors as a heatmap, and the product of two positions by their distance.
//
// data: Positions, format "clearhead-positions-1"; `title` may replace its heading. chosen: {}.

import { partLabel } from "./controls.js";
import { h, roomIn } from "./dom.js";
import { frame, handle, title, widget } from "./frame.js";
import { t } from "./i18n.js";
import { signedLegend } from "./legend.js";
import { extent, format } from "./numbers.js";
import { plot } from "./plot.js";

export const FORMAT = "clearhead-positions-1";

const HEADS = 4; // curves that are drawn
const WIDEST = 760; // units

/** Show positions in an element: {update, destroy}. */
export function mount(element, data, options = {}) {
  const saved = { json: () => data, picture: () => view.figure };
  const view = frame(element, { name: "positions", label: t("Positions"), draw, ...saved }, options);

  function draw() {
    const { scheme, vectors, by_distance: byDistance, products } = data;
    title(view.heading, [data.title ?? t("{scheme} positions", { scheme: t(scheme) })], vectors
      ? t("{n} positions, each a vector of {width} numbers", { n: vectors.length, width: vectors[0].length })
      : t("{scheme}: applied inside the heads, so there are no vectors; shown is the effect of the distance on a score",
        { scheme: t(scheme) }));
    const colours = view.palette();
    const room = roomIn(view.figure);
    const size = Math.min(WIDEST, Math.max(260, room > 760 ? (room - 40) / 2 : room));
    const table = vectors ?? products[0];
    const axes = vectors ? t("rows: positions, columns: vector entries") : t("rows: queries, columns: keys");
    const curves = byDistance.slice(0, HEADS).map((values, head) => ({
      name: byDistance.length > 1 ? t("head {head}", { head }) : "",
      points: values.map((value, distance) => [distance, value]),
    }));
    view.figure.replaceChildren(
      h("div", {}, partLabel(axes), heatmap(table, size, colours, view.say), signedLegend(colours, extent(table) || 1)),
      h("div", {}, partLabel(t("dot product of two positions by their distance")),
        plot(curves, { width: size, height: 300, x: t("distance"), y: t("mean product") })));
    view.say(t("Point at the heatmap to read a number."));
  }

  return handle(view, (next) => { data = next; });
}

/** A matrix drawn as colours, one canvas pixel for each number, scaled up. */
function heatmap(table, width, colours, say) {
  const [rows, columns] = [table.length, table[0].length];
  const canvas = h("canvas", { width: columns, height: rows, class: "ch-heatmap", role: "img",
    "aria-label": t("{rows} by {columns} numbers as colours: red below zero, blue above", { rows, columns }) });
  canvas.style.width = `${width / 16}rem`;
  canvas.style.height = `${Math.min(420, width * Math.max(0.5, rows / columns)) / 16}rem`;
  const context = canvas.getContext("2d");
  const largest = extent(table) || 1;
  table.forEach((row, y) => row.forEach((value, x) => {
    context.fillStyle = colours.signed(value / largest);
    context.fillRect(x, y, 1, 1);
  }));
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const x = Math.floor(((event.clientX - box.left) / box.width) * columns);
    const y = Math.floor(((event.clientY - box.top) / box.height) * rows);
    if (table[y]?.[x] !== undefined) say(t("row {row}, column {column}: {value}", { row: y, column: x,
      value: format(table[y][x]) }));
  });
  return canvas;
}

export default widget(mount);

// One head as a matrix: a row for each query, a column for each key.

import { clamp, keyOf, label, sheet, svg, unit } from "./dom.js";
import { t } from "./i18n.js";
import { cut, widest } from "./measure.js";
import { short, visible } from "./numbers.js";

const NUMBERED = 34; // pixels of a cell that has room for its number
const LONGEST = 120; // pixels of a label
const TALLEST = 0.62; // of the window: the whole matrix is seen at once, unless its labels would become unreadable
const SMALLEST = 13; // pixels of a cell whose label can be read
const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }; // down, right

/**
 * The matrix of `head` {rows, columns, weights (T, S), visible (T, S)} in a given width: {element, isolate}.
 *
 * `onHover(cell)` gets the cell {query, key} under the pointer or reached by the arrow keys, or null; `onPick(cell)`
 * the one that was clicked. Numbers other than weights have their own `paint` (number -> colour), `write` (number ->
 * text) and `least`, the size below which a number is not written out.
 */
export function matrix(head, width, colours, { onHover, onPick, paint = colours.weight, write = short, least = 0.05 }) {
  const plan = layout(head, width);
  const looks = { colours, paint, write, least };
  const cells = head.weights.flatMap((row, query) => row.flatMap((_, key) => cell(plan, head, looks, query, key)));
  const rows = labels(head.rows, plan, rowLabel);
  const columns = labels(head.columns, plan, columnLabel);
  const square = { width: plan.cell, height: plan.cell, rx: 2 };
  const cursor = svg("rect", { ...square, class: "ch-cursor", visibility: "hidden", "data-screen-only": true });
  const name = t("Attention weights, {rows} rows by {columns} columns; arrow keys move between cells",
    { rows: head.rows.length, columns: head.columns.length });
  const role = { tabindex: 0, role: "application", "aria-roledescription": t("matrix"), "aria-label": name };
  const element = sheet(plan.width, plan.height, { class: "ch-matrix", ...role },
    svg("g", {}, cells), rows.filter(Boolean), columns.filter(Boolean), cursor);
  listen(element, plan, head, { onHover, onPick });
  return { element, isolate: (chosen) => isolate(plan, rows, columns, cursor, chosen) };
}

function layout(head, width) {
  const [T, S] = [head.rows.length, head.columns.length];
  const room = (words, size) => Math.min(LONGEST, widest(words.map(visible), size));
  const left = clamp(room(head.rows, 14) + 14, 24, width * 0.3);
  const down = Math.max(SMALLEST, (TALLEST * window.innerHeight) / unit() / T);
  const cell = clamp(Math.min((width - left - 24) / S, down), 4, T > 16 ? 34 : 60);
  const size = clamp(Math.round(cell * 0.72), 9, 14);
  const steep = cell < 26;
  const top = room(head.columns, size) * (steep ? 1 : Math.SQRT1_2) + 16;
  const whole = Math.min(width, left + S * cell + (steep ? 0 : top * 0.9)); // the last label leans over the edge
  return { cell, size, left, top, steep, every: Math.ceil(11 / cell), width: whole, height: top + T * cell + 2 };
}

function cell(plan, head, { colours, paint, write, least }, query, key) {
  if (head.visible?.[query][key] === false) return [];
  const [weight, side] = [head.weights[query][key], plan.cell];
  const [x, y, inset] = [plan.left + key * side, plan.top + query * side, side > 12 ? 1 : 0];
  const fill = paint(weight);
  const edges = { x: x + inset / 2, y: y + inset / 2, width: side - inset, height: side - inset, rx: inset * 2 };
  const box = svg("rect", { ...edges, fill });
  if (side < NUMBERED || Math.abs(weight) < least) return [box];
  const ink = { "text-anchor": "middle", style: { fill: colours.inkOn(fill) } };
  return [box, label(write(weight), x + side / 2, y + side / 2, clamp(side * 0.25, 11, 15), ink)];
}

/** A label for each token, or for every second, third … if there is no room. */
function labels(words, plan, make) {
  return words.map((word, index) => (index % plan.every ? null : make(plan, index, visible(word))));
}

function rowLabel(plan, index, word) {
  const text = cut(word, plan.left - 10, plan.size);
  return label(text, plan.left - 8, plan.top + (index + 0.5) * plan.cell, plan.size, { "text-anchor": "end" });
}

function columnLabel(plan, index, word) {
  const [x, y] = [plan.left + (index + 0.5) * plan.cell, plan.top - 7];
  const turn = `rotate(${plan.steep ? -90 : -45} ${x} ${y})`;
  return label(cut(word, LONGEST, plan.size), x, y, plan.size, { transform: turn });
}

function listen(element, plan, head, { onHover, onPick }) {
  const last = { query: head.rows.length - 1, key: head.columns.length - 1 };
  let here = { query: 0, key: 0 };
  const go = (cellAt) => onHover((here = cellAt));
  element.addEventListener("pointermove", (event) => {
    const box = element.getBoundingClientRect();
    const scale = plan.width / box.width;
    const key = Math.floor(((event.clientX - box.left) * scale - plan.left) / plan.cell);
    const query = Math.floor(((event.clientY - box.top) * scale - plan.top) / plan.cell);
    if (key < 0 || query < 0 || key > last.key || query > last.query) onHover(null);
    else go({ query, key });
  });
  element.addEventListener("click", () => onPick?.(here));
  element.addEventListener("pointerleave", () => onHover(null));
  element.addEventListener("blur", () => onHover(null));
  element.addEventListener("keydown", (event) => {
    if (keyOf(event) === "Enter") onPick?.(here);
    if (!(keyOf(event) in MOVES)) return;
    const [down, right] = MOVES[event.key];
    event.preventDefault();
    go({ query: clamp(here.query + down, 0, last.query), key: clamp(here.key + right, 0, last.key) });
  });
}

function isolate(plan, rows, columns, cursor, chosen) {
  rows.forEach((label, index) => label?.classList.toggle("ch-on", index === chosen?.query));
  columns.forEach((label, index) => label?.classList.toggle("ch-on", index === chosen?.key));
  cursor.setAttribute("visibility", chosen ? "visible" : "hidden");
  if (!chosen) return;
  cursor.setAttribute("x", plan.left + chosen.key * plan.cell);
  cursor.setAttribute("y", plan.top + chosen.query * plan.cell);
}

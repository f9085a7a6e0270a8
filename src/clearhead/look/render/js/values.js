// Numbers as drawings: bars for one number per token, coloured cells for vectors, and a table of all numbers.

import { clamp, h, label, sheet, svg } from "./dom.js";
import { t } from "./i18n.js";
import { cut, widest } from "./measure.js";
import { format, number, visible } from "./numbers.js";

const ROW = 26;
const NUMBER = 56; // room for a number at the end of a bar
const WRAP = 32; // entries of a vector in one row

/** Draw a value of any shape; `scale` [least, most] is the range of the bars and colours. */
export function drawing(value, labels, scale, width, colours) {
  if (labels && !Array.isArray(value[0])) return bars(value, labels, scale, width, colours);
  return cells(...rowsOf(value, labels), scale, width, colours);
}

/** A bar for each token: positive to the right of the line, negative to the left. */
function bars(values, words, [least, most], width, colours) {
  const left = labelRoom(words, width);
  const before = least < 0 ? NUMBER : 0;
  const room = clamp(width - left - before - NUMBER, 60, 640);
  const unit = room / (most - least || 1); // pixels
  const plan = { left, unit, zero: left + before - least * unit };
  const rows = values.flatMap((value, row) => bar(plan, number(value), visible(words[row]), row, colours));
  const high = values.length * ROW + 4;
  const line = svg("line", { x1: plan.zero, x2: plan.zero, y1: 0, y2: high, class: "ch-axis" });
  const role = { class: "ch-bars", role: "img", "aria-label": spoken(values, words) };
  return sheet(left + before + room + NUMBER, high, role, line, rows);
}

function bar({ left, unit, zero }, value, word, row, colours) {
  const [top, middle] = [row * ROW + 4, row * ROW + ROW / 2];
  const seen = Number.isFinite(value);
  const length = seen ? Math.abs(value) * unit : 0;
  const below = seen && value < 0;
  const place = { x: below ? zero - length : zero, y: top, width: length, height: ROW - 8, rx: 2 };
  const end = below ? place.x - 6 : zero + length + 6;
  return [
    label(cut(word, left - 12, 14), left - 10, middle, 14, { "text-anchor": "end", class: seen ? null : "ch-quiet" }),
    svg("rect", { ...place, fill: colours.signed(below ? -0.85 : 0.85), "data-say": `${word}: ${format(value)}` }),
    label(format(value), end, middle, 12, { "text-anchor": below ? "end" : "start", class: "ch-quiet ch-number" }),
  ];
}

/** A row of coloured cells for each token or each part of a vector. */
function cells(rows, words, [least, most], width, colours) {
  const deepest = Math.max(-least, most) || 1;
  const left = labelRoom(words, width);
  const across = Math.max(...rows.map((row) => row.length));
  const side = clamp((width - left - 4) / across, 2, 22);
  const down = clamp(side, 16, 22);
  const shape = { width: side > 6 ? side - 1 : side, height: down - 1, rx: side > 10 ? 2 : 0 };
  const cell = (value, row, column) => svg("rect", {
    ...shape, x: left + column * side, y: row * down, fill: colours.signed(number(value) / deepest),
    "data-say": t("{word}, entry {column}: {value}", { word: visible(words[row]), column, value: format(value) }),
  });
  const name = (word, row) =>
    label(cut(visible(word), left - 12, 13), left - 10, (row + 0.5) * down, 13, { "text-anchor": "end" });
  const summary = t("{rows} rows of {columns} numbers; the table below has them all",
    { rows: rows.length, columns: across });
  return sheet(left + across * side, rows.length * down, { class: "ch-vectors", role: "img", "aria-label": summary },
    rows.flatMap((values, row) => values.map((value, column) => cell(value, row, column))), words.map(name));
}

/** Every number of a value, to read or to copy. */
export function table(value, labels) {
  const [rows, words] = rowsOf(value, labels);
  const line = (row, place) => h("tr", {},
    h("th", { scope: "row", dir: "auto" }, visible(words[place])), row.map((each) => h("td", {}, format(each))));
  return h("div", { class: "ch-scroll" }, h("table", { class: "ch-table" }, h("tbody", {}, rows.map(line))));
}

/** A value of any shape as rows, and a name for each. */
function rowsOf(value, labels) {
  if (!Array.isArray(value)) return [[[value]], [""]];
  if (Array.isArray(value[0])) return [value, labels ?? value.map((_, row) => String(row))];
  if (labels) return [value.map((each) => [each]), labels];
  const starts = value.map((_, place) => place).filter((place) => place % WRAP === 0);
  return [starts.map((start) => value.slice(start, start + WRAP)), starts.map(String)];
}

function labelRoom(labels, width) {
  return clamp(widest(labels.map(visible), 14) + 16, 32, width * 0.35);
}

function spoken(values, labels) {
  return values.map((value, place) => `${visible(labels[place])} ${format(value)}`).join(", ");
}

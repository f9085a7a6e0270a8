// Line plots with round tick values.

import { h, label, sheet, svg } from "./views/dom.js";
import { format } from "./views/numbers.js";

const [LEFT, RIGHT, TOP, BOTTOM] = [52, 14, 10, 40];
const SHADES = ["st-line-0", "st-line-1", "st-line-2", "st-line-3", "st-line-4", "st-line-5"];

/** Plot curves [{name, points: [[x, y], …], dots?, shade?}] in a given size; `x` and `y` name the axes. */
export function plot(curves, { width, height, x, y }) {
  const all = curves.flatMap(({ points }) => points);
  if (!all.length) return h("p", { class: "st-hint" }, "No measurements yet.");
  const [[left, right], [low, high]] = [0, 1].map((axis) => bounds(all.map((point) => point[axis])));
  const across = (value) => LEFT + ((value - left) / (right - left)) * (width - LEFT - RIGHT);
  const up = (value) => height - BOTTOM - ((value - low) / (high - low)) * (height - TOP - BOTTOM);
  const grid = [
    ...ticks(low, high, 5).flatMap((value) => [
      svg("line", { x1: LEFT, x2: width - RIGHT, y1: up(value), y2: up(value), class: "st-grid" }),
      label(format(value), LEFT - 8, up(value), 12, { "text-anchor": "end", class: "ch-quiet" })]),
    ...ticks(left, right, 6).map((value) =>
      label(value.toLocaleString("en"), across(value), height - BOTTOM + 16, 12, { "text-anchor": "middle", class: "ch-quiet" })),
    label(x, (LEFT + width - RIGHT) / 2, height - 8, 12, { "text-anchor": "middle", class: "ch-quiet" }),
  ];
  const drawn = curves.map((curve, number) => line(curve, curve.shade ?? number, across, up));
  const picture = sheet(width, height, { class: "st-plot", role: "img", "aria-label": `${y} by ${x}: ${describe(curves)}` }, grid, drawn);
  return h("div", {}, picture, legend(curves));
}

function line({ points, dots = false }, number, across, up) {
  const path = points.map(([x, y], place) => `${place ? "L" : "M"}${across(x).toFixed(1)},${up(y).toFixed(1)}`).join("");
  const shade = SHADES[number % SHADES.length];
  const marks = dots || points.length === 1 ? points.map(([x, y]) => svg("circle", { cx: across(x), cy: up(y), r: 3.5, class: shade })) : [];
  return svg("g", {}, svg("path", { d: path, class: `st-line ${shade}` }), marks);
}

function legend(curves) {
  const named = curves.map(({ name, shade }, number) => [name, shade ?? number]).filter(([name]) => name);
  return named.length ? h("ul", { class: "st-legend" }, named.map(([name, number]) =>
    h("li", {}, h("span", { class: `st-swatch ${SHADES[number % SHADES.length]}` }), name))) : "";
}

function describe(curves) {
  return curves.map(({ name, points }) => `${name} ends at ${points.length ? format(points.at(-1)[1]) : "nothing"}`).join(", ");
}

function bounds(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return high > low ? [low, high] : [low - 1, high + 1];
}

function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((each) => each * power >= rough) * power;
  const first = Math.ceil(low / step) * step;
  return Array.from({ length: Math.floor((high - first) / step) + 1 }, (_, place) => Number((first + place * step).toPrecision(12)));
}

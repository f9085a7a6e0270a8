// Line plots with round tick values.

import { h, label, sheet, svg } from "./dom.js";
import { count, t } from "./i18n.js";
import { format } from "./numbers.js";

const [LEFT, RIGHT, TOP, BOTTOM] = [52, 14, 10, 40];
const SHADES = ["ch-line-0", "ch-line-1", "ch-line-2", "ch-line-3", "ch-line-4", "ch-line-5"];

/**
 * Plot curves [{name, points: [[x, y], …], dots?, shade?}] in a given size; `x` and `y` name the axes.
 *
 * `ticks` [[x, text], …] replace the round values of x, and `at` marks one x by a line.
 */
export function plot(curves, { width, height, x, y, ticks: named, at }) {
  const all = curves.flatMap(({ points }) => points);
  if (!all.length) return h("p", { class: "ch-quiet-text" }, t("No measurements yet."));
  const [[left, right], [low, high]] = [0, 1].map((axis) => bounds(all.map((point) => point[axis])));
  const across = (value) => LEFT + ((value - left) / (right - left)) * (width - LEFT - RIGHT);
  const up = (value) => height - BOTTOM - ((value - low) / (high - low)) * (height - TOP - BOTTOM);
  const grid = [
    ...ticks(low, high, 5).flatMap((value) => [
      svg("line", { x1: LEFT, x2: width - RIGHT, y1: up(value), y2: up(value), class: "ch-gridline" }),
      label(format(value), LEFT - 8, up(value), 12, { "text-anchor": "end", class: "ch-quiet" })]),
    ...(named ?? ticks(left, right, 6).map((value) => [value, count(value)])).map(([value, text]) =>
      label(text, across(value), height - BOTTOM + 16, 12, { "text-anchor": "middle", class: "ch-quiet" })),
    label(x, (LEFT + width - RIGHT) / 2, height - 8, 12, { "text-anchor": "middle", class: "ch-quiet" }),
    ...(at === undefined ? [] : [marker(across(at), height)]),
  ];
  const drawn = curves.map((curve, number) => line(curve, curve.shade ?? number, across, up));
  const name = { class: "ch-plot", role: "img", "aria-label": t("{y} by {x}: {curves}", { y, x,
    curves: describe(curves) }) };
  return h("div", {}, sheet(width, height, name, grid, drawn), legend(curves));
}

function marker(x, height) {
  return svg("line", { x1: x, x2: x, y1: TOP, y2: height - BOTTOM, class: "ch-marker" });
}

function line({ points, dots = false }, number, across, up) {
  const step = ([x, y], place) => `${place ? "L" : "M"}${across(x).toFixed(1)},${up(y).toFixed(1)}`;
  const path = points.map(step).join("");
  const shade = SHADES[number % SHADES.length];
  const dot = ([x, y]) => svg("circle", { cx: across(x), cy: up(y), r: 3.5, class: shade });
  const marks = dots || points.length === 1 ? points.map(dot) : [];
  return svg("g", {}, svg("path", { d: path, class: `ch-line ${shade}` }), marks);
}

function legend(curves) {
  const named = curves.map(({ name, shade }, number) => [name, shade ?? number]).filter(([name]) => name);
  return named.length ? h("ul", { class: "ch-names" }, named.map(([name, number]) =>
    h("li", {}, h("span", { class: `ch-swatch ${SHADES[number % SHADES.length]}` }), name))) : "";
}

function describe(curves) {
  const end = (points) => (points.length ? format(points.at(-1)[1]) : t("nothing"));
  return curves.map(({ name, points }) => t("{name} ends at {value}", { name, value: end(points) })).join(", ");
}

function bounds(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return high > low ? [low, high] : [low - 1, high + 1];
}

function ticks(low, high, about) {
  const rough = (high - low) / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((each) => each * power >= rough) * power;
  const first = Math.ceil(low / step) * step;
  const length = Math.floor((high - first) / step) + 1;
  return Array.from({ length }, (_, place) => Number((first + place * step).toPrecision(12)));
}

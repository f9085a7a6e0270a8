// What the colours mean, the same in every view: the stronger the blue, the more; blue is above zero, red below.

import { h } from "./dom.js";
import { t } from "./i18n.js";
import { format } from "./numbers.js";

const STEPS = 41;

/** A bar for amounts from 0 to `most`: "no weight" … "all the weight". */
export function amountLegend(colours, [low, high], most = 1, shadeOf = colours.weight) {
  const shades = Array.from({ length: STEPS }, (_, step) => shadeOf((step / (STEPS - 1)) * most));
  return bar(shades, low, high, t("Colours: weak is {low}, strong is {high}", { low, high }));
}

/** A bar for signed numbers from -most to most. */
export function signedLegend(colours, most, [low, high] = ["", ""]) {
  const name = (text, value) => (text ? `${text} ${format(value)}` : format(value));
  const shades = Array.from({ length: STEPS }, (_, step) => colours.signed((2 * step) / (STEPS - 1) - 1));
  const ends = { low: name(low, -most), high: name(high, most) };
  return bar(shades, ends.low, ends.high, t("Colours: red is {low}, blue is {high}", ends));
}

function bar(shades, low, high, meaning) {
  return h("div", { class: "ch-legend", role: "img", "aria-label": meaning },
    h("span", {}, low),
    h("span", { class: "ch-shades" }, shades.map((background) => h("span", { style: { background } }))),
    h("span", {}, high));
}

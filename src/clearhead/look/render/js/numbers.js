// Formatting numbers. JSON has no infinity: masked scores, −∞, arrive as null.

import { decimal } from "./i18n.js";


/** A number from the data. */
export function number(value) {
  return value === null ? -Infinity : Number(value);
}

/** Three significant digits, a real minus sign, and ∞ where a mask put it. */
export function format(value) {
  const exact = number(value);
  if (!Number.isFinite(exact)) return Number.isNaN(exact) ? "–" : exact > 0 ? "∞" : "−∞";
  if (exact === 0) return "0";
  const size = Math.abs(exact);
  const text = size < 0.001 || size >= 10000 ? exact.toExponential(1) : fixed(exact, size);
  return decimal(text.replaceAll("-", "−"));
}

function fixed(exact, size) {
  return exact.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

/** A weight inside a small cell: ".82", "1". */
export function short(weight) {
  return weight > 0.995 ? "1" : decimal(weight.toFixed(2).slice(1));
}

/** A share of one: "82 %", "0.4 %", "−31 %". */
export function percent(share) {
  const hundredths = 100 * share;
  const size = Math.abs(hundredths);
  const text = size >= 10 || size === 0 ? hundredths.toFixed(0) : hundredths.toPrecision(size < 0.1 ? 1 : 2);
  return `${decimal(text.replace("-", "−"))} %`;
}

/** The places of the `count` largest values, largest first. */
export function largest(values, count) {
  return values
    .map((value, place) => [value, place])
    .sort((a, b) => b[0] - a[0])
    .slice(0, count)
    .map(([, place]) => place);
}

/** [least, most] of the finite numbers in a nested list, always including zero. */
export function range(values) {
  const finite = [values].flat(Infinity).map(number).filter(Number.isFinite);
  return finite.reduce(([least, most], each) => [Math.min(least, each), Math.max(most, each)], [0, 0]);
}

/** The largest absolute value of the finite numbers in a nested list. */
export function extent(values) {
  const [least, most] = range(values);
  return Math.max(-least, most);
}

/** A token with signs for blanks and line ends, which would be invisible. */
export function visible(token) {
  const shown = token.replaceAll("\n", "⏎").replaceAll("\t", "⇥");
  return shown.replace(/^ +$/, (blanks) => "␣".repeat(blanks.length)) || "∅";
}

// An equation written as plain text, a_j = exp(s_j) / Σ_t exp(s_t), set as mathematics.

import { h } from "./dom.js";

const PARTS = /([_^])(\{[^}]*\}|[\p{L}\p{N}]+)|(\p{L}+)|([^_^\p{L}]+|[_^])/gu;

/** The equation with indices lowered, powers raised and single letters in italics. */
export function equation(text) {
  return h("p", { class: "ch-equation" }, [...text.matchAll(PARTS)].map(part));
}

function part([whole, lift, small, word]) {
  if (lift) return h(lift === "_" ? "sub" : "sup", {}, small.replace(/[{}]/g, ""));
  return word?.length === 1 ? h("i", {}, whole) : whole;
}

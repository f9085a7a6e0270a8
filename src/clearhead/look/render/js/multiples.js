// Every head of every layer at once, one pixel for each weight; a click shows it large.

import { arrow, h } from "./dom.js";
import { t } from "./i18n.js";
import { bright, shade } from "./theme.js";

/**
 * The grid of `attended` {rows, columns, visible, weights [layer][head][t][s]}: {element, select}.
 *
 * `onPick(layer, head)` gets the one that was clicked or reached by the arrow keys. Only the layers [first, last) are
 * shown; where `turned`, layers run across and heads down.
 */
export function multiples(attended, colours, onPick, { first = 0, last = attended.weights.length, turned } = {}) {
  const layers = Array.from({ length: last - first }, (_, place) => first + place);
  const heads = attended.weights[0].map((_, head) => head);
  const [down, across] = turned ? [heads, layers] : [layers, heads];
  const places = down.map((row) => across.map((column) => (turned ? [column, row] : [row, column])));
  const cells = places.map((row) => row.map(([layer, head]) => thumbnail(attended, colours, layer, head)));
  const [all, flat] = [cells.flat(), places.flat()];
  const columns = { "grid-template-columns": `auto repeat(${across.length}, minmax(0, 5.5rem))` };
  const looks = { class: turned ? "ch-grid ch-turned" : "ch-grid", style: columns };
  const element = h("div", { ...looks, role: "grid", "aria-label": t("All heads") },
    h("span", {}), across.map((number) => h("span", { "aria-hidden": "true" }, number)),
    cells.map((row, place) => h("div", { role: "row", style: { display: "contents" } },
      h("span", { class: "ch-layer", "aria-hidden": "true" }, down[place]), row)));
  const pick = (place) => onPick(...flat[place]);
  all.forEach((each, place) => {
    each.addEventListener("click", () => pick(place));
    each.addEventListener("keydown", (event) => {
      const next = arrow(event, place, all.length, across.length);
      if (next === null) return;
      event.preventDefault();
      pick(next);
      all[next].focus();
    });
  });
  const select = (layer, head) => mark(all, flat.findIndex(([l, n]) => l === layer && n === head));
  return { element, select };
}

function mark(all, chosen) {
  all.forEach((each, place) => {
    each.setAttribute("aria-selected", String(place === chosen));
    each.setAttribute("tabindex", place === chosen ? 0 : -1);
  });
}

function thumbnail(attended, colours, layer, head) {
  const name = t("Layer {layer}, head {head}", { layer, head });
  const canvas = h("canvas", { width: attended.columns.length, height: attended.rows.length, "aria-hidden": "true" });
  canvas.getContext("2d").putImageData(pixels(attended, attended.weights[layer][head], colours.table), 0, 0);
  return h("button", { type: "button", role: "gridcell", "aria-label": name, title: name }, canvas);
}

/** weights (T, S) -> an image of one pixel each; what a mask hides stays clear. */
function pixels(attended, weights, table) {
  const [T, S] = [attended.rows.length, attended.columns.length];
  const image = new ImageData(S, T);
  weights.forEach((row, t) => row.forEach((weight, s) => {
    const hidden = attended.visible?.[t][s] === false;
    image.data.set([...shade(table, bright(weight)), hidden ? 0 : 255], 4 * (t * S + s));
  }));
  return image;
}

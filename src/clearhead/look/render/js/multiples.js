// Every head of every layer at once, one pixel for each weight; a click shows it large.

import { arrow, h } from "./dom.js";
import { t } from "./i18n.js";
import { bright, shade } from "./theme.js";

/**
 * The grid of `attended` {rows, columns, visible, weights [layer][head][t][s]}: {element, select}.
 *
 * `onPick(layer, head)` gets the one that was clicked or reached by the arrow keys.
 */
export function multiples(attended, colours, onPick) {
  const [layers, heads] = [attended.weights.length, attended.weights[0].length];
  const cells = attended.weights.map((layer, l) => layer.map((_, n) => thumbnail(attended, colours, l, n)));
  const all = cells.flat();
  const across = { "grid-template-columns": `auto repeat(${heads}, minmax(0, 5.5rem))` };
  const element = h("div", { class: "ch-grid", role: "grid", "aria-label": t("All heads"), style: across },
    h("span", {}), cells[0].map((_, n) => h("span", { "aria-hidden": "true" }, n)),
    cells.map((row, l) => h("div", { role: "row", style: { display: "contents" } },
      h("span", { class: "ch-layer", "aria-hidden": "true" }, l), row)));
  const pick = (place) => onPick(Math.floor(place / heads), place % heads);
  all.forEach((each, place) => {
    each.addEventListener("click", () => pick(place));
    each.addEventListener("keydown", (event) => {
      const next = arrow(event, place, layers * heads, heads);
      if (next === null) return;
      event.preventDefault();
      pick(next);
      all[next].focus();
    });
  });
  return { element, select: (layer, head) => select(all, layer * heads + head) };
}

function select(all, chosen) {
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

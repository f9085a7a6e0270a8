// A number for each head of each layer as a matrix; a click chooses a head.

import { partLabel } from "./controls.js";
import { h } from "./dom.js";
import { t } from "./i18n.js";
import { matrix } from "./matrix.js";
import { extent, format } from "./numbers.js";

const MAX_WIDTH = 620; // units

/** A table {name, values (layers, heads)} in a given width: an element; `onHover` and `onPick` get {layer, head}. */
export function headTable({ name, values, most = extent(values) || 1 }, width, colours, { onHover, onPick, chosen }) {
  const signed = values.flat().some((value) => value < 0);
  const head = {
    rows: values.map((_, layer) => t("layer {layer}", { layer })),
    columns: values[0].map((_, number) => t("head {head}", { head: number })),
    weights: values,
  };
  const place = (cell) => cell && { layer: cell.query, head: cell.key };
  const drawn = matrix(head, Math.min(width, MAX_WIDTH), colours, {
    onHover: (cell) => {
      drawn?.isolate(cell ?? (chosen ? { query: chosen.layer, key: chosen.head } : null));
      onHover(place(cell));
    },
    onPick: (cell) => onPick(place(cell)),
    paint: (value) => (signed ? colours.signed(value / most) : colours.weight(Math.max(0, value) / most)),
    write: format, least: 0.1 * most,
  });
  if (chosen) drawn.isolate({ query: chosen.layer, key: chosen.head });
  return h("div", {}, name ? partLabel(h("strong", {}, name)) : "", drawn.element);
}

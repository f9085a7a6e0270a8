// A number for each head of each layer as a matrix; a click chooses a head.

import { partLabel } from "./controls.js";
import { h } from "./dom.js";
import { t } from "./i18n.js";
import { matrix } from "./matrix.js";
import { extent, format } from "./numbers.js";

const MAX_WIDTH = 620; // units
const MANY = 12; // layers, beyond which they stand across where there is room: 30 below each other fill a screen
const NARROWEST = 18; // units of a column

/** Whether a table (layers, heads) is drawn with a column for each layer in a given width. */
export function isTurned(values, width) {
  return values.length > MANY && values.length > values[0].length && width > NARROWEST * values.length;
}

/** A table {name, values (layers, heads)} in a given width: an element; `onHover` and `onPick` get {layer, head}. */
export function headTable({ name, values, most = extent(values) || 1 }, width, colours, { onHover, onPick, chosen }) {
  const signed = values.flat().some((value) => value < 0);
  const turned = isTurned(values, width);
  const layers = values.map((_, layer) => t("layer {layer}", { layer }));
  const heads = widest(values).map((_, head) => t("head {head}", { head }));
  const across = heads.map((_, head) => values.map((row) => row[head]));
  const visible = across.map((row) => row.map((value) => value !== undefined)); // a head may still be to measure
  const data = turned ? { rows: heads, columns: layers, weights: across, visible }
    : { rows: layers, columns: heads, weights: values };
  const place = ({ query, key }) => (turned ? { layer: key, head: query } : { layer: query, head: key });
  const known = (cell) => (cell && values[place(cell).layer][place(cell).head] !== undefined ? place(cell) : null);
  const marked = chosen && { query: turned ? chosen.head : chosen.layer, key: turned ? chosen.layer : chosen.head };
  const drawn = matrix(data, turned ? width : Math.min(width, MAX_WIDTH), colours, {
    onHover: (cell) => {
      drawn?.isolate(cell ?? marked ?? null);
      onHover(known(cell));
    },
    onPick: (cell) => { if (known(cell)) onPick(place(cell)); },
    paint: (value) => (signed ? colours.signed(value / most) : colours.weight(Math.max(0, value) / most)),
    write: format, least: 0.1 * most,
  });
  if (marked) drawn.isolate(marked);
  return h("div", {}, name ? partLabel(h("strong", {}, name)) : "", drawn.element);
}

function widest(rows) {
  return rows.reduce((one, other) => (other.length > one.length ? other : one));
}

// A text coloured by the activation of one unit, and a ranking of units by the features that they follow.
//
// data: Cells, format "clearhead-cells-1"; `units` [{layer, unit, values}] may hold the values of more units.
// chosen: {layer, unit}.

import { meter, partLabel } from "./controls.js";
import { h, keyOf } from "./dom.js";
import { frame, handle, title, widget } from "./frame.js";
import { plural, t } from "./i18n.js";
import { signedLegend } from "./legend.js";
import { partName } from "./names.js";
import { extent, format, visible } from "./numbers.js";

export const FORMAT = "clearhead-cells-1";

/** Show a text coloured by a unit in an element: {update, destroy}. */
export function mount(element, data, options = {}) {
  let chosen = validChoice(data, options.chosen ?? {});
  let text = null;
  const saved = { json: () => data, picture: () => text };
  const view = frame(element, { name: "cells", label: t("Units that follow the text"), draw, ...saved }, options);

  function draw() {
    const values = known(data, chosen);
    title(view.heading, [t("Unit {unit} of {layer}", { unit: chosen.unit, layer: layerName(chosen.layer) })],
      summary(data, chosen));
    view.heading.querySelector("h2").title = probe(chosen);
    const colours = view.palette();
    text = coloured(data.tokens, values, colours);
    text.addEventListener("pointerover", (event) => tell(event.target));
    text.addEventListener("keydown", walk);
    text.addEventListener("focusin", (event) => tell(event.target));
    const ready = (entry) => Boolean(options.onChange) || known(data, entry) !== undefined;
    const read = h("div", {}, text, signedLegend(colours, extent(values)));
    view.figure.replaceChildren(read, ranking(data.ranking, chosen, ready, pick));
    view.say(t("Point at a letter to read the unit's value."));
  }

  function tell(letter) {
    const place = letter.dataset.place;
    if (place !== undefined) view.say(`${visible(data.tokens[place])}: ${format(known(data, chosen)[place])}`);
  }

  function walk(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[keyOf(event)];
    const next = step && text.children[Number(event.target.dataset.place) + step];
    if (!next) return;
    event.preventDefault();
    event.target.setAttribute("tabindex", -1);
    next.setAttribute("tabindex", 0);
    next.focus();
  }

  function pick(entry) {
    const wanted = { layer: entry.layer, unit: entry.unit };
    options.onChange?.(wanted); // a listener may load the values of a unit that are not in the data
    chosen = validChoice(data, wanted);
    draw();
    view.figure.querySelector('[aria-pressed="true"]')?.focus();
  }

  return handle(view, (next, requested = chosen) => {
    data = next;
    chosen = validChoice(data, requested);
  });
}

/** The values (T,) of a unit, if the data has them. */
function known(data, { layer, unit }) {
  return [data, ...(data.units ?? [])].find((each) => each.layer === layer && each.unit === unit)?.values;
}

function validChoice(data, requested) {
  const { layer, unit } = known(data, requested) ? requested : data;
  return { layer, unit };
}

function layerName(layer) {
  return typeof layer === "number" ? t("layer {layer}", { layer }) : partName(layer);
}

/** The unit as `--layer` and `--unit` of the command name it. */
function probe({ layer, unit }) {
  return `${layer} ${unit}`;
}

function summary(data, { layer, unit }) {
  const best = data.ranking.find((entry) => entry.layer === layer && entry.unit === unit);
  const about = best
    ? [t("follows {feature} with a correlation of {value}", { feature: t(best.feature), value: measured(best) })] : [];
  return [...about, plural("{n} token", "{n} tokens", data.tokens.length)].join(" · ");
}

/** The correlation on text that the unit was not chosen on, where it was measured. */
function measured({ correlation, held_out: heldOut }) {
  const values = { value: format(correlation), heldOut: format(heldOut ?? 0) };
  if (heldOut === null || heldOut === undefined) return t("{value} (on the text that it was chosen on)", values);
  return t("{heldOut} on text that it was not chosen on ({value} on the rest)", values);
}

function coloured(tokens, values, colours) {
  const most = extent(values) || 1;
  const letter = (token, place) => {
    const fill = colours.signed(values[place] / most);
    const paint = { background: fill, color: colours.inkOn(fill) };
    return h("span", { "data-place": place, tabindex: place ? -1 : 0, style: paint }, token);
  };
  const name = t("The text, coloured; arrow keys move between letters");
  return h("div", { class: "ch-text", role: "group", "aria-label": name }, tokens.map(letter));
}

/** The units that follow a feature best, to choose from. */
function ranking(entries, chosen, ready, pick) {
  const line = (entry) => {
    const own = entry.layer === chosen.layer && entry.unit === chosen.unit;
    const state = { "aria-pressed": String(own), disabled: !ready(entry), onclick: () => pick(entry) };
    return h("li", {}, h("button", { type: "button", title: probe(entry), ...state },
      h("span", { class: "ch-feature" }, t(entry.feature)),
      h("span", { class: "ch-number" }, format(entry.held_out ?? entry.correlation)),
      meter(entry.held_out ?? entry.correlation),
      h("span", { class: "ch-quiet-text" }, t("{layer}, unit {unit}",
        { layer: layerName(entry.layer), unit: entry.unit }))));
  };
  return h("div", {}, partLabel(t("Units by what they follow")), h("ol", { class: "ch-ranking" }, entries.map(line)));
}

export default widget(mount);

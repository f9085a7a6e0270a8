// The loss of a model on held-out examples, without one part after the other, or without what is switched off.

import { isAbort, lines } from "./api.js";
import { t } from "./i18n.js";
import { modelMenu } from "./shared.js";
import { menu, partLabel, slider } from "./views/controls.js";
import { h } from "./views/dom.js";
import { format } from "./views/numbers.js";
import { palette } from "./views/theme.js";

const MOST = 32; // batches

/** Put the panel into an element; `off` is what is switched off for one input. */
export function dataPanel(element, { models, model, off, studio }) {
  const chosen = off.scale || off.mask || off.positions || off.layers.length || off.heads.length;
  const options = [["heads", t("Every head by itself")], ["layers", t("Every block by itself")],
    ...(chosen ? [["chosen", t("What is switched off")]] : [])];
  let each = chosen ? "chosen" : "heads";
  let data = model.held_out;
  let batches = 4;
  let running = null; // an AbortController
  const results = h("div", { class: "st-results clearhead" });
  const progress = h("progress", { max: 1, value: 0, "aria-label": t("Examples measured"), hidden: true });
  const note = h("p", { class: "st-hint", role: "status" }, t("The model reads examples that it was not "
    + "trained on; the rise of the loss without a part is how much it needs it."));
  const go = h("button", { type: "button", class: "st-go",
    onclick: () => (running ? running.abort() : measure()) }, t("Measure"));

  async function measure() {
    running = new AbortController();
    go.textContent = t("Cancel");
    progress.hidden = false;
    const found = [];
    let whole = null;
    try {
      for await (const line of lines("/studio/api/what-if/data", { model: model.name, ...off, each, batches, data },
        running.signal)) {
        if ("done" in line) {
          [progress.max, progress.value] = [line.of || 1, line.done];
          note.textContent = line.of ? t("{n} of {all} batches", { n: line.done, all: line.of })
            : t("Reading the examples …");
        } else if (line.name === "") whole = line;
        else found.push(line);
        if (!("done" in line)) draw(whole, found);
      }
      note.textContent = t("The loss of the whole model is {loss}, over {n} predictions.",
        { loss: format(whole.loss), n: whole.count });
    } catch (error) {
      note.textContent = isAbort(error) ? t("Cancelled.") : error.message;
    } finally {
      running = null;
      go.textContent = t("Measure");
      progress.hidden = true;
    }
  }

  function draw(whole, found) {
    const colours = palette(results);
    const most = Math.max(1e-9, ...found.map(({ change }) => Math.abs(change)));
    results.replaceChildren(...(each === "heads" ? [headTable(found, most, colours)] : []), ranking(whole, found,
      most));
  }

  const tools = h("div", { class: "st-choices" },
    menu(t("Switch off"), options, each, (value) => { each = value; }),
    menu(t("Examples"), [["own", t("Held out of its training data")], ["builtin", t("Built-in")]], data,
      (value) => { data = value; }),
    slider(t("Batches"), MOST - 1, batches - 1, (value) => String(value + 1),
      (value) => { batches = value + 1; }), go, progress);
  element.append(modelMenu(models, model, (name) => studio.go("what-if", { model: name, tab: "data" })), tools, note,
    results);
  return { close: () => running?.abort() };
}

/** Layers and heads as a table: blue where the loss rises without the head, red where it falls. */
function headTable(found, most, colours) {
  const layers = new Map();
  for (const { name, change } of found) {
    const [layer, head] = name.split(":");
    if (!layers.has(layer)) layers.set(layer, []);
    layers.get(layer)[Number(head)] = change;
  }
  const count = Math.max(0, ...[...layers.values()].map((row) => row.length));
  const cell = (change) => {
    const colour = colours.signed(change / most);
    return h("td", { style: { background: colour, color: colours.inkOn(colour) } }, signed(change));
  };
  const label = t("Rise of the loss without each head");
  return h("div", { class: "ch-scroll" }, partLabel(label), h("table", { class: "ch-number-matrix",
    "aria-label": label },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("Head")),
      Array.from({ length: count }, (_, head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, [...layers].map(([name, row]) => h("tr", {}, h("th", { scope: "row" }, name), row.map(cell))))));
}

function ranking(whole, found, most) {
  const line = ({ name, loss, change }) => h("li", {},
    h("span", {}, name === "chosen" ? t("What is switched off") : partName(name)),
    h("span", { class: change < 0 ? "ch-meter ch-below" : "ch-meter", "aria-hidden": "true" }, h("span",
      { style: { width: `${Math.max(0.5, (100 * Math.abs(change)) / most)}%` } })),
    h("span", { class: "ch-number" }, `${signed(change)} → ${format(loss)}`));
  return h("ul", { class: "ch-rivals st-losses" }, [...found].sort((a, b) => b.change - a.change).slice(0,
    12).map(line));
}

/** "encoder.1" or, for a head, "encoder.1.self:3" as a reader says it. */
function partName(name) {
  const [part, head] = name.split(":");
  return head === undefined ? part : t("{part} head {head}", { part, head });
}

function signed(change) {
  return `${change > 0 ? "+" : ""}${format(change)}`;
}

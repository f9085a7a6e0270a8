// The loss of a model on held-out examples, without one part after the other, or without what is switched off.

import { isAbort, lines } from "./api.js";
import { t } from "./i18n.js";
import { modelMenu } from "./shared.js";
import { button, menu, partLabel, slider } from "./views/controls.js";
import { h } from "./views/dom.js";
import { headName, partName } from "./views/names.js";
import { format } from "./views/numbers.js";
import { palette } from "./views/theme.js";

const MOST = 32; // batches
const ROUTE = "/studio/api/what-if/data";

/**
 * The lines of a measurement on held-out examples; where the model does not know the built-in ones, `onOwn` is told and
 * its own are measured.
 */
export async function* heldOut(path, body, signal, onOwn = () => {}) {
  try {
    yield* lines(path, body, signal);
  } catch (error) {
    if (isAbort(error) || body.data !== "builtin") throw error;
    onOwn();
    yield* lines(path, { ...body, data: "own" }, signal);
  }
}

/** Put the panel into an element; `off` is what is switched off for one input. It measures every block at once. */
export function dataPanel(element, { models, model, off, studio }) {
  const chosen = off.scale || off.mask || off.positions || off.layers.length || off.heads.length;
  const options = [["layers", t("Every block by itself")], ["heads", t("Every head by itself")],
    ...(chosen ? [["chosen", t("What is switched off")]] : [])];
  const request = { each: chosen ? "chosen" : "layers", data: model.held_out, batches: 1 };
  let running = null; // an AbortController
  const results = h("div", { class: "st-results clearhead" });
  const progress = h("progress", { max: 1, value: 0, "aria-label": t("Examples measured"), hidden: true });
  const note = h("p", { class: "st-hint", role: "status" });
  const go = h("button", { type: "button", class: "st-go",
    onclick: () => (running ? running.abort() : measure()) }, t("Measure"));

  async function measure(read = lines) {
    running?.abort();
    const own = (running = new AbortController());
    const { each } = request;
    go.textContent = t("Cancel");
    progress.hidden = false;
    const found = [];
    let whole = null;
    const say = (text) => { if (running === own) note.textContent = text; };
    try {
      for await (const line of read(ROUTE, { model: model.name, ...off, ...request }, own.signal)) {
        if (running !== own) return;
        if ("done" in line) {
          [progress.max, progress.value] = [line.of || 1, line.done];
          say(line.of ? t("{n} of {all} batches", { n: line.done, all: line.of }) : t("Reading the examples …"));
        } else if (line.name === "") whole = line;
        else found.push(line);
        if (!("done" in line)) draw(each, whole, found);
      }
      say(t("The loss of the whole model is {loss}, over {n} predictions.",
        { loss: format(whole.loss), n: whole.count }));
    } catch (error) {
      say(isAbort(error) ? t("Cancelled.") : error.message);
    } finally {
      if (running === own) {
        running = null;
        go.textContent = t("Measure");
        progress.hidden = true;
      }
    }
  }

  function draw(each, whole, found) {
    if (!found.length) return;
    const colours = palette(results);
    const most = Math.max(1e-9, ...found.map(({ change }) => Math.abs(change)));
    results.replaceChildren(...(each === "heads" ? [headTable(found, most, colours)] : []),
      h("div", {}, partLabel(t("How much the loss rises without each part, and the loss then: the longer the bar, "
        + "the more the model needs the part")), ranking(found, most)));
  }

  /** Measure anew with another setting. */
  const change = (changes) => {
    Object.assign(request, changes);
    measure();
  };
  const examples = menu(t("Examples"), [["own", t("Held out of its training data")], ["builtin", t("Built-in")]],
    request.data, (data) => change({ data }));
  const tools = h("div", { class: "st-choices" },
    menu(t("Switch off"), options, request.each, (each) => change({ each })), examples,
    slider(t("Batches"), MOST - 1, request.batches - 1, (value) => String(value + 1),
      (value) => { request.batches = value + 1; }), go, progress);
  element.append(modelMenu(models, model, (name) => studio.go("what-if", { model: name, tab: "data" })),
    h("p", { class: "st-news" }, t("The model reads examples that it was not "
      + "trained on; the rise of the loss without a part is how much it needs it.")), tools, note, results);
  measure((...what) => heldOut(...what, () => {
    examples.querySelector("select").value = request.data = "own";
  }));
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
  return h("div", {}, partLabel(label), h("div", { class: "st-inner", tabindex: 0, role: "region",
    "aria-label": label }, h("table", { class: "ch-number-matrix", "aria-label": label },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("Head")),
      Array.from({ length: count }, (_, head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, [...layers].map(([name, row]) => h("tr", {},
      h("th", { scope: "row", title: name }, partName(name)), row.map(cell)))))));
}

/** Parts by what the loss is without them, [{name, loss, change}, …]; `onPick` makes their names buttons. */
export function ranking(found, most, onPick) {
  const part = (name) => (onPick ? button(headName(name), () => onPick(name))
    : h("span", { title: name }, headName(name)));
  const line = ({ name, loss, change }) => h("li", {},
    name === "chosen" ? h("span", {}, t("What is switched off")) : part(name),
    h("span", { class: change < 0 ? "ch-meter ch-below" : "ch-meter", "aria-hidden": "true" }, h("span",
      { style: { width: `${Math.max(0.5, (100 * Math.abs(change)) / most)}%` } })),
    h("span", { class: "ch-number" }, `${signed(change)} → ${format(loss)}`));
  return h("ul", { class: "ch-rivals st-losses" }, [...found].sort((a, b) => b.change - a.change).slice(0,
    12).map(line));
}

function signed(change) {
  return `${change > 0 ? "+" : ""}${format(change)}`;
}

// Changing what a model computes: the controls of the part that is open, and the bar that lists what is changed.
//
// A change is an object of `look/changes.py` or `studio/changes.py`: {kind: "weight", layer, head, query, key, weight}.

import { button, choice, menu, partLabel, toggle } from "./controls.js";
import { clamp, h } from "./dom.js";
import { t } from "./i18n.js";
import { partName } from "./names.js";
import { format, percent, visible } from "./numbers.js";

const FIELDS = {
  weight: ["layer", "head", "query", "key"], head: ["layer", "head"], block: ["block"], seen: ["layer", "query", "key"],
  mask: ["layer"], positions: [], place: ["stack", "token"], token: ["stack", "token"], temperature: [],
  patch: ["state", "token"],
};
export const MODES = [["beside", t("Beside each other")], ["changed", t("Changed")], ["difference", t("Difference")]];

const TITLE = t("Change it and see");

/** Whether two changes are about the same thing: the later one replaces the earlier. */
export function isSame(one, other) {
  return one.kind === other.kind && FIELDS[one.kind].every((field) => one[field] === other[field]);
}

/** The changes with one more. Weights of a row depend on those set before, so only the last one is replaced. */
export function withChange(changes, change) {
  if (change.kind !== "weight") return [...changes.filter((each) => !isSame(each, change)), change];
  const last = changes.at(-1);
  return [...(last && isSame(last, change) ? changes.slice(0, -1) : changes), change];
}

/** A row of weights with one of them set: the others keep their proportions. */
export function withWeight(row, key, weight) {
  const rest = row.reduce((sum, each, place) => (place === key ? sum : sum + each), 0);
  return row.map((each, place) => (place === key ? weight : rest > 0 ? (each / rest) * (1 - weight) : 0));
}

/** A change in words. */
export function changeName(change, axes) {
  const stack = (change.layer ?? change.state ?? "").split(".")[0] || change.stack;
  const token = (place, of = stack) => visible(axes[of]?.[place] ?? String(place));
  const keys = change.layer?.endsWith(".cross") ? "encoder" : stack;
  const { head } = change;
  const layer = partName(change.layer ?? "");
  const word = token(change.token);
  const pair = { layer, head, query: token(change.query), key: token(change.key, keys) };
  switch (change.kind) {
    case "weight": return t("{layer}, head {head}: “{query}” → “{key}” {share}",
      { ...pair, share: percent(change.weight) });
    case "head": return t("{layer}, head {head} × {factor}", { ...pair, factor: format(change.factor) });
    case "block": return t("{block} switched off", { block: partName(change.block) });
    case "seen": return change.seen ? t("{layer}: “{query}” sees “{key}”", pair)
      : t("{layer}: “{query}” does not see “{key}”", pair);
    case "mask": return change.layer ? t("{layer}: no mask", pair) : t("no mask");
    case "positions": return t("no positions");
    case "place": return t("“{word}” stands at place {place}", { word, place: change.place });
    case "token": return change.word ? t("“{word}” is now “{other}”", { word, other: change.word })
      : t("“{word}” taken out", { word });
    case "temperature": return t("temperature {value}", { value: format(change.value) });
    default: return t("{state}: “{word}” from “{donor}”", { state: partName(change.state), word, donor: change.donor });
  }
}

/**
 * The bar above a changed model: both answers, each change with a button that takes it back, and how to compare.
 *
 * `actions` are {remove(change), clear(), mode(name), follow(on), again()}; without a `mode` there is one way to
 * compare.
 */
export function changeBar({ changes, axes, answers, mode = null, modes = MODES, follow, canFollow }, actions) {
  const sentence = (label, words, other) => h("p", { class: "ch-answer-line" }, h("span", { class: "ch-label" }, label),
    h("bdi", {}, words === undefined ? "…" : marked(words, other ?? words)));
  const drawn = changes.some(({ kind }) => kind === "temperature");
  return h("section", { class: "ch-changes", "aria-label": t("What you changed") },
    h("div", { class: "ch-answers", "aria-live": "polite" },
      sentence(t("Original answer"), answers?.original, null),
      sentence(t("Changed answer"), answers?.changed, answers?.original)),
    h("ul", { "aria-label": t("Changes") }, changes.map((change) => h("li", {},
      h("span", {}, changeName(change, axes)),
      button("×", () => actions.remove(change), t("Take this change back"))))),
    h("div", { class: "ch-change-tools" },
      ...(mode ? [choice(t("Show"), modes, mode, actions.mode)] : []),
      ...(canFollow ? [toggle(t("Read the changed answer"), follow, actions.follow)] : []),
      ...(drawn ? [button(t("Draw again"), actions.again)] : []),
      button(t("Take all back"), actions.clear)));
}

/** A text whose words are marked where another text has other ones. */
function marked(text, other) {
  const known = other.split(/\s+/);
  const same = common(text.split(/\s+/), known);
  return text.split(/(\s+)/).map((word) => (!word.trim() ? word : same.shift() ? word : h("mark", {}, word)));
}

/** For each word whether it belongs to the longest common sequence of words. */
function common(words, others) {
  const best = Array.from({ length: words.length + 1 }, () => new Array(others.length + 1).fill(0));
  for (let i = words.length - 1; i >= 0; i -= 1) {
    for (let j = others.length - 1; j >= 0; j -= 1) {
      best[i][j] = words[i] === others[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
    }
  }
  const found = [];
  let [i, j] = [0, 0];
  while (i < words.length) {
    if (j < others.length && words[i] === others[j]) {
      found.push(true);
      i += 1;
      j += 1;
    } else if (j < others.length && best[i][j + 1] >= best[i + 1][j]) {
      j += 1;
    } else {
      found.push(false);
      i += 1;
    }
  }
  return found;
}

/** A slider over decimal numbers; `onChange(value, isDone)` hears every movement and the end of it. */
function decimal(label, { min, max, step, value, write }, onChange) {
  const output = h("span", { class: "ch-value", "aria-hidden": "true" }, write(value));
  const show = () => {
    output.textContent = write(Number(input.value));
    input.setAttribute("aria-valuetext", write(Number(input.value)));
  };
  const input = h("input", { type: "range", min, max, step, value, "aria-label": label, "aria-valuetext": write(value),
    oninput: () => { show(); onChange(Number(input.value), false); },
    onchange: () => { show(); onChange(Number(input.value), true); } });
  const set = (next) => {
    input.value = next;
    show();
  };
  return { element: h("label", { class: "ch-slider" }, h("span", { class: "ch-label" }, label), input, output), set,
    input };
}

/**
 * The controls of what is open: elements, none where nothing can be changed.
 *
 * `scene` is {data, node, row, column, row weights of the shown model, changes}; `make(change, isDone)` makes a change.
 */
export function changeControls({ data, node, row, column, weights, changes }, make) {
  const found = [];
  const part = node.type === "part" ? data.parts[node.id] : null;
  const layer = layerOf(data, node);
  const known = (change) => changes.find((each) => isSame(each, change));
  if (node.key === "") found.push(...wholeModel(data, known, make));
  if (node.kind === "block") found.push(blockSwitch(node.id, known, make));
  if (part?.op === "softmax" && row !== null && weights) found.push(weightSliders(data, part, layer, node.head, row,
    column, weights, make));
  if (part?.op === "softmax" && column !== null && weights) {
    found.push(seenSwitch(data, part, layer, row, column, weights, make));
  }
  if (layer && (node.type === "head" || part?.shape.length === 3)) found.push(headSlider(layer, node.head, known,
    make));
  if (node.kind === "attention" && layer?.startsWith("decoder") && layer.endsWith(".self")) found.push(maskSwitch(layer,
    known, make));
  if (part && row !== null && stackOf(part) && (part.op === "lookup")) found.push(wordForm(data, part, row, make));
  if (part && row !== null && stackOf(part) && (part.op === "rotate"
    || part.name === "position")) found.push(placeMenu(data, part, row, known, make));
  if (["probabilities", "logits", "output"].includes(node.id)) found.push(temperatureSlider(known, make));
  if (!found.length) return [];
  return [h("section", { class: "ch-change", "aria-label": TITLE }, partLabel(h("strong", {}, TITLE)), ...found)];
}

/** The controls of one query of one head: its weights, the output of the head, and the words that it looks at. */
export function headControls({ layer, head, query, columns, weights, changes, stack }, make) {
  const known = (change) => changes.find((each) => isSame(each, change));
  const data = { axes: { columns, [stack]: columns }, parts: {} };
  return h("section", { class: "ch-change", "aria-label": TITLE },
    weightSliders(data, { columns: "columns" }, layer, head, query, null, weights, make),
    headSlider(layer, head, known, make), keyForm(columns, stack, make));
}

/** Another word for one of the tokens that are looked at. */
function keyForm(words, stack, make) {
  let token = 0;
  const input = h("input", { class: "ch-word-input", "aria-label": t("Another word"), value: words[0], maxlength: 100,
    autocomplete: "off", spellcheck: "false" });
  const submit = (event) => {
    event.preventDefault();
    make({ kind: "token", stack, token, word: input.value.trim() || input.value }, true);
  };
  const choose = (value) => {
    token = Number(value);
    input.value = words[token];
  };
  return h("form", { class: "ch-with-buttons", onsubmit: submit },
    menu(t("Token"), words.map((word, place) => [String(place), `${place}: ${visible(word)}`]), "0", choose),
    h("label", {}, h("span", { class: "ch-label" }, t("Write another word")), input),
    h("button", { class: "ch-button" }, t("Change")));
}

/** The attention layer that a part belongs to: decoder.1.cross; null elsewhere. */
function layerOf(data, node) {
  for (let one = node; one; one = one.parent) if (one.kind === "attention") return one.id;
  return null;
}

function stackOf(part) {
  return ["encoder", "decoder"].includes(part.rows) ? part.rows : null;
}

function wholeModel(data, known, make) {
  const causal = Object.keys(data.groups).some((id) => /^decoder\.\d+\.self$/.test(id));
  const placed = Object.values(data.parts).some(({ op, name }) => op === "rotate" || name === "position");
  return [
    h("p", { class: "ch-about" }, t("Zoom in to a word, a weight, a head, a block or the answer, and change it there: "
      + "everything after it is computed anew, beside the original.")),
    ...(causal ? [toggle(t("No mask: every token sees the later ones"), Boolean(known({ kind: "mask", layer: "" })),
      (on) => make({ kind: "mask", layer: "" }, true, !on))] : []),
    ...(placed ? [toggle(t("No positions"), Boolean(known({ kind: "positions" })),
      (on) => make({ kind: "positions" }, true, !on))] : []),
  ];
}

function blockSwitch(block, known, make) {
  return toggle(t("Switch this block off"), Boolean(known({ kind: "block", block })),
    (on) => make({ kind: "block", block }, true, !on));
}

function maskSwitch(layer, known, make) {
  return toggle(t("No mask in this layer"), Boolean(known({ kind: "mask", layer })),
    (on) => make({ kind: "mask", layer }, true, !on));
}

/** A slider for each key that the query sees: drag one, and the others follow. */
function weightSliders(data, part, layer, head, query, column, weights, make) {
  const words = data.axes[part.columns];
  let row = Array.from(weights.row);
  const seen = row.map((_, key) => weights.visible(key));
  const alone = seen.filter(Boolean).length < 2;
  const sliders = row.map((weight, key) => (seen[key] ? decimal(visible(words[key]),
    { min: 0, max: 1, step: 0.01, value: weight, write: shortShare }, (value, isDone) => {
      row = withWeight(row, key, value);
      sliders.forEach((each, place) => { if (each && place !== key) each.set(row[place]); });
      make({ kind: "weight", layer, head, query, key, weight: value }, isDone);
    }) : null));
  sliders.forEach((each, key) => {
    if (!each) return;
    each.input.disabled = alone;
    each.input.dataset.keep = `weight ${key}`;
    if (key === column) each.element.setAttribute("aria-current", "true");
  });
  return h("div", { class: "ch-weights", role: "group", "aria-label": t("Weights of this query") },
    h("p", { class: "ch-label" }, t("Drag a weight; the others share the rest")),
    sliders.filter(Boolean).map(({ element }) => element));
}

/** A share in a narrow column: "60 %", "< 1 %". */
function shortShare(share) {
  return share > 0 && share < 0.01 ? "< 1 %" : percent(share);
}

function seenSwitch(data, part, layer, query, key, weights, make) {
  const seen = weights.visible(key);
  return toggle(t("This query sees this key"), seen, (on) => make({ kind: "seen", layer, query, key, seen: on }, true));
}

function headSlider(layer, head, known, make) {
  const factor = known({ kind: "head", layer, head })?.factor ?? 1;
  const made = decimal(t("Output of this head ×"), { min: 0, max: 3, step: 0.1, value: factor, write: format },
    (value, isDone) => make({ kind: "head", layer, head, factor: value }, isDone, value === 1 && isDone));
  made.input.dataset.keep = "head";
  return h("div", { class: "ch-with-buttons" }, made.element,
    button(t("Zero"), () => make({ kind: "head", layer, head, factor: 0 }, true), t("Switch this head off")));
}

function wordForm(data, part, row, make) {
  const stack = stackOf(part);
  const input = h("input", { class: "ch-word-input", "aria-label": t("Another word"), value: data.axes[stack][row],
    maxlength: 100, autocomplete: "off", spellcheck: "false", "data-keep": "word" });
  const submit = (event) => {
    event.preventDefault();
    make({ kind: "token", stack, token: row, word: input.value.trim() || input.value }, true);
  };
  return h("form", { class: "ch-with-buttons", onsubmit: submit },
    h("label", {}, h("span", { class: "ch-label" }, t("Write another word")), input),
    h("button", { class: "ch-button" }, t("Change")));
}

function placeMenu(data, part, row, known, make) {
  const stack = stackOf(part);
  const place = known({ kind: "place", stack, token: row })?.place ?? row;
  const options = data.axes[stack].map((word, index) => [String(index), `${index}: ${visible(word)}`]);
  return menu(t("It stands at place"), options, String(place),
    (value) => make({ kind: "place", stack, token: row, place: Number(value) }, true, Number(value) === row));
}

function temperatureSlider(known, make) {
  const { value = 1, seed = 0 } = known({ kind: "temperature" }) ?? {};
  const made = decimal(t("Temperature"), { min: 0.1, max: 3, step: 0.1, value, write: format },
    (next, isDone) => make({ kind: "temperature", value: clamp(next, 0.1, 3), seed }, isDone, next === 1 && isDone));
  made.input.dataset.keep = "temperature";
  return made.element;
}

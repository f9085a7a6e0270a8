// Attention step by step, with the real numbers of one layer, head and query.

import { get, isAbort, post } from "./api.js";
import { t } from "./i18n.js";
import { parseJson } from "./link.js";
import { findModel, inputBar, inputText, noModel, resultPanel } from "./shared.js";
import { menu } from "./views/controls.js";
import { h } from "./views/dom.js";
import { kindOptions } from "./views/looks.js";
import { visible } from "./views/numbers.js";
import { mount } from "./views/steps.js";

export const NAME = t("Steps");
export const ABOUT = t("One query at a time: score, scale, softmax, weight, sum, with the numbers of a real head and the line of code.");
export const fits = ({ attends, reads }) => attends && reads !== "image";

/** The head and query that are chosen, for other views. */
export const selection = ({ kind, layer, head, query }) => ({ kind, layer, head, query });

/** The state that shows a selection of another view. */
export const select = ({ kind, layer, head, query }) => ({ kind, layer, head, query });

export function open(element, state, studio) {
  const models = studio.models(fits);
  if (!models.length) return element.append(noModel(t("None of the loaded models attends to tokens.")));
  const model = findModel(models, state.model);
  const { place, load, showError, element: panel } = resultPanel();
  const request = {
    text: inputText(model, state.text), kind: state.kind, step: Number(state.step ?? 0),
    layer: Number(state.layer ?? 1), head: Number(state.head ?? 2), query: Number(state.query ?? 1),
  };
  const tools = h("div", { class: "st-choices", role: "group", "aria-label": t("Attention, layer, head and query") });
  let look = null;
  let view = null;
  let changes = Array.isArray(parseJson(state.changes)) ? parseJson(state.changes) : [];
  let answers = null;
  let waiting = null; // the request for the last change
  let examples = [];
  let example = state.example ?? ""; // of the lectures, instead of a sentence

  function refresh(changed = {}) {
    Object.assign(request, changed);
    if (example) return showExample();
    return load(async (isCurrent) => {
      if (changed.text !== undefined || !look) look = await post("/studio/api/look", { model: model.name,
        text: request.text });
      clamp();
      const { text, kind, layer, head, query } = request;
      const data = await post("/studio/api/steps", { model: model.name, text, kind, layer, head, query, changes });
      if (!isCurrent()) return;
      saveState();
      drawChoices();
      show(data);
      if (changes.length && !answers) await answer();
    });
  }

  function show(data) {
    const change = { make, state: () => ({ changes, answers, axes: look?.tokens ?? {} }) };
    if (view) view.update(data, { step: request.step });
    else view = mount(place, data, { chosen: { step: request.step }, change,
      onChange: ({ step }) => { request.step = step; saveState(); } });
    view.drawBar();
  }

  // --- changes ---

  function make(next, { live }) {
    changes = next;
    answers = null;
    if (!live) saveState();
    compare().catch((error) => { if (!isAbort(error)) showError(error.message); });
  }

  /** The steps with the changes; a newer change replaces one that is under way. */
  async function compare() {
    waiting?.abort();
    const mine = (waiting = new AbortController());
    const { text, kind, layer, head, query } = request;
    const data = await post("/studio/api/steps", { model: model.name, text, kind, layer, head, query, changes },
      mine.signal);
    if (mine.signal.aborted) return;
    showError("");
    show(data);
    if (changes.length) await answer(mine.signal);
  }

  async function answer(signal) {
    answers = await post("/studio/api/xray/answer", { model: model.name, text: request.text, beams: model.continues ? 0
      : 1, changes }, signal);
    view.drawBar();
  }

  function showExample() {
    load(async (isCurrent) => {
      if (!examples.length) examples = await get("/studio/api/steps/examples");
      const found = examples.find(({ name }) => name === example) ?? examples[0];
      if (!isCurrent()) return;
      example = found.name;
      request.step = Math.min(request.step, found.steps.steps.length - 1);
      saveState();
      tools.replaceChildren(exampleMenu());
      show(found.steps);
    });
  }

  function exampleMenu() {
    const options = [["", t("This sentence")], ...examples.map(({ name }) => [name, t(name)])];
    return menu(t("Example"), options, example, (name) => {
      example = name;
      refresh();
    });
  }

  /** Limit the request to what this text and model have. */
  function clamp() {
    request.kind = request.kind in look.attention ? request.kind : Object.keys(look.attention).at(-1);
    const { weights, rows } = look.attention[request.kind];
    request.layer = Math.min(request.layer, weights.length - 1);
    request.head = Math.min(request.head, weights[0].length - 1);
    request.query = Math.min(request.query, rows.length - 1);
  }

  function saveState() {
    studio.set({ model: model.name, ...request, example, changes: changes.length ? JSON.stringify(changes) : "" });
  }

  function drawChoices() {
    const focused = tools.contains(document.activeElement) ? document.activeElement.closest("label")?.innerText : null;
    const { weights, rows } = look.attention[request.kind];
    const numbers = (count) => Array.from({ length: count }, (_, number) => [String(number), String(number)]);
    const set = (name) => (value) => refresh({ [name]: Number(value) });
    tools.replaceChildren(
      ...(examples.length ? [exampleMenu()] : []),
      menu(t("Attention"), kindOptions(look), request.kind, (kind) => refresh({ kind })),
      menu(t("Layer"), numbers(weights.length), String(request.layer), set("layer")),
      menu(t("Head"), numbers(weights[0].length), String(request.head), set("head")),
      menu(t("Query"), rows.map((word, row) => [String(row), `${row}: ${visible(word)}`]), String(request.query),
        set("query")));
    const previous = [...tools.children].find((label) => label.innerText === focused);
    previous?.querySelector("select").focus();
  }

  const bar = inputBar({ models, model, text: request.text, action: t("Look"),
    onSubmit: (text) => { example = ""; [changes, answers] = [[], null]; refresh({ text }); },
    onModel: (name) => studio.go("steps", { model: name }) });
  element.append(bar.element, tools, panel);
  refresh();
  get("/studio/api/steps/examples").then((found) => {
    examples = found;
    if (look && !example) drawChoices();
  }, () => {});
  return {
    close() {
      waiting?.abort();
      view?.destroy();
    },
  };
}

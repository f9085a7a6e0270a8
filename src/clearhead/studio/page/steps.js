// Attention step by step, with the real numbers of one layer, head and query.

import { get, post } from "./api.js";
import { findModel, inputBar, inputText, noModel, resultPanel } from "./shared.js";
import { menu } from "./views/controls.js";
import { h } from "./views/dom.js";
import { kindOptions } from "./views/looks.js";
import { visible } from "./views/numbers.js";
import { mount } from "./views/steps.js";

export const NAME = "Steps";
export const ABOUT = "One query at a time: score, scale, softmax, weight, sum, with the numbers of a real head and the line of code.";
export const fits = ({ attends, reads }) => attends && reads !== "image";

/** The head and query that are chosen, for other views. */
export const selection = ({ kind, layer, head, query }) => ({ kind, layer, head, query });

/** The state that shows a selection of another view. */
export const select = ({ kind, layer, head, query }) => ({ kind, layer, head, query });

export function open(element, state, studio) {
  const models = studio.models(fits);
  if (!models.length) return element.append(noModel("attends to tokens"));
  const model = findModel(models, state.model);
  const { place, load, element: panel } = resultPanel();
  const request = {
    text: inputText(model, state.text), kind: state.kind, step: Number(state.step ?? 0),
    layer: Number(state.layer ?? 1), head: Number(state.head ?? 2), query: Number(state.query ?? 1),
  };
  const tools = h("div", { class: "st-choices", role: "group", "aria-label": "Attention, layer, head and query" });
  let look = null;
  let view = null;
  let examples = [];
  let example = state.example ?? ""; // of the lectures, instead of a sentence

  function refresh(changes = {}) {
    Object.assign(request, changes);
    if (example) return showExample();
    return load(async (isCurrent) => {
      if (changes.text !== undefined || !look) look = await post("/studio/api/look", { model: model.name, text: request.text });
      clamp();
      const { text, kind, layer, head, query } = request;
      const data = await post("/studio/api/steps", { model: model.name, text, kind, layer, head, query });
      if (!isCurrent()) return;
      saveState();
      drawChoices();
      show(data);
    });
  }

  function show(data) {
    if (view) view.update(data, { step: request.step });
    else view = mount(place, data, { chosen: { step: request.step }, onChange: ({ step }) => { request.step = step; saveState(); } });
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
    const options = [["", "This sentence"], ...examples.map(({ name }) => [name, name])];
    return menu("Example", options, example, (name) => {
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
    studio.set({ model: model.name, ...request, example });
  }

  function drawChoices() {
    const focused = tools.contains(document.activeElement) ? document.activeElement.closest("label")?.innerText : null;
    const { weights, rows } = look.attention[request.kind];
    const numbers = (count) => Array.from({ length: count }, (_, number) => [String(number), String(number)]);
    const set = (name) => (value) => refresh({ [name]: Number(value) });
    tools.replaceChildren(
      ...(examples.length ? [exampleMenu()] : []),
      menu("Attention", kindOptions(look), request.kind, (kind) => refresh({ kind })),
      menu("Layer", numbers(weights.length), String(request.layer), set("layer")),
      menu("Head", numbers(weights[0].length), String(request.head), set("head")),
      menu("Query", rows.map((word, row) => [String(row), `${row}: ${visible(word)}`]), String(request.query), set("query")));
    const previous = [...tools.children].find((label) => label.innerText === focused);
    previous?.querySelector("select").focus();
  }

  const bar = inputBar({ models, model, text: request.text, action: "Look",
    onSubmit: (text) => { example = ""; refresh({ text }); }, onModel: (name) => studio.go("steps", { model: name }) });
  element.append(bar.element, tools, panel);
  refresh();
  get("/studio/api/steps/examples").then((found) => {
    examples = found;
    if (look && !example) drawChoices();
  }, () => {});
  return { close: () => view?.destroy() };
}

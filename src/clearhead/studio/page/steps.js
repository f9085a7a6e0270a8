// Attention step by step, with the real numbers of a layer, a head and a word.

import { post } from "./api.js";
import { answers, bar, modelOf, nobody, textOf } from "./parts.js";
import { menu } from "./views/controls.js";
import { h } from "./views/dom.js";
import { kindOptions } from "./views/looks.js";
import { visible } from "./views/numbers.js";
import { mount } from "./views/steps.js";

export const NAME = "Steps";
export const ABOUT = "One word asks: score, scale, softmax, weight, sum, with the numbers of a real head and the line of code.";
export const fits = ({ attends, image }) => attends && !image;

export function open(element, state, studio) {
  const models = studio.models(fits);
  if (!models.length) return element.append(nobody("attends to words"));
  const model = modelOf(models, state.model);
  const { place, attempt, element: answer } = answers();
  const wish = {
    text: textOf(model, state.text), kind: state.kind, step: Number(state.step ?? 0),
    layer: Number(state.layer ?? 1), head: Number(state.head ?? 2), query: Number(state.query ?? 1),
  };
  const tools = h("div", { class: "st-choices", role: "group", "aria-label": "Whose attention" });
  let look = null;
  let view = null;

  function ask(part = {}) {
    Object.assign(wish, part);
    attempt(async (current) => {
      if (part.text !== undefined || !look) look = await post("/look", { model: model.name, text: wish.text });
      settle();
      const { text, kind, layer, head, query } = wish;
      const data = await post("/studio/api/steps", { model: model.name, text, kind, layer, head, query });
      if (!current()) return;
      keep();
      choices();
      if (view) view.update(data, { step: wish.step });
      else view = mount(place, data, { chosen: { step: wish.step }, onChange: ({ step }) => { wish.step = step; keep(); } });
    });
  }

  /** What was wished where this text has it, the nearest where not. */
  function settle() {
    wish.kind = wish.kind in look.attention ? wish.kind : Object.keys(look.attention).at(-1);
    const { weights, rows } = look.attention[wish.kind];
    wish.layer = Math.min(wish.layer, weights.length - 1);
    wish.head = Math.min(wish.head, weights[0].length - 1);
    wish.query = Math.min(wish.query, rows.length - 1);
  }

  function keep() {
    studio.set({ model: model.name, ...wish });
  }

  function choices() {
    const focused = tools.contains(document.activeElement) ? document.activeElement.closest("label")?.innerText : null;
    const { weights, rows } = look.attention[wish.kind];
    const counted = (count) => Array.from({ length: count }, (_, number) => [String(number), String(number)]);
    const number = (name) => (value) => ask({ [name]: Number(value) });
    tools.replaceChildren(
      menu("Attention", kindOptions(look), wish.kind, (kind) => ask({ kind })),
      menu("Layer", counted(weights.length), String(wish.layer), number("layer")),
      menu("Head", counted(weights[0].length), String(wish.head), number("head")),
      menu("Word that asks", rows.map((word, row) => [String(row), `${row}: ${visible(word)}`]), String(wish.query), number("query")));
    const same = [...tools.children].find((label) => label.innerText === focused);
    same?.querySelector("select").focus();
  }

  const asked = bar({ models, model, text: wish.text, action: "Look",
    onAsk: (text) => ask({ text }), onModel: (name) => studio.go("steps", { model: name }) });
  element.append(asked.element, tools, answer);
  ask();
  return { close: () => view?.destroy() };
}

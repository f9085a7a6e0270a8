// What several pages share: the bar that asks, a place for answers, and a line for what went wrong.

import { isAbort } from "./api.js";
import { button, menu } from "./views/controls.js";
import { h } from "./views/dom.js";

const SEVERAL_LINES = ["lm"]; // tasks whose texts have more than one line

/** The model that a state names, or the first that will do. */
export function modelOf(models, name) {
  return models.find((model) => model.name === name) ?? models[0];
}

/** The text that a state has, or one to begin with. */
export function textOf(model, text) {
  return text ?? model.examples[0] ?? "";
}

/**
 * A model to choose, a text to write and a button: {element, model, text}.
 *
 * `onAsk` is told when there is something to answer, `onModel` when another model was chosen.
 */
export function bar({ models, model, text, action, onAsk, onModel, more = [] }) {
  const input = h(SEVERAL_LINES.includes(model.task) ? "textarea" : "input", {
    class: "st-input", "aria-label": "Text", autocomplete: "off", spellcheck: "false", rows: 3, maxlength: 2000,
  });
  input.value = text;
  const ask = (event) => {
    event?.preventDefault();
    onAsk(input.value);
  };
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) ask(event);
  });
  const example = (words) => button(words.replaceAll("\n", " ⏎ "), () => {
    input.value = words;
    ask();
  });
  const element = h("form", { class: "st-bar", onsubmit: ask },
    modelMenu(models, model, onModel),
    h("div", { class: "st-ask" }, input, h("button", { class: "st-go" }, action)),
    h("div", { class: "st-more" }, ...more,
      h("span", { class: "st-examples", role: "group", "aria-label": "Examples" },
        h("span", { class: "ch-label", "aria-hidden": "true" }, "Try"), model.examples.map(example))));
  return { element, text: () => input.value };
}

/** The models of a page in a list; where there is one, its name. */
export function modelMenu(models, model, onModel) {
  const options = models.map(({ name, task }) => [name, `${name} · ${task}`]);
  return h("div", { class: "st-model" }, menu("Model", options, model.name, onModel),
    h("span", { class: "st-title", title: model.title }, model.title));
}

/** A place for an answer and a line for what went wrong: {element, place, attempt}. */
export function answers() {
  const place = h("div", { class: "st-place" });
  const trouble = h("p", { class: "st-trouble", role: "alert", hidden: true });
  let asked = 0;
  const say = (sentence) => {
    trouble.textContent = sentence;
    trouble.hidden = !sentence;
  };
  /** Run something that asks the server; only the last one that was begun may speak. */
  async function attempt(work) {
    const own = (asked += 1);
    const current = () => own === asked && place.isConnected;
    place.setAttribute("aria-busy", "true");
    try {
      await work(current);
      if (current()) say("");
    } catch (error) {
      if (current() && !isAbort(error)) say(error.message);
    } finally {
      if (own === asked) place.removeAttribute("aria-busy");
    }
  }
  return { element: h("div", {}, trouble, place), place, attempt };
}

/** What a page says where no model can do what it shows. */
export function nobody(what) {
  return h("p", { class: "st-nobody" }, `None of the models that are loaded ${what}. Start the Studio with one that does.`);
}

/** Call something only when nothing new has come for a moment. */
export function after(milliseconds, work) {
  let timer = null;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), milliseconds);
  };
}

// What several views share: the input bar, the model menu, a panel for results and errors.

import { isAbort } from "./api.js";
import { language, t, tParts, translated } from "./i18n.js";
import { button, menu } from "./views/controls.js";
import { h } from "./views/dom.js";

// in English the names of tasks are those of the command line: these are for readers who never saw it
const TASKS = { caption: "captions", classify: "text classifier", embed: "embeddings", lm: "language model",
  masked_lm: "fills gaps", tag: "tagger", translate: "translator", vision: "image classifier", words: "word vectors" };

/** What a model does, as a reader says it. */
export function taskName(task) {
  return language() === "en" ? TASKS[task] ?? task : t(task);
}

/** The model with a name, or the first one. */
export function findModel(models, name) {
  return models.find((model) => model.name === name) ?? models[0];
}

/** The text of a link, or the model's first example. */
export function inputText(model, text) {
  return text ?? model.examples[0] ?? "";
}

/**
 * A bar with a model menu, a text field, a button and examples: {element, text: what stands in the
 * field now}.
 *
 * `onSubmit` gets the text, `onModel` the name of the model that was chosen.
 */
export function inputBar({ models, model, text, action, onSubmit, onModel, more = [] }) {
  const input = h(model.verb === "generate" ? "textarea" : "input", {
    class: "st-input", "aria-label": t("Text"), autocomplete: "off", spellcheck: "false", rows: 3,
    maxlength: 2000,
  });
  input.value = text;
  const submit = (event) => {
    event?.preventDefault();
    onSubmit(input.value);
  };
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
  });
  const example = (words) => button(words.replaceAll("\n", " ⏎ "), () => {
    input.value = words;
    submit();
  });
  const element = h("form", { class: "st-bar", onsubmit: submit },
    modelMenu(models, model, onModel),
    h("div", { class: "st-ask" }, input, h("button", { class: "st-go" }, action)),
    h("div", { class: "st-more" }, ...more,
      h("span", { class: "st-examples", role: "group", "aria-label": t("Examples") },
        h("span", { class: "ch-label", "aria-hidden": "true" }, t("Try")),
        model.examples.map(example))));
  return { element, text: () => input.value };
}

/** A menu of models with the title of the chosen one. */
export function modelMenu(models, model, onModel) {
  const options = models.map(({ name, task }) => [name, `${name} · ${taskName(task)}`]);
  const title = translated(model.title).replaceAll("`", "");
  return h("div", { class: "st-model" }, menu(t("Model"), options, model.name, onModel),
    h("span", { class: "st-title", title }, title));
}

/** A panel with a place for results and a line for errors: {element, place, load, showError}. */
export function resultPanel() {
  const place = h("div", { class: "st-place", "data-wait": t("Computing…") });
  const errorLine = h("p", { class: "st-error", role: "alert", hidden: true });
  let started = 0;
  const showError = (message) => {
    errorLine.textContent = message;
    errorLine.hidden = !message;
  };
  /**
   * Run `work(isCurrent)`, which may fail; only the call that was started last may change the
   * panel.
   */
  async function load(work) {
    const number = (started += 1);
    const isCurrent = () => number === started && place.isConnected;
    place.setAttribute("aria-busy", "true");
    try {
      await work(isCurrent);
      if (isCurrent()) showError("");
    } catch (error) {
      if (isCurrent() && !isAbort(error)) showError(error.message);
    } finally {
      if (number === started) place.removeAttribute("aria-busy");
    }
  }
  return { element: h("div", {}, errorLine, place), place, load, showError };
}

/** The message of a view that none of the loaded models fits. */
export function noModel(sentence) {
  const link = h("a", { href: "#models" }, t("Models"));
  return h("p", { class: "st-empty" }, `${sentence} `,
    tParts("Open one that does on the page {link}.", { link }));
}

/** Call `work` only after a pause of some milliseconds without another call. */
export function debounce(milliseconds, work) {
  let timer = null;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...values), milliseconds);
  };
}

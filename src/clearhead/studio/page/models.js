// The loaded models: what each is and can do, its card; opening another one; and two of them on one input.

import { get, lines, post } from "./api.js";
import { formatLink } from "./link.js";
import { findModel, resultPanel } from "./shared.js";
import { button, menu, partLabel, shareList } from "./views/controls.js";
import { h } from "./views/dom.js";

export const NAME = "Models";
export const ABOUT = "Every model that is loaded: those of the package, those that you trained, and those that others published.";

const LONGEST = 60; // tokens of an answer that is compared

export function open(element, state, studio) {
  const all = studio.models(() => true);
  const cardPanel = resultPanel();
  const answers = resultPanel();
  const path = h("input", { class: "st-input", "aria-label": "Path of a model", placeholder: "runs/mine, a Hugging Face folder, or model.gguf", autocomplete: "off", spellcheck: "false", required: true });
  const openPanel = resultPanel();

  function load(event) {
    event.preventDefault();
    openPanel.load(async () => {
      openPanel.place.replaceChildren(h("p", { class: "st-hint", role: "status" }, "Loading…"));
      const { name } = await post("/studio/api/models/open", { path: path.value.trim() }).finally(() => openPanel.place.replaceChildren());
      await studio.reloadModels();
      studio.go("models", { card: name, opened: Date.now() });
    });
  }

  function showCard(name) {
    studio.set({ card: name });
    cardPanel.load(async (isCurrent) => {
      const found = await get(`/studio/api/models/${encodeURIComponent(name)}/card`);
      if (!isCurrent()) return;
      const size = found.bytes ? ` · ${(found.bytes / 1e6).toLocaleString("en", { maximumFractionDigits: 1 })} MB` : "";
      cardPanel.place.replaceChildren(h("section", { class: "st-card", "aria-label": `Card of ${name}` },
        h("h2", { class: "st-part" }, name), h("p", { class: "ch-label" }, `${found.folder}${size}`),
        h("pre", {}, found.card || "This model has no card.")));
    });
  }

  const row = (model) => {
    const uses = model.reads === "words" ? "words" : "play";
    const looks = model.reads === "image" ? "image" : model.attends ? "heads" : null;
    return h("tr", {}, h("th", { scope: "row" }, model.name), h("td", {}, model.title), h("td", {}, model.task),
      h("td", { class: "ch-number" }, model.parameters.toLocaleString("en")),
      h("td", {}, h("a", { href: formatLink(uses, { model: model.name }) }, "Use"), " ",
        looks ? h("a", { href: formatLink(looks, { model: model.name }) }, "Look inside") : "", " ",
        button("Card", () => showCard(model.name), `Card of ${model.name}`)));
  };
  const table = h("div", { class: "ch-scroll" }, h("table", { class: "st-model-table" },
    h("thead", {}, h("tr", {}, ["Model", "What it is", "Task", "Parameters", ""].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, all.map(row))));

  element.append(table,
    h("form", { class: "st-ask st-open", onsubmit: load }, path, h("button", { class: "st-go" }, "Open a model")), openPanel.element,
    ...comparison(all, state, studio, answers), cardPanel.element);
  if (state.card) showCard(state.card);
  return {};
}

/** Two models on one text, beside each other. */
function comparison(all, state, studio, { place, load, element: panel }) {
  const models = all.filter(({ reads, verb }) => reads === "text" && verb !== "embed");
  if (models.length < 2) return [];
  const pair = [findModel(models, state.one), findModel(models, state.two ?? models[1].name)];
  const input = h("input", { class: "st-input", "aria-label": "Text for both models", autocomplete: "off", maxlength: 2000 });
  input.value = state.text ?? pair[0].examples[0] ?? "";
  const select = (index) => menu(index ? "and" : "Compare", models.map(({ name, task }) => [name, `${name} · ${task}`]), pair[index].name,
    (name) => { pair[index] = findModel(models, name); });

  function compare(event) {
    event.preventDefault();
    const text = input.value;
    studio.set({ one: pair[0].name, two: pair[1].name, text });
    load(async (isCurrent) => {
      const found = await Promise.all(pair.map((model) => answerOf(model, text)));
      if (isCurrent()) place.replaceChildren(h("div", { class: "st-columns" }, found));
    });
  }

  return [h("h2", { class: "st-part" }, "Two models on one input"),
    h("form", { class: "st-bar", onsubmit: compare }, h("div", { class: "st-more" }, select(0), select(1)),
      h("div", { class: "st-ask" }, input, h("button", { class: "st-go" }, "Compare"))), panel];
}

async function answerOf(model, text) {
  let last = {};
  for await (const line of lines("/studio/api/play", { model: model.name, text, longest: LONGEST })) last = line;
  const shown = last.labels ? shareList(last.labels.map(([name, share], rank) => [name, share, !rank]))
    : h("p", { class: "st-output", dir: "auto" }, last.text ?? JSON.stringify(last.prediction));
  return h("section", { class: "st-column", "aria-label": model.name },
    partLabel(h("strong", {}, model.name), ` · ${model.parameters.toLocaleString("en")} parameters`), shown);
}

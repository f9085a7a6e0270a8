// The loaded models: what each is, its card, its original; opening another one; and two of them on
// one input.

import { get, lines, post, put } from "./api.js";
import { count, plural, t, translated } from "./i18n.js";
import { formatLink } from "./link.js";
import { markdown } from "./markdown.js";
import { findModel, resultPanel, taskName } from "./shared.js";
import { button, menu, partLabel, shareList } from "./views/controls.js";
import { h } from "./views/dom.js";
import { format } from "./views/numbers.js";

export const NAME = t("Models");
export const ABOUT =
  t("Every model that is loaded: those of the package, those that you trained, and those that " +
    "others published.");

const LONGEST = 60; // tokens of an answer that is compared
const PART = 4e6; // bytes that are sent at once

export function open(element, state, studio) {
  const all = studio.models(() => true);
  const cardPanel = resultPanel();
  const answers = resultPanel();
  const openPanel = resultPanel();

  /** Do what gives a model its name, with a word about it meanwhile; then show its card. */
  function load(meanwhile, work) {
    openPanel.load(async () => {
      const status = h("p", { class: "st-hint", role: "status" }, meanwhile);
      openPanel.place.replaceChildren(status);
      const say = (text) => { status.textContent = text; };
      const { name } = await work(say).finally(() => openPanel.place.replaceChildren());
      await studio.reloadModels();
      studio.go("models", { card: name, opened: Date.now() });
    });
  }

  function showCard(name) {
    studio.set({ card: name });
    cardPanel.load(async (isCurrent) => {
      const found = await get(`/studio/api/models/${encodeURIComponent(name)}/card`);
      if (!isCurrent()) return;
      const size = found.bytes ? ` · ${count(found.bytes / 1e6, { maximumFractionDigits: 1 })} MB`
        : "";
      cardPanel.place.replaceChildren(
        h("section", { class: "st-card", "aria-label": t("Card of {model}", { model: name }) },
          h("h2", { class: "st-part" }, name),
          h("p", { class: "ch-label" }, `${found.folder}${size}`),
          found.card ? markdown(found.card) : h("p", {}, t("This model has no card."))));
      cardPanel.element.scrollIntoView({ block: "nearest" }); // it stands below a long page
    });
  }

  /** The report of an import, compared with the original now. */
  function showParity(name) {
    cardPanel.load(async (isCurrent) => {
      cardPanel.place.replaceChildren(
        h("p", { class: "st-hint", role: "status" }, t("Comparing with the original…")));
      const { report } = await post(`/studio/api/models/${encodeURIComponent(name)}/parity`)
        .finally(() => cardPanel.place.replaceChildren());
      if (!isCurrent()) return;
      cardPanel.place.replaceChildren(
        h("section", { class: "st-card", "aria-label": t("{model} and its original",
          { model: name }) },
          h("h2", { class: "st-part" }, t("{model} and its original", { model: name })),
          h("ul", {}, report.map((sentence) => h("li", {}, translated(sentence))))));
      cardPanel.element.scrollIntoView({ block: "nearest" });
    });
  }

  const row = (model) => {
    const { name } = model;
    const uses = model.reads === "words" ? "words" : "play";
    const looks = model.reads === "image" ? "image" : model.attends ? "heads" : null;
    const score = ([each, value]) => h("li", {}, `${t(each)} ${format(value)}`);
    return h("tr", {}, h("th", { scope: "row" }, name,
      h("p", { class: "st-hint" }, translated(model.title).replaceAll("`", ""))),
      h("td", {}, taskName(model.task)), h("td", {}, t(model.origin)),
      h("td", { class: "ch-number" }, count(model.parameters)),
      h("td", {}, h("ul", {}, Object.entries(model.scores).map(score))),
      h("td", {}, h("a", { href: formatLink(uses, { model: name }) }, t("Use")), " ",
        looks ? h("a", { href: formatLink(looks, { model: name }) }, t("Look inside")) : "", " ",
        button(t("Card"), () => showCard(name), t("Card of {model}", { model: name })),
        model.origin === "imported" ? button(t("Parity"), () => showParity(name),
          t("Compare {model} with its original", { model: name })) : ""));
  };
  const columns = [t("Model"), t("Task"), t("Origin"), t("Parameters"), t("Scores"), ""];
  const table = h("div", { class: "ch-scroll" }, h("table", { class: "st-model-table" },
    h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, all.map(row))));

  element.append(table, ...opening(load), openPanel.element,
    ...comparison(all, state, studio, answers), cardPanel.element);
  if (state.card) showCard(state.card);
  return {};
}

/** Two ways to open a model: by its path on the machine of the server, and by its files. */
function opening(load) {
  const path = h("input", { class: "st-input", "aria-label": t("Path of a model"), required: true,
    placeholder: t("runs/mine, a Hugging Face folder, or model.gguf"), autocomplete: "off",
    spellcheck: "false" });
  const submit = (event) => {
    event.preventDefault();
    load(t("Loading…"), () => post("/studio/api/models/open", { path: path.value.trim() }));
  };
  const files = h("input", { type: "file", multiple: true, hidden: true,
    onchange: () => send([...files.files]) });
  const folder = h("input", { type: "file", webkitdirectory: true, hidden: true,
    onchange: () => send([...folder.files]) });
  const send = (chosen) => {
    if (chosen.length) load(t("Uploading…"), (say) => upload(chosen, say));
  };
  return [h("h2", { class: "st-part" }, t("Open another model")),
    h("form", { class: "st-ask st-open", onsubmit: submit }, path,
      h("button", { class: "st-go" }, t("Open a model"))),
    h("div", { class: "st-more" }, button(t("Upload a file (.gguf)"), () => files.click()), files,
      button(t("Upload a folder (Hugging Face)"), () => folder.click()), folder,
      h("span", { class: "st-hint" },
        t("Files with programs in them, such as .bin and .pt, are left out.")))];
}

const READ = /\.(gguf|json|md|model|safetensors|spm|txt|yml)$/;

/** Send the files of a model in parts, and open it. */
async function upload(files, say) {
  const wanted = files.filter(({ name }) => READ.test(name));
  if (!wanted.length) throw new Error(
    t("None of these files belongs to a model that can be opened."));
  const [first] = wanted;
  const given = first.webkitRelativePath.split("/")[0] || first.name.replace(/\.\w+$/, "");
  const { name } = await post(`/studio/api/models/uploads/${encodeURIComponent(given)}`);
  const all = wanted.reduce((sum, { size }) => sum + size, 0);
  let sent = 0;
  for (const file of wanted) {
    for (let at = 0; at < file.size || !at; at += PART) {
      const part = file.slice(at, at + PART);
      await put(`/studio/api/models/uploads/${name}/${encodeURIComponent(file.name)}?at=${at}`,
        part);
      sent += part.size;
      say(t("Uploading: {done} of {all} MB",
        { done: Math.round(sent / 1e6), all: Math.ceil(all / 1e6) }));
    }
  }
  say(t("Loading…"));
  return post("/studio/api/models/open", { path: name, upload: true });
}

/** Two models on one text, beside each other. */
function comparison(all, state, studio, { place, load, element: panel }) {
  const models = all.filter(({ reads, verb }) => reads === "text" && verb !== "embed");
  if (models.length < 2) return [];
  const pair = [findModel(models, state.one), findModel(models, state.two ?? models[1].name)];
  const input = h("input", { class: "st-input", "aria-label": t("Text for both models"),
    autocomplete: "off",
    maxlength: 2000 });
  input.value = state.text ?? pair[0].examples[0] ?? "";
  const select = (index) => menu(index ? t("and") : t("Compare"),
    models.map(({ name, task }) => [name, `${name} · ${taskName(task)}`]), pair[index].name,
    (name) => { pair[index] = findModel(models, name); });

  function compare(event) {
    event?.preventDefault();
    const text = input.value;
    studio.set({ one: pair[0].name, two: pair[1].name, text });
    load(async (isCurrent) => {
      const found = await Promise.all(pair.map((model) => answerOf(model, text)));
      if (isCurrent()) place.replaceChildren(h("div", { class: "st-columns" }, found));
    });
  }

  // a link shows what it was copied from
  if (state.one && state.two && state.text) queueMicrotask(compare);
  return [h("h2", { class: "st-part" }, t("Two models on one input")),
    h("form", { class: "st-bar", onsubmit: compare },
      h("div", { class: "st-more" }, select(0), select(1)),
      h("div", { class: "st-ask" }, input, h("button", { class: "st-go" }, t("Compare")))), panel];
}

async function answerOf(model, text) {
  let last = {};
  for await (const line of lines("/studio/api/play",
    { model: model.name, text, longest: LONGEST })) last = line;
  const shown = last.labels
    ? shareList(last.labels.map(([name, share], rank) => [name, share, !rank]))
    : h("p", { class: "st-output", dir: "auto" }, last.text ?? JSON.stringify(last.prediction));
  const size = plural("{n} parameter", "{n} parameters", model.parameters);
  return h("section", { class: "st-column", "aria-label": model.name },
    partLabel(h("strong", {}, model.name), ` · ${size}`), shown);
}

// A model's answer token by token, and the alternatives of each token.

import { lines } from "./api.js";
import { decimal, t } from "./i18n.js";
import { parseJson } from "./link.js";
import { pad } from "./pad.js";
import { findModel, inputBar, inputText, noModel, resultPanel } from "./shared.js";
import { button, meter, partLabel, shareList, slider } from "./views/controls.js";
import { h, keyOf, roomIn } from "./views/dom.js";
import { frame, title } from "./views/frame.js";
import { amountLegend } from "./views/legend.js";
import { percent, visible } from "./views/numbers.js";

export const NAME = t("Play");
export const ABOUT = t(
  "Use a model. Each token is coloured by its probability; select one to see the alternatives.");
// A model that reads text and has the verb "generate" but does not generate fills in masked
// tokens: nothing to play.
export const fits = ({ generates, reads, verb }) => generates
  || (reads !== "words" && verb !== "generate");

const ACTIONS = {
  translate: t("Translate"), generate: t("Generate"), classify: t("Classify"), tag: t("Tag"),
  caption: t("Caption"),
  embed: t("Embed"),
};
const MAX_TEMPERATURE = 15; // tenths
const MAX_TOKENS = 120;
const MAX_CONTINUATION = 160;
const RANKS = 6; // alternatives of each step in the table of steps
const STEP = 95; // pixels of a step in it
const BESIDE = 370; // pixels of the alternatives that stand beside it in a wide window
const INSIDE = ["xray", "heads", "relevance", "what-if", "lens", "beam"]; // views that explain an answer

export function open(element, state, studio) {
  const models = studio.models(fits);
  if (!models.length) return element.append(noModel(t("None of the loaded models answers.")));
  const model = findModel(models, state.model);
  const readsImage = model.reads === "image";
  const { place, load, element: panel } = resultPanel();
  let request = {
    text: inputText(model, state.text), image: state.image, forced: parseJson(state.forced ?? "[]"),
    temperature: Number(state.temperature ?? (model.continues ? 0.8 : 0)),
    seed: Number(state.seed ?? 0),
  };
  let answer = { tokens: [], text: "" };
  let selected = null; // index of a token
  let running = null; // AbortController of the answer on its way
  let [view, colours, bar] = [null, null, null];

  function submit(changes) {
    request = { ...request, ...changes };
    const { text, image, temperature, seed, forced } = request;
    studio.set({ model: model.name, text, image, temperature, seed,
      forced: forced.length ? JSON.stringify(forced) : "" });
    running?.abort();
    running = new AbortController();
    answer = { tokens: [], text: "", source: text };
    const body = { model: model.name, ...request,
      longest: model.continues ? MAX_CONTINUATION : MAX_TOKENS };
    load(async (isCurrent) => {
      for await (const line of lines("/studio/api/play", body, running.signal)) {
        if (!isCurrent()) return;
        receive(line);
      }
    });
  }

  function receive({ token, text, labels, tags, prediction, end }) {
    answer = { ...answer, text: text ?? answer.text, labels, tags, prediction };
    if (end) selected ??= leastCertain(answer.tokens);
    if (token) answer.tokens.push(token);
    if (!view) view = makeFrame();
    if (token && answer.tokens.length > 1) append(token);
    else view.redraw();
  }

  /** Add one token to what is already drawn. */
  function append(token) {
    view.figure.querySelector(".st-answer").append(tokenElement(token, answer.tokens.length - 1));
    drawHeading();
  }

  function makeFrame() {
    const json = () => ({ format: "clearhead-play-1", model: model.name, ...request, ...answer });
    return frame(place, { name: "play", label: t("Answer"), draw, picture: () => view.figure,
      json }, {});
  }

  function drawHeading() {
    const input = readsImage ? t("the image") : answer.source;
    title(view.heading, model.continues ? [model.name] : [input, summary()],
      model.generates ? sampling() : model.name);
  }

  function summary() {
    if (answer.labels) return answer.labels[0][0];
    if (answer.tags) return t("its tags");
    if (answer.prediction) return asText(Object.values(answer.prediction)[0]);
    return answer.text || "…";
  }

  function draw() {
    drawHeading();
    view.figure.replaceChildren(...content(), ...inside());
    view.say(answer.tokens.length
      ? t("The stronger the colour of a token, the more probable the model finds it. Click one " +
        "to see its alternatives.") : "");
  }

  function content() {
    if (answer.labels) return labelled();
    if (answer.tags) return tagged();
    return answer.prediction ? predicted() : generated();
  }

  function sampling() {
    if (!request.temperature) return t("greedy: always the most probable token");
    return t("each token sampled at temperature {heat}",
      { heat: decimal(request.temperature.toFixed(1)) });
  }

  function labelled() {
    return [h("div", {}, partLabel(t("Probabilities")),
      shareList(answer.labels.map(([name, share], rank) => [name, share, !rank])))];
  }

  function tagged() {
    return [h("dl", { class: "st-tags st-large" }, answer.tags.map(([word, tag]) =>
      h("div", {}, h("dt", { dir: "auto" }, word), h("dd", {}, tag))))];
  }

  /** The fields of any other task's prediction. */
  function predicted() {
    return [h("dl", { class: "st-tags" }, Object.entries(answer.prediction).map(([name, value]) =>
      h("div", {}, h("dt", {}, name), h("dd", { dir: "auto" }, asText(value)))))];
  }

  function generated() {
    colours = view.palette();
    const prompt = model.continues ? h("span", { class: "st-prompt" }, answer.source) : "";
    const tokens = answer.tokens.map((token, index) => tokenElement(token, index));
    const name = t("Answer; arrow keys move between tokens, Enter selects one");
    const text = h("div", { class: "st-answer", role: "group", "aria-label": name, dir: "auto" },
      prompt, tokens);
    const answered = h("div", {}, text, amountLegend(colours, ["0 %", t("100 % likely")], 1, colours.share));
    const whole = h("div", { class: "st-generated" }, answered, alternatives());
    view.figure.replaceChildren(whole); // so that there is a width to fit the steps into
    whole.append(considered(whole));
    return [whole];
  }

  /** What the model found likeliest at each step: those around the selected one, as many as there is room for. */
  function considered(whole) {
    if (!answer.tokens[selected]) return "";
    const beside = getComputedStyle(whole).gridTemplateColumns.includes(" ") ? BESIDE : 0;
    const room = Math.max(3, Math.floor((roomIn(whole) - beside) / STEP));
    const first = Math.max(0, Math.min(selected - Math.floor(room / 2), answer.tokens.length - room));
    const steps = answer.tokens.slice(first, first + room);
    const cell = (token, place, rank) => {
      const other = token.alternatives[rank];
      if (!other) return h("td", {});
      const fill = colours.share(other.probability);
      const go = () => { selected = first + place; continueWith(other.id); };
      return h("td", {}, h("button", { type: "button", class: "ch-answer", dir: "auto",
        title: percent(other.probability),
        "aria-pressed": String(other.id === token.id), style: { background: fill, color: colours.inkOn(fill) },
        "aria-label": `${visible(other.word)}, ${percent(other.probability)}`, onclick: go }, visible(other.word)));
    };
    const ranks = Array.from({ length: RANKS }, (_, rank) => h("tr", {}, h("th", { scope: "row" }, rank + 1),
      steps.map((token, place) => cell(token, place, rank))));
    return h("section", { class: "st-considered", "aria-label": t("Step by step") },
      partLabel(t("What it considered at each step, the likeliest at the top; the marked one was chosen")),
      h("div", { class: "ch-scroll" }, h("table", { class: "ch-lens-table", "aria-label": t("Step by step") },
        h("thead", {}, h("tr", {}, h("td", {}), steps.map((_, place) =>
          h("th", { scope: "col" }, first + place + 1)))),
        h("tbody", {}, ranks))));
  }

  /** Where this answer is explained. */
  function inside() {
    const views = running && answer.tokens.length && selected === null ? [] : studio.views(model, INSIDE);
    if (!views.length) return [];
    const go = (name) => studio.go(name, readsImage ? { model: model.name, image: request.image }
      : { model: model.name, text: request.text });
    return [h("div", { class: "st-inside", "data-screen-only": true }, partLabel(t("Look inside this answer")),
      h("div", { class: "st-more" }, views.map(({ view: name, title: text, about }) =>
        h("button", { type: "button", class: "st-door", onclick: () => go(name) },
          h("strong", {}, text), h("span", {}, about)))))];
  }

  function tokenElement(token, index) {
    const fill = colours.share(token.probability);
    const shown = index === 0 && !model.continues ? token.piece.trimStart() : token.piece;
    return h("span", {
      class: "st-token", role: "button", "aria-pressed": String(index === selected),
      tabindex: index === (selected ?? 0) ? 0 : -1,
      "aria-label": `${visible(token.word)}, ${percent(token.probability)}`,
      title: percent(token.probability),
      style: { background: fill, color: colours.inkOn(fill) },
      onclick: () => select(index), onkeydown: (event) => moveSelection(event, index),
    }, token.word === "[STOP]" ? " ■" : shown);
  }

  function select(index) {
    selected = index;
    draw();
    view.figure.querySelector('.st-token[aria-pressed="true"]')?.focus();
  }

  function moveSelection(event, index) {
    const next = { ArrowLeft: index - 1, ArrowRight: index + 1, Enter: index,
      " ": index }[keyOf(event)];
    if (next === undefined || !answer.tokens[next]) return;
    event.preventDefault();
    select(next);
  }

  function alternatives() {
    const token = answer.tokens[selected];
    if (!token) return "";
    const item = ({ id, word, probability }) =>
      h("li", { "aria-current": id === token.id ? "true" : null },
      h("button", { type: "button", class: "st-alternative", onclick: () => continueWith(id) },
        h("span", { dir: "auto" }, visible(word)), meter(probability),
        h("span", { class: "ch-number" }, percent(probability))));
    const own = token.alternatives.some(({ id }) => id === token.id) ? [] : [token];
    return h("section", { class: "st-alternatives", "aria-label": t("Alternatives") },
      partLabel(t("Instead of “{word}”; click one to continue from it",
        { word: visible(token.word) })),
      h("ol", {}, [...token.alternatives, ...own].map(item)));
  }

  function continueWith(id) {
    submit({ forced: [...answer.tokens.slice(0, selected).map((token) => token.id), id] });
  }

  const temperature = slider(t("Temperature"), MAX_TEMPERATURE,
    Math.round(10 * request.temperature), (tenths) => decimal((tenths / 10).toFixed(1)),
    (tenths) => { request.temperature = tenths / 10; });
  const again = button(t("Again"), () => submitInput({ text: bar.text(), seed: request.seed + 1 }),
    t("Answer again with another random seed"));
  const onModel = (name) => studio.go("play", { model: name });
  const submitInput = (input) => {
    selected = null;
    submit({ ...input, forced: [] });
  };
  if (readsImage) {
    const drawing = pad({ models, model, image: request.image, example: true, onModel, onImage: (image) =>
      submitInput({ image }) });
    element.append(h("div", { class: "st-beside" }, drawing.element, panel));
    if (request.image) submit({});
  } else {
    const more = model.generates ? [temperature, again] : [];
    const action = ACTIONS[model.verb] ?? capital(model.verb);
    bar = inputBar({ models, model, text: request.text, action, onModel, more,
      onSubmit: (text) => submitInput({ text }) });
    element.append(bar.element, panel);
    submit({});
  }
  return {
    close() {
      running?.abort();
      view?.destroy();
    },
  };
}

/** The place of the token that the model was least sure of. */
function leastCertain(tokens) {
  if (!tokens.length) return null;
  return tokens.reduce((least, { probability }, place) =>
    (probability < tokens[least].probability ? place : least), 0);
}

function capital(text) {
  return text[0].toUpperCase() + text.slice(1);
}

function asText(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

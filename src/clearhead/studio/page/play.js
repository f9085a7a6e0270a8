// Ask a model: the answer as it is written, and at each token what else could have stood there.

import { lines } from "./api.js";
import { answers, bar, modelOf, nobody, textOf } from "./parts.js";
import { pad } from "./pad.js";
import { unpack } from "./link.js";
import { button, meter, partLabel, shareList, slider } from "./views/controls.js";
import { h, keyOf } from "./views/dom.js";
import { frame, title } from "./views/frame.js";
import { percent, visible } from "./views/numbers.js";

export const NAME = "Play";
export const ABOUT = "Ask a model. Each token is coloured by how sure the model was; pick one to see what else it thought of.";
export const fits = ({ task, writes }) => writes || !["words", "lm"].includes(task);

const STRONGEST = 0.55; // shade of a token that was least likely
const HOTTEST = 15; // tenths of temperature
const LONGEST = { lm: 160 };

export function open(element, state, studio) {
  const models = studio.models(fits);
  if (!models.length) return element.append(nobody("answers"));
  const model = modelOf(models, state.model);
  const { place, attempt, element: answer } = answers();
  let wish = {
    text: textOf(model, state.text), image: state.image, forced: unpack(state.forced ?? "[]"),
    temperature: Number(state.temperature ?? (model.task === "lm" ? 0.8 : 0)), seed: Number(state.seed ?? 0),
  };
  let told = { tokens: [], text: "" };
  let picked = null; // the place of a token
  let asking = null; // what stops an answer that is on its way
  let [view, colours] = [null, null];

  function ask(part) {
    wish = { ...wish, ...part };
    const { text, image, temperature, seed, forced } = wish;
    studio.set({ model: model.name, text, image, temperature, seed, forced: forced.length ? JSON.stringify(forced) : "" });
    asking?.abort();
    asking = new AbortController();
    told = { tokens: [], text: "", source: text };
    const body = { model: model.name, ...wish, longest: LONGEST[model.task] ?? 120 };
    attempt(async (current) => {
      for await (const line of lines("/studio/api/play", body, asking.signal)) {
        if (!current()) return;
        hear(line);
      }
    });
  }

  function hear({ token, text, labels, tags }) {
    told = { ...told, text: text ?? told.text, labels, tags };
    if (token) told.tokens.push(token);
    if (!view) view = makeFrame();
    if (token && told.tokens.length > 1) extend(token);
    else view.redraw();
  }

  /** One more token; the rest stays as it is drawn. */
  function extend(token) {
    const text = view.figure.querySelector(".st-written");
    text.append(tokenOf(token, told.tokens.length - 1));
    head();
  }

  function makeFrame() {
    const saved = { json: () => ({ format: "clearhead-play-1", model: model.name, ...wish, ...told }) };
    return frame(place, { name: "play", label: "Answer", draw, picture: () => view.figure, ...saved }, {});
  }

  function head() {
    const reads = model.image ? "the image" : told.source;
    const answered = told.labels ? told.labels[0][0] : told.tags ? "its tags" : told.text || "…";
    title(view.heading, model.task === "lm" ? [model.name] : [reads, answered], model.writes ? manner() : model.name);
  }

  function draw() {
    head();
    view.figure.replaceChildren(...(told.labels ? labelled() : told.tags ? tagged() : written()));
    view.say(picked === null && told.tokens.length ? "The stronger the colour, the less sure the model was. Click a token to see what else could have stood there." : "");
  }

  function manner() {
    if (!wish.temperature) return "always the likeliest token next";
    return `each token drawn at temperature ${wish.temperature.toFixed(1)}`;
  }

  function labelled() {
    return [h("div", {}, partLabel("What it is"), shareList(told.labels.map(([name, share], rank) => [name, share, !rank])))];
  }

  function tagged() {
    return [h("dl", { class: "st-tags" }, told.tags.map(([word, tag]) =>
      h("div", {}, h("dt", { dir: "auto" }, word), h("dd", {}, tag))))];
  }

  function written() {
    colours = view.palette();
    const prompt = model.task === "lm" ? h("span", { class: "st-prompt" }, told.source) : "";
    const tokens = told.tokens.map((token, index) => tokenOf(token, index));
    const name = "Answer; arrow keys move between tokens, Enter picks one";
    const text = h("div", { class: "st-written", role: "group", "aria-label": name, dir: "auto" }, prompt, tokens);
    return [text, alternatives()];
  }

  function tokenOf(token, index) {
    const fill = colours.share(STRONGEST * (1 - token.probability));
    const on = index === picked;
    const shown = index === 0 && model.task !== "lm" ? token.piece.trimStart() : token.piece;
    return h("span", {
      class: "st-token", role: "button", "aria-pressed": String(on), tabindex: index === (picked ?? 0) ? 0 : -1,
      "aria-label": `${visible(token.word)}, ${percent(token.probability)}`, title: percent(token.probability),
      style: { background: fill, color: colours.inkOn(fill) },
      onclick: () => pick(index), onkeydown: (event) => walk(event, index),
    }, token.word === "[STOP]" ? " ■" : shown);
  }

  function pick(index) {
    picked = index;
    draw();
    view.figure.querySelector('.st-token[aria-pressed="true"]')?.focus();
  }

  function walk(event, index) {
    const next = { ArrowLeft: index - 1, ArrowRight: index + 1, Enter: index, " ": index }[keyOf(event)];
    if (next === undefined || !told.tokens[next]) return;
    event.preventDefault();
    pick(next);
  }

  function alternatives() {
    const token = told.tokens[picked];
    if (!token) return "";
    const other = ({ id, word, probability }) => h("li", { "aria-current": id === token.id ? "true" : null },
      h("button", { type: "button", class: "st-other", onclick: () => goOnWith(id) },
        h("span", { dir: "auto" }, visible(word)), meter(probability), h("span", { class: "ch-number" }, percent(probability))));
    const own = token.alternatives.some(({ id }) => id === token.id) ? [] : [token];
    return h("section", { class: "st-others", "aria-label": "Alternatives" },
      partLabel(`Instead of “${visible(token.word)}”; click one to go on from there`),
      h("ol", {}, [...token.alternatives, ...own].map(other)));
  }

  function goOnWith(id) {
    ask({ forced: [...told.tokens.slice(0, picked).map((token) => token.id), id] });
  }

  const warmth = slider("Temperature", HOTTEST, Math.round(10 * wish.temperature), (tenths) => (tenths / 10).toFixed(1),
    (tenths) => { wish.temperature = tenths / 10; });
  const again = button("Again", () => ask({ seed: wish.seed + 1, forced: [] }), "Answer again with other random numbers");
  const onModel = (name) => studio.go("play", { model: name });
  const fresh = (part) => {
    picked = null;
    ask({ ...part, forced: [] });
  };
  if (model.image) {
    const drawing = pad({ models, model, image: wish.image, onModel, onImage: (image) => fresh({ image }) });
    element.append(h("div", { class: "st-beside" }, drawing.element, answer));
    if (wish.image) ask({});
    else place.append(h("p", { class: "st-hint" }, "Draw something on the pad, or drop an image on it."));
  } else {
    const more = model.writes ? [warmth, again] : [];
    const asked = bar({ models, model, text: wish.text, action: ACTIONS[model.task] ?? "Answer", onModel, more,
      onAsk: (text) => fresh({ text }) });
    element.append(asked.element, answer);
    ask({});
  }
  return {
    close() {
      asking?.abort();
      view?.destroy();
    },
  };
}

const ACTIONS = { translate: "Translate", lm: "Write on", classify: "Classify", tag: "Tag" };

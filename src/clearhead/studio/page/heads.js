// The attention weights of every head: encoder, decoder and cross attention, and token by token through a text.

import { post } from "./api.js";
import { t } from "./i18n.js";
import { parseJson } from "./link.js";
import { findModel, inputBar, inputText, noModel, resultPanel } from "./shared.js";
import { signButton, toggle } from "./views/controls.js";
import { h } from "./views/dom.js";
import { mount } from "./views/heads.js";

export const NAME = t("Heads");
export const ABOUT = t("Every head of every layer is a matrix of weights: how much each token takes from each other token.");
export const fits = ({ attends, reads }) => attends && reads !== "image";

/** The head and token that are chosen, for other views. */
export function selection({ at }) {
  const { kind, layer, head, token } = parseJson(at);
  return { kind, layer, head, query: token?.side === "query" ? token.index : undefined };
}

/** The state that shows a selection of another view. */
export function select({ kind, layer, head, query }) {
  if (layer === undefined) return {};
  return { at: JSON.stringify({ kind, layer: Number(layer), head: Number(head), token: query === undefined ? null
    : { side: "query", index: Number(query) } }) };
}

const INTERVAL = 900; // milliseconds on each token while playing
const GENERATED = 24; // tokens that a language model adds when it is shown while generating

export function open(element, state, studio) {
  const models = studio.models(fits);
  if (!models.length) return element.append(noModel(t("None of the loaded models attends to tokens.")));
  const model = findModel(models, state.model);
  const { place, load, element: panel } = resultPanel();
  const request = { text: inputText(model, state.text), generate: state.writes === "yes" };
  let chosen = parseJson(state.at);
  let data = null;
  let view = null;
  let timer = null;

  function refresh(changes = {}) {
    pause();
    Object.assign(request, changes);
    studio.set({ model: model.name, text: request.text, writes: request.generate ? "yes" : "" });
    load(async (isCurrent) => {
      const input = { model: model.name, text: request.text };
      const found = request.generate
        ? await post("/look", { ...input, generate: true, max_tokens: GENERATED }) : await post("/studio/api/look",
          input);
      if (!isCurrent()) return;
      data = found;
      if (view) view.update(data, chosen);
      else view = mount(place, data, { chosen, onChange: choose });
    });
  }

  function choose(next) {
    chosen = next;
    studio.set({ at: JSON.stringify(next) });
  }

  function rowCount() {
    return data.attention[chosen.kind ?? Object.keys(data.attention).at(-1)].rows.length;
  }

  function step(offset) {
    if (!data) return;
    const now = chosen.token?.side === "query" ? chosen.token.index : -1;
    const next = (now + offset + rowCount()) % rowCount();
    choose({ ...chosen, shape: "lines", token: { side: "query", index: next } });
    view.update(data, chosen);
    if (timer && next === rowCount() - 1) pause();
  }

  function play() {
    if (timer) return pause();
    timer = setInterval(() => step(1), INTERVAL);
    step(1);
    return drawPlayer();
  }

  function pause() {
    clearInterval(timer);
    timer = null;
    drawPlayer();
  }

  const player = h("div", { class: "ch-player", role: "group", "aria-label": t("Token by token through the text") });
  function drawPlayer() {
    const focused = player.contains(document.activeElement);
    player.replaceChildren(
      signButton("back", t("Token before"), () => step(-1)),
      signButton(timer ? "pause" : "play", timer ? t("Pause") : t("Token by token"), play),
      signButton("forward", t("Token after"), () => step(1)));
    if (focused) player.children[1].focus();
  }

  const generating = toggle(t("While it generates"), request.generate, (generate) => refresh({ generate }));
  const more = [player, ...(model.continues ? [generating] : [])];
  const bar = inputBar({ models, model, text: request.text, action: t("Look"), more,
    onSubmit: (text) => refresh({ text }), onModel: (name) => studio.go("heads", { model: name }) });
  element.append(bar.element, panel);
  refresh();
  return {
    close() {
      pause();
      view?.destroy();
    },
  };
}

// Where every head looks: self, causal and cross attention, and through a text token by token.

import { post } from "./api.js";
import { unpack } from "./link.js";
import { answers, bar, modelOf, nobody, textOf } from "./parts.js";
import { signButton, toggle } from "./views/controls.js";
import { h } from "./views/dom.js";
import { mount } from "./views/heads.js";

export const NAME = "Heads";
export const ABOUT = "Every head of every layer is a table of weights: how much each word takes from each other word.";
export const fits = ({ attends, image }) => attends && !image;

const PAUSE = 900; // milliseconds on each token while playing
export const WRITTEN = 24; // tokens that a language model adds where it is seen writing

export function open(element, state, studio) {
  const models = studio.models(fits);
  if (!models.length) return element.append(nobody("attends to words"));
  const model = modelOf(models, state.model);
  const { place, attempt, element: answer } = answers();
  const wish = { text: textOf(model, state.text), writes: state.writes === "yes" };
  let chosen = unpack(state.at);
  let data = null;
  let view = null;
  let timer = null;

  function ask(part = {}) {
    halt();
    Object.assign(wish, part);
    studio.set({ model: model.name, text: wish.text, writes: wish.writes ? "yes" : "" });
    attempt(async (current) => {
      const writing = wish.writes ? { generate: true, max_tokens: WRITTEN } : {};
      const found = await post("/look", { model: model.name, text: wish.text, ...writing });
      if (!current()) return;
      data = found;
      if (view) view.update(data, chosen);
      else view = mount(place, data, { chosen, onChange: keep });
    });
  }

  function keep(next) {
    chosen = next;
    studio.set({ at: JSON.stringify(next) });
  }

  function rows() {
    return data.attention[chosen.kind ?? Object.keys(data.attention).at(-1)].rows.length;
  }

  function go(step) {
    if (!data) return;
    const now = chosen.token?.side === "query" ? chosen.token.index : -1;
    const next = (now + step + rows()) % rows();
    keep({ ...chosen, shape: "lines", token: { side: "query", index: next } });
    view.update(data, chosen);
    if (timer && next === rows() - 1) halt();
  }

  function play() {
    if (timer) return halt();
    timer = setInterval(() => go(1), PAUSE);
    go(1);
    return draw();
  }

  function halt() {
    clearInterval(timer);
    timer = null;
    draw();
  }

  const player = h("div", { class: "ch-player", role: "group", "aria-label": "Through the text, token by token" });
  function draw() {
    const focused = player.contains(document.activeElement);
    player.replaceChildren(
      signButton("back", "Token before", () => go(-1)),
      signButton(timer ? "pause" : "play", timer ? "Pause" : "Token by token", play),
      signButton("forward", "Token after", () => go(1)));
    if (focused) player.children[1].focus();
  }

  const writing = toggle("While it writes", wish.writes, (writes) => ask({ writes }));
  const more = [player, ...(model.task === "lm" ? [writing] : [])];
  const asked = bar({ models, model, text: wish.text, action: "Look", more,
    onAsk: (text) => ask({ text }), onModel: (name) => studio.go("heads", { model: name }) });
  element.append(asked.element, answer);
  ask();
  return {
    close() {
      halt();
      view?.destroy();
    },
  };
}

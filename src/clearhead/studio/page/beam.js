// The tree of a beam search; the attention of the text at any of its nodes.

import { post } from "./api.js";
import { unpack } from "./link.js";
import { answers, bar, modelOf, nobody, textOf } from "./parts.js";
import { slider } from "./views/controls.js";
import { h } from "./views/dom.js";
import { mount } from "./views/beam.js";
import { mount as mountHeads } from "./views/heads.js";

export const NAME = "Beam";
export const ABOUT = "A search keeps the likeliest beginnings and drops the rest. Pick a text to see where its words looked.";
export const fits = ({ writes, image }) => writes && !image;

const FEWEST = 2;
const MOST = 8;

export function open(element, state, studio) {
  const models = studio.models(fits);
  if (!models.length) return element.append(nobody("writes"));
  const model = modelOf(models, state.model);
  const { place, attempt, element: answer } = answers();
  const below = answers();
  const wish = { text: textOf(model, state.text), beams: Number(state.beams ?? 4) };
  let chosen = unpack(state.at);
  let [tree, view, heads, seen] = [null, null, null, null];

  function ask(part = {}) {
    Object.assign(wish, part);
    studio.set({ model: model.name, ...wish });
    attempt(async (current) => {
      const found = await post("/studio/api/beam", { model: model.name, ...wish });
      if (!current()) return;
      tree = found;
      if (view) view.update(tree, chosen);
      else view = mount(place, tree, { chosen, onChange: keep });
      attend();
    });
  }

  function keep(next) {
    chosen = next;
    studio.set({ at: JSON.stringify(next) });
    attend();
  }

  /** Where the words of the chosen text looked. */
  function attend() {
    const target = tree.texts[chosen.node ?? tree.best] ?? tree.texts[tree.best];
    const wanted = `${wish.text}\n${target}`;
    if (!target || wanted === seen) return;
    seen = wanted;
    below.attempt(async (current) => {
      const whole = model.task === "lm" ? { text: wish.text + target } : { text: wish.text, target };
      const look = await post("/look", { model: model.name, ...whole });
      if (!current()) return;
      if (heads) heads.update(look);
      else heads = mountHeads(below.place, look, {});
    });
  }

  const width = slider("Beams", MOST - FEWEST, wish.beams - FEWEST, (value) => String(value + FEWEST),
    (value) => ask({ beams: value + FEWEST }));
  const asked = bar({ models, model, text: wish.text, action: "Search", more: [width],
    onAsk: (text) => { chosen = {}; ask({ text }); }, onModel: (name) => studio.go("beam", { model: name }) });
  element.append(asked.element, answer, h("section", { "aria-label": "Attention of the chosen text" }, below.element));
  ask();
  return {
    close() {
      view?.destroy();
      heads?.destroy();
    },
  };
}

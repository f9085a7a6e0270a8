// The tree of a beam search, and the attention of the text at any of its nodes.

import { post } from "./api.js";
import { t } from "./i18n.js";
import { parseJson } from "./link.js";
import { findModel, inputBar, inputText, noModel, resultPanel } from "./shared.js";
import { slider } from "./views/controls.js";
import { h } from "./views/dom.js";
import { mount } from "./views/beam.js";
import { mount as mountHeads } from "./views/heads.js";

export const NAME = t("Beam");
export const ABOUT = t("A beam search keeps the most probable prefixes and drops the rest. Select a text to see its attention.");
export const fits = ({ generates, reads }) => generates && reads !== "image";

const MIN_WIDTH = 2;
const MAX_WIDTH = 8;

export function open(element, state, studio) {
  const models = studio.models(fits);
  if (!models.length) return element.append(noModel(t("None of the loaded models generates text.")));
  const model = findModel(models, state.model);
  const { place, load, element: panel } = resultPanel();
  const headsPanel = resultPanel();
  const request = { text: inputText(model, state.text), beams: Number(state.beams ?? 4) };
  let chosen = parseJson(state.at);
  let [tree, view, heads, shown] = [null, null, null, null];

  function refresh(changes = {}) {
    Object.assign(request, changes);
    studio.set({ model: model.name, ...request });
    load(async (isCurrent) => {
      const found = await post("/studio/api/beam", { model: model.name, ...request });
      if (!isCurrent()) return;
      tree = found;
      if (view) view.update(tree, chosen);
      else view = mount(place, tree, { chosen, onChange: choose });
      showHeads();
    });
  }

  function choose(next) {
    chosen = next;
    studio.set({ at: JSON.stringify(next) });
    showHeads();
  }

  /** Show the attention of the chosen text. */
  function showHeads() {
    const target = tree.texts[chosen.node ?? tree.best] ?? tree.texts[tree.best];
    const key = `${request.text}\n${target}`;
    if (!target || key === shown) return;
    shown = key;
    headsPanel.load(async (isCurrent) => {
      const input = model.continues ? { text: request.text + target } : { text: request.text, target };
      const look = await post("/studio/api/look", { model: model.name, ...input });
      if (!isCurrent()) return;
      if (heads) heads.update(look);
      else heads = mountHeads(headsPanel.place, look, {});
    });
  }

  const width = slider(t("Beams"), MAX_WIDTH - MIN_WIDTH, request.beams - MIN_WIDTH, (value) => String(value
    + MIN_WIDTH),
    (value) => refresh({ beams: value + MIN_WIDTH }));
  const bar = inputBar({ models, model, text: request.text, action: t("Search"), more: [width],
    onSubmit: (text) => { chosen = {}; refresh({ text }); }, onModel: (name) => studio.go("beam", { model: name }) });
  element.append(bar.element, panel, h("section", { "aria-label": t("Attention of the chosen text") },
    headsPanel.element));
  refresh();
  return {
    close() {
      view?.destroy();
      heads?.destroy();
    },
  };
}

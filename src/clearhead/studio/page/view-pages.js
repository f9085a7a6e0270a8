// The views of `clearhead look` that need nothing but a model, a text and a choice: one page each,
// from one list.

import { post } from "./api.js";
import { t } from "./i18n.js";
import { parseJson } from "./link.js";
import { findModel, inputBar, inputText, modelMenu, noModel, resultPanel } from "./shared.js";
import { choice } from "./views/controls.js";
import { h } from "./views/dom.js";
import { mount as mountFlow } from "./views/flow.js";
import { mount as mountGradients } from "./views/gradients.js";
import { mount as mountInduction } from "./views/induction.js";
import { mount as mountLens } from "./views/lens.js";
import { mount as mountPatches } from "./views/patches.js";
import { mount as mountRelevance } from "./views/relevance.js";
import { mount as mountScaling } from "./views/scaling.js";

const MOST = 24; // answers that are explained besides the chosen one
const transformer = ({ attends, reads }) => attends && reads === "text";
const languageModel = ({ attends, continues }) => attends && continues;

/**
 * The views: `reads` tells whether a view needs a text, `methods` between what it lets one choose,
 * `usual` what it opens with.
 */
const VIEWS = {
  rollout: { NAME: t("Rollout"), reads: true, mount: mountPatches, fits: transformer, route: "look",
    usual: { kind: "encoder.self" },
    ABOUT: t("Attention through all layers together: from which words of the input each word at " +
      "the top was mixed.") },
  flow: { NAME: t("Flow"), reads: true, mount: mountFlow, fits: transformer,
    methods: ["mean", "max", "min"],
    ABOUT: t("Every attention weight as a pipe: how much could flow from each input word to each " +
      "word at the top.") },
  lens: { NAME: t("Lens"), reads: true, mount: mountLens,
    fits: ({ attends, reads, verb }) => attends && reads === "text" && verb !== "embed",
    ABOUT: t("What the model would answer if it stopped after each layer. Watch the answer take " +
      "shape from bottom to top.") },
  relevance: { NAME: t("Relevance"), reads: true, mount: mountRelevance, fits: transformer,
    asks: true,
    ABOUT: t("Which words of the input one answer rests on: attention, weighed by whether it " +
      "mattered.") },
  gradients: { NAME: t("Gradients"), reads: true, mount: mountGradients, fits: transformer,
    asks: true,
    ABOUT: t("What one answer owes to each word of the input, measured without looking at " +
      "attention at all.") },
  induction: { NAME: t("Induction"), reads: false, mount: mountInduction, fits: languageModel,
    ABOUT: t("Heads that find where a word stood before and look at what followed it: that is " +
      "how a model repeats.") },
  scaling: { NAME: t("Scaling"), reads: false, mount: mountScaling, fits: ({ attends }) => attends,
    ABOUT: t("Why scores are divided by √d: without it, long vectors let one key take all the " +
      "weight before anything is learned.") },
};

/** The page modules by their name in links. */
export const viewPages = Object.fromEntries(Object.entries(VIEWS).map(([view, about]) =>
  [view, { ...about, open: (element, state, studio) =>
    open(view, about, element, state, studio) }]));

function open(view, { reads, mount, fits, methods, asks, route, usual = {} }, element, state, studio) {
  const models = studio.models(fits);
  if (!models.length) return element.append(
    noModel(t("None of the loaded models fits this view.")));
  const model = findModel(models, state.model);
  const { place, load, element: panel } = resultPanel();
  // the last answer, where a text ends, says least
  const request = { text: inputText(model, state.text), method: state.method ?? methods?.[0],
    query: state.query ?? (asks && model.generates && !model.continues ? 1 : undefined) };
  let [shown, chosen] = [null, { ...usual, ...parseJson(state.at) }];
  let known = {}; // of a text: the values of each answer that was explained

  function refresh(changes = {}) {
    Object.assign(request, changes);
    const { text, method, query } = request;
    studio.set({ model: model.name, ...(reads ? { text } : {}), method, query });
    load(async (isCurrent) => {
      const body = { model: model.name, ...(reads ? { text } : {}) };
      const found = route
        ? await post(`/studio/api/${route}`, body)
        : (await post("/studio/api/view", { ...body, view, form: "page", method,
          query: query === undefined ? undefined : Number(query) })).data;
      if (!isCurrent()) return;
      show(found);
      if (asks) await explainOthers(found, body, isCurrent);
    });
  }

  function show(found) {
    if (shown) return shown.update(found, chosen);
    place.replaceChildren();
    return (shown = mount(place, found, { chosen, onChange: choose }));
  }

  /** The other answers of the text, one after the other, to be seen beside the chosen one. */
  async function explainOthers(found, body, isCurrent) {
    const { text } = request;
    if (known.text !== text) known = { text, every: found.rows.map(() => null) };
    known.every[found.query] = found.values;
    const showKnown = () => {
      if (found.rows.length > 1 && !found.image) show({ ...found, every: known.every });
    };
    showKnown();
    for (let query = 0; query < Math.min(found.rows.length, MOST); query += 1) {
      if (known.every[query]) continue;
      const { data } = await post("/studio/api/view", { ...body, view, form: "page", query });
      if (!isCurrent()) return;
      known.every[query] = data.values;
      showKnown();
    }
  }

  function choose(next) {
    if (asks && next.query !== undefined
      && String(next.query) !== String(request.query)) return refresh({ query: next.query });
    chosen = next;
    return studio.set({ at: JSON.stringify(next) });
  }

  const more = methods
    ? [choice(t("Method"), methods.map((name) => [name, t(name)]), request.method,
      (method) => refresh({ method }))] : [];
  const onModel = (name) => studio.go(view, { model: name });
  const onSubmit = (text) => {
    chosen = { ...usual };
    refresh({ text, query: asks && model.generates && !model.continues ? 1 : undefined });
  };
  element.append(reads
    ? inputBar({ models, model, text: request.text, action: t("Look"), more, onModel,
      onSubmit }).element
    : h("div", { class: "st-bar" }, modelMenu(models, model, onModel),
      h("div", { class: "st-more" }, more)), panel);
  refresh();
  return { close: () => shown?.destroy() };
}

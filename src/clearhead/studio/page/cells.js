// Interpretable units: a text coloured by the activation of a unit, and units ranked by the
// features that they follow.

import { post } from "./api.js";
import { t } from "./i18n.js";
import { findModel, inputBar, noModel, resultPanel } from "./shared.js";
import { menu } from "./views/controls.js";
import { mount } from "./views/cells.js";

export const NAME = t("Cells");
export const ABOUT = t(
  "Some units follow a feature that a reader can name: quotes, capitals, the position in the " +
  "line. Find them.");
export const fits = ({ continues }) => continues;

const ANY_FEATURE = "anything"; // in links
const UNITS_PER_FEATURE = 3; // shown when no feature is chosen

/** The best units of each feature. */
function bestOfEach(ranking) {
  const rank = ({ feature }, index) =>
    ranking.slice(0, index).filter((other) => other.feature === feature).length;
  return ranking.filter((entry, index) => rank(entry, index) < UNITS_PER_FEATURE);
}

export function open(element, state, studio) {
  const models = studio.models(fits);
  if (!models.length) return element.append(
    noModel(t("None of the loaded models is a language model.")));
  // several lines have features
  const model = findModel(models, state.model ?? models
    .find(({ passage }) => passage.includes("\n"))?.name);
  const { place, load, element: panel } = resultPanel();
  const request = {
    text: state.text ?? model.passage, layer: state.layer, unit: state.unit && Number(state.unit),
    feature: state.feature ?? ANY_FEATURE,
  };
  let [data, view] = [null, null];

  function refresh(changes = {}) {
    Object.assign(request, changes);
    const { text, layer, unit } = request;
    studio.set({ model: model.name, ...request });
    load(async (isCurrent) => {
      const found = await post("/studio/api/cells", { model: model.name, text, layer, unit });
      if (!isCurrent()) return;
      data = found;
      show();
    });
  }

  /** Show the units that follow the chosen feature. */
  function show() {
    const { ranking, layer, unit } = data;
    const matching = ranking.filter(({ feature }) => request.feature === ANY_FEATURE
      || feature === request.feature);
    const shown = { ...data, ranking: request.feature === ANY_FEATURE ? bestOfEach(matching)
      : matching };
    if (view) view.update(shown, { layer, unit });
    else view = mount(place, shown, { chosen: { layer, unit }, onChange: refresh });
    const focused = features.contains(document.activeElement);
    features.replaceChildren(...featureMenu(ranking).childNodes);
    if (focused) features.querySelector("select").focus();
  }

  function featureMenu(ranking) {
    const names = [...new Set(ranking.map(({ feature }) => feature))];
    return menu(t("Units that follow"), [ANY_FEATURE, ...names].map((name) => [name, t(name)]),
      request.feature, (feature) => {
      request.feature = feature;
      const best = data.ranking.find((each) => feature === ANY_FEATURE || each.feature === feature);
      refresh({ layer: best.layer, unit: best.unit });
    });
  }

  const features = featureMenu([]);
  const bar = inputBar({ models, model, text: request.text, action: t("Search"), more: [features],
    onSubmit: (text) => refresh({ text, layer: undefined, unit: undefined }),
    onModel: (name) => studio.go("cells", { model: name }) });
  element.append(bar.element, panel);
  refresh();
  return { close: () => view?.destroy() };
}

// Searching for interpretable cells: a text coloured by a unit, and units found by what they follow.

import { post } from "./api.js";
import { answers, bar, modelOf, nobody } from "./parts.js";
import { menu } from "./views/controls.js";
import { mount } from "./views/cells.js";

export const NAME = "Cells";
export const ABOUT = "Some units follow something that a reader can name: quotes, capitals, the place in the line. Find them.";
export const fits = ({ task, writes }) => task === "lm" && writes;

const EVERYTHING = "anything";
const BEST = 3; // units of each feature, where any is looked for

/** The few best units of each feature. */
function firstOfEach(ranking) {
  const rank = ({ feature }, place) => ranking.slice(0, place).filter((other) => other.feature === feature).length;
  return ranking.filter((entry, place) => rank(entry, place) < BEST);
}

export function open(element, state, studio) {
  const models = studio.models(fits);
  if (!models.length) return element.append(nobody("is a language model"));
  const model = modelOf(models, state.model);
  const { place, attempt, element: answer } = answers();
  const wish = { text: state.text ?? model.passage, layer: state.layer, unit: state.unit && Number(state.unit), feature: state.feature ?? EVERYTHING };
  let [data, view] = [null, null];

  function ask(part = {}) {
    Object.assign(wish, part);
    const { text, layer, unit } = wish;
    studio.set({ model: model.name, ...wish });
    attempt(async (current) => {
      const found = await post("/studio/api/cells", { model: model.name, text, layer, unit });
      if (!current()) return;
      data = found;
      show();
    });
  }

  /** The units that follow what is looked for. */
  function show() {
    const { ranking, layer, unit } = data;
    const wanted = ranking.filter(({ feature }) => wish.feature === EVERYTHING || feature === wish.feature);
    const shown = { ...data, ranking: wish.feature === EVERYTHING ? firstOfEach(wanted) : wanted };
    if (view) view.update(shown, { layer, unit });
    else view = mount(place, shown, { chosen: { layer, unit }, onChange: ask });
    const focused = patterns.contains(document.activeElement);
    patterns.replaceChildren(...patternMenu(ranking).childNodes);
    if (focused) patterns.querySelector("select").focus();
  }

  function patternMenu(ranking) {
    const names = [...new Set(ranking.map(({ feature }) => feature))];
    return menu("Units that follow", [EVERYTHING, ...names].map((name) => [name, name]), wish.feature, (feature) => {
      wish.feature = feature;
      const best = data.ranking.find((each) => feature === EVERYTHING || each.feature === feature);
      ask({ layer: best.layer, unit: best.unit });
    });
  }

  const patterns = patternMenu([]);
  const asked = bar({ models, model, text: wish.text, action: "Search", more: [patterns],
    onAsk: (text) => ask({ text, layer: undefined, unit: undefined }), onModel: (name) => studio.go("cells", { model: name }) });
  element.append(asked.element, answer);
  ask();
  return { close: () => view?.destroy() };
}

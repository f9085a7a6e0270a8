// How much a model needs each head, on held-out examples: the first are shown at once, more of them make it exact.

import { t } from "./i18n.js";
import { parseJson } from "./link.js";
import { findModel, modelMenu, noModel, resultPanel } from "./shared.js";
import { heldOut } from "./what-if-data.js";
import { button, choice } from "./views/controls.js";
import { h } from "./views/dom.js";
import { FORMAT, mount } from "./views/importance.js";

export const NAME = t("Importance");
export const ABOUT = t("How much worse the model gets without each head, measured on examples that it was " +
  "not trained on.");
export const fits = ({ attends }) => attends;

const METHODS = ["gradient", "ablation"];
const FEW = { gradient: 4, ablation: 1 }; // batches: ablation reads each once for every head
const MOST = 64;
const measured = new Map(); // since the page was loaded: model, method and batches -> {found, done, of}

export function open(element, state, studio) {
  const models = studio.models(fits);
  if (!models.length) return element.append(noModel(t("None of the loaded models fits this view.")));
  const model = findModel(models, state.model);
  const { place, load, element: panel } = resultPanel();
  const method = METHODS.includes(state.method) ? state.method : METHODS[0];
  let [batches, shown, chosen, running] = [FEW[method], null, parseJson(state.at) ?? {}, null];
  const progress = h("progress", { max: 1, value: 0, "aria-label": t("Examples measured"), hidden: true });
  const note = h("span", { class: "st-hint", role: "status" });
  const more = button(t("Measure on more examples"), () => {
    batches = Math.min(MOST, 4 * batches);
    measure();
  });

  function measure() {
    running?.abort();
    const own = (running = new AbortController());
    studio.set({ model: model.name, method });
    const key = JSON.stringify([model.name, method, batches]);
    load(async (isCurrent) => {
      [progress.hidden, more.disabled] = [false, true];
      note.textContent = t("Reading the examples …");
      const body = { model: model.name, batches, data: model.held_out };
      const known = measured.get(key);
      try {
        for await (const { found, done, of } of known ? [known] : steps(method, body, own.signal)) {
          if (!isCurrent()) return;
          [progress.max, progress.value] = [of || 1, done];
          if (of) note.textContent = t("{n} of {all} batches", { n: done, all: of });
          if (found) show(found);
          if (found && done === of) measured.set(key, { found, done, of });
        }
        if (batches < MOST) note.textContent = t("Measured on few examples, so the order may still change.");
        more.hidden = batches >= MOST;
      } catch (error) {
        note.textContent = "";
        throw error;
      } finally {
        if (running === own) [progress.hidden, more.disabled] = [true, false];
      }
    });
  }

  function show(found) {
    place.removeAttribute("aria-busy"); // it can be read now; what follows makes it more exact
    if (shown) shown.update(found, chosen);
    else shown = mount(place, found, { chosen, onChange: choose });
  }

  function choose(next) {
    chosen = next;
    studio.set({ at: JSON.stringify(next) });
  }

  element.append(h("div", { class: "st-bar" },
    modelMenu(models, model, (name) => studio.go("importance", { model: name, method })),
    h("div", { class: "st-more" },
      choice(t("Method"), METHODS.map((name) => [name, t(name)]), method,
        (name) => studio.go("importance", { model: model.name, method: name })),
      more, progress, note)), panel);
  measure();
  return {
    close() {
      running?.abort();
      shown?.destroy();
    },
  };
}

/** What is known of the heads, again and again: {found, done, of}. */
async function* steps(method, body, signal) {
  if (method === "gradient") {
    for await (const { data, done, of } of heldOut("/studio/api/importance", body, signal)) {
      yield { found: data, done, of };
    }
    return;
  }
  let [loss, counted, heads] = [0, {}, {}];
  for await (const line of heldOut("/studio/api/what-if/data", { ...body, each: "heads" }, signal)) {
    if ("done" in line) yield (counted = line);
    else if (!line.name) loss = line.loss;
    else {
      const [layer] = line.name.split(":");
      heads = { ...heads, [layer]: [...(heads[layer] ?? []), line.change] };
      yield { found: { format: FORMAT, method, loss, heads }, ...counted };
    }
  }
}

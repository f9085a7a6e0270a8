// Draw a digit: its class, the patches that the answer rests on, and the components of the patch
// embedding.

import { post } from "./api.js";
import { t } from "./i18n.js";
import { parseJson } from "./link.js";
import { pad } from "./pad.js";
import { findModel, noModel, resultPanel } from "./shared.js";
import { partLabel } from "./views/controls.js";
import { h } from "./views/dom.js";
import { frame, title } from "./views/frame.js";
import { format, percent } from "./views/numbers.js";
import { mount } from "./views/patches.js";

export const NAME = t("Image");
export const ABOUT = t(
  "An image is split into patches, and patches are tokens. Draw, and see the model's answer as " +
  "you go.");
export const fits = ({ reads, attends }) => reads === "image" && attends;

const CELL = 12; // screen pixels for one pixel of a patch

export function open(element, state, studio) {
  const models = studio.models(fits);
  if (!models.length) return element.append(noModel(t("None of the loaded models reads images.")));
  const model = findModel(models, state.model);
  const { place, load, element: panel } = resultPanel();
  const componentsPanel = resultPanel();
  let chosen = parseJson(state.at);
  let [view, components, waiting, busy] = [null, null, null, false];

  /** Send one image at a time; while a response is on its way, only the newest image waits. */
  async function send(image) {
    waiting = image;
    if (busy) return;
    busy = true;
    while (waiting) {
      const now = waiting;
      waiting = null;
      studio.set({ model: model.name, image: now });
      await load(async (isCurrent) => {
        const look = await post("/look", { model: model.name, image: now });
        if (!isCurrent()) return;
        if (view) view.update(look, chosen);
        else view = mount(place, look, { chosen, onChange: choose });
      });
    }
    busy = false;
  }

  function choose(next) {
    chosen = next;
    studio.set({ at: JSON.stringify(next) });
  }

  const drawing = pad({ models, model, image: state.image, example: true, onImage: send,
    onModel: (name) => studio.go("image", { model: name }) });
  const hint = h("p", { class: "st-hint" },
    t("Draw a digit on the pad: the answer, the patches and the rollout follow as you draw."));
  element.append(hint, h("div", { class: "st-beside" }, drawing.element, panel),
    componentsPanel.element);
  componentsPanel.load(async () => {
    components = showComponents(componentsPanel.place,
      await post("/studio/api/components", { model: model.name }), model);
  });
  if (state.image) send(state.image);
  return {
    close() {
      waiting = null;
      view?.destroy();
      components?.destroy();
    },
  };
}

/** Show the principal components of the patch embedding. */
function showComponents(element, data, model) {
  const view = frame(element, { name: "components", label: t("Principal components"), draw,
    json: () => data,
    picture: () => view.figure }, {});

  function draw() {
    title(view.heading, [t("What it looks for in a patch")],
      t("principal components of the patch embedding of {model}", { model: model.name }));
    const colours = view.palette();
    view.figure.replaceChildren(h("div", { class: "st-components" },
      data.components.map((component, number) =>
        tile(component, data.shares[number], number, colours))));
    view.say(t("Blue pixels add to a component, red pixels subtract from it."));
  }

  view.redraw();
  return view;
}

function tile(component, share, number, colours) {
  const side = component.length;
  const canvas = h("canvas", { width: side * CELL, height: side * CELL, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  const largest = Math.max(...component.flat(2).map(Math.abs)) || 1;
  component.forEach((row, y) => row.forEach((channels, x) => {
    const mean = channels.reduce((sum, value) => sum + value, 0) / channels.length;
    context.fillStyle = colours.signed(mean / largest);
    context.fillRect(x * CELL, y * CELL, CELL, CELL);
  }));
  const name = t("Component {number}, {share} of the variance", { number, share: percent(share) });
  return h("figure", { class: "st-tile", title: name }, canvas,
    h("figcaption", {}, partLabel(`${number} · ${format(100 * share)} %`)));
}

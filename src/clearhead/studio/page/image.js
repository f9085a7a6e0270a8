// Draw a digit: what it is, which patches the answer rests on, and what the model looks for in a patch.

import { post } from "./api.js";
import { unpack } from "./link.js";
import { pad } from "./pad.js";
import { answers, modelOf, nobody } from "./parts.js";
import { partLabel } from "./views/controls.js";
import { h } from "./views/dom.js";
import { frame, title } from "./views/frame.js";
import { format, percent } from "./views/numbers.js";
import { mount } from "./views/patches.js";

export const NAME = "Image";
export const ABOUT = "An image is cut into patches, and patches are words. Draw, and see what the model makes of it as you go.";
export const fits = ({ image, attends }) => Boolean(image) && attends;

const CELL = 12; // pixels of a patch's pixel

export function open(element, state, studio) {
  const models = studio.models(fits);
  if (!models.length) return element.append(nobody("reads images"));
  const model = modelOf(models, state.model);
  const { place, attempt, element: answer } = answers();
  const parts = answers();
  let chosen = unpack(state.at);
  let [view, components, waiting, busy] = [null, null, null, false];

  /** One question at a time; while it is answered, only the newest picture waits. */
  async function see(image) {
    waiting = image;
    if (busy) return;
    busy = true;
    while (waiting) {
      const now = waiting;
      waiting = null;
      studio.set({ model: model.name, image: now });
      await attempt(async (current) => {
        const look = await post("/look", { model: model.name, image: now });
        if (!current()) return;
        if (view) view.update(look, chosen);
        else view = mount(place, look, { chosen, onChange: keep });
      });
    }
    busy = false;
  }

  function keep(next) {
    chosen = next;
    studio.set({ at: JSON.stringify(next) });
  }

  const drawing = pad({ models, model, image: state.image, onImage: see,
    onModel: (name) => studio.go("image", { model: name }) });
  const empty = h("p", { class: "st-hint" }, "Draw a digit on the pad: the answer, the patches and the rollout follow your hand.");
  place.append(empty);
  element.append(h("div", { class: "st-beside" }, drawing.element, answer), parts.element);
  parts.attempt(async () => {
    components = showComponents(parts.place, await post("/studio/api/components", { model: model.name }), model);
  });
  if (state.image) see(state.image);
  return {
    close() {
      waiting = null;
      view?.destroy();
      components?.destroy();
    },
  };
}

/** The principal components of the patch embedding: what the model looks for. */
function showComponents(element, data, model) {
  const view = frame(element, { name: "components", label: "Principal components", draw, json: () => data,
    picture: () => view.figure }, {});

  function draw() {
    title(view.heading, ["What it looks for in a patch"], `principal components of the patch embedding of ${model.name}`);
    const colours = view.palette();
    view.figure.replaceChildren(h("div", { class: "st-components" },
      data.components.map((component, number) => tile(component, data.shares[number], number, colours))));
    view.say("Blue is what counts for a component, orange what counts against it.");
  }

  view.redraw();
  return view;
}

function tile(component, share, number, colours) {
  const side = component.length;
  const canvas = h("canvas", { width: side * CELL, height: side * CELL, "aria-hidden": "true" });
  const pen = canvas.getContext("2d");
  const most = Math.max(...component.flat(2).map(Math.abs)) || 1;
  component.forEach((row, y) => row.forEach((channels, x) => {
    const mean = channels.reduce((sum, value) => sum + value, 0) / channels.length;
    pen.fillStyle = colours.signed(mean / most);
    pen.fillRect(x * CELL, y * CELL, CELL, CELL);
  }));
  const name = `Component ${number}, ${percent(share)} of the spread`;
  return h("figure", { class: "st-tile", title: name }, canvas,
    h("figcaption", {}, partLabel(`${number} · ${format(100 * share)} %`)));
}

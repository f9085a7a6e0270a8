// The whole model as one picture, from the text to the single number.

import { post } from "./api.js";
import { parseJson } from "./link.js";
import { pad } from "./pad.js";
import { findModel, inputBar, inputText, noModel, resultPanel } from "./shared.js";
import { toggle } from "./views/controls.js";
import { h } from "./views/dom.js";
import { mount } from "./views/xray.js";

export const NAME = "X-ray";
export const ABOUT = "The whole model, from the text to the answer: click to zoom in, down to a single number and where it comes from.";
export const fits = ({ reads }) => reads !== "words";

export function open(element, state, studio) {
  const models = studio.models(fits);
  if (!models.length) return element.append(noModel("has layers"));
  const model = findModel(models, state.model);
  const { place, load, element: panel } = resultPanel();
  const request = { model: model.name, text: inputText(model, state.text), generate: state.writes === "yes", image: state.image };
  let chosen = parseJson(state.at);
  let view = null;

  const body = () => (model.reads === "image" ? { model: model.name, image: request.image } : { model: model.name, text: request.text, generate: request.generate });

  function refresh(changes = {}) {
    if ("text" in changes || "image" in changes) chosen = "at" in changes ? changes.at : {};
    Object.assign(request, changes);
    studio.set({ model: model.name, text: model.reads === "image" ? "" : request.text, image: request.image, writes: request.generate ? "yes" : "" });
    load(async (isCurrent) => {
      const asked = body();
      const fetchPart = async (wanted) => ("item" in wanted
        ? post("/studio/api/xray/values", { ...asked, ...wanted })
        : (await post("/studio/api/xray/weights", { ...asked, ...wanted })).rows);
      const data = await post("/studio/api/xray", asked);
      if (!isCurrent()) return;
      view?.destroy();
      view = mount(place, data, { chosen, load: fetchPart, onChange: choose });
    });
  }

  function choose(next) {
    chosen = next;
    studio.set({ at: next.node ? JSON.stringify(next) : "" });
  }

  const onModel = (name) => studio.go("xray", { model: name });
  if (model.reads === "image") {
    const drawing = pad({ models, model, image: state.image, onImage: (image) => refresh({ image }), onModel });
    place.append(h("p", { class: "st-hint" }, "Draw a digit on the pad, or drop an image: the model is drawn with what it computes."));
    element.append(h("div", { class: "st-above" }, drawing.element, panel));
    if (state.image) refresh();
  } else {
    const generating = toggle("While it generates", request.generate, (generate) => refresh({ generate }));
    const bar = inputBar({ models, model, text: request.text, action: "X-ray", more: model.continues ? [generating] : [],
      onSubmit: (text) => refresh({ text }), onModel });
    element.append(bar.element, panel);
    refresh();
  }
  return { close: () => view?.destroy() };
}

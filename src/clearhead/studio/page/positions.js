// Position vectors as a heatmap, and the dot product of two positions by their distance.

import { post } from "./api.js";
import { count, t } from "./i18n.js";
import { debounce, resultPanel } from "./shared.js";
import { menu, slider } from "./views/controls.js";
import { h } from "./views/dom.js";
import { mount } from "./views/positions.js";

export const NAME = t("Positions");
export const ABOUT = t(
  "Attention by itself ignores order. Each position has a vector, and nearby positions have " +
  "similar ones.");
export const fits = ({ attends }) => attends;

const SINUSOIDAL = "waves"; // the value in links
const BASES = [2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000];
const WIDTHS = [4, 8, 16, 32, 64, 96, 128, 192, 256];
const LENGTHS = [16, 32, 48, 64, 96, 128];

export function open(element, state, studio) {
  const { place, load, element: panel } = resultPanel();
  const asked = state.base ?? state.width ?? state.length; // of sinusoidal positions
  const request = {
    model: state.model ?? (asked ? SINUSOIDAL : studio.models(fits)[0]?.name ?? SINUSOIDAL),
    base: Number(state.base ?? 10000), width: Number(state.width ?? 64),
    length: Number(state.length ?? 64),
  };
  const tools = h("div", { class: "st-choices", role: "group",
    "aria-label": t("Which positions") });
  let view = null;

  function refresh(changes = {}) {
    Object.assign(request, changes);
    studio.set(request.model === SINUSOIDAL ? { ...request, model: "" }
      : { model: request.model, base: "", width: "", length: "" });
    load(async (isCurrent) => {
      const { base, width, length } = request;
      const found = await post("/studio/api/positions",
        request.model === SINUSOIDAL ? { base, width, length } : { model: request.model });
      if (!isCurrent()) return;
      const data = { ...found, title: request.model === SINUSOIDAL ? waveTitle(request)
        : t("{scheme} positions of {model}", { scheme: t(found.scheme), model: request.model }) };
      if (view) view.update(data);
      else view = mount(place, data);
    });
  }
  const refreshSoon = debounce(60, refresh);

  function drawChoices() {
    const sources = [...studio.models(fits)
      .map(({ name }) => [name, t("of {model}", { model: name })]),
      [SINUSOIDAL, t("sinusoidal, of any base")]];
    const sliderFor = (name, text, values) =>
      slider(text, values.length - 1, nearestIndex(values, request[name]),
      (index) => count(values[index]), (index) => refreshSoon({ [name]: values[index] }));
    tools.replaceChildren(
      menu(t("Positions"), sources, request.model,
        (model) => { refresh({ model }); drawChoices(); tools.querySelector("select").focus(); }),
      ...(request.model === SINUSOIDAL ? [sliderFor("base", t("Base N"), BASES),
        sliderFor("width", t("Width D"), WIDTHS),
        sliderFor("length", t("Length T"), LENGTHS)] : []));
  }

  element.append(tools, panel);
  drawChoices();
  refresh();
  return { close: () => view?.destroy() };
}

function waveTitle({ base, width }) {
  return `PE(pos, 2i) = sin(pos / ${count(base)}^(2i/${width}))`;
}

function nearestIndex(values, target) {
  return values.reduce((best, value, index) =>
    (Math.abs(value - target) < Math.abs(values[best] - target) ? index : best), 0);
}

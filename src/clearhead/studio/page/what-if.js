// Switch parts of a model off, and compare the answer and the loss with the original.

import { post } from "./api.js";
import { parseJson } from "./link.js";
import { pad } from "./pad.js";
import { findModel, inputBar, inputText, noModel, resultPanel } from "./shared.js";
import { button, partLabel, toggle } from "./views/controls.js";
import { h } from "./views/dom.js";
import { frame, title } from "./views/frame.js";
import { amountLegend } from "./views/legend.js";
import { format, percent, visible } from "./views/numbers.js";

export const NAME = "What if";
export const ABOUT = "Switch a part off to see what it contributes: to the answer, and to the probability of the original answer.";
export const fits = ({ attends }) => attends;

const MASK_NOTE = "A model that writes token by token has nothing later to look at, so its sentence stays the same without the mask. While it learns it sees the whole sentence: the loss shows the difference.";
const WHOLE = [["scale", "Scale 1/√dₖ"], ["mask", "Mask"], ["positions", "Positions"]];

export function open(element, state, studio) {
  const models = studio.models(fits);
  if (!models.length) return element.append(noModel("has attention"));
  const model = findModel(models, state.model);
  const { place, load, element: panel } = resultPanel();
  const readsImage = model.reads === "image";
  const request = { text: inputText(model, state.text), image: state.image };
  let off = { scale: false, mask: false, positions: false, layers: [], heads: [], ...parseJson(state.off) };
  let [data, view] = [null, null];
  const switches = h("div", { class: "st-switches", role: "group", "aria-label": "Parts to switch off" });

  function refresh(changes = {}) {
    Object.assign(request, changes);
    studio.set({ model: model.name, ...request, off: JSON.stringify(off) });
    if (readsImage && !request.image) return;
    load(async (isCurrent) => {
      const found = await post("/studio/api/what-if", { model: model.name, ...request, ...off });
      if (!isCurrent()) return;
      if (!data) drawSwitches(found.parts);
      data = found;
      view ??= frame(place, { name: "what-if", label: "What if", draw, json: () => data, picture: () => view.figure }, {});
      view.redraw();
    });
  }

  function change(changes) {
    off = { ...off, ...changes };
    refresh();
  }

  function flip(list, name, on) {
    change({ [list]: on ? [...off[list], name] : off[list].filter((each) => each !== name) });
  }

  /** Draw switches for the whole model, for each layer and for each head. */
  function drawSwitches({ whole: present, layers, heads }) {
    const whole = WHOLE.filter(([name]) => present.includes(name)).map(([name, text]) => toggle(text, off[name], (on) => change({ [name]: on })));
    const layerSwitches = layers.map((name) => toggle(name, off.layers.includes(name), (on) => flip("layers", name, on)));
    const rows = Object.entries(heads).map(([name, count]) => h("tr", {}, h("th", { scope: "row" }, name),
      Array.from({ length: count }, (_, head) => h("td", {}, headSwitch(`${name}:${head}`, `${name}, head ${head}`)))));
    const columns = Math.max(0, ...Object.values(heads));
    const header = h("tr", {}, h("th", { scope: "col" }, "Head"),
      Array.from({ length: columns }, (_, head) => h("th", { scope: "col" }, head)));
    switches.replaceChildren(
      h("fieldset", {}, h("legend", {}, "Switch off"), whole, button("Switch all on", reset)),
      h("fieldset", {}, h("legend", {}, "Layers"), layerSwitches),
      h("fieldset", {}, h("legend", {}, "Heads"), h("table", {}, h("thead", {}, header), h("tbody", {}, rows))));
  }

  function headSwitch(name, label) {
    const input = h("input", { type: "checkbox", "aria-label": label, title: label, checked: off.heads.includes(name),
      onchange: () => flip("heads", name, input.checked) });
    return input;
  }

  function reset() {
    off = { scale: false, mask: false, positions: false, layers: [], heads: [] };
    drawSwitches(data.parts);
    refresh();
  }

  function draw() {
    const colours = view.palette();
    title(view.heading, [readsImage ? "the image" : data.text], comparison(data, off));
    view.figure.replaceChildren(
      column("Original", data.original, data, colours), column(nameOf(off), data.changed, data, colours),
      amountLegend(colours, ["0 %", "100 % likely"], 1, colours.share));
    view.say(`The stronger the colour of a token, the more probable the model finds it.${off.mask ? ` ${MASK_NOTE}` : ""}`);
  }

  const onModel = (name) => studio.go("what-if", { model: name });
  const input = readsImage
    ? pad({ models, model, image: request.image, example: true, onModel, onImage: (image) => refresh({ image }) })
    : inputBar({ models, model, text: request.text, action: "Compare", onModel, onSubmit: (text) => refresh({ text }) });
  const body = h("div", { class: "st-beside st-wide" }, switches, panel);
  element.append(readsImage ? h("div", { class: "st-beside" }, input.element, body) : h("div", {}, input.element, body));
  refresh();
  return { close: () => view?.destroy() };
}

function column(name, { output, loss, probabilities }, { words }, colours) {
  const token = (text, index) => {
    const fill = colours.share(probabilities[index]);
    const style = { background: fill, color: colours.inkOn(fill) };
    return h("span", { class: "ch-chip", title: percent(probabilities[index]), style }, visible(text));
  };
  return h("section", { class: "st-column", "aria-label": name },
    partLabel(h("strong", {}, name)),
    h("p", { class: "st-output", dir: "auto" }, output),
    h("dl", { class: "ch-facts" }, h("dt", {}, "Loss"), h("dd", { class: "st-loss" }, format(loss))),
    h("p", { class: "ch-chips", dir: "auto" }, words.map(token)));
}

function comparison({ divergence, flipped }, off) {
  if (nameOf(off) === "Nothing switched off") return "switch something off on the left";
  return `KL divergence ${format(divergence)} nats · the most probable token changed at ${percent(flipped)} of the positions`;
}

function nameOf({ scale, mask, positions, layers, heads }) {
  const whole = [scale && "scale", mask && "mask", positions && "positions"].filter(Boolean);
  const all = [...whole, ...layers, ...heads.map((name) => name.replace(":", " head "))];
  if (!all.length) return "Nothing switched off";
  return `Without ${all.length > 3 ? `${all.slice(0, 3).join(", ")} and ${all.length - 3} more` : all.join(", ")}`;
}

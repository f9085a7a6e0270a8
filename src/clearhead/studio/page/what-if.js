// Switch parts of a model off, and compare the answer and the loss with the original.

import { post } from "./api.js";
import { explained } from "./glossary.js";
import { t } from "./i18n.js";
import { parseJson } from "./link.js";
import { pad } from "./pad.js";
import { findModel, inputBar, inputText, noModel, resultPanel } from "./shared.js";
import { dataPanel, ranking } from "./what-if-data.js";
import { patchPanel } from "./what-if-patch.js";
import { button, choice, partLabel, toggle } from "./views/controls.js";
import { h } from "./views/dom.js";
import { frame, title } from "./views/frame.js";
import { amountLegend } from "./views/legend.js";
import { blockName, byKind, headName, partName } from "./views/names.js";
import { format, percent, visible } from "./views/numbers.js";

export const NAME = t("What if");
export const ABOUT = t("Switch a part off to see what it contributes: to the answer, and to the probability of the original answer.");
export const fits = ({ attends }) => attends;

const MASK_NOTE = t("A model that writes token by token has nothing later to look at, so its sentence stays the same without the mask. While it learns it sees the whole sentence: the loss shows the difference.");
const MOST = 16; // parts that are switched off by themselves, to begin with
const TABS = [["", t("One input")], ["data", t("Held-out data")], ["patch", t("From another sentence")]];
const WHOLE = [["scale", t("Scale 1/√dₖ")], ["mask", t("Mask")], ["positions", t("Positions")]];

export function open(element, state, studio) {
  const models = studio.models(fits);
  if (!models.length) return element.append(noModel(t("None of the loaded models has attention.")));
  const model = findModel(models, state.model);
  const { place, load, element: panel } = resultPanel();
  const readsImage = model.reads === "image";
  const request = { text: inputText(model, state.text), image: state.image };
  let off = { scale: false, mask: false, positions: false, layers: [], heads: [], ...parseJson(state.off) };
  let [data, view, without] = [null, null, []];
  const tabs = choice(t("Measure on"), model.reads === "text" && model.attends ? TABS : TABS.slice(0, 2), state.tab
    ?? "",
    (tab) => studio.go("what-if", { model: model.name, text: readsImage ? "" : request.text, off: JSON.stringify(off),
      tab }));
  element.append(h("div", { class: "st-tabs" }, tabs));
  if (state.tab === "data") return dataPanel(element, { models, model, off, studio });
  if (state.tab === "patch" && model.reads === "text") return patchPanel(element, { models, model, state, studio });
  const switches = h("div", { class: "st-switches", role: "group", "aria-label": t("Parts to switch off") });

  function refresh(changes = {}) {
    Object.assign(request, changes);
    without = [];
    studio.set({ model: model.name, ...request, off: JSON.stringify(off) });
    if (readsImage && !request.image) return;
    load(async (isCurrent) => {
      const found = await post("/studio/api/what-if", { model: model.name, ...request, ...off });
      if (!isCurrent()) return;
      if (!data) drawSwitches(found.parts);
      data = found;
      view ??= frame(place, { name: "what-if", label: t("What if"), draw, json: () => data,
        picture: () => view.figure }, {});
      view.redraw();
      if (!isOff(off) && data.parts.layers.length <= MOST) await measureEach(isCurrent);
    });
  }

  /** The loss without each block by itself, while nobody has switched anything off. */
  async function measureEach(isCurrent) {
    const found = [];
    for (const name of data.parts.layers) {
      const { original, changed } = await post("/studio/api/what-if",
        { model: model.name, ...request, layers: [name] });
      if (!isCurrent()) return;
      found.push({ name, loss: changed.loss, change: changed.loss - original.loss });
    }
    without = found;
    view.redraw();
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
    const columns = Math.max(0, ...Object.values(heads));
    const whole = WHOLE.filter(([name]) => present.includes(name)).map(([name, text]) => toggle(text, off[name],
      (on) => change({ [name]: on })));
    const layerSwitches = Object.entries(byKind(layers)).map(([stack, names]) => h("div", { class: "st-blocks" },
      partLabel(partName(stack)), names.map(layerSwitch)));
    const row = (name) => h("tr", {}, h("th", { scope: "row", title: name }, blockName(name)),
      Array.from({ length: heads[name] }, (_, head) => h("td", {}, headSwitch(`${name}:${head}`))));
    const groups = Object.entries(byKind(Object.keys(heads))).map(([kind, names]) => h("tbody", {},
      h("tr", {}, h("th", { scope: "rowgroup", colspan: columns + 1 }, partName(kind))), names.map(row)));
    const header = h("tr", {}, h("th", { scope: "col" }, t("Head")),
      Array.from({ length: columns }, (_, head) => h("th", { scope: "col" }, head)));
    switches.replaceChildren(
      h("fieldset", {}, h("legend", {}, t("Switch off")), whole, button(t("Switch all on"), reset)),
      h("fieldset", {}, h("legend", {}, t("Layers")), layerSwitches),
      h("fieldset", {}, h("legend", {}, t("Heads")), h("div", { class: "st-inner", tabindex: 0, role: "region",
        "aria-label": t("Heads") }, h("table", {}, h("thead", {}, header), groups))));
  }

  function layerSwitch(name) {
    const made = toggle(blockName(name), off.layers.includes(name), (on) => flip("layers", name, on));
    made.title = name;
    made.querySelector("input").setAttribute("aria-label", partName(name));
    return made;
  }

  function headSwitch(name) {
    const input = h("input", { type: "checkbox", "aria-label": headName(name), title: `${headName(name)} (${name})`,
      checked: off.heads.includes(name),
      onchange: () => flip("heads", name, input.checked) });
    return input;
  }

  function reset() {
    off = { scale: false, mask: false, positions: false, layers: [], heads: [] };
    drawSwitches(data.parts);
    refresh();
  }

  /** Parts to begin with, each a click away: a block, a head and the positions. */
  function suggestions({ whole, layers, heads }) {
    const layer = Object.keys(heads).at(-1);
    const head = `${layer}:${heads[layer] - 1}`;
    const block = layers.find((name) => name.split(".")[0] === layers.at(-1).split(".")[0]);
    const all = [...(block ? [[partName(block), { layers: [block] }]] : []),
      ...(layer ? [[headName(head), { heads: [head] }]] : []),
      ...(whole.includes("positions") ? [[t("Positions"), { positions: true }]] : [])];
    const suggest = ([name, changes]) => button(name, () => {
      change(changes);
      drawSwitches(data.parts);
    });
    return h("p", { class: "st-suggestions" }, h("span", { class: "ch-label" }, t("For example, switch off")),
      all.map(suggest));
  }

  function draw() {
    const colours = view.palette();
    title(view.heading, [readsImage ? t("the image") : data.text], comparison(data, off));
    view.figure.replaceChildren(
      ...(isOff(off) ? [] : [suggestions(data.parts)]),
      column(t("Original"), data.original, data, colours), column(nameOf(off), data.changed, data, colours),
      amountLegend(colours, ["0 %", t("100 % likely")], 1, colours.share), ...(without.length ? [each()] : []));
    const meaning = t("The stronger the colour of a token, the more probable the model finds it.");
    view.say(off.mask ? `${meaning} ${MASK_NOTE}` : meaning);
  }

  function each() {
    const most = Math.max(...without.map(({ change: rise }) => Math.abs(rise))) || 1;
    const switchOff = (name) => {
      change({ layers: [name] });
      drawSwitches(data.parts);
    };
    return h("section", { class: "st-each" }, partLabel(t("The loss without each block by itself")),
      ranking(without, most, switchOff));
  }

  const onModel = (name) => studio.go("what-if", { model: name });
  const input = readsImage
    ? pad({ models, model, image: request.image, example: true, onModel, onImage: (image) => refresh({ image }) })
    : inputBar({ models, model, text: request.text, action: t("Compare"), onModel,
      onSubmit: (text) => refresh({ text }) });
  const body = h("div", { class: "st-beside st-wide" }, switches, panel);
  element.append(readsImage ? h("div", { class: "st-beside" }, input.element, body) : h("div", {}, input.element,
    body));
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
    h("dl", { class: "ch-facts" }, h("dt", {}, explained(t("Loss"))), h("dd", { class: "st-loss" }, format(loss))),
    h("p", { class: "ch-chips", dir: "auto" }, words.map(token)));
}

function comparison({ divergence, flipped }, off) {
  if (!isOff(off)) return t("switch a part off, and see here what changes");
  return t("its probabilities moved by {divergence} (KL divergence; 0 is not at all) · the most probable token " +
    "changed at {share} of the positions", { divergence: format(divergence), share: percent(flipped) });
}

/** Whether anything is switched off. */
function isOff({ scale, mask, positions, layers, heads }) {
  return scale || mask || positions || layers.length > 0 || heads.length > 0;
}

function nameOf({ scale, mask, positions, layers, heads }) {
  const whole = [scale && t("scale"), mask && t("mask"), positions && t("positions")].filter(Boolean);
  const all = [...whole, ...layers.map(partName), ...heads.map(headName)];
  if (!all.length) return t("Nothing switched off");
  if (all.length <= 3) return t("Without {parts}", { parts: all.join("; ") });
  return t("Without {parts} and {n} more", { parts: all.slice(0, 3).join("; "), n: all.length - 3 });
}

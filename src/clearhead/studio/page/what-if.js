// Switch something off, and see the answer and the loss beside the original.

import { post } from "./api.js";
import { unpack } from "./link.js";
import { pad } from "./pad.js";
import { answers, bar, modelOf, nobody, textOf } from "./parts.js";
import { button, partLabel, toggle } from "./views/controls.js";
import { h } from "./views/dom.js";
import { frame, title } from "./views/frame.js";
import { format, percent, visible } from "./views/numbers.js";

export const NAME = "What if";
export const ABOUT = "Switch a part off, and what it was good for shows: in the answer, and in how likely the model finds its own.";
export const fits = ({ attends }) => attends;

const WHOLE = [["scale", "Scale 1/√dₖ"], ["mask", "Mask"], ["positions", "Positions"]];

export function open(element, state, studio) {
  const models = studio.models(fits);
  if (!models.length) return element.append(nobody("attends"));
  const model = modelOf(models, state.model);
  const { place, attempt, element: answer } = answers();
  const wish = { text: textOf(model, state.text), image: state.image };
  let off = { scale: false, mask: false, positions: false, layers: [], heads: [], ...unpack(state.off) };
  let [data, view] = [null, null];
  const switches = h("div", { class: "st-switches", role: "group", "aria-label": "What is switched off" });

  function ask(part = {}) {
    Object.assign(wish, part);
    studio.set({ model: model.name, ...wish, off: JSON.stringify(off) });
    if (model.image && !wish.image) return;
    attempt(async (current) => {
      const found = await post("/studio/api/what-if", { model: model.name, ...wish, ...off });
      if (!current()) return;
      if (!data) furnish(found.parts);
      data = found;
      view ??= frame(place, { name: "what-if", label: "What if", draw, json: () => data, picture: () => view.figure }, {});
      view.redraw();
    });
  }

  function change(part) {
    off = { ...off, ...part };
    ask();
  }

  function flip(list, name, on) {
    change({ [list]: on ? [...off[list], name] : off[list].filter((each) => each !== name) });
  }

  /** Switches for the whole, for each layer and for each head. */
  function furnish({ layers, heads }) {
    const whole = WHOLE.map(([name, text]) => toggle(text, off[name], (on) => change({ [name]: on })));
    const ofLayers = layers.map((name) => toggle(name, off.layers.includes(name), (on) => flip("layers", name, on)));
    const rows = Object.entries(heads).map(([name, count]) => h("tr", {}, h("th", { scope: "row" }, name),
      Array.from({ length: count }, (_, head) => h("td", {}, cross(`${name}:${head}`, `${name}, head ${head}`)))));
    const most = Math.max(0, ...Object.values(heads));
    const top = h("tr", {}, h("th", { scope: "col" }, "Head"),
      Array.from({ length: most }, (_, head) => h("th", { scope: "col" }, head)));
    switches.replaceChildren(
      h("fieldset", {}, h("legend", {}, "Switch off"), whole, button("All on again", reset)),
      h("fieldset", {}, h("legend", {}, "Layers"), ofLayers),
      h("fieldset", {}, h("legend", {}, "Heads"), h("table", {}, h("thead", {}, top), h("tbody", {}, rows))));
  }

  function cross(name, label) {
    const input = h("input", { type: "checkbox", "aria-label": label, title: label, checked: off.heads.includes(name),
      onchange: () => flip("heads", name, input.checked) });
    return input;
  }

  function reset() {
    off = { scale: false, mask: false, positions: false, layers: [], heads: [] };
    furnish(data.parts);
    ask();
  }

  function draw() {
    const colours = view.palette();
    title(view.heading, [model.image ? "the image" : data.text], sentence(data, off));
    view.figure.replaceChildren(
      column("As it is", data.original, data, colours), column(named(off), data.changed, data, colours));
    view.say("The stronger the colour of a word, the likelier the model finds it.");
  }

  const onModel = (name) => studio.go("what-if", { model: name });
  const side = model.image
    ? pad({ models, model, image: wish.image, onModel, onImage: (image) => ask({ image }) })
    : bar({ models, model, text: wish.text, action: "Compare", onModel, onAsk: (text) => ask({ text }) });
  const body = h("div", { class: "st-beside st-wide" }, switches, answer);
  element.append(model.image ? h("div", { class: "st-beside" }, side.element, body) : h("div", {}, side.element, body));
  if (model.image && !wish.image) place.append(h("p", { class: "st-hint" }, "Draw something first."));
  ask();
  return { close: () => view?.destroy() };
}

function column(name, { output, loss, probabilities }, { words }, colours) {
  const word = (text, place) => {
    const fill = colours.share(probabilities[place]);
    const paint = { background: fill, color: colours.inkOn(fill) };
    return h("span", { class: "ch-chip", title: percent(probabilities[place]), style: paint }, visible(text));
  };
  return h("section", { class: "st-column", "aria-label": name },
    partLabel(h("strong", {}, name)),
    h("p", { class: "st-output", dir: "auto" }, output),
    h("dl", { class: "ch-facts" }, h("dt", {}, "Loss"), h("dd", { class: "st-loss" }, format(loss))),
    h("p", { class: "ch-chips", dir: "auto" }, words.map(word)));
}

function sentence({ divergence, flipped }, off) {
  if (named(off) === "Nothing switched off") return "switch something off on the left";
  return `KL divergence ${format(divergence)} nats · the likeliest answer changed in ${percent(flipped)} of the places`;
}

function named({ scale, mask, positions, layers, heads }) {
  const whole = [scale && "scale", mask && "mask", positions && "positions"].filter(Boolean);
  const all = [...whole, ...layers, ...heads.map((name) => name.replace(":", " head "))];
  if (!all.length) return "Nothing switched off";
  return `Without ${all.length > 3 ? `${all.slice(0, 3).join(", ")} and ${all.length - 3} more` : all.join(", ")}`;
}

// The logit lens: what the model would answer if it stopped after each layer.
//
// data: Lens, format "clearhead-lens-1". chosen: {layer: a row from the bottom, token}.

import { partLabel, shareList } from "./controls.js";
import { clamp, h, keyOf, roomIn } from "./dom.js";
import { frame, handle, title, widget } from "./frame.js";
import { plural, t } from "./i18n.js";
import { amountLegend } from "./legend.js";
import { percent, visible } from "./numbers.js";
import { plot } from "./plot.js";

export const FORMAT = "clearhead-lens-1";

const MOVES = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }; // up, right

/** Show the answers after each layer in an element: {update, destroy}. */
export function mount(element, data, options = {}) {
  let chosen = validChoice(data, options.chosen ?? {});
  const saved = { json: () => data, picture: () => view.figure };
  const view = frame(element, { name: "lens", label: t("Answers after each layer"), draw, ...saved }, options);

  function choose(next) {
    chosen = validChoice(data, next);
    options.onChange?.(chosen);
    draw();
    view.figure.querySelector('[aria-pressed="true"]')?.focus({ preventScroll: true });
  }

  function draw() {
    const colours = view.palette();
    const rows = data.layers.map((_, layer) => layer).reverse(); // the last layer at the top
    title(view.heading, [t("The answer takes shape")],
      plural("{n} layer · the likeliest next answer after each", "{n} layers · the likeliest next answer after each",
        data.layers.length - 1));
    const cell = (layer, token) => {
      const [answer, share] = data.layers[layer][token][0];
      const fill = colours.share(share);
      const own = layer === chosen.layer && token === chosen.token;
      return h("td", {}, h("button", {
        type: "button", class: "ch-answer", dir: "auto", "aria-pressed": String(own), tabindex: own ? 0 : -1,
        "aria-label": `${placeOf(layer, data.tokens[token])}: ${visible(answer)}, ${percent(share)}`,
        style: { background: fill, color: colours.inkOn(fill) }, onclick: () => choose({ layer, token }),
        onkeydown: (event) => move(event, layer, token),
      }, visible(answer)));
    };
    const row = (name, cells) => h("tr", {}, h("th", { scope: "row" }, name), cells);
    const word = (token) => h("th", { scope: "col", dir: "auto" }, visible(token));
    const table = h("table", { class: "ch-lens-table" },
      h("tbody", {}, rows.map((layer) => row(nameOf(layer), data.tokens.map((_, token) => cell(layer, token))))),
      h("tfoot", {}, row(t("it has read"), data.tokens.map(word))));
    const answers = data.layers[chosen.layer][chosen.token];
    const shares = answers.map(([answer, share], rank) => [visible(answer), share, rank === 0]);
    const place = placeOf(chosen.layer, data.tokens[chosen.token]);
    view.figure.replaceChildren(h("div", { class: "ch-one-beside" },
      h("div", {}, h("div", { class: "ch-scroll" }, table),
        amountLegend(colours, ["0 %", t("100 % likely")], 1, colours.share)),
      h("div", {}, partLabel(h("strong", {}, place)), shareList(shares))), development());
    view.say(t("The final answer is in place {place} from layer {layer} on.",
      { place: chosen.token + 1, layer: settled(data, chosen.token) }));
  }

  /** How likely the final answer was after each layer: the chosen one, and the mean of all. */
  function development() {
    const [final] = data.layers.at(-1)[chosen.token][0];
    const points = (value) => data.probability.map((row, layer) => [layer, value(row)]);
    const mean = (row) => row.reduce((sum, one) => sum + one, 0) / row.length;
    const name = t("“{word}”", { word: visible(final) });
    const own = { name, points: points((row) => row[chosen.token]), dots: true };
    const curves = data.tokens.length > 1 ? [own, { name: t("the mean of all places"), points: points(mean) }] : [own];
    const every = Math.ceil(data.probability.length / 12);
    const ticks = data.probability.map((_, layer) => [layer, layer === 0 ? t("before") : String(layer - 1)])
      .filter(([layer]) => layer % every === 0);
    const size = { width: clamp(roomIn(view.figure), 280, 900), height: 260 };
    return h("div", { class: "ch-below-all" }, partLabel(t("How likely the final answer was after each layer")),
      plot(curves, { ...size, x: t("layer"), y: t("probability"), ticks, at: chosen.layer }));
  }

  function move(event, layer, token) {
    const [up, right] = MOVES[keyOf(event)] ?? [];
    if (up === undefined) return;
    event.preventDefault();
    choose({ layer: layer + up, token: token + right });
  }

  return handle(view, (next, requested = chosen) => {
    data = next;
    chosen = validChoice(data, requested);
  });
}

function nameOf(layer) {
  return layer === 0 ? t("before any layer") : t("after layer {layer}", { layer: layer - 1 });
}

function placeOf(layer, token) {
  return t("{layer}, after “{word}”", { layer: nameOf(layer), word: visible(token) });
}

/** The first layer from which on the likeliest answer stays the final one. */
function settled({ rank }, token) {
  let layer = rank.length - 1;
  while (layer > 0 && rank[layer - 1][token] === 0) layer -= 1;
  return Math.max(0, layer - 1);
}

/** The requested cell where the data has it; at first the final answer of which the model was least sure. */
function validChoice({ layers, tokens }, { layer, token }) {
  const inside = (value, count) => (value >= 0 && value < count ? value : count - 1);
  const sure = layers.at(-1).map(([[, share]]) => share);
  const least = sure.indexOf(Math.min(...sure));
  return { layer: inside(layer, layers.length), token: inside(token ?? least, tokens.length) };
}

export default widget(mount);

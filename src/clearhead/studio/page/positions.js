// Positions: the heatmap of the lectures, and how the product of two positions falls with their distance.

import { post } from "./api.js";
import { plot } from "./plot.js";
import { after, answers } from "./parts.js";
import { menu, partLabel, slider } from "./views/controls.js";
import { h } from "./views/dom.js";
import { frame, title } from "./views/frame.js";
import { extent, format } from "./views/numbers.js";

export const NAME = "Positions";
export const ABOUT = "Attention alone does not know order. Each position gets a vector, and nearby positions get similar ones.";
export const fits = ({ attends }) => attends;

const WAVES = "waves";
const BASES = [2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000];
const WIDTHS = [4, 8, 16, 32, 64, 96, 128, 192, 256];
const LENGTHS = [16, 32, 48, 64, 96, 128];

export function open(element, state, studio) {
  const { place, attempt, element: answer } = answers();
  const wish = {
    model: state.model ?? WAVES, base: Number(state.base ?? 10000), width: Number(state.width ?? 64), length: Number(state.length ?? 64),
  };
  const tools = h("div", { class: "st-choices", role: "group", "aria-label": "Which positions" });
  let [data, view] = [null, null];

  function ask(part = {}) {
    Object.assign(wish, part);
    studio.set(wish.model === WAVES ? { ...wish, model: "" } : { model: wish.model, base: "", width: "", length: "" });
    attempt(async (current) => {
      const { base, width, length } = wish;
      const found = await post("/studio/api/positions", wish.model === WAVES ? { base, width, length } : { model: wish.model });
      if (!current()) return;
      data = found;
      view ??= frame(place, { name: "positions", label: "Positions", draw, json: () => data, picture: () => view.figure }, {});
      view.redraw();
    });
  }
  const soon = after(60, ask);

  function choices() {
    const sources = [[WAVES, "sine waves"], ...studio.models(fits).map(({ name }) => [name, `those of ${name}`])];
    const one = (name, text, values) => slider(text, values.length - 1, nearest(values, wish[name]),
      (index) => values[index].toLocaleString("en"), (index) => soon({ [name]: values[index] }));
    tools.replaceChildren(
      menu("Positions", sources, wish.model, (model) => { ask({ model }); choices(); tools.querySelector("select").focus(); }),
      ...(wish.model === WAVES ? [one("base", "Base N", BASES), one("width", "Width D", WIDTHS), one("length", "Length T", LENGTHS)] : []));
  }

  function draw() {
    const { scheme, vectors, by_distance: byDistance, products } = data;
    const name = wish.model === WAVES ? `PE(pos, 2i) = sin(pos / ${wish.base.toLocaleString("en")}^(2i/${wish.width}))` : `${scheme} positions of ${wish.model}`;
    title(view.heading, [name], vectors ? `${vectors.length} positions, each a vector of ${vectors[0].length} numbers`
      : `${scheme}: inside the heads, so there are no vectors; a product is what the distance does to a score`);
    const colours = view.palette();
    const room = Math.min(760, Math.max(280, (view.figure.clientWidth - 40) / 2));
    const table = vectors ?? products[0];
    const side = vectors ? "position down, entry of the vector across" : "query down, key across";
    view.figure.replaceChildren(
      h("div", {}, partLabel(side), heatmap(table, room, colours, view.say)),
      h("div", {}, partLabel("product of two positions by their distance"),
        plot(byDistance.slice(0, 4).map((values, head) => ({ name: byDistance.length > 1 ? `head ${head}` : "", points: values.map((value, x) => [x, value]) })),
          { width: room, height: 300, x: "distance", y: "mean product" })));
    view.say("Point at the heatmap to read a number.");
  }

  element.append(tools, answer);
  choices();
  ask();
  return { close: () => view?.destroy() };
}

function nearest(values, wanted) {
  return values.reduce((best, value, index) => (Math.abs(value - wanted) < Math.abs(values[best] - wanted) ? index : best), 0);
}

/** A table of numbers as colours, one pixel each, made large. */
function heatmap(table, width, colours, say) {
  const [rows, columns] = [table.length, table[0].length];
  const canvas = h("canvas", { width: columns, height: rows, class: "st-heatmap", role: "img",
    "aria-label": `${rows} by ${columns} numbers as colours: orange below zero, blue above` });
  canvas.style.width = `${width}px`;
  canvas.style.height = `${Math.min(420, width * Math.max(0.5, rows / columns))}px`;
  const pen = canvas.getContext("2d");
  const most = extent(table) || 1;
  table.forEach((row, y) => row.forEach((value, x) => {
    pen.fillStyle = colours.signed(value / most);
    pen.fillRect(x, y, 1, 1);
  }));
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const x = Math.floor(((event.clientX - box.left) / box.width) * columns);
    const y = Math.floor(((event.clientY - box.top) / box.height) * rows);
    if (table[y]?.[x] !== undefined) say(`row ${y}, column ${x}: ${format(table[y][x])}`);
  });
  return canvas;
}

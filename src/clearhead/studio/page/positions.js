// Position vectors as a heatmap, and the dot product of two positions by their distance.

import { post } from "./api.js";
import { plot } from "./views/plot.js";
import { debounce, resultPanel } from "./shared.js";
import { menu, partLabel, slider } from "./views/controls.js";
import { h, roomIn } from "./views/dom.js";
import { frame, title } from "./views/frame.js";
import { signedLegend } from "./views/legend.js";
import { extent, format } from "./views/numbers.js";

export const NAME = "Positions";
export const ABOUT = "Attention by itself ignores order. Each position has a vector, and nearby positions have similar ones.";
export const fits = ({ attends }) => attends;

const SINUSOIDAL = "waves"; // the value in links
const BASES = [2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000];
const WIDTHS = [4, 8, 16, 32, 64, 96, 128, 192, 256];
const LENGTHS = [16, 32, 48, 64, 96, 128];

export function open(element, state, studio) {
  const { place, load, element: panel } = resultPanel();
  const asked = state.base ?? state.width ?? state.length; // of sinusoidal positions
  const request = {
    model: state.model ?? (asked ? SINUSOIDAL : studio.models(fits)[0]?.name ?? SINUSOIDAL), base: Number(state.base ?? 10000), width: Number(state.width ?? 64), length: Number(state.length ?? 64),
  };
  const tools = h("div", { class: "st-choices", role: "group", "aria-label": "Which positions" });
  let [data, view] = [null, null];

  function refresh(changes = {}) {
    Object.assign(request, changes);
    studio.set(request.model === SINUSOIDAL ? { ...request, model: "" } : { model: request.model, base: "", width: "", length: "" });
    load(async (isCurrent) => {
      const { base, width, length } = request;
      const found = await post("/studio/api/positions", request.model === SINUSOIDAL ? { base, width, length } : { model: request.model });
      if (!isCurrent()) return;
      data = found;
      view ??= frame(place, { name: "positions", label: "Positions", draw, json: () => data, picture: () => view.figure }, {});
      view.redraw();
    });
  }
  const refreshSoon = debounce(60, refresh);

  function drawChoices() {
    const sources = [...studio.models(fits).map(({ name }) => [name, `of ${name}`]), [SINUSOIDAL, "sinusoidal, of any base"]];
    const sliderFor = (name, text, values) => slider(text, values.length - 1, nearestIndex(values, request[name]),
      (index) => values[index].toLocaleString("en"), (index) => refreshSoon({ [name]: values[index] }));
    tools.replaceChildren(
      menu("Positions", sources, request.model, (model) => { refresh({ model }); drawChoices(); tools.querySelector("select").focus(); }),
      ...(request.model === SINUSOIDAL ? [sliderFor("base", "Base N", BASES), sliderFor("width", "Width D", WIDTHS), sliderFor("length", "Length T", LENGTHS)] : []));
  }

  function draw() {
    const { scheme, vectors, by_distance: byDistance, products } = data;
    const name = request.model === SINUSOIDAL ? `PE(pos, 2i) = sin(pos / ${request.base.toLocaleString("en")}^(2i/${request.width}))` : `${scheme} positions of ${request.model}`;
    title(view.heading, [name], vectors ? `${vectors.length} positions, each a vector of ${vectors[0].length} numbers`
      : `${scheme}: applied inside the heads, so there are no vectors; shown is the effect of the distance on a score`);
    const colours = view.palette();
    const size = Math.min(760, Math.max(280, (roomIn(view.figure) - 40) / 2));
    const table = vectors ?? products[0];
    const legend = signedLegend(colours, extent(table) || 1);
    const axes = vectors ? "rows: positions, columns: vector entries" : "rows: queries, columns: keys";
    view.figure.replaceChildren(
      h("div", {}, partLabel(axes), heatmap(table, size, colours, view.say), legend),
      h("div", {}, partLabel("dot product of two positions by their distance"),
        plot(byDistance.slice(0, 4).map((values, head) => ({ name: byDistance.length > 1 ? `head ${head}` : "", points: values.map((value, x) => [x, value]) })),
          { width: size, height: 300, x: "distance", y: "mean product" })));
    view.say("Point at the heatmap to read a number.");
  }

  element.append(tools, panel);
  drawChoices();
  refresh();
  return { close: () => view?.destroy() };
}

function nearestIndex(values, target) {
  return values.reduce((best, value, index) => (Math.abs(value - target) < Math.abs(values[best] - target) ? index : best), 0);
}

/** A matrix drawn as colours, one canvas pixel for each number, scaled up. */
function heatmap(table, width, colours, say) {
  const [rows, columns] = [table.length, table[0].length];
  const canvas = h("canvas", { width: columns, height: rows, class: "st-heatmap", role: "img",
    "aria-label": `${rows} by ${columns} numbers as colours: red below zero, blue above` });
  canvas.style.width = `${width}px`;
  canvas.style.height = `${Math.min(420, width * Math.max(0.5, rows / columns))}px`;
  const context = canvas.getContext("2d");
  const largest = extent(table) || 1;
  table.forEach((row, y) => row.forEach((value, x) => {
    context.fillStyle = colours.signed(value / largest);
    context.fillRect(x, y, 1, 1);
  }));
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const x = Math.floor(((event.clientX - box.left) / box.width) * columns);
    const y = Math.floor(((event.clientY - box.top) / box.height) * rows);
    if (table[y]?.[x] !== undefined) say(`row ${y}, column ${x}: ${format(table[y][x])}`);
  });
  return canvas;
}

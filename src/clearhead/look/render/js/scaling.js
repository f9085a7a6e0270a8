// What 1/√d_k does before training: the same random queries and keys, with the scale and without it.
//
// data: Scaling, format "clearhead-scaling-1". chosen: {size: index of d_k}.

import { partLabel, slider } from "./controls.js";
import { clamp, h, roomIn } from "./dom.js";
import { frame, handle, title, widget } from "./frame.js";
import { t } from "./i18n.js";
import { format, percent } from "./numbers.js";
import { plot } from "./plot.js";

export const FORMAT = "clearhead-scaling-1";

const PLOTS = [
  ["variance", t("Spread of the scores (variance)")],
  ["largest", t("Largest weight of a query")],
  ["gradient", t("How much it can still learn (gradient)")],
];

/** Show the effect of the scale in an element: {update, destroy}. */
export function mount(element, data, options = {}) {
  const last = () => data.plain.length - 1;
  let size = clamp(options.chosen?.size ?? Math.ceil(last() * 0.75), 0, last());
  const saved = { json: () => data, picture: () => view.figure };
  const view = frame(element, { name: "scaling", label: t("The scale"), draw, ...saved }, options);

  function draw() {
    title(view.heading, ["q · k", "q · k / √d"],
      t("random queries over {n} random keys, before any training", { n: data.keys }));
    const write = (index) => String(data.plain[index].size);
    view.tools.replaceChildren(slider(t("Size of a key d"), last(), size, write, choose));
    drawPlots();
  }

  function choose(index) {
    size = index;
    options.onChange?.({ size });
    drawPlots();
  }

  function drawPlots() {
    const room = roomIn(view.figure);
    const width = room > 900 ? room / 3 - 24 : Math.min(room, 560);
    const curve = (rows, name, field, shade) =>
      ({ name, points: rows.map((row) => [Math.log2(row.size), row[field]]), dots: true, shade });
    const ticks = data.plain.map((row) => [Math.log2(row.size), String(row.size)]);
    view.figure.replaceChildren(...PLOTS.map(([field, name]) => h("div", {}, partLabel(name),
      plot([curve(data.plain, t("without the scale"), field, 1), curve(data.scaled, t("with the scale"), field, 0)],
        { width, height: 260, x: t("size of a key, d"), y: name, ticks, at: Math.log2(data.plain[size].size) }))));
    const [plain, scaled] = [data.plain[size], data.scaled[size]];
    view.say(t("Keys of {size} numbers: without the scale the strongest key gets {plainShare} of the weight and the " +
      "scores vary by {plainVariance}; with it {share} and {variance}.", {
      size: plain.size, plainShare: percent(plain.largest), plainVariance: format(plain.variance),
      share: percent(scaled.largest), variance: format(scaled.variance),
    }));
  }

  return handle(view, (next, requested = { size }) => {
    data = next;
    size = clamp(requested.size ?? size, 0, last());
  });
}

export default widget(mount);

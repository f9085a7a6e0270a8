// Induction heads: which heads look back at what followed the same token before.
//
// data: Induction, format "clearhead-induction-1". chosen: {score: "induction"|"previous"|"repeated", layer, head}.

import { choice } from "./controls.js";
import { h, roomIn } from "./dom.js";
import { frame, handle, title, widget } from "./frame.js";
import { t } from "./i18n.js";
import { amountLegend } from "./legend.js";
import { extent, format, percent } from "./numbers.js";
import { headTable } from "./table.js";

export const FORMAT = "clearhead-induction-1";

const SCORES = [["induction", t("What followed")], ["previous", t("The token before")], ["repeated",
  t("The same token")]];
const MEANING = {
  induction: t("Weight of each head from a token of the second half to the token that came after the same token the " +
    "first time. A head that is deep blue here repeats what it has read: an induction head."),
  previous: t("Weight of each head from a token of the second half to the token just before. " +
    "An induction head in a later layer builds on such a head."),
  repeated: t("Weight of each head from a token of the second half to the same token, where it stood the first time."),
};

/** Show the scores of all heads in an element: {update, destroy}. */
export function mount(element, data, options = {}) {
  let chosen = { score: "induction", ...strongest(data), ...options.chosen };
  const saved = { json: () => data, picture: () => view.figure };
  const view = frame(element, { name: "induction", label: t("Induction heads"), draw, ...saved }, options);

  function choose(part) {
    chosen = { ...chosen, ...part };
    options.onChange?.(chosen);
    draw();
  }

  function draw() {
    const gain = data.first - data.second;
    title(view.heading, [t("A random text, read twice")],
      [t("loss of a token {first} the first time, {second} the second",
        { first: format(data.first), second: format(data.second) }),
      gain > 0.2 ? t("the model has learned to repeat") : t("the model hardly repeats")].join(" · "));
    const focused = view.tools.contains(document.activeElement);
    view.tools.replaceChildren(choice(t("Weight from each token to"), SCORES, chosen.score,
      (score) => choose({ score })));
    if (focused) view.tools.querySelector("input:checked").focus();
    const values = data[chosen.score];
    const most = Math.max(extent(values), 0.01);
    const colours = view.palette();
    view.figure.replaceChildren(
      headTable({ values, most }, roomIn(view.figure), colours, { chosen, onHover: say, onPick: choose }),
      amountLegend(colours, [t("weight 0"), t("weight {value}", { value: format(most) })]),
      h("p", { class: "ch-note" }, MEANING[chosen.score]));
    say(null);
  }

  function say(place) {
    const { layer, head } = place ?? chosen;
    const share = percent(data[chosen.score][layer][head]);
    view.say(t("Layer {layer}, head {head}: {share} of its weight; by chance it would be {chance}.",
      { layer, head, share, chance: percent(data.chance) }));
  }

  return handle(view, (next, requested = chosen) => {
    data = next;
    chosen = { score: "induction", ...strongest(data), ...requested };
    if (data.induction[chosen.layer]?.[chosen.head] === undefined) chosen = { ...chosen, ...strongest(data) };
  });
}

function strongest({ induction }) {
  const heads = induction[0].length;
  const flat = induction.flat();
  const place = flat.indexOf(Math.max(...flat));
  return { layer: Math.floor(place / heads), head: place % heads };
}

export default widget(mount);

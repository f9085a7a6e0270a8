// Induction heads: which heads look back at what followed the same token before.
//
// data: Induction, format "clearhead-induction-1". chosen: {score: "induction"|"previous"|"repeated", layer, head}.

import { choice, partLabel, shareList } from "./controls.js";
import { h, label, roomIn, sheet, svg } from "./dom.js";
import { frame, handle, title, widget } from "./frame.js";
import { t } from "./i18n.js";
import { amountLegend } from "./legend.js";
import { extent, format, largest, percent } from "./numbers.js";
import { headTable, isTurned } from "./table.js";

export const FORMAT = "clearhead-induction-1";

const SCORES = [["induction", t("What followed")], ["previous", t("The token before")], ["repeated",
  t("The same token")]];
const MEANING = {
  induction: t("Weight of each head from a token of the second half to the token that came after the same token the " +
    "first time. A head that is strongly coloured here repeats what it has read: an induction head."),
  previous: t("Weight of each head from a token of the second half to the token just before. " +
    "An induction head in a later layer builds on such a head."),
  repeated: t("Weight of each head from a token of the second half to the same token, where it stood the first time."),
};

const LETTERS = ["A", "B", "C", "D", "E"]; // a random text, which is read twice
const READS = 6; // the token of the drawing that looks back: the second B
const SEEN = { induction: 2, previous: 5, repeated: 1 }; // the token that it looks at
const BEST = 6; // heads in the list of the strongest
const LETTER = 48; // units from one letter to the next

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
    const ranked = largest(values.flat(), BEST).map((place) => {
      const [layer, head] = [Math.floor(place / values[0].length), place % values[0].length];
      return [t("Layer {layer}, head {head}", { layer, head }), values[layer][head],
        layer === chosen.layer && head === chosen.head];
    });
    const room = roomIn(view.figure);
    const table = headTable({ values, most }, room, colours, { chosen, onHover: say, onPick: choose });
    const legend = amountLegend(colours, [t("weight 0"), t("weight {value}", { value: format(most) })]);
    const note = h("p", { class: "ch-note" }, MEANING[chosen.score]);
    const example = [partLabel(t("What such a head does, with letters for tokens")), pattern(SEEN[chosen.score])];
    const list = h("div", {}, partLabel(t("The strongest heads")), shareList(ranked));
    const halves = (one, other) => h("div", { class: "ch-halves" }, h("div", {}, one),
      h("div", { class: "ch-pattern-parts" }, other));
    view.figure.replaceChildren(...(isTurned(values, room) ? [table, legend, halves([list], [...example, note])]
      : [halves([table, legend, note], [...example, list])]));
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

/** A text that is read twice, and an arc from a token of its second half to the one that is looked at. */
function pattern(seen) {
  const all = [...LETTERS, ...LETTERS];
  const [width, line] = [all.length * LETTER, 92];
  const middle = (place) => (place + 0.5) * LETTER;
  const token = (letter, place) => {
    const mark = { [seen]: "ch-is-seen", [READS]: "ch-reads" }[place] ?? "";
    const box = { x: place * LETTER + 4, y: line - 18, width: LETTER - 8, height: 36, rx: 5 };
    return svg("g", { class: mark }, svg("rect", box),
      label(letter, middle(place), line, 17, { "text-anchor": "middle" }));
  };
  const half = (text, first) => label(text, middle(first + 2), line + 34, 15,
    { class: "ch-quiet", "text-anchor": "middle" });
  const [from, to, top] = [middle(READS), middle(seen), line - 20];
  const rise = Math.min(78, 24 + 0.35 * (from - to));
  const arc = svg("path", { d: `M${from},${top} C${from},${top - rise} ${to},${top - rise} ${to},${top}` });
  const tip = svg("path", { class: "ch-tip", d: `M${to - 5},${top - 9} L${to},${top} L${to + 5},${top - 9}` });
  const name = t("{from} looks back at {to}", { from: all[READS], to: all[seen] });
  return sheet(width, line + 46, { class: "ch-pattern", role: "img", "aria-label": name }, all.map(token), arc, tip,
    half(t("the first time"), 0), half(t("the second time"), LETTERS.length));
}

function strongest({ induction }) {
  const heads = induction[0].length;
  const flat = induction.flat();
  const place = flat.indexOf(Math.max(...flat));
  return { layer: Math.floor(place / heads), head: place % heads };
}

export default widget(mount);

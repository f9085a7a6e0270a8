// The heads of a model: all of them small, one of them large, as lines or as a matrix.
//
// data: a Look, format "clearhead-look-1".
// chosen: {kind, layer, head, shape: "lines"|"matrix", layers?: "all", token: {side: "query"|"key", index}|null}.

import { choice, partLabel } from "./controls.js";
import { clamp, h, roomIn } from "./dom.js";
import { frame, handle, title, widget } from "./frame.js";
import { t } from "./i18n.js";
import { amountLegend } from "./legend.js";
import { lines } from "./lines.js";
import { headline, kindOptions } from "./looks.js";
import { matrix } from "./matrix.js";
import { multiples } from "./multiples.js";
import { format, largest, visible } from "./numbers.js";

export const FORMAT = "clearhead-look-1";

const MIN_WIDTH = 260; // pixels; drawn smaller in a narrower element
const LINES_UP_TO = 80; // tokens; beyond, the matrix is clearer
const BESIDE = 820; // units; a wider element shows lines and matrix together
const [MANY, GROUP] = [12, 6]; // layers; a model with more of them shows a group at a time, or all of them
const ACROSS = 700; // units; a wider element has all of many layers beside each other
const NOTES = {
  "encoder.self": t("Each row is a word of the input. It may look at every word of the input."),
  "decoder.self": t("Each row is the word that was just read. It may look at itself and at the words before it."),
  "decoder.cross": t("Each row is the word that is about to be written. What looks at the input is the decoder, " +
    "which has read only the words before it."),
};
const SIDES = { "decoder.cross": { query: t("to be written"), key: t("is looked at") } };

/** Show the heads of a Look in an element: {update, destroy}. */
export function mount(element, data, options = {}) {
  let chosen = validChoice(data, options.chosen ?? {});
  let large = null;
  let grid = null;
  let both = false; // whether lines and matrix are shown beside each other
  const saved = { json: options.json ?? (() => data), picture: () => large };
  const view = frame(element, { name: "heads", label: t("Attention heads"), draw, ...saved }, options);
  if (options.above) view.tools.before(options.above); // controls of a view that shows heads

  function choose(part) {
    chosen = { ...chosen, ...part };
    options.onChange?.(chosen);
  }

  function draw() {
    const kinds = kindOptions(data);
    title(view.heading, headline(data), `${data.model} · ${describe(data.attention[chosen.kind])}`);
    const colours = view.palette();
    const attended = data.attention[chosen.kind];
    const all = attended.weights.length <= MANY || chosen.layers === "all";
    const turned = all && attended.weights.length > MANY && roomIn(view.figure) > ACROSS;
    const group = all ? {} : groups(attended.weights.length)[Math.floor(chosen.layer / GROUP)];
    grid = multiples(attended, colours, pick, { ...group, turned });
    large = h("div", { class: "ch-large" });
    const share = attended.weights[0].length <= 4 ? "minmax(180px, 1fr)" : "minmax(240px, 1.4fr)";
    view.figure.style.setProperty("--ch-grid-share", share);
    const order = turned ? t("Heads down, layers across") : t("Layers down, heads across");
    const small = h("div", { class: turned ? "ch-whole" : "" }, partLabel(order), grid.element,
      amountLegend(colours, [t("weight 0"), t("weight 1")]));
    if (turned) large.classList.add("ch-whole");
    view.figure.replaceChildren(small, large);
    both = roomIn(large) >= BESIDE && attended.rows.length <= LINES_UP_TO;
    view.tools.replaceChildren(
      ...(kinds.length > 1 ? [choice(t("Attention"), kinds, chosen.kind, changeKind)] : []),
      ...(attended.weights.length > MANY ? [layerChoice(attended.weights.length)] : []),
      ...(both ? [] : [choice(t("Show"), [["lines", t("Lines")], ["matrix", t("Matrix")]], chosen.shape,
        changeShape)]));
    grid.select(chosen.layer, chosen.head);
    drawLarge(colours);
  }

  function drawLarge(colours = view.palette()) {
    const attended = data.attention[chosen.kind];
    const head = { ...attended, weights: attended.weights[chosen.layer][chosen.head] };
    const width = Math.max(MIN_WIDTH, both ? roomIn(large) / 2 - 26 : roomIn(large)); // with a gap between them
    const shapes = both ? ["lines", "matrix"] : [chosen.shape];
    const drawOne = (shape) => (shape === "lines" ? drawLines(head, width) : drawMatrix(head, width, colours));
    const drawn = shapes.map((shape) => drawOne(shape).element);
    const name = h("strong", {}, t("Layer {layer}, head {head}", chosen));
    large.replaceChildren(partLabel(name), h("div", { class: "ch-pair" }, drawn),
      NOTES[chosen.kind] ? h("p", { class: "ch-note" }, NOTES[chosen.kind]) : "");
  }

  function drawLines(head, width) {
    const onHover = (token) => hover(drawn, head, token ?? chosen.token);
    const onPin = (token) => pin(drawn, head, token);
    const drawn = lines({ ...head, sides: SIDES[chosen.kind] }, width, { onHover, onPin });
    onHover(null);
    return drawn;
  }

  function drawMatrix(head, width, colours) {
    const onHover = (cell) => hoverCell(drawn, head, cell);
    const drawn = matrix(head, width, colours, { onHover });
    onHover(null);
    return drawn;
  }

  function changeKind(kind) {
    choose(validChoice(data, { ...chosen, kind, token: null }));
    draw();
    view.tools.querySelector("input:checked").focus();
  }

  /** A group of the layers, or all of them. */
  function layerChoice(count) {
    const options = groups(count).map(({ first, last }) => [String(first), `${first}–${last - 1}`]);
    const now = chosen.layers === "all" ? "all" : String(chosen.layer - (chosen.layer % GROUP));
    return choice(t("Layers"), [...options, ["all", t("All")]], now, (value) => {
      choose(value === "all" ? { layers: "all" } : { layers: undefined, layer: Number(value) });
      draw();
      view.tools.querySelector(`fieldset[aria-label="${t("Layers")}"] input:checked`).focus();
    });
  }

  function changeShape(shape) {
    choose({ shape, token: null });
    drawLarge();
  }

  function pick(layer, head) {
    choose({ layer, head });
    grid.select(layer, head);
    drawLarge();
  }

  function pin(drawn, head, token) {
    const same = token && chosen.token?.side === token.side && chosen.token?.index === token.index;
    choose({ token: same ? null : token });
    hover(drawn, head, chosen.token);
  }

  function hover(drawn, head, token) {
    drawn.isolate(token);
    view.say(token ? sentence(head, token) : t("Point at a word to see only its lines; click to keep them."));
  }

  function hoverCell(drawn, head, cell) {
    drawn.isolate(cell);
    const { rows, columns, weights } = head;
    view.say(cell
      ? `${visible(rows[cell.query])} → ${visible(columns[cell.key])}: ${format(weights[cell.query][cell.key])}`
      : t("Point at a cell to read its weight."));
  }

  return handle(view, (next, requested = chosen) => {
    data = next;
    chosen = validChoice(data, requested);
  });
}

/** The requested choice where the data has it, the nearest where not. */
function validChoice(data, requested) {
  const kinds = Object.keys(data.attention);
  const kind = kinds.includes(requested.kind) ? requested.kind : kinds.at(-1);
  const { weights, rows, columns } = data.attention[kind];
  const words = { query: rows, key: columns };
  const token = requested.token?.index < words[requested.token?.side]?.length ? requested.token : null;
  return {
    kind,
    layer: clamp(requested.layer ?? Infinity, 0, weights.length - 1),
    head: clamp(requested.head ?? 0, 0, weights[0].length - 1),
    ...(requested.layers === "all" ? { layers: "all" } : {}),
    shape: requested.shape ?? (Math.max(rows.length, columns.length) > LINES_UP_TO ? "matrix" : "lines"),
    token,
  };
}

/** Layers in groups [first, last). */
function groups(count) {
  return Array.from({ length: Math.ceil(count / GROUP) }, (_, place) =>
    ({ first: place * GROUP, last: Math.min(count, (place + 1) * GROUP) }));
}

function describe({ weights, rows, columns, causal }) {
  const sizes = t("{layers} layers × {heads} heads", { layers: weights.length, heads: weights[0].length });
  const words = t("{queries} queries × {keys} keys", { queries: rows.length, keys: columns.length });
  return [sizes, words, ...(causal ? [t("each word sees only what came before")] : [])].join(", ");
}

function sentence({ rows, columns, weights }, { side, index }) {
  const isQuery = side === "query";
  const amounts = isQuery ? weights[index] : weights.map((row) => row[index]);
  const names = isQuery ? columns : rows;
  const most = largest(amounts, 3).map((place) => `${visible(names[place])} ${format(amounts[place])}`);
  const values = { word: visible((isQuery ? rows : columns)[index]), others: most.join(", ") };
  return isQuery ? t("{word} looks at {others}", values) : t("{word} is looked at by {others}", values);
}

export default widget(mount);

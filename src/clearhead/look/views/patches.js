// Where a model looks, laid over what it reads: an image or a text, through all layers (rollout) or in one (attention).
//
// data: a Look, format "clearhead-look-1".
// chosen: {kind, way: "rollout"|"attention", layer, heads: "mean"|"max"|"min"|"0"|…, query: a row, or null for all}.

import { choice, menu, partLabel, shareList, slider } from "./controls.js";
import { clamp, h } from "./dom.js";
import { frame, title, widget } from "./frame.js";
import { headline, kindOptions } from "./looks.js";
import { percent } from "./numbers.js";
import { nameOf, patchColumns, rowOf, square, strongest, tables } from "./shares.js";
import { imageOf, patchSurface, thumbnail, wordSurface } from "./surface.js";

const WAYS = [["rollout", "Rollout"], ["attention", "Attention"]];
const FUSIONS = ["mean", "max", "min"];
const [USUAL, LARGEST] = [440, 620]; // pixels of the image's width

/** Show where a model looked in an element: {update, destroy}. */
export function mount(element, data, options = {}) {
  let chosen = sensible(data, options.chosen ?? {});
  let surface = null;
  const asked = () => data.attention[chosen.kind];
  const shares = (layer = chosen.layer) => rowOf(tables(asked(), chosen.way, chosen.heads)[layer], chosen.query);
  const saved = { json: () => data, picture: () => surface.element };
  const view = frame(element, { name: "patches", label: "Where the model looks", draw, ...saved }, options);

  function choose(part) {
    chosen = sensible(data, { ...chosen, ...part });
    options.onChange?.(chosen);
  }

  function show(part) {
    choose(part);
    paint();
  }

  function draw() {
    title(view.heading, headline(data), `${data.model} · ${asked().weights.length} layers`);
    drawTools();
    const react = { pick: (query) => show({ query }), meet };
    const width = view.figure.clientWidth;
    const size = clamp(width * 0.42, Math.min(width, USUAL), LARGEST);
    surface = data.image ? imageSurface(data, asked(), size, react) : textSurface(data, asked(), react);
    const beside = h("div", { class: "ch-beside" }, surface.askers, surface.strip, likely(data.probabilities));
    view.figure.replaceChildren(surface.element, beside);
    paint();
  }

  function drawTools() {
    const { weights } = asked();
    const [kinds, rolling] = [kindOptions(data), chosen.way === "rollout"];
    const heads = [
      ...FUSIONS.map((name) => [name, `${name} of all`]),
      ...(rolling ? [] : weights[0].map((_, head) => [String(head), `head ${head}`])),
    ];
    const tools = [
      kinds.length > 1 && choice("Attention", kinds, chosen.kind, (kind) => redo({ kind, query: undefined })),
      square(asked()) && choice("Show", WAYS, chosen.way, (way) => redo({ way })),
      slider(rolling ? "Up to layer" : "Layer", weights.length - 1, chosen.layer, String, (layer) => show({ layer })),
      menu("Heads", heads, chosen.heads, (fusion) => show({ heads: fusion })),
    ];
    view.tools.replaceChildren(...tools.filter(Boolean));
  }

  /** Choose what changes the controls themselves, and leave the focus where it was. */
  function redo(part) {
    const name = document.activeElement?.closest("fieldset")?.getAttribute("aria-label");
    choose(part);
    draw();
    view.tools.querySelector(`fieldset[aria-label="${name}"] input:checked`)?.focus();
  }

  function paint() {
    const colours = view.palette();
    surface.paint(shares(), chosen.query, colours);
    surface.strip?.replaceChildren(...asked().weights.map((_, layer) => thumb(layer, colours)));
    const best = strongest(data, shares());
    view.say(`${asker(data, chosen)} looks most at ${nameOf(data, asked().columns, best)}: ${percent(shares()[best])}`);
  }

  function meet(column) {
    view.say(`${capital(nameOf(data, asked().columns, column))} gets ${percent(shares()[column])}`);
  }

  function thumb(layer, colours) {
    const patches = shares(layer).slice(...patchColumns(data));
    const go = () => {
      choose({ layer });
      drawTools();
      paint();
      surface.strip.children[layer].focus();
    };
    const state = { "aria-pressed": String(layer === chosen.layer), "aria-label": `Layer ${layer}`, onclick: go };
    return h("button", { type: "button", class: "ch-thumb", ...state },
      thumbnail(surface.canvas, data.grid, patches, colours.overlay), h("span", {}, layer));
  }

  view.redraw();
  return {
    update(next, wanted = chosen) {
      data = next;
      chosen = sensible(data, wanted);
      view.redraw();
    },
    destroy: view.destroy,
  };
}

/** A choice that this data has: what was wished where it exists, the usual where not. */
function sensible(data, wished) {
  const kinds = Object.keys(data.attention);
  const kind = kinds.includes(wished.kind) ? wished.kind : kinds.at(-1);
  const attended = data.attention[kind];
  const { rows, weights } = attended;
  const way = square(attended) ? wished.way ?? "rollout" : "attention";
  const single = way === "attention" && Number(wished.heads) < weights[0].length;
  const heads = single || FUSIONS.includes(wished.heads) ? wished.heads : "mean";
  const usual = data.class_token && square(attended) ? 0 : null;
  const query = wished.query === undefined ? usual : wished.query < rows.length ? wished.query : null;
  return { kind, way, heads, query, layer: clamp(wished.layer ?? Infinity, 0, weights.length - 1) };
}

/** Who asks, as the beginning of a sentence. Rows that are not columns too are words, whatever the columns are. */
function asker(data, { kind, query }) {
  const attended = data.attention[kind];
  if (query === null) return "On average a token";
  return capital(nameOf(square(attended) ? data : { image: null }, attended.rows, query));
}

/** The image under its patches; words that ask stand beside it. */
function imageSurface(data, attended, size, { pick, meet }) {
  const [first, last] = patchColumns(data);
  const asks = square(attended);
  const canvas = imageOf(data.image);
  const events = { onPick: (patch) => pick(first + patch), onMeet: (patch) => meet(first + patch) };
  const drawn = patchSurface(canvas, data.grid, size, { asks, ...events });
  const inImage = (row) => asks && row !== null && row >= first && row < last;
  const askers = askersOf(data, attended, attended.rows.map((_, row) => row).filter((row) => !inImage(row)), pick);
  const paint = (shares, query) => {
    drawn.paint(shares.slice(first, last), inImage(query) ? query - first : null);
    askers.mark(query);
  };
  const strip = h("div", { class: "ch-strip", role: "group", "aria-label": "Layers" });
  return { element: h("div", { class: "ch-read" }, drawn.element), askers: askers.element, strip, canvas, paint };
}

/** The words that are looked at; where others ask, these stand beside them. */
function textSurface(data, attended, { pick, meet }) {
  const asks = square(attended);
  const words = wordSurface(attended.columns, "Text", { onPick: asks ? pick : meet });
  const askers = askersOf(data, attended, asks ? [] : attended.rows.map((_, row) => row), pick);
  const paint = (shares, query, colours) => {
    words.paint(shares, asks ? query : null, colours);
    askers.mark(query);
  };
  return { element: h("div", { class: "ch-read" }, words.element), askers: askers.element, strip: null, paint };
}

/** Buttons for the rows that ask but are not looked at, and for all rows together: {element, mark}. */
function askersOf(data, attended, rows, pick) {
  const [all, own] = [[...rows, null], square(attended)];
  const names = all.map((row) => {
    if (row === null) return "all, on average";
    return own && data.class_token && row === 0 ? "class token" : attended.rows[row];
  });
  const words = wordSurface(names, "Who asks", { onPick: (place) => pick(all[place]) });
  const hint = own ? `Who asks: one of these, or any ${data.image ? "patch" : "word"}` : "Who asks";
  return { element: h("div", {}, partLabel(hint), words.element), mark: (query) => words.mark(all.indexOf(query)) };
}

/** How likely each label is, where there is one answer for the whole. */
function likely(probabilities) {
  if (probabilities?.length !== 1) return null;
  const entries = probabilities[0].map(([name, share], rank) => [name, share, rank === 0]);
  return h("div", {}, partLabel("What it is"), shareList(entries));
}

function capital(text) {
  return text[0].toUpperCase() + text.slice(1);
}

export default widget(mount);

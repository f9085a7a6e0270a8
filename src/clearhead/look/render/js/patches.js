// Where a model looks, over the image or text that it reads: through all layers (rollout) or in one (attention).
//
// data: a Look, format "clearhead-look-1".
// chosen: {kind, way: "rollout"|"attention", layer, heads: "mean"|"max"|"min"|"0"|…, query: a row, or null for all}.

import { choice, menu, partLabel, shareList, slider } from "./controls.js";
import { clamp, h, roomIn } from "./dom.js";
import { frame, handle, title, widget } from "./frame.js";
import { plural, t } from "./i18n.js";
import { headline, kindOptions } from "./looks.js";
import { matrix } from "./matrix.js";
import { largest, percent, visible } from "./numbers.js";
import { nameOf, patchColumns, rowOf, square, strongest, tables } from "./shares.js";
import { imageOf, patchSurface, thumbnail, wordSurface } from "./surface.js";

export const FORMAT = "clearhead-look-1";

const WAYS = [["rollout", t("Rollout")], ["attention", t("Attention")]];
const FUSIONS = { mean: t("mean of all"), max: t("max of all"), min: t("min of all") };
const [USUAL, LARGEST] = [440, 620]; // pixels of the image's width
const MATRIX = 64; // tokens up to which all of them are shown at once
const BESIDE = 900; // units of width that have room for a list beside them
const MOST = 10; // tokens in that list

/** Show where a model looked in an element: {update, destroy}. */
export function mount(element, data, options = {}) {
  let chosen = validChoice(data, options.chosen ?? {});
  let surface = null;
  const everyone = h("div", { class: "ch-everyone" });
  const attended = () => data.attention[chosen.kind];
  const shares = (layer = chosen.layer) => rowOf(tables(attended(), chosen.way, chosen.heads)[layer], chosen.query);
  const saved = { json: () => data, picture: () => (data.image ? surface.element : view.figure) };
  const view = frame(element, { name: "patches", label: t("Where the model looks"), draw, ...saved }, options);

  function choose(part) {
    chosen = validChoice(data, { ...chosen, ...part });
    options.onChange?.(chosen);
  }

  function show(part) {
    choose(part);
    paint();
  }

  function draw() {
    const layers = plural("{n} layer", "{n} layers", attended().weights.length);
    title(view.heading, headline(data), `${data.model} · ${layers}`);
    drawTools();
    const react = { pick: (query) => show({ query }), hover };
    const width = roomIn(view.figure);
    const size = clamp(width * 0.42, Math.min(width, USUAL), LARGEST);
    surface = data.image ? imageSurface(data, attended(), size, react) : textSurface(data, attended(), react);
    const beside = h("div", { class: "ch-beside" }, surface.queries, surface.strip, likely(data.probabilities));
    view.figure.replaceChildren(surface.element, beside, everyone);
    paint();
  }

  function drawTools() {
    const { weights } = attended();
    const [kinds, rolling] = [kindOptions(data), chosen.way === "rollout"];
    const heads = [
      ...Object.entries(FUSIONS),
      ...(rolling ? [] : weights[0].map((_, head) => [String(head), t("head {head}", { head })])),
    ];
    const tools = [
      kinds.length > 1 && choice(t("Attention"), kinds, chosen.kind, (kind) => redo({ kind, query: undefined })),
      square(attended()) && choice(t("Show"), WAYS, chosen.way, (way) => redo({ way })),
      slider(rolling ? t("Up to layer") : t("Layer"), weights.length - 1, chosen.layer, String,
        (layer) => show({ layer })),
      menu(t("Heads"), heads, chosen.heads, (fusion) => show({ heads: fusion })),
    ];
    view.tools.replaceChildren(...tools.filter(Boolean));
  }

  /** Choose what changes the controls, and keep the focus. */
  function redo(part) {
    const name = document.activeElement?.closest("fieldset")?.getAttribute("aria-label");
    choose(part);
    draw();
    view.tools.querySelector(`fieldset[aria-label="${name}"] input:checked`)?.focus();
  }

  function paint() {
    const colours = view.palette();
    surface.paint(shares(), chosen.query, colours);
    surface.strip?.replaceChildren(...attended().weights.map((_, layer) => thumb(layer, colours)));
    everyone.replaceChildren(...allRows(colours));
    const best = strongest(data, shares());
    const target = nameOf(data, attended().columns, best);
    view.say(t("{word} looks most at {target}: {share}",
      { word: queryName(data, chosen), target, share: percent(shares()[best]) }));
  }

  /** Every word that asks, as a row; a click chooses it. */
  function allRows(colours) {
    const { rows, columns } = attended();
    if (data.image || rows.length > MATRIX || columns.length > MATRIX) return [];
    const head = { rows, columns, weights: tables(attended(), chosen.way, chosen.heads)[chosen.layer] };
    const width = roomIn(view.figure);
    const drawn = matrix(head, width > BESIDE ? 0.64 * width : width, colours,
      { onHover: (cell) => drawn.isolate(cell ?? own), onPick: ({ query }) => show({ query }) });
    const own = chosen.query === null ? null : { query: chosen.query, key: strongest(data, shares()) };
    drawn.isolate(own);
    const ranked = largest(shares(), MOST).map((column, rank) =>
      [visible(columns[column]), shares()[column], rank === 0]);
    return [h("div", { class: "ch-one-beside" },
      h("div", {},
        partLabel(t("All words at once: who asks down, who is looked at across; click a row to choose it")),
        drawn.element),
      h("div", {}, partLabel(t("{word} looks at", { word: queryName(data, chosen) })), shareList(ranked)))];
  }

  function hover(column) {
    view.say(t("{word} gets {share}",
      { word: capital(nameOf(data, attended().columns, column)), share: percent(shares()[column]) }));
  }

  function thumb(layer, colours) {
    const patches = shares(layer).slice(...patchColumns(data));
    const go = () => {
      choose({ layer });
      drawTools();
      paint();
      surface.strip.children[layer].focus();
    };
    const state = { "aria-pressed": String(layer === chosen.layer), "aria-label": t("Layer {layer}", { layer }),
      onclick: go };
    return h("button", { type: "button", class: "ch-thumb", ...state },
      thumbnail(surface.canvas, data.grid, patches, colours.overlay), h("span", {}, layer));
  }

  return handle(view, (next, requested = chosen) => {
    data = next;
    chosen = validChoice(data, requested);
  });
}

/** The requested choice where the data has it, the default where not. */
function validChoice(data, requested) {
  const kinds = Object.keys(data.attention);
  const kind = kinds.includes(requested.kind) ? requested.kind : kinds.at(-1);
  const attended = data.attention[kind];
  const { rows, weights } = attended;
  const way = square(attended) ? requested.way ?? "rollout" : "attention";
  const single = way === "attention" && Number(requested.heads) < weights[0].length;
  const heads = single || requested.heads in FUSIONS ? requested.heads : "mean";
  const usual = data.class_token && square(attended) ? 0 : null;
  const query = requested.query === undefined ? usual : requested.query < rows.length ? requested.query : null;
  return { kind, way, heads, query, layer: clamp(requested.layer ?? Infinity, 0, weights.length - 1) };
}

/** The query as the beginning of a sentence; rows that are not columns are tokens, even if the columns are patches. */
function queryName(data, { kind, query }) {
  const attended = data.attention[kind];
  if (query === null) return t("On average a token");
  return capital(nameOf(square(attended) ? data : { image: null }, attended.rows, query));
}

/** The image under its patches; queries that are no patches stand beside it. */
function imageSurface(data, attended, size, { pick, hover }) {
  const [first, last] = patchColumns(data);
  const ownQueries = square(attended);
  const canvas = imageOf(data.image);
  const events = { onPick: (patch) => pick(first + patch), onHover: (patch) => hover(first + patch) };
  const drawn = patchSurface(canvas, data.grid, size, { selectable: ownQueries, ...events });
  const inImage = (row) => ownQueries && row !== null && row >= first && row < last;
  const queries = queryButtons(data, attended, attended.rows.map((_, row) => row).filter((row) => !inImage(row)), pick);
  const paint = (shares, query) => {
    drawn.paint(shares.slice(first, last), inImage(query) ? query - first : null);
    queries.mark(query);
  };
  const strip = h("div", { class: "ch-strip", role: "group", "aria-label": t("Layers") });
  return { element: h("div", { class: "ch-read" }, drawn.element), queries: queries.element, strip, canvas, paint };
}

/** The tokens that are looked at; if the queries are others, they stand beside them. */
function textSurface(data, attended, { pick, hover }) {
  const ownQueries = square(attended);
  const words = wordSurface(attended.columns, t("Text"), { onPick: ownQueries ? pick : hover });
  const queries = queryButtons(data, attended, ownQueries ? [] : attended.rows.map((_, row) => row), pick);
  const paint = (shares, query, colours) => {
    words.paint(shares, ownQueries ? query : null, colours);
    queries.mark(query);
  };
  return { element: h("div", { class: "ch-read" }, words.element), queries: queries.element, strip: null, paint };
}

/** Buttons for the queries that are not among the keys, and for all queries together: {element, mark}. */
function queryButtons(data, attended, rows, pick) {
  const [all, own] = [[...rows, null], square(attended)];
  const names = all.map((row) => {
    if (row === null) return t("all, on average");
    return own && data.class_token && row === 0 ? t("class token") : attended.rows[row];
  });
  const words = wordSurface(names, t("Who asks"), { onPick: (place) => pick(all[place]) });
  const any = data.image ? t("Who asks: one of these, or any patch") : t("Who asks: one of these, or any word");
  const hint = own ? any : t("Who asks");
  return { element: h("div", {}, partLabel(hint), words.element), mark: (query) => words.mark(all.indexOf(query)) };
}

/** The probability of each label, if there is one answer for the whole input. */
function likely(probabilities) {
  if (probabilities?.length !== 1) return null;
  const entries = probabilities[0].map(([name, share], rank) => [name, share, rank === 0]);
  return h("div", {}, partLabel(t("What it is")), shareList(entries));
}

function capital(text) {
  return text[0].toUpperCase() + text.slice(1);
}

export default widget(mount);

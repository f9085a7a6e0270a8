// One head as lines between two columns of tokens: queries at the left, keys at the right.

import { clamp, keyOf, label, sheet, svg } from "./dom.js";
import { decimal, t } from "./i18n.js";
import { cut, widest } from "./measure.js";
import { visible } from "./numbers.js";

const FAINTEST = 0.01; // weights below are not drawn
const NUMBERED = 0.05; // weights below are not written out
const AMOUNT = 40; // pixels for a number beside a token
const TOP = 26; // pixels for the headings
const SIDES = { query: t("asks"), key: t("is looked at") }; // headings

/**
 * The lines of `head` {rows, columns, weights (T, S), sides?: headings, tallest?: units from one token to the next} in
 * a given width: {element, isolate}.
 *
 * `onHover(token)` gets the token {side, index} under the pointer or with the focus, or null; `onPin(token)` the one
 * that was clicked.
 */
export function lines(head, width, { onHover, onPin }) {
  const plan = layout(head, width);
  const sides = head.sides ?? SIDES;
  const paths = head.weights.flatMap((row, query) => row.map((weight, key) => path(plan, query, key, weight)));
  const seen = paths.filter(Boolean);
  const tokens = {
    query: head.rows.map((word, index) => token(plan, "query", index, visible(word), sides)),
    key: head.columns.map((word, index) => token(plan, "key", index, visible(word), sides)),
  };
  const all = [...tokens.query, ...tokens.key];
  for (const each of all) listen(each, tokens, { onHover, onPin });
  all[0].group.setAttribute("tabindex", 0);
  const name = { class: "ch-lines", role: "group",
    "aria-label": t("Attention as lines; arrow keys move between words") };
  const drawn = svg("g", {}, seen.map((line) => line.element));
  const groups = all.map((each) => each.group);
  const headings = ["query", "key"].map((side) => heading(plan, side, sides));
  const element = sheet(plan.width, plan.height, name, headings, drawn, groups);
  element.addEventListener("pointerleave", () => onHover(null));
  return { element, isolate: (chosen) => isolate(element, seen, tokens, head.weights, chosen) };
}

function layout(head, width) {
  const count = Math.max(head.rows.length, head.columns.length);
  const step = clamp(Math.floor(620 / count), 16, head.tallest ?? 30);
  const size = clamp(Math.round(step * 0.55), 10, 15);
  const column = (words) => clamp(widest(words.map(visible), size) + 20, 48, (width - 2 * AMOUNT) * 0.34);
  const [left, right] = [column(head.rows), column(head.columns)];
  const gap = clamp(width - left - right - 2 * AMOUNT, 60, 460);
  const ends = { query: AMOUNT + left, key: AMOUNT + left + gap }; // of the lines
  const room = { query: left - 12, key: right - 12 }; // of a token
  return { step, size, room, ends, width: ends.key + right + AMOUNT, height: TOP + count * step + 4 };
}

function middle(plan, index) {
  return TOP + (index + 0.5) * plan.step;
}

function path(plan, query, key, weight) {
  if (weight < FAINTEST) return null;
  const { ends: { query: x0, key: x1 } } = plan;
  const [y0, y1, bend] = [middle(plan, query), middle(plan, key), (x1 - x0) * 0.45];
  const shape = `M${x0},${y0} C${x0 + bend},${y0} ${x1 - bend},${y1} ${x1},${y1}`;
  const width = 0.75 + weight * Math.min(plan.step, 30) * 0.28;
  const strength = { "stroke-width": width, "stroke-opacity": 0.1 + 0.8 * weight };
  return { element: svg("path", { d: shape, ...strength }), query, key };
}

/** Tokens at the left end where their lines begin, tokens at the right begin where lines end. */
function inner(plan, side) {
  const isQuery = side === "query";
  return { x: plan.ends[side] + (isQuery ? -10 : 10), anchor: { "text-anchor": isQuery ? "end" : "start" } };
}

function heading(plan, side, sides) {
  const { x, anchor } = inner(plan, side);
  return label(sides[side], x, 10, 12, { class: "ch-side", ...anchor });
}

function token(plan, side, index, word, sides) {
  const [{ x, anchor }, y, room] = [inner(plan, side), middle(plan, index), plan.room[side]];
  const outer = side === "query" ? AMOUNT - 4 : plan.width - AMOUNT + 4;
  const amount = label("", outer, y, Math.min(plan.size, 12), { class: "ch-amount", ...anchor });
  const box = { x: side === "query" ? x - room - 2 : x - 6, y: y - plan.step / 2 + 1 };
  const size = { width: room + 8, height: plan.step - 2 };
  const state = { tabindex: -1, role: "button", "aria-pressed": "false", "aria-label": `${sides[side]}: ${word}` };
  const shown = label(cut(word, room, plan.size), x, y, plan.size, anchor);
  const group = svg("g", { class: "ch-token", ...state },
    svg("title", {}, word), svg("rect", { ...box, ...size }), shown, amount);
  return { group, amount, side, index };
}

function listen(each, tokens, { onHover, onPin }) {
  const here = { side: each.side, index: each.index };
  each.group.addEventListener("pointerenter", () => onHover(here));
  each.group.addEventListener("focus", () => onHover(here));
  each.group.addEventListener("blur", () => onHover(null));
  each.group.addEventListener("click", () => onPin(here));
  each.group.addEventListener("keydown", (event) => {
    const key = keyOf(event);
    const next = neighbour(key, here, tokens);
    if (!next && !["Enter", " ", "Escape"].includes(key)) return;
    event.preventDefault();
    if (!next) return onPin(key === "Escape" ? null : here);
    each.group.setAttribute("tabindex", -1);
    next.group.setAttribute("tabindex", 0);
    next.group.focus();
  });
}

function neighbour(key, { side, index }, tokens) {
  const across = { ArrowLeft: "query", ArrowRight: "key" }[key];
  if (across) return tokens[across][Math.min(index, tokens[across].length - 1)];
  const to = { ArrowUp: index - 1, ArrowDown: index + 1, Home: 0, End: tokens[side].length - 1 }[key];
  return to === undefined ? null : tokens[side][clamp(to, 0, tokens[side].length - 1)];
}

/** Show only the lines of one token, with the weight between it and each token of the other side. */
function isolate(element, paths, tokens, weights, chosen) {
  element.classList.toggle("ch-isolated", chosen !== null);
  const isOwn = (line) => chosen !== null && line[chosen.side] === chosen.index;
  for (const line of paths) line.element.classList.toggle("ch-on", isOwn(line));
  for (const each of [...tokens.query, ...tokens.key]) {
    const own = each.side === chosen?.side && each.index === chosen.index;
    const met = chosen && each.side !== chosen.side ? between(weights, chosen, each.index) : 0;
    each.group.classList.toggle("ch-on", own);
    each.group.classList.toggle("ch-met", met >= NUMBERED);
    each.group.setAttribute("aria-pressed", String(own));
    each.amount.textContent = met >= NUMBERED ? decimal(met.toFixed(2)) : "";
  }
}

function between(weights, chosen, other) {
  return chosen.side === "query" ? weights[chosen.index][other] : weights[other][chosen.index];
}

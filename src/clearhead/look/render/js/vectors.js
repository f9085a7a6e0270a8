// Vectors as coloured cells with numbers: two of them multiplied, added up, and whole matrices for all queries at once.

import { button, partLabel } from "./controls.js";
import { h } from "./dom.js";
import { t, tParts } from "./i18n.js";
import { extent, format, number, visible } from "./numbers.js";

const PACE = 70; // milliseconds for each number that is added

/** A number on its colour. */
function cell(value, colour, colours, tag = "td", more = {}) {
  const seen = Number.isFinite(number(value));
  const style = seen ? { background: colour, color: colours.inkOn(colour) } : {};
  return h(tag, { class: "ch-cell", style, ...more }, format(value));
}

/**
 * Numbers that are multiplied in pairs and added up, the sum as it is being made: {element, stop}.
 *
 * `rows` is [[name, numbers], …], their product is the last row; `heads` names each column.
 */
export function sumOfProducts(rows, heads, colours, { after = [] } = {}) {
  const products = rows[0][1].map((_, place) => rows.reduce((all, [, values]) => all * values[place], 1));
  const deepest = rows.map(([, values]) => extent(values) || 1);
  const most = extent(products) || 1;
  const columns = products.map((product, place) => h("div", { class: "ch-column" },
    h("span", { class: "ch-cell-head" }, visible(String(heads[place]))),
    ...rows.map(([, values], row) => cell(values[place], colours.signed(values[place] / deepest[row]), colours,
      "span")),
    cell(product, colours.signed(product / most), colours, "span")));
  const total = h("output", { class: "ch-total", "aria-live": "off" });
  const names = h("div", { class: "ch-column ch-names" }, h("span", { class: "ch-cell-head" }, "\u00a0"),
    ...rows.map(([name], row) => h("span", {}, row ? `× ${name}` : name)), h("span", {}, "="));
  let timer = null;

  function showUpTo(count) {
    const sum = products.slice(0, count).reduce((all, each) => all + each, 0);
    columns.forEach((column, place) => column.classList.toggle("ch-to-come", place >= count));
    const done = count >= products.length;
    total.replaceChildren(t("Σ {n} of {all} = ", { n: count, all: products.length }), h("strong", {}, format(sum)),
      ...(done ? after.map((text) => ` ${text}`) : []));
  }

  function stop() {
    clearInterval(timer);
    timer = null;
  }

  function play() {
    stop();
    let count = 0;
    showUpTo(0);
    timer = setInterval(() => {
      count += 1;
      showUpTo(count);
      if (count >= products.length) stop();
    }, Math.min(PACE, 4000 / products.length));
  }

  showUpTo(products.length);
  const element = h("div", { class: "ch-products" },
    h("div", { class: "ch-columns" }, names, columns),
    h("p", { class: "ch-making" }, button(t("Add up again"), play, t("Add up number by number")), total));
  return { element, play, stop };
}

/** A matrix with words at its edges and a number in each cell; `marked` is the row of the present query. */
export function numberMatrix(values, rows, columns, colours, { share = false, marked = null, corner = "" } = {}) {
  const deepest = extent(values) || 1;
  const colour = (value) => (share ? colours.weight(value) : colours.signed(number(value) / deepest));
  const line = (row, place) => h("tr", { "aria-current": place === marked ? "true" : null },
    h("th", { scope: "row", dir: "auto" }, visible(rows[place])),
      row.map((value) => cell(value, colour(value), colours)));
  return h("div", { class: "ch-scroll" }, h("table", { class: "ch-number-matrix" },
    h("thead", {}, h("tr", {}, h("td", {}, corner),
      columns.map((word) => h("th", { scope: "col", dir: "auto" }, visible(word))))),
    h("tbody", {}, values.map(line))));
}

/** What a step does with the vectors, and the same for all queries: [elements, elements, stop]. */
export function stepVectors(data, step, chosenKey, onKey, colours) {
  const { vectors, matrices, query, columns, rows } = data;
  if (!vectors) return [[], [], () => {}];
  const { name, value } = data.steps[step];
  const found = [];
  let running = null;
  const weights = data.steps.find((each) => each.name === "softmax" || each.name === "pick one")?.value;
  if (name === "score" && isProduct(vectors, query, value)) {
    const key = chosenKey ?? value.indexOf(Math.max(...value));
    const heads = vectors.q[query].map((_, place) => place);
    running = sumOfProducts([["q", vectors.q[query]], ["k", vectors.k[key]]], heads, colours);
    found.push(keyChoice(columns, key, onKey),
      partLabel(tParts("The query of {query} times the key of {key}, number by number",
        { query: h("strong", {}, visible(rows[query])), key: h("strong", {}, visible(columns[key])) })),
          running.element);
  }
  if (name === "sum" && weights) {
    const table = [...vectors.v.map((row, place) => row.map((each) => each * weights[place])), value];
    found.push(partLabel(t("Each value times its weight; the last row is their sum")),
      numberMatrix(table, [...columns, t("sum")], value.map((_, place) => String(place)), colours,
        { marked: table.length - 1, corner: "aⱼ vⱼ" }));
  }
  const whole = [];
  if (matrices?.[name] && rows.length > 1) {
    const isShare = name === "softmax" || name === "pick one";
    const heads = name === "sum" ? matrices[name][0].map((_, place) => String(place)) : columns;
    const word = h("strong", {}, visible(rows[query]));
    whole.push(partLabel(tParts("All queries at once; the row of {word} is marked", { word })),
      numberMatrix(matrices[name], rows, heads, colours, { share: isShare, marked: query }));
  }
  const wrapped = (parts) => (parts.length ? [h("div", { class: "ch-vector-parts" }, parts)] : []);
  return [wrapped(found), wrapped(whole), () => running?.stop()];
}

/** Whether the scores are the plain products of the query with the keys. */
function isProduct({ q, k }, query, value) {
  const products = k.map((key) => key.reduce((sum, each, place) => sum + each * q[query][place], 0));
  return products.every((each, place) => Math.abs(each - value[place]) <= 1e-3 * Math.max(1, Math.abs(each)));
}

function keyChoice(words, chosen, onKey) {
  return h("div", { class: "ch-words", role: "group", "aria-label": t("Key") }, h("span", { class: "ch-label" },
    t("Key")),
    words.map((word, place) => h("button", { type: "button", class: "ch-word", "data-keep": `key ${place}`,
      "aria-pressed": place === chosen ? "true" : "false", onclick: () => onKey(place) }, visible(word))));
}

// The Markdown of a model's card as elements: headings, tables, lists, code and paragraphs. Text stays text.

import { h } from "./views/dom.js";

/** The elements of a text; its first heading, which is the model's name, is left out. */
export function markdown(text) {
  const found = [];
  for (const block of text.replace(/^# .*\n/, "").split(/(^```[^]*?^```$)/m)) {
    if (block.startsWith("```")) found.push(h("pre", { tabindex: 0 }, block.split("\n").slice(1, -1).join("\n")));
    else found.push(...plain(block));
  }
  return found;
}

/** Lines of one kind that follow each other are one element. */
function plain(text) {
  const groups = [];
  for (const line of text.split("\n")) {
    const kind = kindOf(line);
    if (groups.at(-1)?.kind === kind && kind !== "heading") groups.at(-1).lines.push(line);
    else groups.push({ kind, lines: [line] });
  }
  return groups.filter(({ kind }) => kind !== "empty").map(({ kind, lines }) => MAKE[kind](lines));
}

function kindOf(line) {
  if (!line.trim()) return "empty";
  if (line.startsWith("#")) return "heading";
  if (line.startsWith("|")) return "table";
  return /^[-*] /.test(line) ? "list" : "paragraph";
}

const MAKE = {
  heading: ([line]) => h("h3", {}, inline(line.replace(/^#+ /, ""))),
  list: (lines) => h("ul", {}, lines.map((line) => h("li", {}, inline(line.slice(2))))),
  paragraph: (lines) => h("p", {}, inline(lines.join(" "))),
  table: (lines) => {
    const [head, ...rows] = lines.map(cells).filter((row) => !row.every((each) => /^:?-+:?$/.test(each)));
    const top = h("thead", {}, h("tr", {}, head.map((each) => h("th", { scope: "col" }, inline(each)))));
    return h("div", { class: "ch-scroll" }, h("table", { class: "ch-table st-rows" }, head.some(Boolean) ? top : "",
      h("tbody", {}, rows.map(([name, ...rest]) => h("tr", {}, h("th", { scope: "row" }, inline(name)),
        rest.map((each) => h("td", {}, inline(each))))))));
  },
};

function cells(line) {
  return line.replace(/^\||\|\s*$/g, "").split(/(?<!\\)\|/).map((each) => each.trim().replaceAll("\\|", "|"));
}

/** `code` and plain text. */
function inline(text) {
  return text.split(/`([^`]*)`/).map((part, index) => (index % 2 ? h("code", {}, part) : part));
}

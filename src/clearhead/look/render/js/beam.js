// The tree of a beam search: what it kept, dropped and finished; click a node for its text and its probabilities.
//
// data: BeamTree, format "clearhead-beam-1". chosen: {node, dropped: whether dropped texts show}.

import { partLabel, shareList, toggle } from "./controls.js";
import { h, keyOf, label, sheet, svg } from "./dom.js";
import { frame, handle, title, widget } from "./frame.js";
import { t } from "./i18n.js";
import { cut } from "./measure.js";
import { format, percent, visible } from "./numbers.js";
import { ancestry, layout } from "./tree.js";

export const FORMAT = "clearhead-beam-1";

const HIGH = 24;
const HINT = t("Click a text, or use the arrow keys: left to what it goes on from, right to what follows.");
const STATES = { kept: t("kept as a beam"), dropped: t("dropped"), finished: t("finished") };

/** Show a beam search in an element: {update, destroy}. */
export function mount(element, data, options = {}) {
  let chosen = validChoice(data, options.chosen ?? {});
  let plan = null;
  let drawn = null;
  const saved = { json: () => data, picture: () => drawn.tree };
  const view = frame(element, { name: "beam", label: t("Beam search"), draw, ...saved }, options);

  function choose(part) {
    chosen = { ...chosen, ...part };
    options.onChange?.(chosen);
  }

  function draw() {
    const byId = new Map(data.nodes.map((node) => [node.id, node]));
    title(view.heading, [data.source], tally(data.nodes));
    view.tools.replaceChildren(toggle(t("Show dropped texts"), chosen.dropped, changeDropped));
    plan = layout(data.nodes, data.best, (node) => chosen.dropped || node.state !== "dropped");
    if (!plan.place.has(chosen.node)) chosen = { ...chosen, node: data.best };
    const colours = view.palette();
    const items = new Map(plan.nodes.map((node) => [node.id, item(node, plan, colours)]));
    const tree = h("div", { class: "ch-scroll ch-tree" }, picture(plan, items));
    drawn = { items, byId, colours, tree, detail: h("div", { class: "ch-detail" }) };
    view.figure.replaceChildren(drawn.tree, drawn.detail);
    for (const [id, group] of items) {
      group.addEventListener("click", () => select(id));
      group.addEventListener("keydown", (event) => move(event, id));
    }
    mark();
  }

  function changeDropped(dropped) {
    choose({ dropped });
    draw();
    view.tools.querySelector("input").focus();
  }

  function select(id) {
    choose({ node: id });
    mark();
    drawn.items.get(id).focus({ preventScroll: true });
    drawn.items.get(id).scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  function move(event, id) {
    const next = neighbour(keyOf(event), drawn.byId.get(id), plan, data.best);
    if (next === undefined) return;
    event.preventDefault();
    select(next);
  }

  function mark() {
    for (const [id, group] of drawn.items) {
      group.setAttribute("aria-selected", String(id === chosen.node));
      group.setAttribute("tabindex", id === chosen.node ? 0 : -1);
    }
    const node = drawn.byId.get(chosen.node);
    drawn.detail.replaceChildren(...detail(node, data, drawn));
    view.say(HINT);
  }

  return handle(view, (next, requested = chosen) => {
    data = next;
    chosen = validChoice(data, requested);
  });
}

function validChoice(data, requested) {
  const known = data.nodes.some((node) => node.id === requested.node);
  return { node: known ? requested.node : data.best, dropped: requested.dropped ?? false };
}

function tally(nodes) {
  const count = (state) => nodes.filter((node) => node.state === state).length;
  const [kept, finished, dropped] = [count("kept") - 1, count("finished"), count("dropped")];
  return t("{all} texts considered: {kept} kept, {finished} finished, {dropped} dropped",
    { all: nodes.length - 1, kept, finished, dropped });
}

/** Where a key leads from a node; undefined for any other key. */
function neighbour(key, node, { children, place, nodes }, best) {
  const column = nodes.filter((each) => each.step === node.step).sort((a, b) => place.get(a.id).y - place.get(b.id).y);
  const here = column.indexOf(node);
  const to = {
    ArrowLeft: () => node.parent ?? node.id,
    ArrowRight: () => children.get(node.id)?.[0].id ?? node.id,
    ArrowUp: () => column[Math.max(0, here - 1)].id,
    ArrowDown: () => column[Math.min(column.length - 1, here + 1)].id,
    Home: () => nodes.find((each) => each.parent === null).id,
    End: () => best,
  }[key];
  return to?.();
}

function picture(plan, items) {
  const edges = plan.nodes.filter((node) => plan.place.has(node.parent)).map((node) => edge(node, plan));
  const name = { role: "tree", "aria-label": t("Texts that the search considered") };
  return sheet(plan.width, plan.height, name, svg("g", {}, edges), ...items.values());
}

function edge(node, { place, path }) {
  const [from, to] = [place.get(node.parent), place.get(node.id)];
  const turn = (from.x + from.column + to.x) / 2; // between the two columns
  const curve = `C${turn},${from.y} ${turn - 6},${to.y} ${to.x},${to.y}`;
  const shape = { d: `M${from.x + from.width},${from.y} H${turn - 12} ${curve}` };
  const strength = { "stroke-width": 1 + 2.5 * Math.exp(node.probability) };
  return svg("path", { ...shape, ...strength, class: path.has(node.id) ? "ch-edge ch-best" : "ch-edge" });
}

function item(node, { place, path }, colours) {
  const { x, y, width } = place.get(node.id);
  const fill = node.parent === null ? colours.share(0) : colours.share(Math.exp(node.probability));
  const name = `${visible(node.token)}, ${percent(Math.exp(node.probability))}, ${STATES[node.state]}`;
  const kind = `ch-node ch-is-${node.state}${path.has(node.id) ? " ch-best" : ""}`;
  const round = node.state === "finished" ? HIGH / 2 : 5;
  const ink = { "text-anchor": "middle", style: { fill: colours.inkOn(fill) } };
  return svg("g", { class: kind, role: "treeitem", "aria-level": node.step + 1, "aria-label": name },
    svg("title", {}, name),
    svg("rect", { x, y: y - HIGH / 2, width, height: HIGH, rx: round, style: { fill } }),
    label(cut(visible(node.token), width - 10, 13), x + width / 2, y, 13, ink));
}

function detail(node, data, { byId, colours }) {
  const path = ancestry(byId, node.id).slice(1);
  const rivals = data.nodes.filter((each) => each.parent === node.parent && each.parent !== null);
  const shares = rivals.map((each) => [visible(each.token), Math.exp(each.probability), each.id === node.id]);
  return [
    h("div", {},
      partLabel(h("strong", {}, stateOf(node, data.best)), ` · ${t("step {step}", { step: node.step })}`),
      h("p", { class: "ch-chips", dir: "auto" }, path.map((each) => chip(each, colours))),
      facts(node)),
    rivals.length ? h("div", {}, partLabel(t("What could come here")), shareList(shares.sort((a, b) => b[1] - a[1])))
      : "",
  ];
}

function stateOf(node, best) {
  if (node.parent === null) return t("where the search begins");
  return node.id === best ? t("{state}, the best", { state: STATES[node.state] }) : STATES[node.state];
}

function chip(node, colours) {
  const share = Math.exp(node.probability);
  const fill = colours.share(share);
  const paint = { background: fill, color: colours.inkOn(fill) };
  return h("span", { class: "ch-chip", title: percent(share), style: paint }, visible(node.token));
}

function facts(node) {
  const fact = (name, value) => [h("dt", {}, name), h("dd", {}, value)];
  return h("dl", { class: "ch-facts" },
    fact(t("Probability of this token"), `${percent(Math.exp(node.probability))}  (log ${format(node.probability)})`),
    fact(t("Log-probability of the whole text"), format(node.total)),
    fact(node.state === "finished" ? t("Score, with its length") : t("Score"), format(node.score)));
}

export default widget(mount);

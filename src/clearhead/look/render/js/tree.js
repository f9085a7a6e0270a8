// The layout of a beam search: a column for each step, the best path along the top, the rest close below.

import { widthOf } from "./measure.js";
import { visible } from "./numbers.js";

const ROW = 30;
const LONGEST = 130;
const PAD = 18;
const GAP = 28;

/**
 * The nodes that are shown and their places.
 *
 * {nodes, children: id -> nodes, path: ids on the way to the best, place: id -> {x, y, width, column}, width, height}
 */
export function layout(nodes, best, shown) {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const path = new Set(ancestry(byId, best).map((node) => node.id));
  const drawn = nodes.filter((node) => shown(node) || path.has(node.id));
  const children = families(drawn, path);
  const columns = columnsOf(drawn);
  const rows = rowsOf(drawn.find((node) => node.parent === null), children);
  const placed = (node) => {
    const { x, width: column } = columns[node.step];
    return [node.id, { x, column, width: roomOf(node), y: (rows.get(node.id) + 0.5) * ROW }];
  };
  const last = columns.at(-1);
  const [width, height] = [last.x + last.width + 8, (Math.max(...rows.values()) + 1) * ROW + 4];
  return { nodes: drawn, children, path, place: new Map(drawn.map(placed)), width, height };
}

/**
 * id -> row: a node and its likeliest descendants share a row, the first below which all their columns are free.
 *
 * In every column the nodes stand in the order of their parents, so no two lines cross.
 */
function rowsOf(root, children) {
  const rows = new Map();
  const taken = []; // by column: the lowest row in use
  const settle = (node) => {
    const chain = [];
    for (let next = node; next; next = children.get(next.id)?.[0]) chain.push(next);
    const row = Math.max(rows.get(node.parent) ?? 0, ...chain.map(({ step }) => (taken[step] ?? -1) + 1));
    for (const { id, step } of chain) {
      rows.set(id, row);
      taken[step] = row;
    }
    for (const { id } of chain.reverse()) (children.get(id) ?? []).slice(1).forEach(settle);
  };
  settle(root);
  return rows;
}

/** A node and its ancestors, the root first. */
export function ancestry(byId, id) {
  const found = [];
  for (let node = byId.get(id); node; node = byId.get(node.parent)) found.unshift(node);
  return found;
}

function families(nodes, path) {
  const children = new Map();
  for (const node of nodes) {
    if (node.parent === null) continue;
    if (!children.has(node.parent)) children.set(node.parent, []);
    children.get(node.parent).push(node);
  }
  const rank = (node) => (path.has(node.id) ? Infinity : node.total);
  for (const family of children.values()) family.sort((a, b) => rank(b) - rank(a));
  return children;
}

function columnsOf(nodes) {
  const columns = [];
  for (const node of nodes) columns[node.step] = { width: Math.max(columns[node.step]?.width ?? 0, roomOf(node)) };
  let x = 4;
  for (const column of columns) {
    column.x = x;
    x += column.width + GAP;
  }
  return columns;
}

function roomOf(node) {
  return Math.max(32, Math.min(LONGEST, widthOf(visible(node.token), 13) + PAD));
}

// Where everything stands in an X-ray: a box for each group, head and part, inside the box of what it belongs to.
//
// Every group is drawn small inside its parent and large when one zooms in: boxes are in one plane, in units of the
// whole picture, and only their size differs. Items follow each other like words on a page.

import { t, translated } from "./i18n.js";
import { beamPlan } from "./xraybeam.js";

const ROW = 10; // height of one token's row
const GAP = 14;
const LABEL = 16; // room for a name above a box
const LABELS = { beam: 34, stack: 40, block: 30, cell: 30, input: 24, output: 24 }; // where the boxes are large
const WORDS = 30; // room for the words of rows and columns
const FILL = 0.88; // share of a row that its numbers fill
const CELL = 2.4; // width of a number's cell over its height
const LINES = 12; // of the blocks of a stack
const ORDERS = [{ beside: false, together: false }, { beside: true, together: false }, { beside: false,
  together: true }];
const STACKED = 60; // tokens up to which queries, keys and values stand above each other

/** The room [width, height] of a child inside each kind of group, by the child's kind or type. */
const ROOMS = {
  stack: { block: [330, 290], cell: [330, 290], input: [300, 290], part: [80, 170] },
  input: { image: [200, 240], part: [150, 240] },
  output: { probability: [900, 260], logits: [330, 150], part: [120, 150] },
  block: { attention: [430, 270], feed_forward: [330, 150], part: [110, 130] },
  cell: { part: [150, 150] },
  attention: { part: [190, 320] },
  feed_forward: { part: [200, 150] },
  head: { matrix: [230, 230], part: [150, 110] },
};

const isStack = ({ kind }) => kind === "stack";

/** The map of a graph for a window of some aspect: {root, nodes: by key, part(id, head)}. */
export function mapOf(data, aspect) {
  const nodes = new Map();
  const root = group("", null);
  if (data.beam) root.children.push(beams(root));
  measure(root, aspect);
  place(root, 0, 0, 1);

  function keep(node) {
    nodes.set(node.key, node);
    return node;
  }

  function group(id, parent) {
    const { kind, name, items } = data.groups[id];
    const node = keep({ key: id, type: "group", id, kind, name: translated(name), parent, head: 0, children: [] });
    const heads = kind === "attention" ? headsOf(items) : 1;
    const inHead = (item) => data.parts[item]?.shape.length === 3;
    if (kind === "attention") {
      const inside = items.filter(inHead);
      for (let head = 0; head < heads; head += 1) {
        const one = keep({ key: `${id}#${head}`, type: "head", id, kind: "head", name: t("Head {head}", { head }),
          parent: node, head, children: [] });
        one.children = inside.map((item) => part(item, head, one));
        node.children.push(one);
      }
    }
    for (const item of items) {
      if (kind === "attention" && inHead(item)) continue;
      node.children.push(item in data.groups ? group(item, node) : part(item, 0, node));
    }
    if (kind === "input" && data.image && id === imageInput()) {
      node.children.unshift(keep({ key: "image", type: "image", id: "image", name: t("image"), parent: node,
        head: 0, children: [] }));
    }
    return node;
  }

  function beams(parent) {
    const plan = beamPlan(data.beam);
    return keep({ key: "beam", type: "beam", id: "beam", kind: "beam", name: t("Beam search"), parent, head: 0,
      children: [], plan, rows: data.beam.nodes.length });
  }

  function imageInput() {
    return Object.keys(data.groups).find((id) => data.groups[id].kind === "input");
  }

  function headsOf(items) {
    return Math.max(...items.map((item) => (data.parts[item]?.shape.length === 3 ? data.parts[item].shape[0] : 1)));
  }

  function part(id, head, parent) {
    const { shape, name } = data.parts[id];
    const key = shape.length === 3 ? `${id}#${head}` : id;
    const box = grid(data.parts[id]);
    const words = parent.type === "head" || parent.kind === "input" ? WORDS : 0;
    return keep({ key, type: "part", id, kind: data.parts[id].op, name: translated(name), parent, head,
      children: [], before: words, above: 0, ...box });
  }

  // --- sizes, from the inside out; a child's box is in the units of its parent ---

  function measure(node, wanted) {
    if (node.type === "part") return;
    if (node.type === "image") {
      Object.assign(node, { w: 150, h: (150 * data.image.length) / data.image[0].length, before: 0, above: 0 });
      return;
    }
    if (node.type === "beam") {
      Object.assign(node, { w: node.plan.width, h: node.plan.height, before: 0, above: 0 });
      return;
    }
    for (const child of node.children) {
      measure(child, child.kind === "block" ? 1.2 : 1.5);
      child.inner = { w: child.w, h: child.h };
      child.scale = scaleOf(node, child);
      for (const side of ["w", "h", "before", "above"]) child[side] = (child[side] ?? 0) * child.scale;
    }
    if (node.kind === "model") return arrangeModel(node, wanted);
    const lines = node.type === "head" ? headLines(node) : node.kind === "attention" ? attentionLines(node)
      : linesOf(node, wanted);
    return arrange(node, lines);
  }

  /** How much smaller the inside of a child is than its parent: it fills the room that its kind has there. */
  function scaleOf(node, child) {
    if (child.kind === "stack" || child.type === "head") return 1;
    if (child.kind === "output" || child.type === "beam") return 1; // arrangeModel gives them their room
    const rooms = ROOMS[node.type === "head" ? "head" : node.kind] ?? {};
    const square = child.type === "part" && data.parts[child.id].columns ? "matrix" : child.kind;
    const few = node.kind === "stack" && node.children.length < 5 ? 1.6 : 1;
    const [w, h] = (rooms[square] ?? rooms[child.type] ?? rooms.any ?? [110, 150]).map((side) => side * few);
    return Math.min(w / ((child.before ?? 0) + child.w), h / ((child.above ?? 0) + child.h));
  }

  /** The arrangement in which the picture is largest: stacks in lines below each other, output and beams after them. */
  function arrangeModel(node, wanted) {
    const longest = Math.max(1, ...node.children.filter(isStack).map(({ children }) => children.length));
    let best = null;
    for (let count = 1; count <= Math.min(longest, LINES); count += 1) {
      for (const order of ORDERS) {
        const { w, h } = sizeOf(modelLines(node, count, order));
        const fit = Math.min(wanted / (w + 2 * GAP), 1 / (h + 2 * GAP));
        if (!best || fit > best.fit) best = { fit, count, order };
      }
    }
    return arrange(node, modelLines(node, best.count, best.order));
  }

  /** The stacks with their blocks in `count` lines, and the output and the beams where an order puts them. */
  function modelLines(node, count, { beside, together }) {
    const of = (kind) => node.children.filter((child) => child.kind === kind);
    const [stacks, output, search] = [node.children.filter(isStack), of("output"), of("beam")];
    for (const stack of stacks) arrangeStack(stack, count);
    const first = [...node.children.filter((child) => ![...stacks, ...output, ...search].includes(child)), ...stacks];
    const wide = Math.max(500, ...first.map(({ w }) => w));
    const room = together && search.length ? 0.5 * (wide - GAP) : wide;
    for (const child of output) resize(child, Math.min(room / child.inner.w, 330 / child.inner.h));
    const lines = first.map((child) => [child]);
    if (beside && lines.length) lines.at(-1).push(...output);
    else if (output.length) lines.push(output);
    if (!search.length) return lines;
    const { w, h } = sizeOf(lines); // the beams: as wide as the others, or as high as the window has room
    const share = together && output.length ? [wide - GAP - output[0].w, 330] : [w, 0.6 * h];
    for (const child of search) resize(child, Math.min(share[0] / child.inner.w, share[1] / child.inner.h));
    if (!together || !output.length) return [...lines, search];
    return [...lines.slice(0, -1), [...lines.at(-1), ...search]];
  }

  function arrangeStack(stack, count) {
    const widest = stack.children.reduce((sum, { w, before }) => sum + before + w + GAP, 0);
    arrange(stack, broken(stack.children, widest / count));
    stack.inner = { w: stack.w, h: stack.h };
  }

  function resize(child, scale) {
    Object.assign(child, { scale, w: child.inner.w * scale, h: child.inner.h * scale });
  }

  /** A new line for each sublayer of a block; elsewhere as many as fit the window best. */
  function linesOf(node, wanted) {
    const { children } = node;
    if (node.kind === "output") return [children];
    if (node.kind === "block") {
      const lines = [[]];
      for (const child of children) {
        const before = lines.at(-1).at(-1);
        if (before?.kind === "add" && child.id !== afterNorm(before)) lines.push([]);
        lines.at(-1).push(child);
      }
      return lines;
    }
    let best = null;
    const widest = children.reduce((sum, { w, before }) => sum + before + w + GAP, 0);
    for (let count = 1; count <= Math.min(children.length, LINES); count += 1) {
      const lines = broken(children, widest / count);
      const size = sizeOf(lines);
      const miss = Math.abs(Math.log(size.w / size.h / wanted));
      if (!best || miss < best.miss) best = { lines, miss };
    }
    return best.lines;
  }

  function afterNorm({ id }) {
    return id.endsWith(".added") ? `${id.slice(0, -6)}.after` : "";
  }

  function attentionLines(node) {
    const heads = node.children.filter(({ type }) => type === "head");
    const rest = node.children.filter(({ type }) => type !== "head");
    const across = Math.max(1, Math.round(Math.sqrt((heads.length * 2.2 * heads[0].h) / heads[0].w)));
    const rows = [];
    for (let first = 0; first < heads.length; first += across) rows.push(heads.slice(first, first + across));
    return { columns: [rows, ...rest.map((each) => [[each]])] };
  }

  /** Query, key and value above each other, then scores, weights and the weighted sum. */
  function headLines(node) {
    const named = (end) => node.children.filter(({ id }) => id.split(".").includes(end));
    const left = ["query", "key", "value"].map(named).filter((line) => line.length);
    const rest = node.children.filter((child) => !left.flat().includes(child));
    const first = left.flat().some(({ rows }) => rows > STACKED) ? [[left.flat()]] : [left];
    return { columns: [...first, ...rest.map((each) => [[each]])] };
  }

  function arrange(node, lines) {
    if (lines.columns) {
      const sizes = lines.columns.map(sizeOf);
      const high = Math.max(...sizes.map(({ h }) => h));
      let x = GAP;
      lines.columns.forEach((column, index) => {
        setLines(column, x, GAP + (high - sizes[index].h) / 2);
        x += sizes[index].w + GAP;
      });
      Object.assign(node, { w: x, h: high + 2 * GAP });
      return;
    }
    const { w, h } = sizeOf(lines);
    setLines(lines, GAP, GAP);
    Object.assign(node, { w: w + 2 * GAP, h: h + 2 * GAP });
  }

  function setLines(lines, left, top) {
    let y = top;
    for (const line of lines) {
      const high = highest(line);
      let x = left;
      for (const child of line) {
        child.local = { x: x + child.before, y: y + labelOf(line) + child.above + (high - child.h - child.above) / 2 };
        x += child.before + child.w + GAP;
      }
      y += high + labelOf(line) + GAP;
    }
  }

  function place(node, x, y, unit) {
    const size = node.inner ? { w: node.inner.w * unit, h: node.inner.h * unit }
      : { w: node.w * unit, h: node.h * unit };
    Object.assign(node, { x, y, w: size.w, h: size.h, unit });
    for (const child of node.children) place(child, x + child.local.x * unit, y + child.local.y * unit,
      unit * child.scale);
  }

  return { root, nodes, links: linksOf(data, nodes), memory: memoryOf(data, nodes), part: (id, head = 0) =>
    nodes.get(data.parts[id]?.shape.length === 3 ? `${id}#${head}` : id) };
}

/** For each node the lines between its children: [from, to], wherever something inside `to` is computed from `from`. */
function linksOf(data, nodes) {
  const links = new Map();
  for (const node of nodes.values()) {
    if (node.type !== "part") continue;
    const { inputs, details } = data.parts[node.id];
    for (const input of [...inputs, ...(details.of ? [details.of] : [])]) {
      const whole = data.parts[input].shape.length !== 3;
      const heads = whole ? [0] : node.type === "part" && data.parts[node.id].shape.length === 3 ? [node.head]
        : range(data.parts[input].shape[0]);
      for (const head of heads) addLink(links, nodes.get(whole ? input : `${input}#${head}`), node);
    }
  }
  return links;
}

/** From the end of one stack to every attention of another that reads it: [part, attention]. */
function memoryOf(data, nodes) {
  const found = new Map();
  for (const node of nodes.values()) {
    if (node.type !== "part" || node.head) continue;
    for (const input of data.parts[node.id].inputs) {
      const from = nodes.get(input);
      if (from && from.id.split(".")[0] !== node.id.split(".")[0] && node.parent.id in data.groups
        && data.groups[node.parent.id].kind === "attention") {
        found.set(node.parent.id, [from, nodes.get(node.parent.id)]);
      }
    }
  }
  return [...found.values()];
}

function addLink(links, from, to) {
  const above = new Set();
  for (let node = from; node; node = node.parent) above.add(node);
  let end = to;
  while (!above.has(end.parent)) end = end.parent;
  let start = from;
  while (start.parent !== end.parent) start = start.parent;
  if (start === end) return;
  const known = links.get(end.parent) ?? new Map();
  known.set(`${start.key} ${end.key}`, [start, end]);
  links.set(end.parent, known);
}

function range(count) {
  return Array.from({ length: count }, (_, index) => index);
}

function broken(children, room) {
  const lines = [[]];
  let used = 0;
  for (const child of children) {
    if (used && child.type !== "part" && used + child.w > room * 1.02) {
      lines.push([]);
      used = 0;
    }
    lines.at(-1).push(child);
    used += child.before + child.w + GAP;
  }
  return lines;
}

/** The room above a line for the names of what stands in it. */
export function labelOf(line) {
  return Math.max(...line.map(({ kind }) => LABELS[kind] ?? LABEL));
}

function highest(line) {
  return Math.max(...line.map(({ h, above }) => h + above));
}

function sizeOf(lines) {
  const w = Math.max(...lines.map((line) => line.reduce((sum, child) => sum + child.before + child.w + GAP, -GAP)));
  const h = lines.reduce((sum, line) => sum + highest(line) + labelOf(line) + GAP, -GAP);
  return { w, h };
}

/** How a part's numbers stand: a square for each pair of tokens, or each token's vector written like lines of text. */
function grid({ shape, columns, details }) {
  const [rows, width] = shape.slice(-2);
  if (columns) return { rows, width, lines: 1, across: width, w: width * ROW, h: rows * ROW, before: WORDS,
    above: WORDS };
  if (details.names) return { rows, width, lines: 1, across: width, w: width * ROW * 2.6, h: rows * ROW,
    before: WORDS };
  const w = Math.max(14, 4.5 * Math.sqrt(width), 0.5 * rows * ROW);
  const lines = Math.max(1, Math.round(Math.sqrt((CELL * FILL * ROW * width) / w)));
  return { rows, width, lines, across: Math.ceil(width / lines), w, h: rows * ROW };
}

/** The box of a row of a part, without the gap below it. */
export function rowBox(node, row) {
  const high = node.h / node.rows;
  return { x: node.x, y: node.y + row * high, w: node.w, h: high * (node.lines > 1 ? FILL : 1) };
}

/** The box of one number. */
export function cellBox(node, row, column) {
  const line = rowBox(node, row);
  const [w, h] = [line.w / node.across, line.h / node.lines];
  return { x: line.x + (column % node.across) * w, y: line.y + Math.floor(column / node.across) * h, w, h };
}

/** The number at a point: {row, column}, or null. */
export function cellAt(node, x, y) {
  const row = Math.floor(((y - node.y) / node.h) * node.rows);
  if (row < 0 || row >= node.rows || x < node.x || x >= node.x + node.w) return null;
  const box = rowBox(node, row);
  const line = Math.floor(((y - box.y) / box.h) * node.lines);
  if (line >= node.lines) return null;
  const column = line * node.across + Math.floor(((x - box.x) / box.w) * node.across);
  return column < node.width ? { row, column } : null;
}

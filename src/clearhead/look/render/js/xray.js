// The whole model as one picture: zoom from the text to the single number, and watch the data flow.
//
// data: an XRay, format "clearhead-xray-1"; where it has no values, options.load fetches them.
// chosen: {node, row, column}: the box that is in view, and the row or number of it.

import { button, partLabel, signButton } from "./controls.js";
import { clamp, h, keyOf } from "./dom.js";
import { equation } from "./equation.js";
import { frame, handle, title, widget } from "./frame.js";
import { headline } from "./looks.js";
import { format, percent, visible } from "./numbers.js";
import { painter } from "./xraydraw.js";
import { cellAt, cellBox, mapOf, rowBox } from "./xraymap.js";
import { explain, labels, numbersOf, sources, total } from "./xraynumbers.js";

export const FORMAT = "clearhead-xray-1";

const FLIGHT = 550; // milliseconds
const PHASE = 5000; // milliseconds of play for each token that is written
const SHOWN = 200; // terms in the panel
const WHOLE = "Everything between the input and the answer, drawn from the model itself. Each row of small squares is "
  + "the vector of one token; a square is one number. Click on a part to zoom in, down to how a single number is made.";

/** Show an X-ray in an element: {update, destroy}. */
export function mount(element, data, options = {}) {
  let numbers = numbersOf(data, options.load);
  let map = null;
  let paint = null;
  let camera = { x: 0, y: 0, k: 1 };
  let flight = null;
  let chosen = { node: "", row: null, column: null, ...options.chosen };
  let hovered = null;
  let timer = 0; // of the next frame
  let player = null; // {at, playing, last}, or null: everything is shown
  let order = orderOf(data);
  const explained = new Map();
  const canvas = h("canvas", { tabindex: 0, role: "application",
    "aria-label": "The model as a picture. Enter zooms in, Escape zooms out, arrow keys go to the neighbours.",
    "aria-describedby": "ch-xray-at" });
  const crumbs = h("nav", { class: "ch-crumbs", "aria-label": "Where you are" });
  const zoom = h("div", { class: "ch-zoom", role: "group", "aria-label": "Zoom" },
    button("+", () => zoomBy(1.6), "Zoom in"), button("−", () => zoomBy(1 / 1.6), "Zoom out"),
      button("⌂", () => fly({ node: "" }), "The whole model"));
  const flowLine = h("p", { class: "ch-dataflow", role: "status" });
  const stage = h("div", { class: "ch-stage" }, canvas, crumbs, zoom, flowLine);
  const panel = h("aside", { class: "ch-panel", "aria-live": "off" });
  const saved = { json: () => data, picture: () => view.figure };
  const view = frame(element, { name: "xray", label: "X-ray of the model", draw, ...saved }, options);
  view.figure.append(stage, panel);
  const frames = { count: 0, cost: [] }; // what a test of speed reads
  canvas.frames = frames;

  // --- drawing ---

  function draw() {
    const width = stage.clientWidth;
    const height = stage.clientHeight;
    const ratio = Math.min(2, devicePixelRatio || 1);
    [canvas.width, canvas.height] = [width * ratio, height * ratio];
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
    const first = !map;
    map = mapOf(data, width / height);
    paint = painter(canvas, map, numbers, view.palette());
    title(view.heading, headline(data), `${data.model} · ${summary(data)}`);
    drawPlayer();
    if (first || !flight) camera = cameraOf(chosen);
    show();
    schedule();
  }

  function size() {
    return { width: stage.clientWidth, height: stage.clientHeight, ratio: canvas.width / (stage.clientWidth || 1) };
  }

  function schedule() {
    if (!timer && map) timer = requestAnimationFrame(step);
  }

  function step(now) {
    timer = 0;
    if (!canvas.isConnected) return;
    const started = performance.now();
    const moving = flight ? advance(now) : false;
    const playing = player?.playing ? flow(now) : false;
    const active = player ? activeKeys() : null;
    const late = paint.draw({ moving: moving || playing, camera, size: size(), now, active, known: knownRows,
      marks: marks(), missing, inside });
    frames.count += 1;
    frames.cost.push(performance.now() - started);
    if (frames.cost.length > 4000) frames.cost.splice(0, 2000);
    if (moving || playing || late) schedule();
  }

  function missing(node) {
    const item = loadable(node);
    numbers.request(item).then(schedule, (error) => view.say(error.message));
  }

  /** What is fetched together: a whole block, or a single part beside the blocks. */
  function loadable(node) {
    for (let one = node.parent; one; one = one.parent) {
      if (["block", "cell", "input", "output"].includes(one.kind)) return one.id;
    }
    return node.id;
  }

  /** The computation of a number, null until it is known. */
  function inside(address) {
    const key = addressKey(address);
    if (!explained.has(key)) {
      explained.set(key, null);
      explainWhenLoaded(address).then((made) => {
        explained.set(key, made);
        schedule();
      }, (error) => view.say(error.message));
    }
    return explained.get(key);
  }

  async function explainWhenLoaded(address) {
    const needed = [address.part, ...data.parts[address.part].inputs].filter((id) => !numbers.has(id));
    await Promise.all(needed.map((id) => numbers.request(loadable(map.part(id)))));
    return explain(numbers, address);
  }

  // --- the camera ---

  function boxOf({ node, row, column }) {
    const found = map.nodes.get(node) ?? map.root;
    if (found.type !== "part" || row === null || row === undefined || row >= found.rows) return found;
    return column === null || column === undefined || column >= found.width ? rowBox(found, row)
      : cellBox(found, row, column);
  }

  function cameraOf(target) {
    const { width, height } = size();
    const box = boxOf(target);
    const k = Math.min((width * 0.92) / box.w, ((height - 70) * 0.94) / box.h);
    return { x: box.x + box.w / 2, y: box.y + box.h / 2 - 12 / k, k };
  }

  function fly(target) {
    chosen = { row: null, column: null, ...target };
    options.onChange?.(chosen);
    const to = cameraOf(chosen);
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      camera = to;
      flight = null;
    } else {
      flight = { from: { ...camera }, to, start: null };
    }
    show();
    schedule();
  }

  /** Both ends stay in sight: the picture moves as fast as it grows. */
  function advance(now) {
    flight.start ??= now;
    const t = Math.min(1, (now - flight.start) / FLIGHT);
    const eased = t < 0.5 ? 4 * t ** 3 : 1 - (-2 * t + 2) ** 3 / 2;
    const { from, to } = flight;
    const k = from.k * (to.k / from.k) ** eased;
    const share = Math.abs(to.k / from.k - 1) < 1e-3 ? eased : (1 / from.k - 1 / k) / (1 / from.k - 1 / to.k);
    camera = { x: from.x + (to.x - from.x) * share, y: from.y + (to.y - from.y) * share, k };
    if (t === 1) flight = null;
    return t < 1;
  }

  function zoomBy(factor, at = { x: size().width / 2, y: size().height / 2 }) {
    flight = null;
    const { width, height } = size();
    const world = { x: camera.x + (at.x - width / 2) / camera.k, y: camera.y + (at.y - height / 2) / camera.k };
    const least = cameraOf({ node: "" }).k * 0.6;
    const k = clamp(camera.k * factor, least, least * 1e6);
    camera = { x: world.x - (at.x - width / 2) / k, y: world.y - (at.y - height / 2) / k, k };
    refocus();
    schedule();
  }

  /** After free movement: what fills most of the window is where the reader is. */
  function refocus() {
    const { width, height } = size();
    const path = pathAt(camera.x, camera.y);
    const fills = (target) => {
      const box = boxOf(target);
      return box.w * camera.k > width * 0.5 || box.h * camera.k > height * 0.5;
    };
    const next = path.filter(fills).at(-1) ?? { node: "", row: null, column: null };
    if (next.node === chosen.node && next.row === chosen.row && next.column === chosen.column) return;
    chosen = next;
    options.onChange?.(chosen);
    show();
  }

  /** From the model to the number at a point: [{node, row, column}]. */
  function pathAt(x, y) {
    const path = [{ node: "", row: null, column: null }];
    let node = map.root;
    for (;;) {
      const next = node.children.find((child) => x >= child.x && x < child.x + child.w && y >= child.y
        && y < child.y + child.h);
      if (!next) break;
      node = next;
      path.push({ node: node.key, row: null, column: null });
    }
    const cell = node.type === "part" ? cellAt(node, x, y) : null;
    if (cell) path.push({ node: node.key, row: cell.row, column: null }, { node: node.key, ...cell });
    return path;
  }

  function parentOf({ node, row, column }) {
    if (column !== null) return { node, row, column: null };
    if (row !== null) return { node, row: null, column: null };
    return { node: map.nodes.get(node)?.parent?.key ?? "", row: null, column: null };
  }

  function into(x, y) {
    const next = pathAt(x, y).find((target) => cameraOf(target).k > camera.k * 1.3);
    if (next) fly(next);
  }

  // --- pointing ---

  const pointers = new Map();
  let moved = 0;
  let apart = 0;

  const worldAt = ({ x, y }) => ({ x: camera.x + (x - size().width / 2) / camera.k,
    y: camera.y + (y - size().height / 2) / camera.k });
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoomBy(Math.exp(-clamp(event.deltaY, -120, 120) * 0.0022), place(event));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, place(event));
    moved = 0;
    apart = spanOf();
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = place(event);
    const before = pointers.get(event.pointerId);
    if (!before) return point(now);
    pointers.set(event.pointerId, now);
    moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
    if (moved < 4) return undefined;
    if (pointers.size === 2) {
      const span = spanOf();
      const [one, other] = [...pointers.values()];
      zoomBy(span / apart, { x: (one.x + other.x) / 2, y: (one.y + other.y) / 2 });
      apart = span;
      return undefined;
    }
    flight = null;
    camera = { ...camera, x: camera.x - (now.x - before.x) / camera.k, y: camera.y - (now.y - before.y) / camera.k };
    refocus();
    return schedule();
  });
  canvas.addEventListener("pointerup", (event) => {
    const alone = pointers.size === 1;
    pointers.delete(event.pointerId);
    if (!alone || moved >= 4) return;
    const { x, y } = worldAt(place(event));
    into(x, y);
  });
  canvas.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId));
  canvas.addEventListener("pointerleave", () => point(null));
  canvas.addEventListener("dblclick", (event) => event.preventDefault());
  canvas.addEventListener("keydown", keys);

  function spanOf() {
    const [one, other] = [...pointers.values()];
    return other ? Math.hypot(one.x - other.x, one.y - other.y) : 1;
  }

  function keys(event) {
    const key = keyOf(event);
    const actions = {
      Enter: () => goIn(), Escape: () => fly(parentOf(chosen)), Backspace: () => fly(parentOf(chosen)), Home: () =>
        fly({ node: "" }),
      ArrowRight: () => beside(1), ArrowDown: () => beside(1, true), ArrowLeft: () => beside(-1), ArrowUp: () =>
        beside(-1, true),
      "+": () => zoomBy(1.6), "-": () => zoomBy(1 / 1.6), " ": () => play(),
    };
    if (!actions[key]) return;
    event.preventDefault();
    actions[key]();
  }

  function goIn() {
    const node = map.nodes.get(chosen.node);
    if (node.type !== "part") return node.children.length ? fly({ node: node.children[0].key }) : undefined;
    if (chosen.row === null) return fly({ node: node.key, row: 0 });
    return chosen.column === null ? fly({ node: node.key, row: chosen.row, column: 0 }) : undefined;
  }

  /** The neighbour: another child of the parent, another row, another number. */
  function beside(by, down = false) {
    const node = map.nodes.get(chosen.node);
    if (chosen.column !== null) {
      if (down && node.lines === 1) return fly({ ...chosen, row: clamp(chosen.row + by, 0, node.rows - 1) });
      return fly({ ...chosen, column: clamp(chosen.column + (down ? by * node.across : by), 0, node.width - 1) });
    }
    if (chosen.row !== null) return fly({ ...chosen, row: clamp(chosen.row + by, 0, node.rows - 1) });
    const all = node.parent?.children ?? [];
    const next = all[clamp(all.indexOf(node) + by, 0, all.length - 1)];
    return next ? fly({ node: next.key }) : undefined;
  }

  function point(at) {
    const where = at && map ? pathAt(worldAt(at).x, worldAt(at).y) : [];
    const seen = where.filter((target) => boxOf(target).w * camera.k > 5).at(-1) ?? null;
    const same = JSON.stringify(seen) === JSON.stringify(hovered);
    if (same) return;
    hovered = seen?.node ? seen : null;
    canvas.style.cursor = hovered ? "zoom-in" : "grab";
    view.say(hovered ? saying(hovered) : "");
    schedule();
  }

  /** What is under the pointer, in words. */
  function saying({ node: key, row, column }) {
    const node = map.nodes.get(key);
    if (node.type !== "part") return [node.name, data.groups[node.id]?.about].filter(Boolean).join(": ");
    const name = fullName(node);
    if (row === null) return `${name}: ${data.parts[node.id].about}`;
    const address = { part: node.id, head: node.head, row, column };
    const said = labels(data, address);
    if (column === null || !numbers.has(node.id)) return `${name} of ${visible(said.row)}`;
    const paired = data.parts[node.id].columns || data.parts[node.id].details.names;
    const cell = paired ? `${visible(said.row)} → ${visible(said.column)}` : `${visible(said.row)}, number ${column}`;
    return `${name} of ${cell}: ${format(numbers.value(address))}`;
  }

  function fullName(node) {
    return data.parts[node.id].shape.length === 3 ? `${node.name}, head ${node.head}` : node.name;
  }

  /**
   * What is outlined: the thing under the pointer or chosen, what it was computed from, and what is computed from
   * it.
   */
  function marks() {
    const target = hovered ?? (chosen.row !== null ? chosen : null);
    const node = target && map.nodes.get(target.node);
    if (!node || node.type !== "part") return [];
    const { row, column } = target;
    if (row === null) {
      const from = data.parts[node.id].inputs.map((id) =>
        ({ node: map.part(id, node.head), row: null, column: null, kind: "from" }));
      const to = order.consumers.get(node.id)?.map((id) =>
        ({ node: map.part(id, node.head), row: null, column: null, kind: "to" })) ?? [];
      return [...from, ...to];
    }
    const at = { part: node.id, head: node.head, row, column: column ?? 0 };
    const from = sources(data, at).map((source) =>
      ({ node: map.part(source.part, source.head), row: source.row, column: column === null ? null : source.column,
      kind: "from" }));
    return [...from, { node, row, column, kind: "to" }];
  }

  // --- the panel ---

  function show() {
    drawCrumbs();
    const node = map.nodes.get(chosen.node) ?? map.root;
    const part = node.type === "part" ? data.parts[node.id] : null;
    const about = part ?? data.groups[node.type === "head" ? node.id : node.key] ?? { about: "", equation: "" };
    const name = node.key === "" ? data.model : part ? fullName(node) : node.name;
    const lead = node.type === "head"
      ? "One attention of its own: its own queries, keys and values, so that it can look for something of its own."
      : node.key === ""
        ? WHOLE : about.about;
    panel.replaceChildren(
      h("h3", { id: "ch-xray-at" }, node.key === "" ? name : capital(name)), h("p", { class: "ch-about" }, lead),
      ...(about.equation ? [equation(about.equation)] : []),
      ...(part ? [h("p", { class: "ch-shape" }, shapeText(data, part))] : []),
      ...(chosen.column !== null && part ? [numberPanel(node)] : []),
      ...(chosen.row !== null && chosen.column === null && part ? [rowPanel(node)] : []),
      ...(about.code?.[0] ? [codeLine(about.code)] : []),
      ...neighbours(node, part), ...legend(part));
  }

  function drawCrumbs() {
    const path = [];
    for (let target = chosen; ; target = parentOf(target)) {
      path.unshift(target);
      if (target.node === "" && target.row === null) break;
    }
    const name = ({ node: key, row, column }) => {
      const node = map.nodes.get(key) ?? map.root;
      if (key === "") return data.model;
      if (row === null) return node.name;
      const said = labels(data, { part: node.id, row, column: column ?? 0 });
      return column === null ? `“${visible(said.row)}”` : data.parts[node.id].columns
        || data.parts[node.id].details.names ? `“${visible(said.column)}”` : `number ${column}`;
    };
    crumbs.replaceChildren(h("ol", {}, path.map((target, index) => h("li", {},
      h("button", { type: "button", class: "ch-button", "aria-current": index === path.length - 1 ? "location"
        : null, onclick: () => fly(target) }, name(target))))));
  }

  function chips(label, nodes) {
    if (!nodes.length) return [];
    return [h("div", { class: "ch-links" }, h("span", { class: "ch-label" }, label),
      ...nodes.map((node) => h("button", { type: "button", class: "ch-chip", onclick: () =>
        fly({ node: node.key }) }, chipName(node))))];
  }

  function chipName(node) {
    const group = node.type === "part" && !["head", "attention"].includes(node.parent.kind) ? node.parent.name : "";
    return group && node.parent.key !== (map.nodes.get(chosen.node)?.parent?.key ?? "") ? `${group}: ${node.name}`
      : node.name;
  }

  function neighbours(node, part) {
    if (!part) return chips("Inside", node.children.slice(0, 24));
    const from = unique(part.inputs).map((id) => map.part(id, node.head));
    const to = unique(order.consumers.get(node.id) ?? []).map((id) => map.part(id, node.head));
    return [...chips("Comes from", from), ...chips("Goes to", to.slice(0, 12))];
  }

  function rowPanel(node) {
    const said = labels(data, { part: node.id, row: chosen.row, column: 0 });
    return h("p", {}, h("strong", {}, `“${visible(said.row)}”`),
      `: ${node.width} numbers. Click on one to see how it was made.`);
  }

  function numberPanel(node) {
    const address = { part: node.id, head: node.head, row: chosen.row, column: chosen.column };
    const place = h("div", { class: "ch-made" });
    const fill = (made) => {
      const value = numbers.value(address);
      const sum = made.terms && made.terms.length > 1
        ? [h("p", { class: "ch-sum" }, `sum of ${made.terms.length} = ${format(total(made.terms))}`)] : [];
      place.replaceChildren(
        h("p", { class: "ch-value-large", "data-exact": value }, format(value)),
        ...(made.terms ? [termTable(made.terms)] : [h("p", { class: "ch-quiet-text" }, made.missing
          ? "The weights of this matrix are not in this file; the Studio has them: clearhead studio"
            : "A function of its inputs.")]),
        ...sum, ...made.after.map(({ text, value: now }) => h("p", { class: "ch-after" }, `${text} = ${format(now)}`)));
    };
    explainWhenLoaded(address).then(fill, (error) => view.say(error.message));
    return place;
  }

  function termTable(terms) {
    const ranked = terms.length > SHOWN ? [...terms].sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0,
      SHOWN) : terms;
    const factor = ({ value, name, at }, index) => [index ? " × " : "", at
      ? h("button", { type: "button", class: "ch-factor", title: `${name}: go there`, onclick: () =>
        fly({ node: map.part(at.part, at.head).key, row: at.row, column: at.column }) }, format(value))
      : h("span", { class: "ch-factor" }, format(value))];
    const line = ({ factors, value, own }) => h("li", { "aria-current": own ? "true" : null },
      h("span", {}, factors.flatMap(factor)),
        h("span", { class: "ch-number" }, factors.length > 1 ? `= ${format(value)}` : factors[0].name));
    return h("ol", { class: "ch-terms", tabindex: 0, "aria-label": "What is added up" }, ranked.map(line));
  }

  function legend(part) {
    if (part?.op === "softmax" || part?.op === "probability") return [h("p", { class: "ch-legend" },
      swatch((t) => view.palette().share(t)), "0 … 1: the stronger, the more")];
    return [h("p", { class: "ch-legend" }, swatch((t) => view.palette().signed(2 * t - 1)), "negative … 0 … positive")];
  }

  function swatch(colour) {
    return h("span", { class: "ch-shades", "aria-hidden": "true" },
      Array.from({ length: 12 }, (_, step) => h("span", { style: { background: colour(step / 11) } })));
  }

  // --- the data flows ---

  function phases() {
    return Math.max(1, order.rows - data.read + 1);
  }

  function length() {
    return order.once.length + order.each.length * phases();
  }

  /** The rows of a part that have been computed so far. */
  function knownRows(node) {
    if (!player) return Infinity;
    const at = order.index.get(node.id);
    if (at < order.once.length) return player.at > at ? Infinity : 0;
    const since = player.at - order.once.length;
    const phase = Math.max(0, Math.floor(since / order.each.length));
    const isDone = since >= 0 && at - order.once.length < since - phase * order.each.length;
    if (data.parts[node.id].rows !== order.axis) return isDone || phase > 0 ? Infinity : 0;
    return isDone ? data.read + phase : phase ? data.read + phase - 1 : 0;
  }

  function present() {
    const since = player.at - order.once.length;
    const index = since < 0 ? Math.floor(player.at) : order.once.length + (Math.floor(since) % order.each.length);
    return order.all[clamp(index, 0, order.all.length - 1)];
  }

  function activeKeys() {
    const id = present();
    const keysOf = new Set();
    const heads = data.parts[id].shape.length === 3 ? data.parts[id].shape[0] : 1;
    for (let head = 0; head < heads; head += 1) {
      for (let node = map.part(id, head); node?.parent; node = node.parent) keysOf.add(node.key);
    }
    return keysOf;
  }

  function flow(now) {
    const span = Math.min(100, now - (player.last ?? now));
    player.last = now;
    const before = Math.floor(player.at);
    player.at += (span * order.each.length) / PHASE;
    if (player.at >= length()) return stop();
    if (Math.floor(player.at) !== before) showFlow();
    return true;
  }

  function stop() {
    player = null;
    drawPlayer();
    schedule();
    return false;
  }

  function play() {
    if (player?.playing) player = { ...player, playing: false };
    else player = { at: player?.at ?? 0, playing: true, last: null };
    drawPlayer();
    schedule();
  }

  function goTo(at) {
    player = { at: clamp(at, 0, length() - 0.001), playing: false, last: null };
    drawPlayer();
    schedule();
  }

  function nextToken(by) {
    const since = (player?.at ?? 0) - order.once.length;
    const phase = Math.floor(since / order.each.length) + by;
    if (player && phase >= phases()) stop();
    else goTo(order.once.length + Math.max(0, phase) * order.each.length);
  }

  function drawPlayer() {
    const focused = view.tools.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label")
      : null;
    const slider = h("input", { type: "range", min: 0, max: Math.ceil(length()), step: 1, value: player
      ? Math.floor(player.at) : Math.ceil(length()), "aria-label": "How far the computation has come", oninput: () =>
      goTo(Number(slider.value)) });
    view.tools.replaceChildren(
      h("div", { class: "ch-player", role: "group", "aria-label": "Let the data flow" },
        signButton("back", "One part back", () => goTo(Math.ceil(player?.at ?? length()) - 1)),
        signButton(player?.playing ? "pause" : "play", player?.playing ? "Pause" : "Let the data flow", play),
        signButton("forward", "One part on", () => goTo(Math.floor(player?.at ?? -1) + 1)),
        ...(phases() > 1 ? [button("Next token", () => nextToken(1), "Next token")] : [])),
      slider, ...(player ? [button("Show all", stop, "Show everything")] : []));
    const renamed = { Pause: "Let the data flow", "Let the data flow": "Pause" }[focused] ?? focused;
    if (focused) view.tools.querySelector(`[aria-label="${renamed}"]`)?.focus();
    showFlow();
  }

  /** What is being computed now, and the text so far. */
  function showFlow() {
    const slider = view.tools.querySelector("input[type=range]");
    if (!player) {
      flowLine.textContent = "";
      return;
    }
    if (slider && document.activeElement !== slider) slider.value = Math.floor(player.at);
    const id = present();
    const since = player.at - order.once.length;
    const phase = Math.max(0, Math.floor(since / order.each.length));
    const words = phases() > 1 && since >= 0 ? data.axes[order.axis].slice(0,
      data.read + phase).map(visible).join(" ") : "";
    const names = data.parts.probabilities?.details.names;
    const row = Math.min(data.read + phase, order.rows) - 1;
    const isLast = id === "probabilities" && numbers.has(id) && names?.[row];
    const next = isLast
      ? ` → ${visible(names[row][0])} ${percent(numbers.value({ part: id, head: 0, row, column: 0 }))}` : "";
    flowLine.replaceChildren(h("strong", {}, place(id)), words ? `  ${words}${next || " …"}` : "");

    function place(part) {
      const node = map.part(part);
      const path = [];
      for (let one = node; one?.parent; one = one.parent) if (one.type !== "head") path.unshift(one.name);
      return path.join(" › ");
    }
  }

  return handle(view, (next, requested = chosen) => {
    if (next !== data) {
      data = next;
      numbers = numbersOf(data, options.load);
      order = orderOf(data);
      explained.clear();
      player = null;
    }
    map = null;
    chosen = { row: null, column: null, node: "", ...requested };
  }, () => cancelAnimationFrame(timer));
}

/**
 * The parts in the order of the computation: those computed once, and those computed for each token that is
 * written.
 */
function orderOf(data) {
  const all = [];
  const walk = (id) => (id in data.groups ? data.groups[id].items.forEach(walk) : all.push(id));
  walk("");
  const axis = "decoder" in data.groups ? "decoder"
    : Object.keys(data.groups).find((id) => data.groups[id].kind === "stack");
  const start = all.findIndex((id) => id.startsWith(`${axis}.`));
  const consumers = new Map();
  for (const id of all) for (const input of data.parts[id].inputs) consumers.set(input,
    [...(consumers.get(input) ?? []), id]);
  return {
    all, consumers, axis, once: all.slice(0, start), each: all.slice(start),
      index: new Map(all.map((id, at) => [id, at])),
    rows: axis === "decoder" ? data.axes.decoder.length : data.read,
  };
}

function addressKey({ part, head, row, column }) {
  return `${part} ${head} ${row} ${column}`;
}

function unique(list) {
  return [...new Set(list)];
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function summary({ groups, parts }) {
  const blocks = Object.values(groups).filter(({ kind }) => kind === "block" || kind === "cell").length;
  const tensors = Object.keys(parts).length;
  return `${blocks} ${blocks === 1 ? "block" : "blocks"}, ${tensors} tensors between the input and the answer`;
}

function shapeText({ axes }, { shape, rows, columns, details }) {
  const [height, width] = shape.slice(-2);
  const heads = shape.length === 3 ? `${shape[0]} heads × ` : "";
  const across = columns ? `${width} keys` : details.names ? `${width} likeliest choices` : `${width} numbers`;
  return `${heads}${height} ${axes[rows]?.length === height && rows !== "answer" ? "tokens" : "rows"} × ${across}`;
}

function codeLine([file, line, source]) {
  return h("div", { class: "ch-source" }, partLabel(`${file}:${line}`),
    h("pre", {}, h("code", {}, h("span", { class: "ch-code-line", "data-line": line }, source))));
}

export default widget(mount);

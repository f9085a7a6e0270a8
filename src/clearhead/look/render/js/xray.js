// The whole model as one picture: zoom from the text to the single number, and watch the data flow.
//
// data: an XRay, format "clearhead-xray-1"; where it has no values, options.load fetches them.
// chosen: {node, row, column}: the box that is in view, and the row or number of it.
// options.change: {make(changes, {live}), mode(name), follow(on)}, where what is computed can be changed;
// `compare` then shows what came of it beside the original. options.onText opens the text of a beam.

import { button, partLabel, signButton } from "./controls.js";
import { clamp, h, keyOf } from "./dom.js";
import { equation } from "./equation.js";
import { frame, handle, title, widget } from "./frame.js";
import { plural, t, tParts, translated } from "./i18n.js";
import { headline } from "./looks.js";
import { format, percent, visible } from "./numbers.js";
import { beamAt, beamBox, beamList, beamPanel, sayBeam } from "./xraybeam.js";
import { MODES, changeBar, changeControls, isSame, withChange } from "./xraychange.js";
import { differencesOf } from "./xraydiff.js";
import { painter } from "./xraydraw.js";
import { cellAt, cellBox, mapOf, rowBox } from "./xraymap.js";
import { explain, labels, numbersOf, sources, targets, total } from "./xraynumbers.js";

export const FORMAT = "clearhead-xray-1";

const FLIGHT = 550; // milliseconds
const PHASE = 5000; // milliseconds of play for each token that is written
const SHOWN = 200; // terms in the panel
const EXPLAINED = 300; // computations that are kept
const NARROW = 720; // pixels of width below which two pictures do not stand beside each other
const REACH = 220; // pixels by which a weight is dragged from 0 to 1
const WHOLE = t("Everything between the input and the answer, drawn from the model itself. Each row of small squares "
  + "is the vector of one token; a square is one number. Click on a part to zoom in, down to how a single number is "
  + "made.");
const BEAM = t("At each step every kept text is continued by its likeliest tokens; the best of all are kept, the "
  + "others dropped. Each text has a cache of its own, copied where it branches.");

/** Show an X-ray in an element: {update, destroy}. */
export function mount(element, data, options = {}) {
  let numbers = numbersOf(data, options.load);
  let map = null;
  let panes = []; // {paint, map}: one picture, or the original and the changed one beside each other
  let base = null; // {data, numbers} of the original, while changes are shown
  let difference = null;
  let made = { changes: [], answers: null, mode: "beside", follow: false, canFollow: false };
  let dragged = null; // the weight that is being dragged in the picture: {key, y, weight}
  const drawnItems = new Set(); // what was in sight in the last frame
  let camera = { x: 0, y: 0, k: 1 };
  let flight = null;
  let chosen = { node: "", row: null, column: null, ...options.chosen };
  let hovered = null;
  let timer = 0; // of the next frame
  let player = null; // {at, playing, last}, or null: everything is shown
  let order = orderOf(data);
  const explained = { now: new Map(), before: new Map() }; // of the shown model, and of the original beside it
  const canvas = h("canvas", { tabindex: 0, role: "application",
    "aria-label": t("The model as a picture. Enter zooms in, Escape zooms out, arrow keys go to the neighbours."),
    "aria-describedby": "ch-xray-at" });
  const crumbs = h("nav", { class: "ch-crumbs", "aria-label": t("Where you are") });
  const zoom = h("div", { class: "ch-zoom", role: "group", "aria-label": t("Zoom") },
    button("+", () => zoomBy(1.6), t("Zoom in")), button("−", () => zoomBy(1 / 1.6), t("Zoom out")),
      button("⌂", () => fly({ node: "" }), t("The whole model")));
  const flowLine = h("p", { class: "ch-dataflow", role: "status" });
  const labelsOfPanes = h("div", { class: "ch-panes", "aria-hidden": "true" });
  const stage = h("div", { class: "ch-stage" }, canvas, crumbs, labelsOfPanes, zoom, flowLine);
  const bar = h("div", { class: "ch-change-place" });
  const panel = h("aside", { class: "ch-panel", "aria-live": "off" });
  const saved = { json: () => data, picture: () => view.figure };
  const view = frame(element, { name: "xray", label: t("X-ray of the model"), draw, ...saved }, options);
  view.figure.append(stage, panel);
  view.figure.before(bar);
  const frames = { count: 0, cost: [], isWhole: false }; // what a test of speed reads
  Object.assign(canvas, { frames, drawn: () => frames.isWhole }); // whether everything in sight has its numbers

  // --- drawing ---

  function draw() {
    const width = stage.clientWidth;
    const height = stage.clientHeight;
    const ratio = Math.min(2, devicePixelRatio || 1);
    [canvas.width, canvas.height] = [width * ratio, height * ratio];
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
    const first = !map;
    makePanes();
    title(view.heading, headline(data), `${data.model} · ${summary(data)}`);
    drawPlayer();
    if (first || !flight) camera = cameraOf(chosen);
    show();
    schedule();
  }

  /** The size of one picture. */
  function size() {
    const count = isBeside() ? 2 : 1;
    return { width: stage.clientWidth / count, height: stage.clientHeight,
      ratio: canvas.width / (stage.clientWidth || 1) };
  }

  /** What of it a box may fill: the path stands above it. */
  function room() {
    const { width, height } = size();
    return { w: width * 0.96, h: (height - 60) * 0.96 };
  }

  function aspect() {
    const { w, h: high } = room();
    return w / high;
  }

  function isBeside() {
    return Boolean(base) && made.mode === "beside" && stage.clientWidth >= NARROW;
  }

  function makePanes() {
    map = mapOf(data, aspect());
    makePainters();
  }

  function makePainters() {
    const colours = view.palette();
    const isAlike = base && alike(data, base.data);
    if (!base) panes = [{ paint: painter(canvas, map, numbers, colours), map }];
    else if (isBeside()) {
      const first = isAlike ? map : mapOf(base.data, aspect());
      panes = [{ paint: painter(canvas, first, base.numbers, colours), map: first, isBase: true },
        { paint: painter(canvas, map, numbers, colours, { difference }), map }];
    } else {
      const only = made.mode !== "changed";
      panes = [{ paint: painter(canvas, map, only ? difference : numbers, colours, { difference, only }), map }];
    }
    labelsOfPanes.replaceChildren(...(isBeside() ? [t("Original"), t("Changed")] : base
      ? [made.mode === "changed" ? t("Changed") : t("Changed minus original")] : []).map((name) => h("span", {},
        name)));
  }

  /** The camera that shows in another map what the present one shows in this. */
  function cameraIn(other) {
    if (other === map) return camera;
    const here = map.nodes.get(chosen.node) ?? map.root;
    const there = other.nodes.get(here.key) ?? other.root;
    const scale = here.w / there.w;
    return { x: there.x + (camera.x - here.x) / scale, y: there.y + (camera.y - here.y) / scale, k: camera.k * scale };
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
    drawnItems.clear();
    frames.isWhole = true;
    let late = false;
    panes.forEach(({ paint, map: own, isBase }, place) => {
      const pane = size();
      late = paint.draw({ moving: moving || playing, camera: cameraIn(own), size: pane, left: place * pane.width, now,
        active, known: knownRows, marks: marks(own), missing: (node) => missing(node, isBase),
        inside: (address) => (isBase ? inside(address, base, explained.before) : inside(address)),
        seen: (node) => drawnItems.add(loadable(node)), beamSteps: beamSteps() }) || late;
    });
    frames.isWhole &&= !late && !moving;
    frames.count += 1;
    frames.cost.push(performance.now() - started);
    if (frames.cost.length > 4000) frames.cost.splice(0, 2000);
    if (moving || playing || late) schedule();
  }

  function missing(node, isBase) {
    frames.isWhole = false;
    const from = isBase ? base.numbers : difference && made.mode !== "changed" ? difference : numbers;
    from.request(loadable(node)).then(schedule, (error) => view.say(error.message));
  }

  /** What is fetched together: a whole block, or a single part beside the blocks. */
  function loadable(node) {
    for (let one = node.parent; one; one = one.parent) {
      if (["block", "cell", "input", "output"].includes(one.kind)) return one.id;
    }
    return node.id;
  }

  /** The computation of a number, null until it is known. */
  function inside(address, from = { data, numbers }, known = explained.now) {
    const key = addressKey(address);
    if (!known.has(key)) {
      if (known.size >= EXPLAINED) known.clear();
      known.set(key, null);
      explainWhenLoaded(address, from).then((found) => {
        known.set(key, found);
        schedule();
      }, (error) => view.say(error.message));
    }
    return known.get(key);
  }

  async function explainWhenLoaded(address, from = { data, numbers }) {
    const needed = [address.part, ...from.data.parts[address.part].inputs].filter((id) => !from.numbers.has(id));
    await Promise.all(needed.map((id) => from.numbers.request(loadable(map.part(id)))));
    return explain(from.numbers, address);
  }

  // --- the camera ---

  function boxOf({ node, row, column }) {
    const found = map.nodes.get(node) ?? map.root;
    if (found.type === "beam" && row !== null && row !== undefined) return beamBox(found, row);
    if (found.type !== "part" || row === null || row === undefined || row >= found.rows) return found;
    return column === null || column === undefined || column >= found.width ? rowBox(found, row)
      : cellBox(found, row, column);
  }

  function cameraOf(target) {
    const box = withWords(target, boxOf(target));
    const { w, h: high } = room();
    const k = Math.min(w / box.w, high / box.h);
    return { x: box.x + box.w / 2, y: box.y + box.h / 2 - 12 / k, k };
  }

  /** A box with the words before its rows and above its columns. */
  function withWords({ node, row, column }, box) {
    const found = map.nodes.get(node);
    if (found?.type !== "part" || (column !== null && column !== undefined)) return box;
    const unit = found.parent.unit;
    const before = (found.before ?? 0) * unit;
    const above = row === null || row === undefined ? (found.above ?? 0) * unit : 0;
    return { x: box.x - before, y: box.y - above, w: box.w + before, h: box.h + above };
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
    if (node.type === "beam") {
      const id = beamAt(node, x, y);
      if (id !== null) path.push({ node: node.key, row: id, column: null });
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

  const inPane = ({ x, y }) => ({ x: x % size().width, y });
  const worldAt = (at) => ({ x: camera.x + (inPane(at).x - size().width / 2) / camera.k,
    y: camera.y + (at.y - size().height / 2) / camera.k });
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoomBy(Math.exp(-clamp(event.deltaY, -120, 120) * 0.0022), inPane(place(event)));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, place(event));
    moved = 0;
    apart = spanOf();
    dragged = weightAt(place(event), event.clientY);
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = place(event);
    const before = pointers.get(event.pointerId);
    if (!before) return point(now);
    pointers.set(event.pointerId, now);
    moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
    if (moved < 4) return undefined;
    if (dragged) return dragWeight(event.clientY, false);
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
    if (dragged && moved >= 4) dragWeight(event.clientY, true);
    dragged = null;
    if (!alone || moved >= 4) return;
    const { x, y } = worldAt(place(event));
    into(x, y);
  });
  canvas.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId));
  canvas.addEventListener("pointerleave", () => point(null));
  canvas.addEventListener("dblclick", (event) => event.preventDefault());
  canvas.addEventListener("keydown", keys);

  /** The weight under the pointer, if its row is open: it is dragged up and down instead of the picture. */
  function weightAt(at, y) {
    const target = pathAt(worldAt(at).x, worldAt(at).y).at(-1);
    const node = map.nodes.get(target.node);
    if (!options.change || node.kind !== "softmax" || node.key !== chosen.node || target.row !== chosen.row
      || target.column === null || !numbers.has(node.id) || !isVisible(node, target.row, target.column)) return null;
    const { row, column: key } = target;
    return { node, row, key, y, weight: numbers.value({ part: node.id, head: node.head, row, column: key }) };
  }

  function dragWeight(y, isDone) {
    const { node, row: query, key, weight } = dragged;
    const next = Math.round(100 * clamp(weight + (dragged.y - y) / REACH, 0, 1)) / 100;
    make({ kind: "weight", layer: node.parent.id, head: node.head, query, key, weight: next }, isDone);
  }

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
    if (node.type === "beam") return chosen.row === null ? fly({ node: node.key, row: 0 }) : undefined;
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
    if (node.type === "beam") return sayBeam(node, row);
    if (node.type !== "part") return [node.name, translated(data.groups[node.id]?.about
      ?? "")].filter(Boolean).join(": ");
    const name = fullName(node);
    if (row === null) return `${name}: ${translated(data.parts[node.id].about)}`;
    const address = { part: node.id, head: node.head, row, column };
    const said = labels(data, address);
    if (column === null || !numbers.has(node.id)) return t("{part} of {word}", { part: name, word: visible(said.row) });
    const paired = data.parts[node.id].columns || data.parts[node.id].details.names;
    const cell = paired ? `${visible(said.row)} → ${visible(said.column)}`
      : t("{word}, number {column}", { word: visible(said.row), column });
    const before = base && difference.comparable(node.id) && base.numbers.has(node.id)
      ? t(", was {number}", { number: format(base.numbers.value(address)) }) : "";
    const place = t("{part} of {word}", { part: name, word: cell });
    return `${place}: ${format(numbers.value(address))}${before}${wayOf(node)}`;
  }

  /** Where a part comes from and where it goes, in words. */
  function wayOf(node) {
    const names = (ids) => unique(ids.map((id) => translated(data.parts[id].name))).slice(0, 4).join(", ");
    const [from, to] = [data.parts[node.id].inputs, order.consumers.get(node.id) ?? []];
    return (from.length ? t(" · from {parts}", { parts: names(from) }) : "")
      + (to.length ? t(" · to {parts}", { parts: names(to) }) : "");
  }

  function fullName(node) {
    return data.parts[node.id].shape.length === 3 ? t("{part}, head {head}", { part: node.name, head: node.head })
      : node.name;
  }

  /**
   * What is outlined: the thing under the pointer or chosen, what it was computed from, and what is computed from
   * it.
   */
  function marks(own = map) {
    const target = hovered ?? (chosen.row !== null ? chosen : null);
    const node = target && own.nodes.get(target.node);
    if (!node || node.type === "beam" || node.type === "image" || node.key === "") return [];
    const whole = (kind) => (id) => ({ node: own.part(id, node.head), row: null, column: null, kind });
    if (node.type !== "part") {
      const { from, to } = aroundOf(node);
      return [...from.map(whole("from")), ...to.map(whole("to"))];
    }
    const { row, column } = target;
    const consumers = order.consumers.get(node.id) ?? [];
    if (row === null) return [...data.parts[node.id].inputs.map(whole("from")), ...consumers.map(whole("to"))];
    const at = { part: node.id, head: node.head, row, column: column ?? 0 };
    const cell = (kind) => ({ part, head, row: there, column: number }) =>
      ({ node: own.part(part, head), row: there, column: column === null ? null : number, kind });
    const to = consumers.flatMap((id) => targets(data, { ...at, column }, id));
    return [...sources(data, at).map(cell("from")), ...to.map(cell("to")), { node, row, column, kind: "at" }];
  }

  /** What a group reads from outside, and what outside reads from it. */
  function aroundOf(node) {
    if (!order.around.has(node.key)) {
      const inside = new Set();
      const walk = (one) => (one.type === "part" ? inside.add(one.id) : one.children.forEach(walk));
      walk(node);
      const outside = (ids) => unique(ids.filter((id) => !inside.has(id)));
      order.around.set(node.key, { from: outside([...inside].flatMap((id) => data.parts[id].inputs)),
        to: outside([...inside].flatMap((id) => order.consumers.get(id) ?? [])) });
    }
    return order.around.get(node.key);
  }

  // --- the panel ---

  function show() {
    drawCrumbs();
    const node = map.nodes.get(chosen.node) ?? map.root;
    const focused = panel.contains(document.activeElement) ? document.activeElement.dataset.keep : null;
    const part = node.type === "part" ? data.parts[node.id] : null;
    const about = part ?? data.groups[node.type === "head" ? node.id : node.key] ?? { about: "", equation: "" };
    const name = node.key === "" ? data.model : part ? fullName(node) : node.name;
    const lead = node.type === "head"
      ? t("One attention of its own: its own queries, keys and values, so that it can look for something of its own.")
      : node.type === "beam" ? BEAM : node.key === "" ? WHOLE : translated(about.about);
    panel.replaceChildren(
      h("h3", { id: "ch-xray-at" }, node.key === "" ? name : capital(name)), h("p", { class: "ch-about" }, lead),
      ...(about.equation ? [equation(translated(about.equation))] : []),
      ...(part ? [h("p", { class: "ch-shape" }, shapeText(data, part))] : []),
      ...(chosen.column !== null && part ? [numberPanel(node)] : []),
      ...(chosen.row !== null && chosen.column === null && part ? [rowPanel(node)] : []),
      ...(node.type === "beam" ? beamParts(node) : []),
      ...controls(node), ...(about.code?.[0] ? [codeLine(about.code)] : []),
      ...neighbours(node, part), ...legend(part));
    if (focused) panel.querySelector(`[data-keep="${focused}"]`)?.focus();
  }

  function beamParts(node) {
    return [...(chosen.row === null ? [] : beamPanel(data.beam, node, chosen.row, options.onText)),
      beamList(node, beamSteps())];
  }

  // --- changing what is computed ---

  function isVisible(node, row, key) {
    const seen = numbers.tensor(node.id, "visible");
    return !seen || seen[row * node.width + key] > 0;
  }

  function controls(node) {
    if (!options.change) return [];
    const { row, column } = chosen;
    const needsRow = node.kind === "softmax" && row !== null;
    if (needsRow && !numbers.has(node.id)) numbers.request(loadable(node)).then(show, () => {});
    const weights = needsRow && numbers.has(node.id)
      ? { row: numbers.vector(node.id, node.head, row), visible: (key) => isVisible(node, row, key) } : null;
    return changeControls({ data, node, row, column, weights, changes: made.changes }, make);
  }

  /** Make a change, or take it back; it is still being dragged unless `isDone`. */
  function make(change, isDone, takeBack = false) {
    const without = made.changes.filter((each) => !isSame(each, change));
    options.change.make(takeBack ? without : withChange(made.changes, change), { live: !isDone });
  }

  function drawBar() {
    const focused = bar.contains(document.activeElement) ? document.activeElement : null;
    const label = focused?.getAttribute("aria-label") ?? focused?.value;
    const isNarrow = stage.clientWidth < NARROW;
    const shown = { ...made, axes: base?.data.axes ?? data.axes,
      ...(isNarrow ? { modes: MODES.slice(1), mode: made.mode === "beside" ? "difference" : made.mode } : {}) };
    bar.replaceChildren(...(made.changes.length ? [changeBar(shown, {
      remove: (change) => options.change.make(made.changes.filter((each) => each !== change), { live: false }),
      clear: () => options.change.make([], { live: false }),
      mode: (mode) => { made = { ...made, mode }; rebuild(); options.change.mode(mode); },
      follow: (on) => options.change.follow(on),
      again: () => options.change.make(made.changes.map((each) => (each.kind === "temperature"
        ? { ...each, seed: (each.seed ?? 0) + 1 } : each)), { live: false }),
    })] : []));
    if (focused) [...bar.querySelectorAll("button, input")].find((each) => (each.getAttribute("aria-label")
      ?? each.value) === label)?.focus();
  }

  /**
   * Show a changed model beside the original: {data, load, changes, answers, mode, follow, canFollow}, all optional but
   * the changes; without data the original alone. While a change is being dragged (`live`) its control stays.
   */
  function compare(found, { live = false } = {}) {
    const { data: next, load, ...rest } = found;
    made = { ...made, ...rest };
    drawBar();
    if (next) {
      base ??= { data, numbers };
      data = next;
      numbers = numbersOf(data, load);
      difference = differencesOf(numbers, base.numbers);
    } else if (!made.changes.length && base) {
      ({ data, numbers } = base);
      [base, difference] = [null, null];
    } else {
      return;
    }
    order = orderOf(data);
    explained.now.clear();
    if (!base) explained.before.clear();
    rebuild(live);
  }

  /** After other numbers or another way to show them: the camera stays where the picture is the same. */
  function rebuild(live = false) {
    if (!map) return;
    const isSameMap = panes.length === (isBeside() ? 2 : 1) && alikeMap(map, data);
    if (isSameMap) makePainters();
    else {
      makePanes();
      if (!map.nodes.has(chosen.node)) chosen = { node: "", row: null, column: null };
      camera = cameraOf(chosen);
      flight = null;
    }
    if (!live) show();
    schedule();
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
      if (node.type === "beam") return quoted(node.plan.byId.get(row)?.token ?? "");
      const said = labels(data, { part: node.id, row, column: column ?? 0 });
      return column === null ? quoted(said.row) : data.parts[node.id].columns
        || data.parts[node.id].details.names ? quoted(said.column) : t("number {column}", { column });
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
    if (!part) return chips(t("Inside"), node.children.slice(0, 24));
    const from = unique(part.inputs).map((id) => map.part(id, node.head));
    const to = unique(order.consumers.get(node.id) ?? []).map((id) => map.part(id, node.head));
    return [...chips(t("Comes from"), from), ...chips(t("Goes to"), to.slice(0, 12))];
  }

  function rowPanel(node) {
    const said = labels(data, { part: node.id, row: chosen.row, column: 0 });
    return h("p", {}, tParts("{word}: {n} numbers. Click on one to see how it was made.",
      { word: h("strong", {}, quoted(said.row)), n: node.width }));
  }

  function numberPanel(node) {
    const address = { part: node.id, head: node.head, row: chosen.row, column: chosen.column };
    const place = h("div", { class: "ch-made" });
    const fill = (made) => {
      const value = numbers.value(address);
      const sum = made.terms && made.terms.length > 1
        ? [h("p", { class: "ch-sum" },
          t("sum of {n} = {sum}", { n: made.terms.length, sum: format(total(made.terms)) }))] : [];
      place.replaceChildren(
        h("p", { class: "ch-value-large", "data-exact": value }, format(value), ...wasBefore(address, value)),
        ...(made.terms ? [termTable(made.terms)] : [h("p", { class: "ch-quiet-text" }, made.missing
          ? t("The weights of this matrix are not in this file; the Studio has them: clearhead studio")
            : t("A function of its inputs."))]),
        ...sum, ...made.after.map(({ text, value: now }) => h("p", { class: "ch-after" }, `${text} = ${format(now)}`)));
    };
    explainWhenLoaded(address).then(fill, (error) => view.say(error.message));
    return place;
  }

  /** What a number was in the original. */
  function wasBefore(address, value) {
    if (!base || !difference.comparable(address.part)) return [];
    const place = h("small", {});
    base.numbers.request(loadable(map.part(address.part))).then(() => {
      const before = base?.numbers.value(address);
      if (before === undefined || !Number.isFinite(before) || before === value) return;
      place.textContent = ` ${t("was {number}", { number: format(before) })}`;
    }, () => {});
    return [place];
  }

  function termTable(terms) {
    const ranked = terms.length > SHOWN ? [...terms].sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0,
      SHOWN) : terms;
    const factor = ({ value, name, at }, index) => [index ? " × " : "", at
      ? h("button", { type: "button", class: "ch-factor", title: t("{part}: go there", { part: name }), onclick: () =>
        fly({ node: map.part(at.part, at.head).key, row: at.row, column: at.column }) }, format(value))
      : h("span", { class: "ch-factor" }, format(value))];
    const line = ({ factors, value, own }) => h("li", { "aria-current": own ? "true" : null },
      h("span", {}, factors.flatMap(factor)),
        h("span", { class: "ch-number" }, factors.length > 1 ? `= ${format(value)}` : factors[0].name));
    return h("ol", { class: "ch-terms", tabindex: 0, "aria-label": t("What is added up") }, ranked.map(line));
  }

  function legend(part) {
    if (part?.op === "softmax" || part?.op === "probability" || chosen.node === "beam") return [
      h("p", { class: "ch-legend" }, swatch((x) => view.palette().share(x)), t("0 … 1: the stronger, the more"))];
    return [h("p", { class: "ch-legend" }, swatch((x) => view.palette().signed(2 * x - 1)),
      t("negative … 0 … positive"))];
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

  /** Steps of the beam search that are shown. */
  function beamSteps() {
    if (!player) return Infinity;
    const since = player.at - order.once.length;
    return since < 0 ? 0 : Math.floor(since / order.each.length) + (present() === "probabilities" ? 1 : 0);
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
    if (data.beam) show();
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
      ? Math.floor(player.at) : Math.ceil(length()), "aria-label": t("How far the computation has come"), oninput: () =>
      goTo(Number(slider.value)) });
    view.tools.replaceChildren(
      h("div", { class: "ch-player", role: "group", "aria-label": t("Let the data flow") },
        signButton("back", t("One part back"), () => goTo(Math.ceil(player?.at ?? length()) - 1)),
        signButton(player?.playing ? "pause" : "play", player?.playing ? t("Pause") : t("Let the data flow"), play),
        signButton("forward", t("One part on"), () => goTo(Math.floor(player?.at ?? -1) + 1)),
        ...(phases() > 1 ? [button(t("Next token"), () => nextToken(1), t("Next token"))] : [])),
      slider, ...(player ? [button(t("Show all"), stop, t("Show everything"))] : []));
    const [flowing, still] = [t("Pause"), t("Let the data flow")];
    const renamed = { [flowing]: still, [still]: flowing }[focused] ?? focused;
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
    const cached = phases() > 1 && since >= 0 && order.caches
      ? ` · ${t("cache: {n} of {all} tokens", { n: data.read + phase, all: order.rows })}` : "";
    const words = phases() > 1 && since >= 0 ? data.axes[order.axis].slice(0,
      data.read + phase).map(visible).join(" ") : "";
    const names = data.parts.probabilities?.details.names;
    const row = Math.min(data.read + phase, order.rows) - 1;
    const isLast = id === "probabilities" && numbers.has(id) && names?.[row];
    const next = isLast
      ? ` → ${visible(names[row][0])} ${percent(numbers.value({ part: id, head: 0, row, column: 0 }))}` : "";
    flowLine.replaceChildren(h("strong", {}, place(id)), words ? `  ${words}${next || " …"}` : "", cached);
    if (map.nodes.get(chosen.node)?.type === "beam" || (chosen.node === "" && data.beam)) showBeams();

    function place(part) {
      const node = map.part(part);
      const path = [];
      for (let one = node; one?.parent; one = one.parent) if (one.type !== "head") path.unshift(one.name);
      return path.join(" › ");
    }
  }

  /** The beams of the present step, in the panel. */
  function showBeams() {
    const list = beamList(map.nodes.get("beam"), beamSteps());
    const old = panel.querySelector(".ch-beams");
    if (old) old.replaceWith(list);
    else panel.append(list);
  }

  const handled = handle(view, (next, requested = chosen) => {
    if (next !== data) {
      [base, difference] = [null, null];
      made = { ...made, changes: [], answers: null };
      drawBar();
      data = next;
      numbers = numbersOf(data, options.load);
      order = orderOf(data);
      explained.now.clear();
      explained.before.clear();
      player = null;
    }
    map = null;
    chosen = { row: null, column: null, node: "", ...requested };
  }, () => cancelAnimationFrame(timer));
  return { ...handled, compare, items: () => [...drawnItems] };
}

/** Whether two graphs have the same parts of the same shapes. */
function alike(one, other) {
  const ids = Object.keys(one.parts);
  return ids.length === Object.keys(other.parts).length && Boolean(one.beam) === Boolean(other.beam)
    && ids.every((id) => other.parts[id]?.shape.join() === one.parts[id].shape.join());
}

/** Whether a map has the boxes of a graph. */
function alikeMap(map, data) {
  return Object.entries(data.parts).every(([id, { shape }]) => {
    const node = map.part(id);
    const [height, width] = shape.slice(-2);
    return node && node.rows === height && node.width === width;
  });
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
    all, consumers, axis, around: new Map(), caches: all.some((id) => /^decoder\.\d+\.self\.key$/.test(id)),
    once: all.slice(0, start), each: all.slice(start),
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

function quoted(token) {
  return t("“{word}”", { word: visible(token) });
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function summary({ groups, parts }) {
  const blocks = Object.values(groups).filter(({ kind }) => kind === "block" || kind === "cell").length;
  const tensors = Object.keys(parts).length;
  return plural("{n} block, {tensors} tensors between the input and the answer",
    "{n} blocks, {tensors} tensors between the input and the answer", blocks, { tensors });
}

function shapeText({ axes }, { shape, rows, columns, details }) {
  const [height, width] = shape.slice(-2);
  const down = axes[rows]?.length === height && rows !== "answer" ? plural("{n} token", "{n} tokens", height)
    : plural("{n} row", "{n} rows", height);
  const across = columns ? plural("{n} key", "{n} keys", width)
    : details.names ? plural("{n} likeliest choice", "{n} likeliest choices", width)
      : plural("{n} number", "{n} numbers", width);
  const heads = shape.length === 3 ? [plural("{n} head", "{n} heads", shape[0])] : [];
  return [...heads, down, across].join(" × ");
}

function codeLine([file, line, source]) {
  return h("div", { class: "ch-source" }, partLabel(`${file}:${line}`),
    h("pre", {}, h("code", {}, h("span", { class: "ch-code-line", "data-line": line }, source))));
}

export default widget(mount);

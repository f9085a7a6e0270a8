// Drawing an X-ray on a canvas: only what is in sight, with as much detail as there is room for.

import { t, translated } from "./i18n.js";
import { cut } from "./measure.js";
import { format, visible } from "./numbers.js";
import { bright } from "./theme.js";
import { drawBeam } from "./xraybeam.js";
import { cellBox, labelOf, rowBox } from "./xraymap.js";
import { labels } from "./xraynumbers.js";

const FONT = 'system-ui, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif';
const UNFOLD = 200; // pixels of width from which a block of a deep model is opened
const DEEP = 8; // blocks beyond which they stay folded until they are opened
const OPEN = 34; // pixels of width from which the inside of a box is drawn
const BITMAPS = { moving: 4, still: 24 }; // milliseconds of one frame in which pictures of tensors are made
const NUMBERS = { w: 30, h: 11 }; // pixels of a cell from which its number is written
export const INSIDE = 200; // pixels of a cell from which its computation is drawn

/**
 * Something that draws the map: {draw(scene)}; a scene is {camera, size, left, known, active, marks, inside, now}.
 *
 * `difference` are the numbers of a changed model minus those of the original: where they differ is marked, or, with
 * `only`, they are what is drawn.
 */
export function painter(canvas, map, numbers, colours, { difference = null, only = false } = {}) {
  const pen = canvas.getContext("2d");
  const bitmaps = new Map();
  const texts = new Map();
  const { data } = numbers;
  const many = [...map.nodes.values()].filter(({ kind }) => kind === "block").length > DEEP;
  let scene = null;
  let budget = 0;
  let late = false;

  /** Draw everything; returns whether something is still missing and another frame would show more. */
  function draw(next) {
    scene = next;
    budget = performance.now() + BITMAPS[scene.moving ? "moving" : "still"];
    late = false;
    const { width, height, ratio } = scene.size;
    pen.setTransform(ratio, 0, 0, ratio, ratio * (scene.left ?? 0), 0);
    pen.save();
    pen.beginPath();
    pen.rect(0, 0, width, height);
    pen.clip();
    pen.fillStyle = colours.surface;
    pen.fillRect(0, 0, width, height);
    pen.textBaseline = "middle";
    node(map.root, 0);
    for (const [from, to] of map.memory) memory(from, to);
    for (const mark of scene.marks) outline(mark);
    pen.restore();
    return late;
  }

  function onScreen({ x, y, w, h }) {
    const { camera: { k, x: cx, y: cy }, size } = scene;
    return { x: (x - cx) * k + size.width / 2, y: (y - cy) * k + size.height / 2, w: w * k, h: h * k };
  }

  function inSight({ x, y, w, h }, margin = 60) {
    const { width, height } = scene.size;
    return x < width + margin && y < height + margin && x + w > -margin && y + h > -margin;
  }

  function node(one, depth) {
    const box = onScreen(one);
    if (!inSight(box) || box.w < 1.5) return;
    if (one.type === "part") return part(one, box);
    if (one.type === "image") return image(one, box);
    if (one.type === "beam") {
      frame(one, box, depth);
      return drawBeam(one, scene.beamSteps, { pen, colours, onScreen, inSight, write, rounded });
    }
    const isFolded = many && one.kind === "block" && box.w < UNFOLD && !isHere(one);
    if (depth) frame(one, box, depth, !isFolded);
    if (isFolded) return folded(one, box);
    if (box.w < OPEN && depth) return thumbnail(one, box);
    for (const [from, to] of map.links.get(one)?.values() ?? []) if (depth || to.kind !== "stack") link(from, to, one);
    for (const child of one.children) node(child, depth + 1);
    return undefined;
  }

  /** A block whose values come when it is opened. */
  function folded(one, box) {
    const size = Math.min(16, box.h * 0.3, box.w * 0.16);
    if (size < 6) return;
    write(one.name, box.x + box.w / 2, box.y + box.h / 2, size, colours.quiet, { align: "center", room: box.w });
  }

  function isHere(one) {
    let first = one;
    while (first.children.length) [first] = first.children;
    return numbers.has(first.id);
  }

  function frame(one, box, depth, isNamed = true) {
    pen.fillStyle = depth % 2 ? colours.sunken : colours.surface;
    pen.strokeStyle = scene.active?.has(one.key) ? colours.mark : colours.edge;
    pen.lineWidth = 1;
    rounded(box, Math.min(10, box.w / 20));
    pen.fill();
    pen.stroke();
    if (isNamed) title(one, box, one.kind === "stack" || one.kind === "block" ? "600" : "500");
  }

  /** The name above a box, where there is room for it. */
  function title(one, box, weight = "400", text = one.name) {
    const room = labelOf([one]) * one.parent.unit * scene.camera.k;
    const size = Math.min(Math.max(16, scene.size.height / 45), room * 0.8);
    if (size < 7.5 || box.w < 14) return;
    write(text, box.x, box.y - (one.above ?? 0) * one.parent.unit * scene.camera.k - room * 0.42, size,
      colours.quiet, { weight, room: Math.max(box.w, 60) });
  }

  function write(text, x, y, size, colour, { weight = "400", align = "left", room = Infinity } = {}) {
    pen.font = `${weight} ${size.toFixed(1)}px ${FONT}`;
    pen.fillStyle = colour;
    pen.textAlign = align;
    pen.fillText(room === Infinity ? text : fitted(text, room, size), x, y);
  }

  function fitted(text, room, size) {
    const key = `${text} ${Math.round(room / 4)} ${Math.round(size)}`;
    if (texts.size > 5000) texts.clear();
    if (!texts.has(key)) texts.set(key, cut(text, room, size));
    return texts.get(key);
  }

  function rounded({ x, y, w, h }, radius) {
    pen.beginPath();
    pen.roundRect(x, y, w, h, Math.max(0, radius));
  }

  /** What a closed box shows: the last thing computed in it. */
  function thumbnail(one, box) {
    let last = one;
    while (last.children.length) last = last.children.find(({ kind }) => kind === "softmax") ?? last.children.at(-1);
    const bitmap = last.type === "part" && scene.known(last) > 0 ? bitmapOf(last) : null;
    if (!bitmap) return;
    pen.imageSmoothingEnabled = true;
    pen.drawImage(bitmap, box.x + 1, box.y + 1, Math.max(1, box.w - 2), Math.max(1, box.h - 2));
  }

  // --- lines ---

  function link(from, to, parent) {
    const [a, b] = [onScreen(from), onScreen(to)];
    if (Math.max(a.w, b.w) < 8) return;
    const busy = scene.active?.has(to.key);
    const strong = scene.path?.has(`${from.key} ${to.key}`);
    pen.strokeStyle = busy || strong ? colours.mark : colours.faint;
    pen.lineWidth = busy || strong ? 2 : Math.min(1.5, 0.4 + parent.unit * scene.camera.k * 0.5);
    const route = routeOf(a, b, from, to);
    pen.beginPath();
    pen.moveTo(...route[0]);
    pen.bezierCurveTo(...route[1], ...route[2], ...route[3]);
    pen.stroke();
    if (busy) dots(route);
  }

  /** What the encoder found goes to every cross-attention. */
  function memory(from, to) {
    const [a, b] = [onScreen(from), onScreen(to)];
    if (b.w < 12 || b.w > scene.size.width) return;
    const busy = scene.active?.has(to.key);
    pen.strokeStyle = busy ? colours.mark : colours.accent;
    pen.globalAlpha = busy ? 1 : 0.55;
    pen.lineWidth = 1.5;
    const half = (a.y + a.h + b.y) / 2;
    const route = [[a.x + a.w / 2, a.y + a.h], [a.x + a.w / 2, half], [b.x + b.w / 2, a.y + a.h], [b.x + b.w / 2, b.y]];
    pen.beginPath();
    pen.moveTo(...route[0]);
    pen.bezierCurveTo(...route[1], ...route[2], ...route[3]);
    pen.stroke();
    pen.globalAlpha = 1;
    if (busy) dots(route);
  }

  /** Beside each other: straight on, or over what stands between; on another line: down and back. */
  function routeOf(a, b, from, to) {
    const [ay, by] = [a.y + a.h / 2, b.y + b.h / 2];
    const beside = b.x >= a.x + a.w - 1;
    if (beside && from.parent === to.parent && isSkip(from, to)) {
      const top = Math.min(a.y, b.y) - 0.12 * (b.x - a.x) - 4;
      return [[a.x + a.w / 2, a.y], [a.x + a.w / 2, top], [b.x + b.w / 2, top], [b.x + b.w / 2, b.y]];
    }
    if (beside) {
      const middle = (a.x + a.w + b.x) / 2;
      return [[a.x + a.w, ay], [middle, ay], [middle, by], [b.x, by]];
    }
    const [start, end] = [[a.x + a.w / 2, a.y + a.h], [b.x + b.w / 2, b.y]];
    const half = (start[1] + end[1]) / 2;
    return [start, [start[0], half], [end[0], half], end];
  }

  function isSkip(from, to) {
    const all = from.parent.children;
    return to.kind === "add" && all.indexOf(to) - all.indexOf(from) > 1;
  }

  function dots([p0, p1, p2, p3]) {
    pen.fillStyle = colours.mark;
    for (let place = 0; place < 4; place += 1) {
      const t = (scene.now / 900 + place / 4) % 1;
      const s = 1 - t;
      const at = (axis) => s ** 3 * p0[axis] + 3 * s * s * t * p1[axis] + 3 * s * t * t * p2[axis] + t ** 3 * p3[axis];
      pen.beginPath();
      pen.arc(at(0), at(1), 3, 0, 2 * Math.PI);
      pen.fill();
    }
  }

  // --- parts ---

  function part(one, box) {
    const shown = Math.min(one.rows, scene.known(one));
    const row = box.h / one.rows;
    scene.seen?.(one);
    const bitmap = numbers.has(one.id) ? bitmapOf(one) : null;
    if (!bitmap) {
      if (!numbers.has(one.id)) scene.missing(one);
      pen.fillStyle = colours.edge;
      rounded(box, 2);
      pen.fill();
    } else {
      blit(one, box, bitmap, shown, row);
    }
    title(one, box);
    if (bitmap && box.w > 24) details(one, box, shown, row);
    if (bitmap && difference && !only && box.w > 6 && difference.has(one.id)) differing(one, box, shown, row);
    if (scene.active?.has(one.key)) {
      pen.strokeStyle = colours.mark;
      pen.lineWidth = 2;
      rounded({ x: box.x - 2, y: box.y - 2, w: box.w + 4, h: box.h + 4 }, 3);
      pen.stroke();
    }
  }

  function blit(one, box, bitmap, shown, row) {
    const cell = box.w / one.across;
    pen.imageSmoothingEnabled = cell < 2;
    if (one.lines === 1 || row < 9) {
      if (shown) pen.drawImage(bitmap, 0, 0, bitmap.width, shown * one.lines, box.x, box.y, box.w, shown * row);
      if (shown < one.rows) empty({ ...box, y: box.y + shown * row, h: (one.rows - shown) * row });
      return;
    }
    for (let index = 0; index < one.rows; index += 1) {
      const line = onScreen(rowBox(one, index));
      if (!inSight(line, 0)) continue;
      if (index < shown) pen.drawImage(bitmap, 0, index * one.lines, bitmap.width, one.lines, line.x, line.y, line.w,
        line.h);
      else empty(line);
    }
  }

  /** A bar beside each row that is different from the original's, the stronger the more. */
  function differing(one, box, shown, row) {
    const strengths = difference.rows(one.id, one.head);
    const wide = Math.max(2, Math.min(5, box.w * 0.05));
    pen.fillStyle = colours.mark;
    for (let index = 0; index < Math.min(shown, strengths.length); index += 1) {
      if (!strengths[index]) continue;
      pen.globalAlpha = 0.25 + 0.75 * strengths[index];
      pen.fillRect(box.x + box.w, box.y + index * row, wide, Math.max(1, row * 0.9));
    }
    pen.globalAlpha = 1;
  }

  function empty({ x, y, w, h }) {
    pen.fillStyle = colours.edge;
    pen.globalAlpha = 0.45;
    pen.fillRect(x, y, w, h);
    pen.globalAlpha = 1;
  }

  /** Words at the edges, numbers in the cells, and computations inside of them, as far as there is room. */
  function details(one, box, shown, row) {
    const { rows, columns, details: known } = data.parts[one.id];
    const scale = one.parent.unit * scene.camera.k;
    if (row >= 8.5 && (one.before ?? 0) > 0) {
      const words = data.axes[rows];
      const size = Math.min(14, row * 0.78);
      for (let index = 0; index < shown; index += 1) {
        const y = box.y + (index + 0.45) * row;
        if (y < -20 || y > scene.size.height + 20) continue;
        write(visible(words[index] ?? String(index)), Math.max(box.x - 4, 46), y, size, colours.ink,
          { align: "right", room: Math.max(one.before * scale - 6, 44) });
      }
    }
    const cell = { w: box.w / one.across, h: rowBox(one, 0).h * scene.camera.k / one.lines };
    if (columns && cell.w >= 11) columnWords(one, box, cell, data.axes[columns], scale);
    if (cell.w < NUMBERS.w || cell.h < NUMBERS.h) return;
    inCells(one, box, cell, shown, known.names);
  }

  function columnWords(one, box, cell, words, scale) {
    const size = Math.min(14, cell.w * 0.62);
    const room = one.above * scale;
    words.forEach((word, index) => {
      const x = box.x + (index + 0.5) * cell.w;
      if (x < -20 || x > scene.size.width + 20) return;
      if (cell.w > 54) return write(visible(word), x, Math.max(box.y - 9, 10), size, colours.ink,
        { align: "center", room: cell.w });
      pen.save();
      pen.translate(x, Math.max(box.y - 4, 46));
      pen.rotate(-Math.PI / 2);
      write(visible(word), 0, 0, size, colours.ink, { room });
      pen.restore();
      return undefined;
    });
  }

  function inCells(one, box, cell, shown, names) {
    const { height, width } = scene.size;
    const first = Math.max(0, Math.floor((-box.x) / cell.w));
    const last = Math.min(one.across - 1, Math.floor((width - box.x) / cell.w));
    const size = Math.min(cell.h * 0.62, cell.w * 0.28, 22);
    for (let row = 0; row < shown; row += 1) {
      const line = onScreen(rowBox(one, row));
      if (line.y > height || line.y + line.h < 0) continue;
      for (let down = 0; down < one.lines; down += 1) {
        if (line.y + (down + 1) * cell.h < 0 || line.y + down * cell.h > height) continue;
        for (let across = first; across <= last; across += 1) {
          const column = down * one.across + across;
          if (column < one.width) number(one, row, column,
            { x: line.x + across * cell.w, y: line.y + down * cell.h, ...cell }, size, names);
        }
      }
    }
  }

  function number(one, row, column, box, size, names) {
    const address = { part: one.id, head: one.head, row, column };
    const value = numbers.value(address);
    const colour = colourOf(one, value);
    const ink = colours.inkOn(colour);
    pen.strokeStyle = colours.surface;
    pen.lineWidth = 1;
    pen.strokeRect(box.x, box.y, box.w, box.h);
    if (difference && !only && difference.has(one.id) && difference.isMarked(one.id,
      difference.value(address))) corner(box);
    if (box.w >= INSIDE && !only) return inside(one, address, box, ink, value);
    const text = format(value);
    if (!names) return write(text, box.x + box.w / 2, box.y + box.h / 2, Math.min(size, (1.5 * box.w) / text.length),
      ink, { align: "center" });
    const roomy = box.h > 26;
    write(visible(names[row][column]), box.x + 4, box.y + box.h * (roomy ? 0.34 : 0.5), roomy ? size * 0.8 : size,
      ink, { weight: "600", room: box.w - 8 });
    return roomy ? write(format(value), box.x + 4, box.y + box.h * 0.74, size * 0.7, ink, { room: box.w - 8 })
      : undefined;
  }

  /** The corner of a cell whose number is different from the original's. */
  function corner({ x, y, w, h }) {
    const side = Math.min(w, h, 26) * 0.35;
    pen.fillStyle = colours.mark;
    pen.beginPath();
    pen.moveTo(x + w, y);
    pen.lineTo(x + w - side, y);
    pen.lineTo(x + w, y + side);
    pen.fill();
  }

  /** The computation of one number: its factors as coloured cells, the products, and their sum. */
  function inside(one, address, box, ink, value) {
    const colour = colours.surface;
    pen.fillStyle = colour;
    pen.fillRect(box.x, box.y, box.w, box.h);
    pen.fillStyle = colourOf(one, value);
    pen.fillRect(box.x, box.y, box.w, Math.max(3, box.h * 0.03));
    const unit = Math.min(box.w, box.h * 1.6) / 100;
    const said = labels(data, address);
    const pad = 4 * unit;
    const head = data.parts[one.id].columns ? `${said.row} → ${said.column}` : t("{word}, number {column}",
      { word: said.row, column: address.column });
    write(`${t(data.parts[one.id].name)}: ${visible(head)}`, box.x + pad, box.y + 7 * unit, 4.6 * unit, colours.quiet,
      { room: box.w - 40 * unit });
    write(format(value), box.x + box.w - pad, box.y + 7 * unit, 6 * unit, colours.ink,
      { align: "right", weight: "600" });
    const made = scene.inside(address);
    if (!made) return;
    if (!made.terms) {
      write(made.missing ? t("The weights are in the Studio: clearhead studio")
        : translated(data.parts[one.id].equation),
        box.x + pad, box.y + 16 * unit, 4 * unit, colours.quiet, { room: box.w - 2 * pad });
      return;
    }
    const after = made.after.length * 5.2 * unit;
    terms(made, { x: box.x + pad, y: box.y + 12 * unit, w: box.w - 2 * pad,
      h: box.h - 12 * unit - after - (made.terms.length > 1 ? 11 : 4) * unit }, unit);
    let y = box.y + box.h - after - 3 * unit;
    if (made.terms.length > 1) {
      const sum = format(made.terms.reduce((all, each) => all + each.value, 0));
      write(t("sum = {sum}", { sum }), box.x + box.w - pad, y - 3.2 * unit, 4.4 * unit, colours.ink, { align: "right",
        weight: "600" });
    }
    for (const { text, value: now } of made.after) {
      y += 5.2 * unit;
      write(`${text}  =  ${format(now)}`, box.x + box.w - pad, y - 3.2 * unit, 4.2 * unit, colours.ink,
        { align: "right", room: box.w - 2 * pad });
    }
  }

  function terms({ terms: all }, box, unit) {
    const most = 64;
    const shown = all.length <= most ? all : [...all].sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0,
      most - 1);
    const count = shown.length + (all.length > shown.length ? 1 : 0);
    const factors = Math.max(...shown.map((each) => each.factors.length));
    const deep = (factors > 1 ? factors + 1 : 1) + (shown[0].label ? 0.8
      : 0); // rows of a column: a word, factors, product
    const across = Math.max(1, Math.min(count, Math.ceil(Math.sqrt((count * deep * box.w) / (2.2 * box.h)))));
    const lines = Math.ceil(count / across);
    const [w, h] = [Math.min(box.w / across, 26 * unit), Math.min(box.h / lines, (deep + 0.5) * 7 * unit)];
    const size = Math.min((h / (deep + 0.5)) * 0.55, w * 0.21);
    const most1 = Math.max(...shown.flatMap(({ factors }) => factors.map(({ value }) => Math.abs(value)))) || 1;
    const most2 = Math.max(...shown.map(({ value }) => Math.abs(value))) || 1;
    shown.forEach(({ factors: each, value, own, label }, place) => {
      const x = box.x + (place % across) * w;
      let y = box.y + Math.floor(place / across) * h;
      const step = h / (deep + 0.5);
      if (label) {
        write(visible(label), x, y + step * 0.4, size * 0.9, own ? colours.mark : colours.quiet, { room: w * 0.9 });
        y += step * 0.8;
      }
      const top = y;
      each.forEach((factor, index) => {
        small(`${index ? "× " : ""}${format(factor.value)}`, factor.value / most1,
          { x, y, w: w * 0.94, h: step * 0.94 }, size);
        y += step;
      });
      if (each.length > 1) small(`= ${format(value)}`, value / most2, { x, y, w: w * 0.94, h: step * 0.94 }, size,
        true);
      if (own) {
        pen.strokeStyle = colours.mark;
        pen.lineWidth = 2;
        pen.strokeRect(x, top, w * 0.94, step * 0.94);
      }
    });
    if (all.length > shown.length) {
      const [x, y] = [box.x + ((count - 1) % across) * w, box.y + Math.floor((count - 1) / across) * h];
      write(t("and {n} more", { n: all.length - shown.length }), x, y + h / 3, size, colours.quiet, { room: w });
    }
  }

  function small(text, strength, { x, y, w, h }, size, result = false) {
    const colour = colours.signed(strength);
    pen.fillStyle = colour;
    pen.fillRect(x, y, w, h);
    const fitting = Math.min(size, (1.6 * w) / text.length);
    if (fitting >= 4) write(text, x + w / 2, y + h / 2, fitting, colours.inkOn(colour),
      { align: "center", weight: result ? "600" : "400" });
  }

  function outline({ node: one, row, column, kind }) {
    if (!one) return;
    const box = onScreen(row === null || row === undefined ? one : column === null ? rowBox(one, row)
      : cellBox(one, row, column));
    if (!inSight(box)) return;
    pen.strokeStyle = { from: colours.accent, to: colours.mark }[kind] ?? colours.ink;
    pen.lineWidth = 2;
    if (column !== null && column !== undefined
      && (row === null || row === undefined)) return void columnOutline(one, column);
    pen.setLineDash(kind === "to" ? [5, 3] : []);
    rounded({ x: box.x - 1, y: box.y - 1, w: Math.max(4, box.w + 2), h: Math.max(4, box.h + 2) }, 2);
    pen.stroke();
    pen.setLineDash([]);
  }

  function columnOutline(one, column) {
    for (let row = 0; row < one.rows; row += 1) {
      const box = onScreen(cellBox(one, row, column));
      pen.strokeRect(box.x, box.y, Math.max(2, box.w), Math.max(2, box.h));
    }
  }

  function image(one, box) {
    const bitmap = (bitmaps.get("image") ?? bitmaps.set("image", pixels(data.image)).get("image"));
    pen.imageSmoothingEnabled = false;
    pen.drawImage(bitmap, box.x, box.y, box.w, box.h);
    title(one, box);
    if (!data.grid) return;
    pen.strokeStyle = colours.mark;
    pen.globalAlpha = 0.35;
    pen.lineWidth = 1;
    const [rows, columns] = data.grid;
    for (let index = 1; index < Math.max(rows, columns); index += 1) {
      if (index < columns) pen.strokeRect(box.x + (index * box.w) / columns, box.y, 0.01, box.h);
      if (index < rows) pen.strokeRect(box.x, box.y + (index * box.h) / rows, box.w, 0.01);
    }
    pen.globalAlpha = 1;
  }

  // --- colours ---

  function colourOf(one, value) {
    if (only) return colours.signed(value / spread(one.id));
    if (one.kind === "softmax" || one.kind === "pick") return colours.weight(value);
    if (one.kind === "probability") return colours.share(value);
    return colours.signed(value / spread(one.id));
  }

  const spreads = new Map();
  const [shares, signs] = [packed(colours.table), packed(colours.signs)];

  /**
   * The size at which a colour is deepest: 2.5 times the usual size, so that a few large numbers leave the rest
   * visible.
   */
  function spread(id) {
    if (only) return difference.scale(id);
    if (!spreads.has(id)) {
      let [sum, most] = [0, 0];
      const values = numbers.tensor(id);
      for (let place = 0; place < values.length; place += 1) {
        if (!Number.isFinite(values[place])) continue; // a weight that was set to 0
        sum += values[place] ** 2;
        most = Math.max(most, Math.abs(values[place]));
      }
      spreads.set(id, Math.min(most, 2.5 * Math.sqrt(sum / values.length)) || 1);
    }
    return spreads.get(id);
  }

  /** The numbers of a part as one pixel each; null if it has to wait for the next frame. */
  function bitmapOf(one) {
    if (bitmaps.has(one.key)) return bitmaps.get(one.key);
    if (!numbers.has(one.id) || performance.now() > budget) {
      late ||= numbers.has(one.id);
      return null;
    }
    const values = numbers.tensor(one.id);
    const offset = one.head * one.rows * one.width;
    const [table, place] = scaleOf(one);
    const last = table.length - 1;
    const bitmap = document.createElement("canvas");
    [bitmap.width, bitmap.height] = [one.across, one.rows * one.lines];
    const inner = bitmap.getContext("2d");
    const image = inner.createImageData(bitmap.width, bitmap.height);
    const pixel = new Uint32Array(image.data.buffer);
    for (let row = 0; row < one.rows; row += 1) {
      for (let column = 0; column < one.width; column += 1) {
        const at = (row * one.lines + Math.floor(column / one.across)) * one.across + (column % one.across);
        pixel[at] = table[Math.round(Math.min(1,
          Math.max(0, place(values[offset + row * one.width + column]))) * last)];
      }
    }
    inner.putImageData(image, 0, 0);
    bitmaps.set(one.key, bitmap);
    return bitmap;
  }

  function scaleOf(one) {
    if (only) return [signs, (value) => 0.5 + value / spread(one.id) / 2];
    if (one.kind === "softmax" || one.kind === "pick") return [shares, bright];
    if (one.kind === "probability") return [shares, (share) => share];
    const most = spread(one.id);
    return [signs, (value) => (Number.isFinite(value) ? 0.5 + value / most / 2 : 0.5)];
  }

  return { draw, spread, onScreen: (box, view) => { scene = { ...scene, ...view }; return onScreen(box); } };
}

/** Colours as whole pixels: red in the lowest byte. */
function packed(table) {
  return Uint32Array.from(table, ([red, green, blue]) => (255 << 24) | (blue << 16) | (green << 8) | red);
}

function pixels(image) {
  const bitmap = document.createElement("canvas");
  [bitmap.width, bitmap.height] = [image[0].length, image.length];
  const pen = bitmap.getContext("2d");
  const found = pen.createImageData(bitmap.width, bitmap.height);
  image.flat().forEach(([red, green = red, blue = red], place) => found.data.set([red, green, blue, 255], 4 * place));
  pen.putImageData(found, 0, 0);
  return bitmap;
}

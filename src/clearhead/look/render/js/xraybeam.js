// Beam search inside an X-ray: candidates as branches with their scores, those that were kept, and the cache of each.
//
// A tree is a BeamTree, format "clearhead-beam-1", with `texts`: the text at each node.

import { partLabel } from "./controls.js";
import { h } from "./dom.js";
import { plural, t } from "./i18n.js";
import { cut } from "./measure.js";
import { format, percent, visible } from "./numbers.js";
import { ancestry, layout } from "./tree.js";

const HIGH = 24; // of a candidate, in units of the tree
const NAMES = { kept: t("kept"), dropped: t("dropped"), finished: t("finished") };

const DROPPED = 2; // candidates that were dropped at each step, the best of them, that are shown

/** A tree with its places: {width, height, nodes, byId, path, boxes}. */
export function beamPlan({ nodes, best }) {
  const plan = layout(nodes, best, (node) => node.state !== "dropped" || rankOf(node) < DROPPED);

  function rankOf(node) {
    return nodes.filter(({ step, state, score }) => step === node.step && state === "dropped"
      && score > node.score).length;
  }
  const boxes = new Map([...plan.place].map(([id, { x, y, width }]) => [id, { x, y: y - HIGH / 2, w: width,
    h: HIGH }]));
  return { ...plan, byId: new Map(nodes.map((node) => [node.id, node])), boxes };
}

/** The box of a candidate in the picture. */
export function beamBox(one, id) {
  const box = one.plan.boxes.get(id) ?? one.plan.boxes.get(one.plan.nodes[0].id);
  const unit = one.w / one.plan.width;
  return { x: one.x + box.x * unit, y: one.y + box.y * unit, w: box.w * unit, h: box.h * unit };
}

/** The candidate at a point: its id, or null. */
export function beamAt(one, x, y) {
  for (const { id } of one.plan.nodes) {
    const box = beamBox(one, id);
    if (x >= box.x && x < box.x + box.w && y >= box.y && y < box.y + box.h) return id;
  }
  return null;
}

/** Draw the candidates of the first steps; `tools` are those of the painter. */
export function drawBeam(one, steps, { pen, colours, onScreen, inSight, write, rounded }) {
  const { plan } = one;
  const unit = onScreen({ x: 0, y: 0, w: one.w / plan.width, h: 0 }).w;
  const seen = plan.nodes.filter(({ step }) => step <= steps);
  const place = (id) => onScreen(beamBox(one, id));
  for (const { id, parent, state } of seen) {
    if (parent === null) continue;
    const [a, b] = [place(parent), place(id)];
    if (!inSight(a) && !inSight(b)) continue;
    const isBest = plan.path.has(id) && plan.path.has(parent);
    pen.strokeStyle = isBest ? colours.accent : colours.faint;
    pen.lineWidth = Math.max(0.5, (isBest ? 2.2 : 1.1) * Math.min(1.4, unit));
    pen.setLineDash(state === "dropped" ? [4 * unit, 3 * unit] : []);
    const middle = (a.x + a.w + b.x) / 2;
    pen.beginPath();
    pen.moveTo(a.x + a.w, a.y + a.h / 2);
    pen.bezierCurveTo(middle, a.y + a.h / 2, middle, b.y + b.h / 2, b.x, b.y + b.h / 2);
    pen.stroke();
  }
  for (const node of seen) {
    const box = place(node.id);
    if (!inSight(box) || box.w < 2) continue;
    const fill = node.parent === null ? colours.sunken : colours.share(Math.exp(node.probability));
    pen.globalAlpha = node.state === "dropped" ? 0.55 : 1;
    pen.fillStyle = fill;
    pen.strokeStyle = plan.path.has(node.id) ? colours.accent : colours.quiet;
    pen.lineWidth = plan.path.has(node.id) ? 2 : 1;
    pen.setLineDash(node.state === "dropped" ? [3, 3] : []);
    rounded(box, 4 * unit);
    pen.fill();
    pen.stroke();
    const size = 12 * unit;
    if (size >= 6) {
      const ink = node.parent === null ? colours.ink : colours.inkOn(fill);
      write(cut(visible(node.token), box.w - 6 * unit, size), box.x + box.w / 2, box.y + box.h / 2, size, ink,
        { align: "center" });
      if (node.parent !== null && size >= 9) write(format(node.score), box.x + box.w / 2, box.y - 3.4 * unit,
        6.4 * unit, colours.quiet, { align: "center" });
    }
    pen.globalAlpha = 1;
  }
  pen.setLineDash([]);
}

/** What is under the pointer, in words. */
export function sayBeam(one, id) {
  const node = one.plan.byId.get(id);
  if (!node || node.parent === null) {
    return t("Beam search: at each step the likeliest texts are kept, and the rest is dropped.");
  }
  return t("{word}: {share}, score {score}, {state}", { word: visible(node.token),
    share: percent(Math.exp(node.probability)), score: format(node.score), state: NAMES[node.state] });
}

/** The panel of a candidate; `onText` opens the X-ray of its text. */
export function beamPanel(tree, one, id, onText) {
  const node = one.plan.byId.get(id);
  const path = ancestry(one.plan.byId, id);
  const fact = (name, value) => [h("dt", {}, name), h("dd", {}, value)];
  const open = onText && node.parent !== null
    ? [h("button", { type: "button", class: "ch-button", onclick: () => onText(tree.texts[id]) },
      t("X-ray of this text"))] : [];
  return [
    h("p", { class: "ch-chips", dir: "auto" }, path.map((each) => h("span", { class: "ch-chip" },
      visible(each.token)))),
    h("dl", { class: "ch-facts" }, ...(node.parent === null ? [] : [
      fact(t("Probability of this token"), percent(Math.exp(node.probability))),
      fact(t("Log-probability of the whole text"), format(node.total)), fact(t("Score"), format(node.score)),
      fact(t("What became of it"), NAMES[node.state])]), fact(t("Tokens in its cache"), String(path.length))),
    ...open];
}

/** The beams that are kept after a number of steps, each with the tokens whose keys and values its cache holds. */
export function beamList(one, steps) {
  const last = Math.max(...one.plan.nodes.map(({ step }) => step));
  const at = Math.min(steps, last);
  const kept = one.plan.nodes.filter(({ step, state }) => (step === at && state !== "dropped") || (state === "finished"
    && step < at));
  const textOf = ({ id }) => ancestry(one.plan.byId, id).slice(1).map(({ token }) => visible(token)).join(" ");
  const line = (node) => h("li", {},
    h("span", { class: "ch-number" }, format(node.score)),
    h("span", { class: "ch-cache", role: "img",
      "aria-label": plural("{n} token in the cache", "{n} tokens in the cache", node.step) },
      Array.from({ length: node.step }, () => h("i", {}))),
    h("span", { dir: "auto" }, node.state === "finished" ? t("{text} (finished)", { text: textOf(node) })
      : textOf(node)));
  return h("div", { class: "ch-beams" }, partLabel(plural("Beams after {n} token; squares are the tokens in the cache",
    "Beams after {n} tokens; squares are the tokens in the cache", at)),
    h("ol", {}, kept.sort((a, b) => b.score - a.score).map(line)));
}

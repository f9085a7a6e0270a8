// Word vectors: a map, neighbours, and a calculator for analogies.

import { post } from "./api.js";
import { t, tParts } from "./i18n.js";
import { findModel, modelMenu, noModel, resultPanel } from "./shared.js";
import { button, meter, partLabel } from "./views/controls.js";
import { h, label, roomIn, sheet, svg } from "./views/dom.js";
import { frame, title } from "./views/frame.js";
import { widthOf } from "./views/measure.js";
import { format } from "./views/numbers.js";

export const NAME = t("Words");
export const ABOUT = t(
  "A word is a vector. Words used in similar ways lie close together, and differences between " +
  "vectors have a meaning.");
export const fits = ({ reads }) => reads === "words";

const HEIGHT = 460; // pixels of the map
const MARGIN = 56;
const LABEL_HEIGHT = 18;
const DEFAULT_WORDS = "king, river, bread, ship";
const ANALOGIES = [["king", "man", "woman"], ["france", "paris", "london"],
  ["brother", "boy", "girl"], ["went", "go", "come"]];

export function open(element, state, studio) {
  const models = studio.models(fits);
  if (!models.length) return element.append(
    noModel(t("None of the loaded models has word vectors.")));
  const model = findModel(models, state.model);
  const { place, load, element: panel } = resultPanel();
  const analogyPanel = resultPanel();
  const request = { words: state.words ?? DEFAULT_WORDS, word: state.word,
    sum: state.sum ?? ANALOGIES[0].join(" ") };
  let [data, view, analogyView] = [null, null, null];

  function refresh(changes = {}) {
    Object.assign(request, changes);
    studio.set({ model: model.name, ...request });
    load(async (isCurrent) => {
      const words = request.words.split(/[\s,;]+/).filter(Boolean);
      const found = await post("/studio/api/words", { model: model.name, words });
      if (!isCurrent()) return;
      data = found;
      view ??= frame(place, { name: "word-map", label: t("Map of words"), draw, json: () => data,
        picture: () => view.figure.firstChild }, {});
      view.redraw();
    });
  }

  function draw() {
    const groups = Object.keys(data.near);
    if (!groups.includes(request.word)) request.word = groups[0];
    title(view.heading, [groups.join(", ")],
      t("{model} · projected to their first two principal components", { model: model.name }));
    const near = data.near[request.word];
    view.figure.replaceChildren(
      h("div", {}, map(data, request.word, Math.max(320, roomIn(view.figure) - 300), select)),
      h("div", {}, partLabel(tParts("Nearest to {word} by cosine",
        { word: h("strong", {}, request.word) })), nearList(near)));
    view.say(t("Click a word to see its neighbours; a new word is added to the map."));
  }

  function select(word) {
    request.word = word;
    if (data.near[word]) {
      studio.set({ word });
      draw();
      return;
    }
    input.value = `${request.words}, ${word}`;
    refresh({ words: input.value, word });
  }

  const input = h("input", { class: "st-input", "aria-label": t("Words"), autocomplete: "off",
    spellcheck: "false", maxlength: 300 });
  input.value = request.words;
  const form = h("form", { class: "st-bar",
    onsubmit: (event) => { event.preventDefault(); refresh({ words: input.value }); } },
    modelMenu(models, model, (name) => studio.go("words", { model: name })),
    h("div", { class: "st-ask" }, input, h("button", { class: "st-go" }, t("Map"))));

  const boxes = ["a", "b", "c"].map((name, index) => {
    const box = h("input", { class: "st-input", "aria-label": t("Word {name}", { name }),
      autocomplete: "off", maxlength: 60, required: true });
    box.value = request.sum.split(" ")[index] ?? "";
    return box;
  });
  function showNearest(words) {
    if (words) boxes.forEach((box, index) => { box.value = words[index]; });
    const [a, b, c] = boxes.map((box) => box.value.trim());
    studio.set({ sum: [a, b, c].join(" ") });
    analogyPanel.load(async (isCurrent) => {
      const found = await post("/studio/api/analogy", { model: model.name, a, b, c });
      if (!isCurrent()) return;
      analogyView?.destroy();
      analogyView = showAnalogy(analogyPanel.place, found);
    });
  }
  const calculator = h("form", { class: "st-sum", "aria-label": t("Analogy"),
    onsubmit: (event) => { event.preventDefault(); showNearest(); } },
    boxes[0], h("span", {}, "−"), boxes[1], h("span", {}, "+"), boxes[2],
    h("button", { class: "st-go" }, "= ?"),
    ANALOGIES.map((words) => button(`${words[0]} − ${words[1]} + ${words[2]}`, () =>
      showNearest(words))));
  element.append(form, panel, h("h2", { class: "st-part" }, t("Analogies")), calculator,
    analogyPanel.element);
  refresh();
  showNearest();
  return {
    close() {
      view?.destroy();
      analogyView?.destroy();
    },
  };
}

/** A list of words with their similarity; the nearest is marked. */
function nearList(near) {
  return h("ul", { class: "ch-rivals" }, near.map(([word, share], rank) =>
    h("li", { "aria-current": rank ? null : "true" },
      h("span", { dir: "auto" }, word), meter(share),
      h("span", { class: "ch-number" }, format(share)))));
}

/** A map of words; the chosen word and its neighbours stand out. */
function map({ words, points, near }, chosen, width, onSelect) {
  const highlighted = new Set([chosen, ...(near[chosen] ?? []).map(([word]) => word)]);
  const priority = (word) => Number(word in near) + 2 * Number(highlighted.has(word));
  const across = scale(points.map(([x]) => x), MARGIN / 2, width - MARGIN - 40);
  const down = scale(points.map(([, y]) => -y), MARGIN / 2, HEIGHT - MARGIN / 2);
  const spots = words.map((word, row) =>
    ({ word, x: across(points[row][0]), y: down(-points[row][1]) }));
  const taken = spots.map(({ x, y }) => ({ left: x - 5, right: x + 5, top: y - 5, bottom: y + 5 }));
  const placed = [...spots].sort((one, other) => priority(other.word) - priority(one.word))
    .map((spot) => ({ ...spot, box: placeLabel(spot, taken) }));
  const item = ({ word, x, y, box }) => {
    const style = ["st-word", near[word] && "st-query", highlighted.has(word) && "st-near",
      box.crowded && "st-crowded"].filter(Boolean).join(" ");
    const select = () => onSelect(word);
    return svg("g", { class: style, tabindex: 0, role: "button", "aria-label": word,
      onclick: select,
      onkeydown: (event) => { if (event.key === "Enter") select(); } },
      svg("rect", { x: box.left, y: box.top, width: box.right - box.left, height: LABEL_HEIGHT,
        rx: 4 }),
      svg("circle", { cx: x, cy: y, r: near[word] ? 5 : 3.5 }),
      label(word, box.left + 4, box.top + LABEL_HEIGHT / 2, 14));
  };
  return sheet(width, HEIGHT, { class: "st-map", role: "group", "aria-label": t("Map of words") },
    placed.reverse().map(item));
}

function scale(values, from, to) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return (value) => from + ((value - low) / (high - low || 1)) * (to - from);
}

/** A free place for the label of a word beside its dot; `crowded` if there is none. */
function placeLabel({ word, x, y }, taken) {
  const labelWidth = widthOf(word, 14) + 12;
  const box = (left, top) => ({ left, right: left + labelWidth, top, bottom: top + LABEL_HEIGHT });
  const right = box(x + 5, y - LABEL_HEIGHT / 2);
  const candidates = [right, box(x - 5 - labelWidth, y - LABEL_HEIGHT / 2),
    box(x - labelWidth / 2, y - LABEL_HEIGHT - 5), box(x - labelWidth / 2, y + 5)];
  const found = candidates.find((spot) => spot.left >= 0
    && !taken.some((other) => overlaps(spot, other))) ?? { ...right, crowded: true };
  taken.push(found);
  return found;
}

function overlaps(one, other) {
  return one.left < other.right && other.left < one.right && one.top < other.bottom
    && other.top < one.bottom;
}

function showAnalogy(element, found) {
  const view = frame(element, { name: "analogy", label: t("Analogy"), draw, json: () => found,
    picture: () => view.figure }, {});
  function draw() {
    title(view.heading, [`${found.a} − ${found.b} + ${found.c}`, found.nearest[0][0]],
      t("the words nearest to the result, by cosine"));
    view.figure.replaceChildren(nearList(found.nearest));
  }
  view.redraw();
  return view;
}

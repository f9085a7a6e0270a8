// Words as vectors: a map, neighbours, and a calculator for analogies.

import { post } from "./api.js";
import { answers, modelMenu, modelOf, nobody } from "./parts.js";
import { button, meter, partLabel } from "./views/controls.js";
import { h, label, sheet, svg } from "./views/dom.js";
import { frame, title } from "./views/frame.js";
import { widthOf } from "./views/measure.js";
import { format } from "./views/numbers.js";

export const NAME = "Words";
export const ABOUT = "A word is a vector. Words that are used alike lie side by side, and differences between them mean something.";
export const fits = ({ task }) => task === "words";

const TALL = 460; // pixels of the map
const EDGE = 56;
const HIGH = 18; // pixels of a name
const BEGIN = "king, river, bread, ship";
const SUMS = [["king", "man", "woman"], ["france", "paris", "london"], ["brother", "boy", "girl"], ["went", "go", "come"]];

export function open(element, state, studio) {
  const models = studio.models(fits);
  if (!models.length) return element.append(nobody("has word vectors"));
  const model = modelOf(models, state.model);
  const { place, attempt, element: answer } = answers();
  const sums = answers();
  const wish = { words: state.words ?? BEGIN, word: state.word, sum: state.sum ?? SUMS[0].join(" ") };
  let [data, view, sum] = [null, null, null];

  function ask(part = {}) {
    Object.assign(wish, part);
    studio.set({ model: model.name, ...wish });
    attempt(async (current) => {
      const wanted = wish.words.split(/[\s,;]+/).filter(Boolean);
      const found = await post("/studio/api/words", { model: model.name, words: wanted });
      if (!current()) return;
      data = found;
      view ??= frame(place, { name: "word-map", label: "Map of words", draw, json: () => data, picture: () => view.figure.firstChild }, {});
      view.redraw();
    });
  }

  function draw() {
    const groups = Object.keys(data.near);
    if (!groups.includes(wish.word)) wish.word = groups[0];
    title(view.heading, [groups.join(", ")], `${model.name} · the two directions in which these words are spread most`);
    const near = data.near[wish.word];
    view.figure.replaceChildren(
      h("div", {}, map(data, wish.word, Math.max(320, view.figure.clientWidth - 300), pick)),
      h("div", {}, partLabel("Nearest to ", h("strong", {}, wish.word), " by cosine"), nearList(near)));
    view.say("Click a word to see its neighbours; a word that is not asked for yet is added.");
  }

  function pick(word) {
    wish.word = word;
    if (data.near[word]) {
      studio.set({ word });
      draw();
      return;
    }
    input.value = `${wish.words}, ${word}`;
    ask({ words: input.value, word });
  }

  const input = h("input", { class: "st-input", "aria-label": "Words", autocomplete: "off", spellcheck: "false", maxlength: 300 });
  input.value = wish.words;
  const form = h("form", { class: "st-bar", onsubmit: (event) => { event.preventDefault(); ask({ words: input.value }); } },
    modelMenu(models, model, (name) => studio.go("words", { model: name })),
    h("div", { class: "st-ask" }, input, h("button", { class: "st-go" }, "Map")));

  const boxes = ["a", "b", "c"].map((name, place) => {
    const box = h("input", { class: "st-input", "aria-label": `Word ${name}`, autocomplete: "off", maxlength: 60, required: true });
    box.value = wish.sum.split(" ")[place] ?? "";
    return box;
  });
  function reckon(words) {
    if (words) boxes.forEach((box, place) => { box.value = words[place]; });
    const [a, b, c] = boxes.map((box) => box.value.trim());
    studio.set({ sum: [a, b, c].join(" ") });
    sums.attempt(async (current) => {
      const found = await post("/studio/api/analogy", { model: model.name, a, b, c });
      if (!current()) return;
      sum?.destroy();
      sum = showSum(sums.place, found);
    });
  }
  const calculator = h("form", { class: "st-sum", "aria-label": "Analogy", onsubmit: (event) => { event.preventDefault(); reckon(); } },
    boxes[0], h("span", {}, "−"), boxes[1], h("span", {}, "+"), boxes[2], h("button", { class: "st-go" }, "= ?"),
    SUMS.map((words) => button(`${words[0]} − ${words[1]} + ${words[2]}`, () => reckon(words))));
  element.append(form, answer, h("h2", { class: "st-part" }, "Analogies"), calculator, sums.element);
  ask();
  reckon();
  return {
    close() {
      view?.destroy();
      sum?.destroy();
    },
  };
}

/** Words with how near they are, the nearest marked. */
function nearList(near) {
  return h("ul", { class: "ch-rivals" }, near.map(([word, share], rank) =>
    h("li", { "aria-current": rank ? null : "true" },
      h("span", { dir: "auto" }, word), meter(share), h("span", { class: "ch-number" }, format(share)))));
}

/** Each word at its place; the one that is chosen and its neighbours stand out. */
function map({ words, points, near }, chosen, width, pick) {
  const own = new Set([chosen, ...(near[chosen] ?? []).map(([word]) => word)]);
  const weight = (word) => Number(word in near) + 2 * Number(own.has(word));
  const across = scale(points.map(([x]) => x), EDGE / 2, width - EDGE - 40);
  const down = scale(points.map(([, y]) => -y), EDGE / 2, TALL - EDGE / 2);
  const spots = words.map((word, row) => ({ word, x: across(points[row][0]), y: down(-points[row][1]) }));
  const taken = spots.map(({ x, y }) => ({ left: x - 5, right: x + 5, top: y - 5, bottom: y + 5 }));
  const placed = [...spots].sort((one, other) => weight(other.word) - weight(one.word))
    .map((spot) => ({ ...spot, box: free(spot, taken) }));
  const item = ({ word, x, y, box }) => {
    const kind = `st-word${near[word] ? " st-asked" : ""}${own.has(word) ? " st-own" : ""}${box.crowded ? " st-crowded" : ""}`;
    const act = () => pick(word);
    return svg("g", { class: kind, tabindex: 0, role: "button", "aria-label": word, onclick: act,
      onkeydown: (event) => { if (event.key === "Enter") act(); } },
      svg("rect", { x: box.left, y: box.top, width: box.right - box.left, height: HIGH, rx: 4 }),
      svg("circle", { cx: x, cy: y, r: near[word] ? 5 : 3.5 }), label(word, box.left + 4, box.top + HIGH / 2, 14));
  };
  return sheet(width, TALL, { class: "st-map", role: "group", "aria-label": "Map of words" }, placed.reverse().map(item));
}

function scale(values, from, to) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  return (value) => from + ((value - least) / (most - least || 1)) * (to - from);
}

/** Room for the name of a word beside its dot, where nothing else is yet; crowded where there is no room. */
function free({ word, x, y }, taken) {
  const wide = widthOf(word, 14) + 12;
  const box = (left, top) => ({ left, right: left + wide, top, bottom: top + HIGH });
  const right = box(x + 5, y - HIGH / 2);
  const spots = [right, box(x - 5 - wide, y - HIGH / 2), box(x - wide / 2, y - HIGH - 5), box(x - wide / 2, y + 5)];
  const found = spots.find((spot) => spot.left >= 0 && !taken.some((other) => meet(spot, other))) ?? { ...right, crowded: true };
  taken.push(found);
  return found;
}

function meet(one, other) {
  return one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;
}

function showSum(element, found) {
  const view = frame(element, { name: "analogy", label: "Analogy", draw, json: () => found, picture: () => view.figure }, {});
  function draw() {
    title(view.heading, [`${found.a} − ${found.b} + ${found.c}`, found.nearest[0][0]], "the words nearest to the sum, by cosine");
    view.figure.replaceChildren(nearList(found.nearest));
  }
  view.redraw();
  return view;
}

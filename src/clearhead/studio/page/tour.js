// A guided tour: a card that stays open while it leads from view to view.

import { explained } from "./glossary.js";
import { t } from "./i18n.js";
import { courseLink } from "./link.js";
import { h } from "./views/dom.js";

const CAR = "She has a red car.";

/** The stops of the tour; `at` is a view and its state. */
export const STOPS = [
  { at: ["play", { text: CAR }], name: t("A model generates"),
    text: t("The translator generates one token after the other. The stronger the colour of a " +
      "token, the more probable the model finds it: click one to see its alternatives, and click " +
      "an alternative to continue from it.") },
  { at: ["heads", { text: CAR,
    at: JSON.stringify({ kind: "decoder.cross", layer: 1, head: 2, shape: "lines",
      token: { side: "query", index: 3 } }) }],
    name: t("It looks back at the source"),
    text: t("When it generates “coche” this head attends to “car”, and for “rojo” back to “red”: " +
      "the word order crosses over. Point at a word to see only its lines.") },
  { at: ["heads", { text: CAR, at: '{"kind":"encoder.self","layer":0,"head":0,"shape":"matrix"}' }],
    name: t("Every word attends to every word"),
    text: t("In the encoder all words attend to each other. Each small square is a head; select " +
      "some and compare their patterns.") },
  { at: ["steps", { text: CAR, kind: "decoder.cross", layer: "1", head: "2", query: "3",
    step: "0" }], name: t("One query, step by step"),
    text: t("A query is compared with each key by a dot product. Press play and follow score, " +
      "scale, softmax, weight and sum with the real numbers.") },
  { at: ["what-if", { text: "She likes coffee but he likes tea.", off: '{"scale":true}' }],
    name: t("Why 1/√dₖ"),
    text: t("Without the scale the scores are several times larger, and the softmax almost picks " +
      "a single key. Compare the loss with the original.") },
  { at: ["positions", { base: "10000", width: "64" }], name: t("The position of a word"),
    text: t("Attention by itself ignores order. Waves of many lengths distinguish the positions, " +
      "and their dot product falls with the distance. Move the base N.") },
  { at: ["what-if", { text: "A dog sees a cat.", off: '{"positions":true}' }],
    name: t("Without positions"),
    text: t("With the positions switched off the model still has all the words, but not their " +
      "order: it cannot know who sees whom.") },
  { at: ["beam", { text: CAR }], name: t("Beam search"),
    text: t("The most probable next word does not always lead to the most probable sentence. A " +
      "beam search keeps several prefixes; dropped ones can be shown.") },
  { at: ["image", {}], name: t("Images are sentences too"),
    text: t("Draw a digit. The image is split into patches, the patches are tokens, and the " +
      "colour shows which of them the answer rests on.") },
  { at: ["words", { sum: "king man woman" }], name: t("What a word means"),
    text: t("Everything starts with words as vectors. Words with similar vectors are used in " +
      "similar ways, and king − man + woman leads to queen. From here, open Learn for every " +
      "idea, or train your own model.") },
];

/** The card of a stop as a list of elements; empty outside the tour. */
export function tourCard(number, studio) {
  const index = Number(number) - 1;
  const stop = STOPS[index];
  if (!stop) return [];
  const link = (to, text, style) => h("a",
    { class: style, rel: to > index ? "next" : "prev",
      href: courseLink(STOPS[to].at[0], { ...STOPS[to].at[1], tour: to + 1 }) }, text);
  const leave = () => {
    studio.set({ tour: "" });
    card.remove();
  };
  const card = h("aside", { class: "st-side st-tour", "aria-label": t("Tour") },
    h("p", { class: "ch-label" }, t("Stop {n} of {all}", { n: index + 1, all: STOPS.length })),
    h("h2", {}, stop.name), h("p", {}, explained(stop.text)),
    h("div", { class: "st-tour-foot" },
      index > 0 ? link(index - 1, t("Back"), "ch-button") : "",
      h("button", { type: "button", class: "ch-button", onclick: leave }, t("Leave the tour")),
      index < STOPS.length - 1 ? link(index + 1, t("Next"), "st-go")
        : h("a", { class: "st-go", href: "#learn" }, t("To the ideas"))));
  return [card];
}

// A guided tour: a card that stays while it leads from view to view.

import { write } from "./link.js";
import { h } from "./views/dom.js";

const CAR = "She has a red car.";

/** The stops: `at` is a view and its state. */
export const STOPS = [
  { at: ["play", { text: CAR }], name: "A model writes",
    says: "The translator writes one token after the other. The stronger the colour of a token, the less sure the model was: click one to see what else it thought of, and click an alternative to make it go on from there." },
  { at: ["heads", { text: CAR, at: '{"kind":"decoder.cross","layer":1,"head":2,"shape":"lines","token":{"side":"query","index":3}}' }], name: "It looks back",
    says: "While it writes “coche” this head looks at “car”, and for “rojo” back at “red”: word order crosses over. Point at a word to see only its lines." },
  { at: ["heads", { text: CAR, at: '{"kind":"encoder.self","layer":0,"head":0,"shape":"matrix"}' }], name: "Every word looks at every word",
    says: "Inside the encoder words look at each other. Each small square is a head; pick some and see how differently they look." },
  { at: ["steps", { text: CAR, kind: "decoder.cross", layer: "1", head: "2", query: "3", step: "0" }], name: "One query, step by step",
    says: "A query is compared with each key: that is a dot product, and nothing else. Press play and follow score, scale, softmax, weight and sum with the real numbers." },
  { at: ["what-if", { text: "I know that you know that he knows.", off: '{"scale":true}' }], name: "Why 1/√dₖ",
    says: "Without the scale the scores are several times as large, and the softmax all but picks one key. See the loss rise beside the original." },
  { at: ["positions", { base: "10000", width: "64" }], name: "Where a word stands",
    says: "Attention alone sees a bag of words. Waves of many lengths tell positions apart, and their product falls with the distance. Move the base N." },
  { at: ["what-if", { text: "The dog sees the cat.", off: '{"positions":true}' }], name: "Without order",
    says: "With the positions switched off the model still has all the words, but not their order: who sees whom is anybody’s guess." },
  { at: ["beam", { text: CAR }], name: "Search",
    says: "The likeliest next word is not always the way to the likeliest sentence. A beam search keeps several beginnings; dropped ones can be shown." },
  { at: ["image", {}], name: "Images are sentences too",
    says: "Draw a digit. The image is cut into patches, the patches are tokens, and the orange shows which of them the answer rests on." },
  { at: ["words", { sum: "king man woman" }], name: "What a word means",
    says: "All of it begins with words as vectors. Nearby words are used alike, and king − man + woman leads to a queen. From here, open Learn for every idea, or train a model of your own." },
];

/** The card of a stop, nothing without one. */
export function tourCard(number, studio) {
  const place = Number(number) - 1;
  const stop = STOPS[place];
  if (!stop) return [];
  const link = (to, text, kind) => h("a", { class: kind, href: write(STOPS[to].at[0], { ...STOPS[to].at[1], tour: to + 1 }) }, text);
  const leave = () => {
    studio.set({ tour: "" });
    card.remove();
  };
  const card = h("aside", { class: "st-tour", "aria-label": "Tour" },
    h("p", { class: "ch-label" }, `Stop ${place + 1} of ${STOPS.length}`),
    h("h2", {}, stop.name), h("p", {}, stop.says),
    h("div", { class: "st-tour-foot" },
      place > 0 ? link(place - 1, "Back", "ch-button") : "",
      h("button", { type: "button", class: "ch-button", onclick: leave }, "Leave the tour"),
      place < STOPS.length - 1 ? link(place + 1, "Next", "st-go") : h("a", { class: "st-go", href: "#learn" }, "To the ideas")));
  return [card];
}

// Twenty words that every text of the page explains when one points at them.

import { h } from "./views/dom.js";

export const GLOSSARY = {
  attention: "A rule that lets each word take information from other words: a lot from some, little from others.",
  token: "A piece of text that the model reads or writes at once: a word, a part of a word, or a sign.",
  vector: "A list of numbers. Inside a model every token is one.",
  embedding: "The vector that stands for a token before the model starts to compute.",
  query: "The vector with which a token asks: what am I looking for?",
  key: "The vector with which a token is found: what do I offer?",
  value: "The vector that a token hands over to those who look at it.",
  score: "How well a query fits a key: the dot product of the two.",
  "dot product": "Multiply two vectors entry by entry and add everything up. Large if they point the same way.",
  softmax: "Turns any numbers into shares that are positive and add up to 1. The largest number gets the largest share.",
  weight: "The share of attention that one token gives to another. The weights of one query add up to 1.",
  head: "One attention of its own, with its own queries, keys and values. A layer has several side by side.",
  layer: "One floor of the model: attention, then a small network for each token. Models stack many.",
  mask: "Hides the words that come later, so that a model cannot look at what it is about to write.",
  position: "The place of a word in the text. Without positions a model sees a bag of words.",
  encoder: "The half of a translator that reads the input.",
  decoder: "The half that writes, one token after the other.",
  residual: "The old vector is kept and the new result is added to it, so nothing is lost on the way up.",
  loss: "How surprised the model is by the right answer. Lower is better.",
  probability: "How likely the model finds something: from 0 % to 100 %.",
};

const WORDS = new RegExp(`\\b(${Object.keys(GLOSSARY).sort((one, other) => other.length - one.length).join("|")})(s|es)?\\b`, "gi");

/** A text in which the first of each of these words explains itself: a list of strings and elements; `reachable` by Tab. */
export function explained(text, reachable = true) {
  const seen = new Set();
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(WORDS)) {
    const term = found[1].toLowerCase();
    if (seen.has(term)) continue;
    seen.add(term);
    parts.push(text.slice(end, found.index), h("abbr", { class: "st-term", tabindex: reachable ? 0 : null, title: GLOSSARY[term] }, found[0]));
    end = found.index + found[0].length;
  }
  return [...parts, text.slice(end)];
}

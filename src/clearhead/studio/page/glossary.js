// Twenty words that every text of the page explains when one points at them.

import { t } from "./i18n.js";
import { h } from "./views/dom.js";

/** [the forms of the word, separated by |, its explanation]. */
export const GLOSSARY = [
  [t("attention"), t(
    "A rule that lets each word take information from other words: a lot from some, little from " +
    "others.")],
  [t("token|tokens"),
    t("A piece of text that the model reads or writes at once: " +
      "a word, a part of a word, or a sign.")],
  [t("vector|vectors"), t("A list of numbers. Inside a model every token is one.")],
  [t("embedding|embeddings"),
    t("The vector that stands for a token before the model starts to compute.")],
  [t("query|queries"), t("The vector with which a token asks: what am I looking for?")],
  [t("key|keys"), t("The vector with which a token is found: what do I offer?")],
  [t("value|values"), t("The vector that a token hands over to those who look at it.")],
  [t("score|scores"), t("How well a query fits a key: the dot product of the two.")],
  [t("dot product|dot products"),
    t("Multiply two vectors entry by entry and add everything up. " +
      "Large if they point the same way.")],
  [t("softmax"),
    t("Turns any numbers into shares that are positive and add up to 1. The largest number gets " +
      "the largest share.")],
  [t("weight|weights"),
    t("The share of attention that one token gives to another. The weights of one query add up " +
      "to 1.")],
  [t("head|heads"),
    t("One attention of its own, with its own queries, keys and values. A layer has several side " +
      "by side.")],
  [t("layer|layers|block|blocks"),
    t("One floor of the model, which some call a layer and some a block: attention, then a small " +
      "network for each token. Models stack many.")],
  [t("mask|masks"), t(
    "Hides the words that come later, so that a model cannot look at what it is about to write.")],
  [t("position|positions"),
    t("The place of a word in the text. Without positions a model sees a bag of words.")],
  [t("encoder|encoders"), t("The half of a translator that reads the input.")],
  [t("decoder|decoders"), t("The half that writes, one token after the other.")],
  [t("residual|residuals"),
    t("The old vector is kept and the new result is added to it, " +
      "so nothing is lost on the way up.")],
  [t("loss|losses"), t("How surprised the model is by the right answer. Lower is better.")],
  [t("probability|probabilities"), t("How likely the model finds something: from 0 % to 100 %.")],
];

const MEANINGS = new Map(GLOSSARY.flatMap(([forms, meaning]) => forms.split("|")
  .map((form) => [form.toLowerCase(), meaning])));
const FORMS = [...MEANINGS.keys()].sort((one, other) => other.length - one.length);
const WORDS = new RegExp(`(?<!\\p{L})(${FORMS.join("|")})(?!\\p{L})`, "giu");

/**
 * A text in which the first of each of these words explains itself: a list of strings and elements;
 * `reachable` by Tab.
 */
export function explained(text, reachable = true) {
  const seen = new Set();
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(WORDS)) {
    const meaning = MEANINGS.get(found[0].toLowerCase());
    if (seen.has(meaning)) continue;
    seen.add(meaning);
    parts.push(text.slice(end, found.index),
      h("abbr", { class: "st-term", tabindex: reachable ? 0 : null, title: meaning }, found[0]));
    end = found.index + found[0].length;
  }
  return [...parts, text.slice(end)];
}

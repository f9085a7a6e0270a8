// The course: ten lessons of five minutes. Each has a short text, a live model, a thing to do and
// a question.

import { explained } from "./glossary.js";
import { t } from "./i18n.js";
import { courseLink } from "./link.js";
import { h } from "./views/dom.js";

const CAR = "She has a red car.";
const at = (choice) => JSON.stringify(choice);

/**
 * The lessons in the order of the lectures; `at` is a view and its state, `answer` the index of the
 * right option.
 */
export const LESSONS = [
  { title: t("Query, key and value"),
    at: ["steps", { text: CAR, kind: "decoder.cross", layer: "1", head: "2", query: "3",
      step: "0" }],
    text: [t("A translator is writing “coche”. To find the right word it asks a question: that " +
      "is its query, a vector."),
      t("Every word of the English sentence holds up a key. The query is compared with each key " +
        "by a dot product: this gives a score. The better they fit, the higher the score."),
      t("The word that fits best hands over most of its value. The sum of all values, each in " +
        "its share, is the answer to the question.")],
    todo: t("Press play and watch the steps: score, scale, softmax, weight, sum."),
    question: t("What is compared to find out where to look?"),
    options: [t("The query with every key"), t("The query with every value"),
      t("Every key with every value")], answer: 0,
    why: t("Query and key decide where to look. The value is what is taken from there.") },
  { title: t("Why divide by √d"), at: ["scaling", {}],
    text: [t("A dot product adds up one product for each entry of a vector. The longer the " +
      "vectors, the larger the sum becomes, by pure chance."),
      t("The softmax turns large differences into all or nothing: one key gets nearly 100 % of " +
        "the weight before the model has learned anything, and then it hardly learns."),
      t("Dividing every score by √d, where d is the length of a key, keeps the scores equally " +
        "large for every d.")],
    todo: t("Move the slider to d = 256 and read both largest weights below the curves."),
    question: t("Without the scale, what happens with long keys?"),
    options: [t("All keys get the same weight"), t("One key gets nearly all the weight"),
      t("The weights no longer add up to 1")], answer: 1,
    why: t("The scores spread too far apart. The weights still add up to 1, but one of them is " +
      "nearly 1.") },
  { title: t("The mask"), at: ["heads",
    { text: CAR, at: at({ kind: "decoder.self", layer: 0, head: 0, shape: "matrix" }) }],
    text: [t("While it learns, a decoder sees the whole right answer. If it could look ahead, it " +
      "would simply copy the next word."),
      t("So a mask hides everything that comes later: those scores become −∞, and the softmax " +
        "gives them weight 0."),
      t("In the matrix each row is one word that asks. It can only look at itself and to its " +
        "left: the upper right half is empty.")],
    todo: t("Point at cells of the first row, then of the last row."),
    question: t("How many words can the first row look at?"),
    options: [t("None"), t("One: itself"), t("All of them")], answer: 1,
    why: t("Nothing stands before the first word, and what comes later is hidden. Its whole " +
      "weight goes to itself.") },
  { title: t("Life without positions"),
    at: ["what-if", { text: "A dog sees a cat.", off: at({ positions: true }) }],
    text: [t("Attention compares vectors. It does not know which word came first."),
      t("That is why a model adds the position of each word, or turns queries and keys by an " +
        "angle that depends on it."),
      t("Here the positions are switched off. On the left is the translation of the whole model, " +
        "on the right that without positions.")],
    todo: t("Switch positions on and off and read who sees whom."),
    question: t("What does the model lose without positions?"),
    options: [t("Some of the words"), t("The order of the words"), t("The meaning of the words")],
    answer: 1,
    why: t("All words are still there and still known. But “dog sees cat” and “cat sees dog” are " +
      "now the same bag of words.") },
  { title: t("Self-attention and cross-attention"),
    at: ["heads", { text: CAR,
      at: at({ kind: "decoder.cross", layer: 1, head: 2, token: { side: "query", index: 3 } }) }],
    text: [t("In self-attention the words of one sentence look at each other. The encoder does " +
      "it with the English words, the decoder with the Spanish ones."),
      t("In cross-attention the decoder looks at the encoder: the queries come from the Spanish " +
        "side, keys and values from the English side."),
      t("English says “red car”, Spanish “coche rojo”. Follow the lines: they cross.")],
    todo: t("Switch between Encoder, Decoder and Cross above the figure, and compare the words " +
      "on both sides."),
    question: t("Where do keys and values of cross-attention come from?"),
    options: [t("From the decoder"), t("From the encoder"), t("From both")], answer: 1,
    why: t("The decoder asks, so the queries are its own. What it reads, keys and values, is the " +
      "output of the encoder.") },
  { title: t("Why several heads"), at: ["heads",
    { text: CAR, at: at({ kind: "encoder.self", layer: 0, head: 0, shape: "matrix" }) }],
    text: [t("One head can follow one kind of connection at a time: the word before, the noun of " +
      "an adjective, the end of the sentence."),
      t("A layer has several heads side by side. Each has its own queries, keys and values, so " +
        "each finds its own pattern."),
      t("Their results are joined and mixed, and go on together.")],
    todo: t("Click through the small squares of one row. Find a head that looks at the word " +
      "before, and one that looks far away."),
    question: t("What do the heads of one layer share?"),
    options: [t("Their weights of attention"), t("Their queries and keys"),
      t("The words that they read")], answer: 2,
    why: t("All heads read the same words. Queries, keys, values and therefore the weights are " +
      "their own.") },
  { title: t("Residual and norm"), at: ["lens", { text: CAR }],
    text: [t("A layer does not replace a vector. It computes a change and adds it to what was " +
      "there: that is the residual connection."),
      t("Before each step a norm brings all vectors to the same size, so that no layer drowns " +
        "the others."),
      t("Because every layer only adds, one can stop after any layer and ask for the answer. " +
        "That is what the lens shows: from bottom to top the answer takes shape.")],
    todo: t("Click the cells of one column from bottom to top, and watch the probability grow."),
    question: t("What does a layer do with its input?"),
    options: [t("It replaces it"), t("It adds something to it"), t("It sorts it")], answer: 1,
    why: t("The input travels on unchanged, and the result of the layer is added. So nothing " +
      "that was known is lost.") },
  { title: t("Greedy or beam search"), at: ["beam", { text: CAR, beams: "4" }],
    text: [t("A model gives a probability to every possible next token. Greedy search always " +
      "takes the most probable one."),
      t("But a good beginning can lead to a bad end. Beam search keeps several beginnings alive " +
        "and compares whole sentences."),
      t("A sentence is scored by the product of the probabilities of its tokens: for easier " +
        "counting, by the sum of their logarithms.")],
    todo: t("Switch on “Show dropped texts” and look for a beginning that was strong at first " +
      "and was dropped later."),
    question: t("When can beam search find something better than greedy search?"),
    options: [t("When the best sentence begins with a less probable token"), t("Always"),
      t("When all tokens are equally probable")], answer: 0,
    why: t("Greedy search never returns to a token that it did not take. A beam still has it.") },
  { title: t("Rollout"), at: ["rollout",
    { text: CAR, at: at({ kind: "encoder.self", way: "rollout" }) }],
    text: [t("The attention of one layer shows where that layer looks. But a word of layer 2 is " +
      "already a mixture of words."),
      t("Rollout follows the mixtures through all layers: it multiplies the weights of each " +
        "layer with those of the layers below, and counts the residual connection in."),
      t("The result says how much of each input word is in each word at the top.")],
    todo: t("Click a word to ask where it came from, and move the slider from the first layer to " +
      "the last."),
    question: t("What does rollout show that one layer does not?"),
    options: [t("Which word comes next"), t("How much of each input word has arrived at the top"),
      t("Which layer is the best")], answer: 1,
    why: t("It follows attention through all layers. It still shows only where information could " +
      "come from, not whether it mattered: that is what Relevance asks.") },
  { title: t("Induction heads"), at: ["induction", { model: "invented" }],
    text: [t("How does a model continue “zog plim … zog”? It looks for the last “zog” and " +
      "repeats what came after it: “plim”."),
      t("That takes two heads. One in an early layer tells each word which word stood before it. " +
        "One in a later layer looks for the words that stand after the same word: the induction " +
        "head."),
      t("Here a model reads random words twice. The first time it can only guess; the second " +
        "time an induction head knows what comes.")],
    todo: t("Compare the loss of both halves in the heading, and find the deepest blue square."),
    question: t("After “A B … A”, where does an induction head look?"),
    options: [t("At the first A"), t("At B"), t("At the word just before")], answer: 1,
    why: t("It looks at what followed the first A, so that the model can say B again.") },
];

const STORE = "course";

/** The numbers of the lessons whose question was answered. */
export function finishedLessons() {
  try {
    return JSON.parse(localStorage.getItem(STORE)) ?? [];
  } catch {
    return [];
  }
}

/** The link of a lesson, counted from 1. */
export function lessonLink(number) {
  const [view, state] = LESSONS[number - 1].at;
  return courseLink(view, { ...state, lesson: number });
}

/** The panel of a lesson as a list of elements; empty outside the course. */
export function lessonPanel(given, studio) {
  const number = Number(given);
  const lesson = LESSONS[number - 1];
  if (!lesson) return [];
  const verdict = h("p", { class: "st-verdict", role: "status" });
  const leave = () => {
    studio.set({ lesson: "" });
    panel.remove();
  };
  const check = (option) => {
    const right = option === lesson.answer;
    verdict.textContent = right ? `${t("Right.")} ${lesson.why}`
      : t("Not quite: look again, or try another answer.");
    verdict.dataset.right = String(right);
    if (right) localStorage.setItem(STORE,
      JSON.stringify([...new Set([...finishedLessons(), number])]));
  };
  const name = `lesson-${number}`;
  const panel = h("aside", { class: "st-side st-lesson", "aria-label": t("Lesson") },
    h("p", { class: "ch-label" }, t("Lesson {n} of {all}", { n: number, all: LESSONS.length })),
    h("h2", {}, lesson.title),
    lesson.text.map((part) => h("p", {}, explained(part))),
    h("p", { class: "st-todo" }, h("strong", {}, t("Do it:")), " ", lesson.todo),
    h("fieldset", { class: "st-question" }, h("legend", {}, lesson.question),
      lesson.options.map((option, index) =>
        h("label", {}, h("input", { type: "radio", name, onchange: () => check(index) }), option))),
    verdict,
    h("div", { class: "st-tour-foot" },
      number > 1 ? h("a", { class: "ch-button", rel: "prev", href: lessonLink(number - 1) },
        t("Back")) : "",
      h("button", { type: "button", class: "ch-button", onclick: leave }, t("Leave")),
      number < LESSONS.length ? h("a",
        { class: "st-go", rel: "next", href: lessonLink(number + 1) }, t("Next lesson"))
        : h("a", { class: "st-go", rel: "next", href: "#learn" }, t("To the overview"))));
  return [panel];
}

/** The list of lessons, with those that are done. */
export function courseList() {
  const done = finishedLessons();
  const next = LESSONS.findIndex((_, index) => !done.includes(index + 1));
  const item = ({ title }, index) => h("li", { class: done.includes(index + 1) ? "st-done" : null },
    h("a", { href: lessonLink(index + 1) }, title),
    done.includes(index + 1) ? h("span", { class: "st-tick" }, ` ✓ ${t("done")}`) : "");
  return h("section", { class: "st-course", "aria-label": t("Course") },
    h("h2", { class: "st-part" }, t("Ten lessons of five minutes")),
    h("p", {}, t("{n} of {all} done.", { n: done.length, all: LESSONS.length }), " ",
      h("a", { class: "st-go", href: lessonLink(next < 0 ? 1 : next + 1) },
        done.length ? (next < 0 ? t("Begin again") : t("Go on with lesson {n}", { n: next + 1 }))
          : t("Start with lesson 1"))),
    h("ol", {}, LESSONS.map(item)));
}

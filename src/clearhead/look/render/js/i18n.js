// The reader's language. A sentence stands in English where it is used: `t("Layer {layer}", { layer })`,
// and a dictionary has it in other languages. Without a dictionary, as in a notebook, it stays English.

let language = "en";
let dictionary = {};
let patterns = null; // of the sentences with values that the server filled in

/** Show everything in a language; modules that are loaded afterwards have their constants in it too. */
export function setLanguage(name, sentences) {
  [language, dictionary, patterns] = [name, sentences, null];
}

/** A sentence with its {placeholders} filled; numbers as the language writes them. */
export function t(sentence, values = {}) {
  return fill(dictionary[sentence] ?? sentence, values).join("");
}

/** The same as a list of strings and elements, for values that are elements. */
export function tParts(sentence, values) {
  return fill(dictionary[sentence] ?? sentence, values);
}

/** A sentence about `n` things: `plural("{n} token", "{n} tokens", n)`; a dictionary has its forms under the second. */
export function plural(one, other, n, values = {}) {
  const forms = dictionary[other] ?? { one, other };
  return fill(forms[new Intl.PluralRules(language).select(n)] ?? forms.other, { n, ...values }).join("");
}

/** A text from Python, whose values are filled in already: its sentence is the one with the same words around them. */
export function translated(text) {
  if (language === "en") return text;
  if (text in dictionary) return t(text);
  patterns ??= Object.keys(dictionary).filter((each) => each.includes("{0}"))
    .sort((one, other) => other.length - one.length).map((each) => [pattern(each), each]); // the most exact first
  for (const [words, sentence] of patterns) {
    const found = words.exec(text);
    if (found) return t(sentence, found.slice(1).map(span));
  }
  return text;
}

/** A range of numbers from Python, "0 to 5", in the language; other values as they are. */
function span(value) {
  const [, first, last] = /^(\d+) to (\d+)$/.exec(value) ?? [];
  return first === undefined ? value : t("{first} to {last}", { first, last });
}

/** A number with the separators of the language: 12,345 or 12.345. */
export function count(number, options = {}) {
  return number.toLocaleString(language, options);
}

/** A number that is written with a point, with the sign of the language instead. */
export function decimal(text) {
  return language === "en" ? text : text.replace(".", ",");
}

function fill(sentence, values) {
  const value = (name) => (typeof values[name] === "number" ? count(values[name]) : values[name]);
  return sentence.split(/\{(\w+)\}/).map((part, index) => (index % 2 ? value(part) : part));
}

function pattern(sentence) {
  const words = sentence.split(/\{\d\}/).map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${words.join("(.*)")}$`, "s");
}

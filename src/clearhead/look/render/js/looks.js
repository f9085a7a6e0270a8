// What all views of a Look share: its kinds of attention, its headline.

import { t } from "./i18n.js";

const NAMES = { "encoder.self": t("Encoder"), "decoder.self": t("Decoder"), "decoder.cross": t("Cross") };

/** The kinds of attention as options of a control: [[kind, name], ...]. */
export function kindOptions({ attention }) {
  return Object.keys(attention).map((kind) => [kind, NAMES[kind] ?? kind]);
}

/** The input and, if there is one, the output. */
export function headline({ text, output }) {
  return output.trim() && output !== text ? [text, output] : [text];
}

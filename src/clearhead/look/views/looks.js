// What every view of a Look says about it.

const NAMES = { "encoder.self": "Encoder", "decoder.self": "Decoder", "decoder.cross": "Cross" };

/** The kinds of attention as options of a control: [[kind, name], ...]. */
export function kindOptions({ attention }) {
  return Object.keys(attention).map((kind) => [kind, NAMES[kind] ?? kind]);
}

/** What was read and, where there is one, the answer. */
export function headline({ text, output }) {
  return output.trim() && output !== text ? [text, output] : [text];
}

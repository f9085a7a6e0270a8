// What all views of a Look share: its kinds of attention, its headline.

const NAMES = { "encoder.self": "Encoder", "decoder.self": "Decoder", "decoder.cross": "Cross" };

/** The kinds of attention as options of a control: [[kind, name], ...]. */
export function kindOptions({ attention }) {
  return Object.keys(attention).map((kind) => [kind, NAMES[kind] ?? kind]);
}

/** The input and, if there is one, the output. */
export function headline({ text, output }) {
  return output.trim() && output !== text ? [text, output] : [text];
}

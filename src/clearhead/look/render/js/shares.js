// Shares of attention in a Look: rows of attention or of rollout, over patches, tokens or both.

import { t } from "./i18n.js";
import { visible } from "./numbers.js";
import { fused, rollouts } from "./rollout.js";

const cached = new WeakMap(); // weights -> {way and heads: tables}: a slider needs them again and again

/** Whether queries and keys are the same tokens. */
export function square({ rows, columns }) {
  return rows.length === columns.length && rows.every((token, place) => token === columns[place]);
}

/** For each layer (T, S): by rollout, or the attention of one head, or of all heads fused. */
export function tables({ weights }, way, heads) {
  if (!cached.has(weights)) cached.set(weights, {});
  const known = cached.get(weights);
  const single = () => weights.map((layer) => layer[heads] ?? fused(layer, heads));
  return (known[`${way} ${heads}`] ??= way === "rollout" ? rollouts(weights, heads) : single());
}

/** (S,): the shares of one row of a table, or the mean of all rows (null). */
export function rowOf(table, query) {
  if (query !== null) return table[query];
  return table[0].map((_, column) => table.reduce((sum, row) => sum + row[column], 0) / table.length);
}

/** The columns [first, last) that are patches of the image; none without an image. */
export function patchColumns({ image, grid, class_token: classToken }) {
  const first = classToken ? 1 : 0;
  return image ? [first, first + grid[0] * grid[1]] : [0, 0];
}

/** The name of a token: of a patch its place. */
export function nameOf(data, words, token) {
  const [first, last] = patchColumns(data);
  if (token >= first && token < last) return patchName(token - first, data.grid[1]);
  return data.class_token && token === 0 ? t("the class token")
    : t("“{word}”", { word: visible(words[token]) });
}

/** The place of a patch in a grid. */
export function patchName(patch, columns) {
  return t("the patch in row {row}, column {column}", { row: Math.floor(patch / columns), column: patch % columns });
}

/** The column with the largest share; with an image only patches count. */
export function strongest(data, shares) {
  const [first, last] = data.image ? patchColumns(data) : [0, shares.length];
  const counted = shares.slice(first, last);
  return first + counted.indexOf(Math.max(...counted));
}

// Who takes how much of what in a Look: rows of attention or of rollout, over patches, words or both.

import { visible } from "./numbers.js";
import { fused, rollouts } from "./rollout.js";

const remembered = new WeakMap(); // weights -> {way and heads: tables}: a slider asks again and again

/** Whether the tokens that ask are the tokens that are looked at. */
export function square({ rows, columns }) {
  return rows.length === columns.length;
}

/** For each layer (T, S): by rollout, or the attention of one head or of all heads as one. */
export function tables({ weights }, way, heads) {
  if (!remembered.has(weights)) remembered.set(weights, {});
  const known = remembered.get(weights);
  const single = () => weights.map((layer) => layer[heads] ?? fused(layer, heads));
  return (known[`${way} ${heads}`] ??= way === "rollout" ? rollouts(weights, heads) : single());
}

/** (S,): what one row of a table takes of each column, or all rows on average (null). */
export function rowOf(table, query) {
  if (query !== null) return table[query];
  return table[0].map((_, column) => table.reduce((sum, row) => sum + row[column], 0) / table.length);
}

/** The columns [first, last) that are patches of the image; none without an image. */
export function patchColumns({ image, grid, class_token: classToken }) {
  const first = classToken ? 1 : 0;
  return image ? [first, first + grid[0] * grid[1]] : [0, 0];
}

/** What a token is called: a patch by its place, a word by itself. */
export function nameOf(data, words, token) {
  const [first, last] = patchColumns(data);
  if (token >= first && token < last) return `the ${patchName(token - first, data.grid[1])}`;
  return data.class_token && token === 0 ? "the class token" : `“${visible(words[token])}”`;
}

/** The place of a patch in a grid with so many columns. */
export function patchName(patch, columns) {
  return `patch in row ${Math.floor(patch / columns)}, column ${patch % columns}`;
}

/** The column with the largest share; of an image, the patch. */
export function strongest(data, shares) {
  const [first, last] = data.image ? patchColumns(data) : [0, shares.length];
  const counted = shares.slice(first, last);
  return first + counted.indexOf(Math.max(...counted));
}

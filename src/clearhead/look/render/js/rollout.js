// Attention rollout: how much of each input token is in each token of a layer, if only attention mixed tokens.
//
//   Â = r I + (1 - r) A,   R_l = Â_l … Â_1 Â_0

const FUSIONS = {
  mean: (weights) => weights.reduce((sum, weight) => sum + weight, 0) / weights.length,
  max: (weights) => Math.max(...weights),
  min: (weights) => Math.min(...weights),
};

/** weights [layer][head] (T, T) -> for each layer (T, T): where its tokens come from, each row sums to 1. */
export function rollouts(layers, heads = "mean", residual = 0.5) {
  const found = [];
  for (const layer of layers) {
    const mixed = mixture(fused(layer, heads), residual);
    found.push(found.length ? product(mixed, found.at(-1)) : mixed);
  }
  return found;
}

/** [head] (T, S) -> (T, S): one table for all heads, its rows scaled to a sum of 1. */
export function fused(layer, heads = "mean") {
  const fuse = FUSIONS[heads];
  return layer[0].map((row, t) => {
    const together = row.map((_, s) => fuse(layer.map((head) => head[t][s])));
    const sum = together.reduce((total, weight) => total + weight, 0);
    return sum ? together.map((weight) => weight / sum) : together;
  });
}

function mixture(weights, residual) {
  return weights.map((row, t) => row.map((weight, s) => (t === s ? residual : 0) + (1 - residual) * weight));
}

function product(left, right) {
  return left.map((row) => {
    const sum = new Array(right[0].length).fill(0);
    row.forEach((weight, t) => { if (weight) right[t].forEach((value, s) => { sum[s] += weight * value; }); });
    return sum;
  });
}

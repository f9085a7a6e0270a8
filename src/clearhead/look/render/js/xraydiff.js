// What is different in a changed model: the differences of its tensors, and where they are large enough to be marked.

const NOTICED = 0.04; // of the usual size of a tensor: from there on a number is marked

/**
 * The numbers of a changed model minus those of the original: {has, tensor, value, …} like `numbersOf`.
 *
 * A part whose shape is another has no counterpart. Likeliest answers are compared by their names.
 */
export function differencesOf(now, before) {
  const found = new Map();
  const { data } = now;

  function comparable(id) {
    const [one, other] = [data.parts[id], before.data.parts[id]];
    return Boolean(other) && one.shape.join() === other.shape.join();
  }

  function tensor(id) {
    if (!found.has(id)) found.set(id, comparable(id) ? subtract(id) : new Float32Array(now.tensor(id).length));
    return found.get(id);
  }

  function subtract(id) {
    const [one, other] = [now.tensor(id), before.tensor(id)];
    const { names } = data.parts[id].details;
    if (names) return byName(one, other, names, before.data.parts[id].details.names);
    const result = new Float32Array(one.length);
    for (let place = 0; place < one.length; place += 1) {
      const gap = one[place] - other[place];
      result[place] = Number.isFinite(gap) ? gap : one[place] === other[place] ? 0 : Math.sign(gap || 0) * 1e3;
    }
    return result;
  }

  function byName(one, other, names, known) {
    const width = names[0].length;
    const result = new Float32Array(one.length);
    names.forEach((row, at) => row.forEach((name, place) => {
      const there = known[at]?.indexOf(name) ?? -1;
      result[at * width + place] = there < 0 ? one[at * width + place] : one[at * width + place] - other[at * width
        + there];
    }));
    return result;
  }

  /** The size against which a difference counts: that of the numbers themselves; of shares a half. */
  const scales = new Map();
  function scale(id) {
    if (!scales.has(id)) {
      const isShare = ["softmax", "pick", "probability"].includes(data.parts[id].op);
      scales.set(id, isShare ? 0.5 : usual(before.tensor(id) ?? now.tensor(id)));
    }
    return scales.get(id);
  }

  const strengths = new Map();
  /** For each row of a head, 0 … 1: how different its most different number is. */
  function rows(id, head) {
    const key = `${id} ${head}`;
    if (!strengths.has(key)) {
      const { height, width } = now.shape(id);
      const [values, most] = [tensor(id), scale(id)];
      strengths.set(key, Float32Array.from({ length: height }, (_, row) => {
        let strongest = 0;
        const start = (head * height + row) * width;
        for (let place = start; place < start + width; place += 1) strongest = Math.max(strongest,
          Math.abs(values[place]));
        const strength = strongest / most;
        return strength < NOTICED ? 0 : Math.min(1, Math.sqrt(strength));
      }));
    }
    return strengths.get(key);
  }

  const has = (id) => now.has(id) && (!comparable(id) || before.has(id));
  return {
    ...now, tensor, has, rows, scale, comparable,
    value: ({ part, head, row, column }) => {
      const { height, width } = now.shape(part);
      return tensor(part)[((head ?? 0) * height + row) * width + column];
    },
    isMarked: (id, value) => Math.abs(value) > NOTICED * scale(id),
    request: (item) => Promise.all([now.request(item), before.request(item).catch(() => {})]),
  };
}

/** The usual size of the finite numbers of a tensor: the root of the mean of their squares. */
function usual(values) {
  let [sum, count] = [0, 0];
  for (const each of values) {
    if (Number.isFinite(each)) {
      sum += each * each;
      count += 1;
    }
  }
  return Math.sqrt(sum / Math.max(1, count)) || 1;
}

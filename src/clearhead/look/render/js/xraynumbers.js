// The numbers of an X-ray: decoded when they are needed, and each followed back to the numbers it was computed from.
//
// An address is {part, head, row, column}; head is 0 where a part has no heads.

import { decimal, t } from "./i18n.js";


/**
 * The tensors of a graph. `load` fetches what the data lacks: ({item}) -> values, ({part, row}) -> rows of
 * matrices.
 */
export function numbersOf(data, load = null) {
  const arrays = new Map(); // id -> {value, details}
  const asked = new Map(); // item -> promise
  const rows = new Map(); // "id row" -> promise
  const shapes = new Map(Object.entries(data.parts).map(([id, part]) => [id, shapeOf(part)]));
  add(data.values ?? {});

  function add(values) {
    for (const id of Object.keys(values)) arrays.set(id, { sent: values[id] });
  }

  function tensor(id, detail = null) {
    const found = arrays.get(id);
    if (!found) return null;
    if (detail === null) return (found.value ??= decode(found.sent.value));
    found.details ??= {};
    if (!(detail in found.sent.details)) return null;
    return (found.details[detail] ??= decode(found.sent.details[detail]));
  }

  function has(id) {
    return arrays.has(id);
  }

  /** Ask for the tensors of a group or part, once; resolves when they are here. */
  function request(item) {
    if (!load) return Promise.resolve();
    if (!asked.has(item)) asked.set(item, load({ item }).then(add, (error) => { asked.delete(item); throw error; }));
    return asked.get(item);
  }

  function value({ part, head, row, column }) {
    const { height, width } = shapes.get(part);
    return tensor(part)?.[((head ?? 0) * height + row) * width + column] ?? NaN;
  }

  /** The vector of one row of one head. */
  function vector(part, head, row) {
    const { height, width } = shapes.get(part);
    const start = (head * height + row) * width;
    return tensor(part).subarray(start, start + width);
  }

  /** The rows of a part's matrices that made one number, one for each input; null if they are not here. */
  function matrixRow(id, row) {
    const key = `${id} ${row}`;
    if (!rows.has(key)) rows.set(key, findRow(id, row));
    return rows.get(key);
  }

  async function findRow(id, row) {
    if (data.weights) {
      return data.parts[id].matrices.map(([, width], number) => {
        const whole = (decoded(data.weights[id], number));
        return whole.subarray(row * width, (row + 1) * width);
      });
    }
    return load ? (await load({ part: id, row })).map(decode) : null;
  }

  return { data, add, has, tensor, request, value, vector, matrixRow, shape: (id) => shapes.get(id) };
}

const matrices = new WeakMap();

function decoded(list, number) {
  if (!matrices.has(list)) matrices.set(list, []);
  return (matrices.get(list)[number] ??= decode(list[number]));
}

/** Little-endian float32 in base64 -> Float32Array. */
function decode(text) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let place = 0; place < letters.length; place += 1) bytes[place] = letters.charCodeAt(place);
  return new Float32Array(bytes.buffer);
}

function shapeOf({ shape }) {
  const [height, width] = shape.slice(-2);
  return { heads: shape.length === 3 ? shape[0] : 1, height, width };
}

/** The words of a row and a column of a part. */
export function labels({ axes, parts }, { part, row, column }) {
  const { rows, columns, details } = parts[part];
  return { row: axes[rows]?.[row] ?? String(row),
    column: details.names?.[row]?.[column] ?? axes[columns]?.[column] ?? String(column) };
}

// --- where a number comes from ---

/** The rows and cells that a number was computed from: [{part, head, row, column}], row or column null for all. */
export function sources({ parts }, { part: id, head, row, column }) {
  const part = parts[id];
  const [first, second] = part.inputs;
  const heads = (input) => (parts[input].shape.length === 3 ? head : 0);
  const cell = (input, at = row) => ({ part: input, head: heads(input), row: at, column });
  const whole = (input, at = row) => ({ part: input, head: heads(input), row: at, column: null });
  switch (part.op) {
    case "add": case "products": case "same": return part.inputs.map((input) => cell(input));
    case "score": return [whole(first), whole(second, column)];
    case "softmax": case "pick": return [whole(first)];
    case "mix": return [whole(first), { part: second, head, row: null, column }];
    case "rotate": return [whole(first)];
    case "shift": return [cell(part.details.of, row - part.details.step)];
    case "prepend": return row >= part.details.count ? [cell(first, row - part.details.count)] : [];
    case "probability": return [whole(first)];
    case "tail": return [cell(first, row + parts[first].shape.at(-2) - part.shape.at(-2))];
    case "pool": return [poolSource(parts, part, first, column)];
    case "concat": return [concatSource(parts, part, row, column)];
    case "linear": return part.inputs.flatMap((input) =>
      allHeads(parts, input, row, part.shape.length === 3 ? head : null));
    default: return part.inputs.map((input) =>
      (parts[input].columns === "" && parts[input].rows === part.rows ? whole(input)
      : { part: input, head: heads(input), row: null, column: null }));
  }
}

function allHeads(parts, input, row) {
  const { shape } = parts[input];
  return Array.from({ length: shape.length === 3 ? shape[0] : 1 }, (_, head) =>
    ({ part: input, head, row, column: null }));
}

function poolSource(parts, part, first, column) {
  const last = parts[first].shape.at(-2) - 1;
  return { part: first, head: 0, row: { first: 0, last, mean: null }[part.details.pool] ?? null, column };
}

function concatSource(parts, part, row, column) {
  let left = column;
  for (const input of part.inputs) {
    const width = parts[input].shape.at(-1);
    if (left < width) return { part: input, head: 0, row, column: left };
    left -= width;
  }
  return { part: part.inputs[0], head: 0, row, column: null };
}

/** What is computed from a number, in one part that reads it: [{part, head, row, column}], null for all. */
export function targets({ parts }, { part: id, head, row, column }, to) {
  const [own, part] = [parts[id], parts[to]];
  const [inHeads, isMany] = [own.shape.length === 3, part.shape.length === 3];
  const heads = isMany ? (inHeads ? [head] : range(part.shape[0])) : [0];
  const all = (where) => heads.map((each) => ({ part: to, head: each, ...where }));
  const last = part.shape.at(-2) - 1;
  switch (part.op) {
    case "add": case "products": case "same": return all({ row, column });
    case "score": return part.inputs.flatMap((input, which) => (input !== id ? []
      : all(which ? { row: null, column: row } : { row, column: null })));
    case "mix": return part.inputs.flatMap((input, which) => (input !== id ? []
      : all(which ? { row: null, column } : { row, column: null })));
    case "shift": return row + part.details.step >= 0 && row + part.details.step <= last
      ? all({ row: row + part.details.step, column }) : [];
    case "prepend": return all({ row: row + part.details.count, column });
    case "tail": return row - own.shape.at(-2) + last + 1 >= 0
      ? all({ row: row - own.shape.at(-2) + last + 1, column }) : [];
    case "pool": return { first: row === 0, last: row === own.shape.at(-2) - 1 }[part.details.pool] ?? true
      ? all({ row: 0, column }) : [];
    case "concat": return all({ row, column: column === null ? null : column + widthBefore(parts, part, id) });
    default: return own.rows === part.rows && own.shape.at(-2) === part.shape.at(-2) ? all({ row, column: null })
      : all({ row: null, column: null });
  }
}

function widthBefore(parts, part, id) {
  return part.inputs.slice(0, part.inputs.indexOf(id)).reduce((sum, input) => sum + parts[input].shape.at(-1), 0);
}

function range(count) {
  return Array.from({ length: count }, (_, index) => index);
}

/**
 * How a number was made: {value, terms, after}.
 *
 * `terms` are added up: [{factors: [{value, name, at}], value}]; `after` is what then happens: [{text, value}].
 * Resolves to terms: null where the weights that made it are not here.
 */
export async function explain(numbers, address) {
  const made = await explained(numbers, address);
  const { height, width } = numbers.shape(address.part);
  const change = numbers.tensor(address.part, "changed")?.[((address.head ?? 0) * height + address.row) * width
    + address.column];
  if (change) made.after.push({ value: made.value,
    text: t("your change: {change}", { change: `${change > 0 ? "+" : "−"} ${short(Math.abs(change))}` }) });
  return made;
}

async function explained(numbers, address) {
  const { data } = numbers;
  const { part: id, head, row, column } = address;
  const part = data.parts[id];
  const made = { value: numbers.value(address), terms: [], after: [] };
  const at = (input, r, c, h = head) => ({ part: input, head: data.parts[input].shape.length === 3 ? h : 0, row: r,
    column: c });
  const number = (where, name = data.parts[where.part].symbol) => ({ value: numbers.value(where), name, at: where });
  const term = (...factors) => ({ factors, value: factors.reduce((product, each) => product * each.value, 1) });
  const [first, second] = part.inputs;
  switch (part.op) {
    case "lookup":
      made.after.push({ text: t("row {row} of the table, number {column}", { row: part.details.ids[row], column }),
        value: made.value / part.details.scale });
      if (part.details.scale !== 1) made.after.push({ text: `× ${decimal(part.details.scale.toPrecision(4))}`,
        value: made.value });
      break;
    case "add":
      made.terms = part.inputs.map((input) => term(number(at(input, row, column))));
      break;
    case "same": case "shift": case "prepend": case "tail": case "concat":
      made.terms = sources(data, address).filter((where) => where.row >= 0
        && where.row < data.parts[where.part].shape.at(-2)).map((where) => term(number(where)));
      if (!made.terms.length) made.after.push({ text: part.op === "shift" ? t("the first state")
        : t("a learned vector"),
        value: made.value });
      break;
    case "pool": {
      const count = data.parts[first].shape.at(-2);
      const [where] = sources(data, address);
      const rows = where.row === null ? Array.from({ length: count }, (_, index) => index) : [where.row];
      made.terms = rows.map((each) => term(number(at(first, each, column))));
      if (rows.length > 1) made.after.push({ text: `÷ ${count}`, value: made.value });
      break;
    }
    case "norm": return explainNorm(numbers, address, made, number, term, at);
    case "rotate": return explainRotation(numbers, address, made, number, term, at);
    case "score": {
      made.terms = Array.from(numbers.vector(first, head, row), (_, place) =>
        term(number(at(first, row, place)), number(at(second, column, place))));
      const sum = total(made.terms);
      const scaled = sum * part.details.scale;
      if (part.details.scale !== 1) made.after.push({ text: scaleText(part.details.scale), value: scaled });
      const bias = numbers.tensor(id, "bias");
      const { height, width } = numbers.shape(id);
      if (bias) made.after.push({ text: t("+ position"), value: scaled + bias[(head * height + row) * width
        + column] });
      break;
    }
    case "softmax": {
      const scores = numbers.vector(first, head, row);
      const seen = numbers.tensor(id, "visible");
      const isSeen = (key) => !seen || seen[row * scores.length + key] > 0;
      const exps = Array.from(scores, (score, key) => (isSeen(key) ? Math.exp(score) : 0));
      made.terms = exps.map((each, key) => ({ label: data.axes[part.columns][key],
        factors: [{ value: each, name: isSeen(key) ? `exp(${short(scores[key])})` : t("masked"),
        at: at(first, row, key) }], value: each, own: key === column }));
      const sum = exps.reduce((before, each) => before + each, 0);
      made.after.push({ text: isSeen(column) ? `${short(exps[column])} ÷ ${short(sum)}` : t("hidden by the mask"),
        value: made.value });
      break;
    }
    case "mix":
      made.terms = Array.from(numbers.vector(first, head, row), (_, key) =>
        ({ ...term(number(at(first, row, key), "a"), number(at(second, key, column), "v")),
          label: data.axes[data.parts[first].columns][key] }));
      break;
    case "products":
      made.terms = part.details.terms.map((factors) =>
        term(...factors.map(([name, input]) => applied(name, number(at(input, row, column))))));
      break;
    case "linear": return explainLinear(numbers, address, made, number);
    case "logits": return explainLogit(numbers, address, made, number, at);
    case "probability": {
      const sum = numbers.tensor(id, "total")[row];
      const logit = number(at(first, row, column));
      const { temperature } = part.details;
      const cooled = logit.value / (temperature ?? 1);
      made.terms = [{ factors: [{ value: Math.exp(cooled - sum), name: "exp(l − log Σ)", at: logit.at }],
        value: made.value }];
      if (temperature) made.after.push({ value: cooled,
        text: t("logit {logit} ÷ temperature {temperature}", { logit: short(logit.value),
          temperature: short(temperature) }) });
      made.after.push({ value: made.value,
        text: t("logit {logit}, log of the sum over all {sum}", { logit: short(cooled), sum: short(sum) }) });
      break;
    }
    default: made.terms = null;
  }
  return made;
}

function explainNorm(numbers, { part: id, row, column, head }, made, number, term, at) {
  const { details, inputs } = numbers.data.parts[id];
  const x = numbers.vector(inputs[0], head ?? 0, row);
  const mean = details.norm === "layer" ? x.reduce((sum, each) => sum + each, 0) / x.length : 0;
  const spread = Math.sqrt(x.reduce((sum, each) => sum + (each - mean) ** 2, 0) / x.length + details.eps);
  const gain = numbers.tensor(id, "gain")?.[column] ?? 1;
  const shift = numbers.tensor(id, "shift")?.[column] ?? 0;
  made.terms = [term(number(at(inputs[0], row, column)))];
  if (details.norm === "layer") made.after.push({ text: t("− μ, the mean {mean}", { mean: short(mean) }),
    value: x[column] - mean });
  made.after.push({ text: `÷ ${details.norm === "layer" ? "σ" : t("root mean square")} ${short(spread)}`,
    value: (x[column] - mean) / spread });
  made.after.push({ text: `× γ ${short(gain)}`, value: (gain * (x[column] - mean)) / spread });
  if (details.norm === "layer") made.after.push({ text: `+ β ${short(shift)}`,
    value: (gain * (x[column] - mean)) / spread + shift });
  return made;
}

function explainRotation(numbers, { part: id, row, column }, made, number, term, at) {
  const { inputs, shape } = numbers.data.parts[id];
  const [cos, sin] = ["cos", "sin"].map((name) => numbers.tensor(id, name));
  const turned = cos.length / shape.at(-2); // numbers that are rotated; the rest stays
  if (column >= turned) {
    made.terms = [term(number(at(inputs[0], row, column)))];
    return made;
  }
  const partner = (column - turned / 2 + turned) % turned;
  const angle = (table, name) => ({ value: table[row * turned + column], name, at: null });
  made.terms = [
    term(number(at(inputs[0], row, column)), angle(cos, "cos")),
    term(number(at(inputs[0], row, partner)), angle(sin, partner > column ? "−sin" : "sin")),
  ];
  return made;
}

async function explainLinear(numbers, { part: id, head, row, column }, made, number) {
  const { details, inputs, shape } = numbers.data.parts[id];
  const inside = shape.length === 3 ? Math.floor(head / (details.group ?? 1)) * details.size + column : column;
  const weights = await numbers.matrixRow(id, inside);
  if (!weights) return { ...made, terms: null, missing: "weights" };
  made.terms = inputs.flatMap((input, which) => {
    const cells = allHeads(numbers.data.parts, input, row).flatMap(({ head: each }) =>
      Array.from(numbers.vector(input, each, row), (_, place) => ({ part: input, head: each, row, column: place })));
    return cells.map((where, place) => {
      const factors = [number(where), { value: weights[which][place], name: "W", at: null }];
      return { factors, value: factors[0].value * factors[1].value };
    });
  });
  let sum = total(made.terms);
  const bias = numbers.tensor(id, "bias");
  if (bias) {
    sum += bias[inside];
    made.after.push({ text: `+ b ${short(bias[inside])}`, value: sum });
  }
  if (details.activation) made.after.push({ text: details.activation === "tanh" ? "tanh" : "σ", value: made.value });
  return made;
}

async function explainLogit(numbers, { part: id, row, column }, made, number, at) {
  const { details, inputs } = numbers.data.parts[id];
  const found = await numbers.matrixRow(id, details.ids[row][column]);
  if (!found) return { ...made, terms: null, missing: "weights" };
  const from = numbers.data.parts[inputs[0]].shape.at(-2) > row ? row : 0;
  made.terms = Array.from(found[0], (weight, place) => {
    const x = number(at(inputs[0], from, place));
    return { factors: [x, { value: weight, name: "W", at: null }], value: x.value * weight };
  });
  const bias = numbers.tensor(id, "bias");
  if (bias) made.after.push({ text: "+ b", value: made.value });
  return made;
}

function applied(name, found) {
  if (!name) return found;
  const shown = name === "1 -" ? `1 − ${found.name}` : `${name}(${found.name})`;
  return { ...found, value: FUNCTIONS[name](found.value), name: shown };
}

const gelu = (x) => 0.5 * x * (1 + erf(x / Math.SQRT2));
const FUNCTIONS = {
  "1 -": (x) => 1 - x,
  tanh: Math.tanh,
  relu: (x) => Math.max(0, x),
  gelu,
  gelu_tanh: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  quick_gelu: (x) => x / (1 + Math.exp(-1.702 * x)),
  silu: (x) => x / (1 + Math.exp(-x)),
};

/** The error function, to about seven digits: a series near 0, a continued fraction farther out. */
function erf(x) {
  const size = Math.abs(x);
  if (size > 6) return Math.sign(x);
  if (size < 2.5) {
    let [sum, term] = [size, size];
    for (let n = 1; n < 60; n += 1) {
      term *= (-size * size) / n;
      sum += term / (2 * n + 1);
    }
    return Math.sign(x) * (2 / Math.sqrt(Math.PI)) * sum;
  }
  let fraction = 0;
  for (let n = 60; n > 0; n -= 1) fraction = n / 2 / (size + fraction);
  return Math.sign(x) * (1 - Math.exp(-size * size) / Math.sqrt(Math.PI) / (size + fraction));
}

/** The sum of the terms of a number. */
export function total(terms) {
  return terms.reduce((sum, { value }) => sum + value, 0);
}

function scaleText(scale) {
  const root = Math.round(1 / scale ** 2);
  return Math.abs(scale * Math.sqrt(root) - 1) < 1e-6 ? `÷ √${root} = ${short(Math.sqrt(root))}` : `× ${short(scale)}`;
}

function short(value) {
  return decimal(Number(value.toPrecision(4)).toString().replace("-", "−"));
}

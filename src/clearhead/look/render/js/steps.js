// Attention as the lectures teach it, one step after another, with the real numbers of one layer, head and query.
//
// data: Steps, format "clearhead-steps-1". chosen: {step}.

import { partLabel, signButton } from "./controls.js";
import { clamp, h, keyOf } from "./dom.js";
import { equation } from "./equation.js";
import { frame, handle, title, widget } from "./frame.js";
import { number, range, visible } from "./numbers.js";
import { drawing, table } from "./values.js";
import { stepVectors } from "./vectors.js";

export const FORMAT = "clearhead-steps-1";

const PAUSE = 1600; // milliseconds on each step while playing

/** Show the steps in an element: {update, destroy}. */
export function mount(element, data, options = {}) {
  let step = clamp(options.chosen?.step ?? 0, 0, data.steps.length - 1);
  let timer = null;
  let key = null; // whose product with the query is shown; null: the best
  let stopSum = () => {};
  const saved = { json: () => data, picture: () => view.figure.firstChild };
  const view = frame(element, { name: "steps", label: "Attention, step by step", draw, ...saved }, options);
  view.figure.addEventListener("pointerover", (event) => view.say(event.target.dataset?.say ?? ""));
  view.tools.addEventListener("keydown", (event) => {
    const next = { ArrowLeft: step - 1, ArrowRight: step + 1, Home: 0, End: data.steps.length - 1 }[keyOf(event)];
    if (next === undefined) return;
    event.preventDefault();
    go(next);
  });

  function go(next) {
    halt();
    show(next);
  }

  function show(next) {
    step = clamp(next, 0, data.steps.length - 1);
    options.onChange?.({ step });
    draw();
  }

  function play() {
    if (timer) return stop();
    if (step === data.steps.length - 1) show(0);
    timer = setInterval(() => (step < data.steps.length - 1 ? show(step + 1) : stop()), PAUSE);
    draw();
  }

  function stop() {
    halt();
    draw();
  }

  function halt() {
    stopSum();
    clearInterval(timer);
    timer = null;
  }

  function draw() {
    const focused = view.tools.contains(document.activeElement) ? document.activeElement.dataset.keep : null;
    const { name, equation: written, value, labels } = data.steps[step];
    const place = data.about ?? `${data.kind} · layer ${data.layer}, head ${data.head}, query ${data.query}`;
    title(view.heading, [`“${visible(data.rows[data.query])}”, step by step`], place);
    view.tools.replaceChildren(player(), rail(data.steps, step, go));
    const colours = view.palette();
    stopSum();
    const [parts, matrix, stopParts] = stepVectors(data, step, key, chooseKey, colours);
    stopSum = stopParts;
    const body = h("div", { class: "ch-step" },
      h("h3", {}, name), equation(written),
      drawing(value, labels, scaleOf(data.steps, step), Math.min(820, room()), colours),
      ...parts, numbers(value, labels));
    view.figure.replaceChildren(body, h("div", { class: "ch-beside" }, source(data.steps[step]), ...matrix));
    view.say("");
    if (focused) refocus(focused);
  }

  function chooseKey(next) {
    key = next;
    draw();
    view.figure.querySelector('.ch-words [aria-pressed="true"]')?.focus();
  }

  /** The controls are new: restore the focus, to the current step if its control is disabled now. */
  function refocus(kept) {
    const same = view.tools.querySelector(`[data-keep="${kept}"]:enabled`);
    (kept === "step" || !same ? view.tools.querySelector('[aria-current="step"]') : same).focus();
  }

  function room() {
    const inside = view.figure.clientWidth;
    return inside > 900 ? inside * 0.58 : inside;
  }

  function player() {
    const control = (sign, name, action, off = false) => {
      const made = signButton(sign, name, action);
      made.disabled = off;
      made.dataset.keep = name === "Pause" ? "Play" : name;
      return made;
    };
    return h("div", { class: "ch-player", role: "group", "aria-label": "Play the steps" },
      control("back", "Step back", () => go(step - 1), step === 0),
      timer ? control("pause", "Pause", play) : control("play", "Play", play),
      control("forward", "Step forward", () => go(step + 1), step === data.steps.length - 1));
  }

  return handle(view, (next, requested = { step }) => {
    data = next;
    key = null;
    step = clamp(requested.step ?? 0, 0, data.steps.length - 1);
  }, halt);
}

/** The names of all steps in their order, the present one marked. */
function rail(steps, present, go) {
  const item = ({ name }, index) => {
    const state = index === present ? { "aria-current": "step", tabindex: 0 } : { tabindex: -1 };
    return h("li", { "data-done": index < present },
      h("button", { type: "button", "data-keep": "step", ...state, onclick: () => go(index) }, name));
  };
  return h("ol", { class: "ch-rail" }, steps.map(item));
}

/** [least, most] to draw by. Scores share one scale, so that what scaling does is seen; other values have their own. */
function scaleOf(steps, step) {
  const { value } = steps[step];
  if (isShare(value)) return [0, 1];
  return range(isScore(steps[step]) ? steps.filter(isScore).map((each) => each.value) : value);
}

/** One number for each word, and not a share of one. */
function isScore({ value, labels }) {
  return Boolean(labels) && !Array.isArray(value[0]) && !isShare(value);
}

function isShare(value) {
  if (!Array.isArray(value) || Array.isArray(value[0])) return false;
  const exact = value.map(number);
  return exact.every((each) => each >= 0) && Math.abs(exact.reduce((sum, each) => sum + each, 0) - 1) < 0.01;
}

function numbers(value, labels) {
  const details = h("details", { class: "ch-numbers", "data-screen-only": true }, h("summary", {}, "All numbers"));
  details.addEventListener("toggle", () => details.append(table(value, labels)), { once: true });
  return details;
}

function source({ file, line, source: code }) {
  const lines = code.trimEnd().split("\n");
  const written = (text, index) => h("span", { class: "ch-code-line", "data-line": line + index }, `${text}\n`);
  return h("aside", { class: "ch-source", "aria-label": "The code that computes it" },
    partLabel(`${file}:${line}`),
    h("pre", {}, h("code", {}, lines.map(written))));
}

export default widget(mount);

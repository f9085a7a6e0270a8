// Attention as the lectures teach it, one step after another, with the real numbers of one layer, head and query.
//
// data: Steps, format "clearhead-steps-1", with `original` where something was changed. chosen: {step}.
// options.change: {make(changes, {live}), state()}, where what is computed can be changed; the state is
// {changes, answers, axes}.

import { partLabel, signButton } from "./controls.js";
import { clamp, h, keyOf } from "./dom.js";
import { equation } from "./equation.js";
import { frame, handle, title, widget } from "./frame.js";
import { t, translated } from "./i18n.js";
import { partName } from "./names.js";
import { number, range, visible } from "./numbers.js";
import { drawing, table } from "./values.js";
import { stepVectors } from "./vectors.js";
import { changeBar, headControls, isSame, withChange } from "./xraychange.js";

export const FORMAT = "clearhead-steps-1";

const PAUSE = 1600; // milliseconds on each step while playing

/** Show the steps in an element: {update, destroy}. */
export function mount(element, data, options = {}) {
  let step = clamp(options.chosen?.step ?? 0, 0, data.steps.length - 1);
  let timer = null;
  let key = null; // whose product with the query is shown; null: the best
  let stopSum = () => {};
  const saved = { json: () => data, picture: () => view.figure.firstChild };
  const view = frame(element, { name: "steps", label: t("Attention, step by step"), draw, ...saved }, options);
  const bar = h("div", { class: "ch-change-place" });
  const controls = h("details", { class: "ch-change-fold", "data-screen-only": true, hidden: true },
    h("summary", {}, t("Change it and see")));
  controls.addEventListener("toggle", drawControls);
  view.figure.before(bar, controls); // not in the figure: what is being dragged must not be drawn anew
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
    const place = data.about ? t(data.about) : t("{kind} · layer {layer}, head {head}, query {query}",
      { ...data, kind: partName(data.kind) });
    title(view.heading, [t("“{word}”, step by step", { word: visible(data.rows[data.query]) })], place);
    view.tools.replaceChildren(player(), rail(data.steps, step, go));
    const colours = view.palette();
    stopSum();
    const [parts, matrix, stopParts] = stepVectors(data, step, key, chooseKey, colours);
    stopSum = stopParts;
    const body = h("div", { class: "ch-step" },
      h("h3", {}, t(name)), equation(translated(written)),
      drawing(value, labels, scaleOf(data.steps, step), Math.min(820, room()), colours),
      ...before(data, step, Math.min(820, room()), colours), ...parts, numbers(value, labels));
    view.figure.replaceChildren(body, h("div", { class: "ch-beside" }, source(data.steps[step]), ...matrix));
    if (!controls.dataset.live) drawControls();
    view.say("");
    if (focused) refocus(focused);
  }

  // --- changing what is computed ---

  function make(change, isDone, takeBack = false) {
    const { changes } = options.change.state();
    const next = takeBack ? changes.filter((each) => !isSame(each, change)) : withChange(changes, change);
    if (isDone) delete controls.dataset.live;
    else controls.dataset.live = "yes"; // a control that is being dragged stays
    options.change.make(next, { live: !isDone });
  }

  function drawControls() {
    const weights = data.steps.find((each) => each.name === "softmax")?.value;
    controls.hidden = !options.change || !weights || data.kind === "example";
    if (controls.hidden) return undefined;
    const focused = controls.contains(document.activeElement) ? document.activeElement.dataset.keep : null;
    const [stack, part] = data.kind.split(".");
    const seen = data.steps.find((each) => each.name === "mask")?.value;
    const { changes } = options.change.state();
    if (changes.length) controls.open = true;
    if (!controls.open) return controls.replaceChildren(controls.firstChild);
    controls.replaceChildren(controls.firstChild, headControls({ layer: `${stack}.${data.layer}.${part}`,
      head: data.head, query: data.query,
      columns: data.columns, stack: part === "cross" ? "encoder" : stack, changes,
      weights: { row: weights, visible: (place) => !seen || Number.isFinite(number(seen[place])) } }, make));
    if (focused) controls.querySelector(`[data-keep="${focused}"]`)?.focus();
    return undefined;
  }

  /** What was changed and the answers, above the figure. */
  function drawBar() {
    if (!options.change) return;
    const { changes, answers, axes } = options.change.state();
    bar.replaceChildren(...(changes.length ? [changeBar({ changes, answers, axes }, {
      remove: (change) => options.change.make(changes.filter((each) => each !== change), { live: false }),
      clear: () => options.change.make([], { live: false }),
      again: () => {},
    })] : []));
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
      made.dataset.keep = sign === "pause" ? "play" : sign;
      return made;
    };
    return h("div", { class: "ch-player", role: "group", "aria-label": t("Play the steps") },
      control("back", t("Step back"), () => go(step - 1), step === 0),
      timer ? control("pause", t("Pause"), play) : control("play", t("Play all steps"), play),
      control("forward", t("Step forward"), () => go(step + 1), step === data.steps.length - 1));
  }

  const handled = handle(view, (next, requested = { step }) => {
    const name = data.steps[step]?.name;
    const had = data.steps.length;
    data = next;
    key = null;
    step = clamp(requested.step ?? 0, 0, data.steps.length - 1);
    if (data.steps.length !== had && data.steps[step]?.name !== name) { // a change adds a step of its own
      const there = data.steps.findIndex((each) => each.name === name);
      step = there < 0 ? step : there;
    }
  }, halt);
  return { ...handled, drawBar };
}

/** The same step of the original, where something was changed. */
function before(data, step, width, colours) {
  if (!data.original) return [];
  const { name } = data.steps[step];
  const which = data.steps.slice(0, step).filter((each) => each.name === name).length;
  const same = data.original.steps.filter((each) => each.name === name)[which];
  if (!same) return [];
  return [partLabel(h("strong", {}, t("In the original"))),
    drawing(same.value, same.labels, scaleOf(data.original.steps, data.original.steps.indexOf(same)), width, colours)];
}

/** The names of all steps in their order, the present one marked. */
function rail(steps, present, go) {
  const item = ({ name }, index) => {
    const state = index === present ? { "aria-current": "step", tabindex: 0 } : { tabindex: -1 };
    return h("li", { "data-done": index < present },
      h("button", { type: "button", "data-keep": "step", ...state, onclick: () => go(index) }, t(name)));
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
  const details = h("details", { class: "ch-numbers", "data-screen-only": true }, h("summary", {}, t("All numbers")));
  details.addEventListener("toggle", () => details.append(table(value, labels)), { once: true });
  return details;
}

function source({ file, line, source: code }) {
  const lines = code.trimEnd().split("\n");
  const written = (text, index) => h("span", { class: "ch-code-line", "data-line": line + index }, `${text}\n`);
  return h("aside", { class: "ch-source", "aria-label": t("The code that computes it") },
    partLabel(`${file}:${line}`),
    h("pre", {}, h("code", {}, lines.map(written))));
}

export default widget(mount);

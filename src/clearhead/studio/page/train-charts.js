// What a run has measured: curves, norms, scores, the confusion matrix, samples, and the end of
// its log.

import { count, plural, t } from "./i18n.js";
import { partLabel, slider } from "./views/controls.js";
import { h } from "./views/dom.js";
import { amountLegend } from "./views/legend.js";
import { matrix } from "./views/matrix.js";
import { format, visible } from "./views/numbers.js";
import { plot } from "./views/plot.js";

// numbers of an evaluation that are no scores
const NOT_SCORES = ["step", "loss", "tokens", "rate"];
const [LARGE, SMALL] = [300, 190]; // units of height
const LOG_LINES = 8;

/**
 * Every curve of some runs in a given width: the loss large, the others small, each in a plot of
 * its own.
 */
export function charts(runs, width) {
  const several = runs.length > 1;
  const small = width > 560 ? width / 2 - 20 : width; // two beside each other
  const one = (title, curves, about) => (curves.length
    ? [h("div", {}, partLabel(title), plot(curves,
      { width: small, height: SMALL, x: t("step"), y: title }),
      about ? h("p", { class: "ch-note" }, about) : "")] : []);
  const curve = (part, value) => runs.map((run, number) =>
    ({ name: several ? run.name : "", points: points(run, part, value), shade: 2 * number }))
    .filter((each) => each.points.length);
  return [
    partLabel(t("Loss: training as a line, held-out examples as dots")),
    plot(runs.flatMap((run, number) => losses(run, number, several)),
      { width, height: LARGE, x: t("step"), y: t("loss") }),
    h("div", { class: "st-small-plots" },
      ...scoreNames(runs).flatMap((name) => one(t(name), curve("validation", name).map((each) =>
        ({ ...each, dots: true })))),
      ...one(t("Norm of the gradient"), curve("train", "gradient_norm"),
        t("How large each step wants to be. Peaks are steps that went wrong; they are cut off.")),
      ...one(t("Norm of the weights"), curve("train", "weight_norm"),
        t("How large all weights are together. They grow as the model becomes sure."))),
  ];
}

function points({ metrics }, part, value) {
  return metrics.filter((each) => each.part === part && Number.isFinite(each[value]))
    .map((each) => [each.step, each[value]]);
}

function losses(run, number, several) {
  const name = (part) => (several ? `${run.name}, ${part}` : part);
  return [
    { name: name(t("training")), points: points(run, "train", "loss"), shade: 2 * number },
    { name: name(t("held out")), points: points(run, "validation", "loss"), dots: true,
      shade: 2 * number + 1 },
  ].filter((curve) => curve.points.length);
}

function scoreNames(runs) {
  const evaluations = runs.flatMap(({ metrics }) => metrics
    .filter(({ part }) => part === "validation"));
  const isScore = ([name, value]) => typeof value === "number" && !NOT_SCORES.includes(name);
  return [...new Set(evaluations.flatMap((each) => Object.entries(each).filter(isScore)
    .map(([name]) => name)))];
}

/**
 * One line that says how far a run is: its state, its step, its newest evaluation, and when it
 * ends.
 */
export function summary(run) {
  const last = run.metrics.filter(({ part }) => part === "validation").at(-1);
  const scores = scoreNames([run]).map((name) => `${t(name)} ${format(last[name])}`);
  return [
    t("{state}, step {step} of {steps}",
      { state: t(run.state), step: lastStep(run), steps: run.steps }),
    ...(last ? [t("validation loss {loss}", { loss: format(last.loss) }), ...scores] : []),
    ...(run.left === null || run.left === undefined ? [] : [timeLeft(run.left)]),
  ].join(", ");
}

function timeLeft(seconds) {
  if (seconds < 60) return t("less than a minute left");
  const minutes = Math.round(seconds / 60);
  if (minutes < 90) return plural("about {n} minute left", "about {n} minutes left", minutes);
  return plural("about {n} hour left", "about {n} hours left", Math.round(minutes / 60));
}

/** The last step that a run has made. */
export function lastStep({ metrics }) {
  return metrics.at(-1)?.step ?? 0;
}

/** Right and predicted labels at one evaluation, with a slider over all of them: {draw}. */
export function confusion() {
  let chosen = Infinity; // index of an evaluation; the newest unless the slider was moved back

  function draw({ metrics }, width, colours) {
    const tables = metrics.filter((each) => each.confusion)
      .map((each) => ({ step: each.step, ...each.confusion }));
    if (!tables.length) return "";
    const place = h("div");
    const newest = tables.length - 1;
    const show = (index) => {
      chosen = index === newest ? Infinity : index;
      place.replaceChildren(...table(tables[index], width, colours));
    };
    const write = (index) => t("step {step}", { step: tables[index].step });
    show(Math.min(chosen, newest));
    return h("section", { "aria-label": t("Confusion matrix") },
      partLabel(t("Which label it takes for which: right labels down, predicted ones across")),
      newest ? slider(t("Confusion matrix at"), newest, Math.min(chosen, newest), write, show) : "",
      place);
  }

  return { draw };
}

function table({ labels, counts }, width, colours) {
  const rows = counts.map((row) => row.reduce((sum, each) => sum + each, 0) || 1);
  const readout = h("p", { class: "ch-note", role: "status" });
  const say = (cell) => {
    readout.textContent = cell ? t("{right} was taken for {predicted}: {times}",
      { right: labels[cell.query],
      predicted: labels[cell.key], times: plural("{n} time", "{n} times",
        counts[cell.query][cell.key]) })
      : t("A perfect model has blue only on the diagonal.");
  };
  const drawn = matrix({ rows: labels.map(visible), columns: labels.map(visible),
    weights: counts.map((row, place) => row.map((each) => each / rows[place])) },
    Math.min(width, 560), colours,
  { onHover: say, write: (share) => format(share) });
  say(null);
  return [drawn.element, amountLegend(colours, ["0 %", t("100 % of the row")]), readout];
}

/** What a run wrote at each evaluation, the newest first. */
export function samples({ metrics }) {
  const newest = metrics.filter(({ sample }) => sample).reverse();
  if (!newest.length) return "";
  const line = ({ step, sample }) =>
    h("li", {}, h("span", { class: "ch-label" }, t("step {step}", { step })),
    h("span", { dir: "auto" }, sample.slice(0, 240)));
  return h("section", { "aria-label": t("Samples") },
    partLabel(t("Samples of its output, newest first")),
    h("ol", { class: "st-samples" }, newest.map(line)));
}

/** The end of what the process wrote. */
export function logTail({ said: log }, open, onToggle) {
  const last = log.trim().split("\n").slice(-LOG_LINES).join("\n");
  const details = h("details", { class: "st-code", open, ontoggle: () => onToggle(details.open) },
    h("summary", {}, t("Output of the process")), h("pre", {}, last));
  return last ? details : "";
}

/** What a file holds and what looks wrong in it. */
export function dataReport({ name, kind, unit, train, validation, first, faults }) {
  const fault = ({ what, count: times, places }) =>
    h("li", {}, `${t(what)}: ${count(times)}${places.length ? ` (${places.join(", ")})` : ""}`);
  const title = name || t("built-in data");
  return h("section", { "aria-label": t("What is in {file}", { file: title }) },
    partLabel(h("strong", {}, title), " · ",
      t("{kind}: {train} {unit} to learn from, {validation} held out",
      { kind: t(kind), train, unit: t(unit), validation })),
    first.length ? h("pre", { class: "st-first", dir: "auto", tabindex: 0 }, first.join("\n")) : "",
    faults.length ? h("ul", { class: "st-faults" }, faults.map(fault))
      : h("p", { class: "st-hint" }, t("Nothing looks wrong in it.")));
}

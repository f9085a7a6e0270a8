// Train a model: begin, watch it learn, pause, go on, stop, and compare runs.

import { get, post, put } from "./api.js";
import { plot } from "./plot.js";
import { button, menu, partLabel, slider, toggle } from "./views/controls.js";
import { h } from "./views/dom.js";
import { frame, title } from "./views/frame.js";
import { mount } from "./views/heads.js";
import { format } from "./views/numbers.js";

export const NAME = "Train";
export const ABOUT = "Begin a run and watch it learn. It is a process of its own: closing this page or the server does not end it.";

const OFTEN = 1500; // milliseconds between two looks
const TASKS = [
  ["translate", "translate: pairs of sentences"], ["lm", "language model: text"], ["classify", "classify: labelled texts"],
  ["tag", "tag: labelled words"], ["vision", "vision: labelled images"], ["caption", "caption: images and sentences"],
  ["words", "words: text"],
];
const UPLOADED = ["translate", "lm", "classify", "tag", "words"]; // tasks that one file is enough for
const VERBS = { running: ["pause", "stop"], paused: ["resume", "stop"], stopped: ["resume"], failed: ["resume"], finished: ["use"] };
const SAMPLES = 6;
const KINDS = ["encoder.self", "decoder.self", "decoder.cross"];

export function open(element, state, studio) {
  const wish = { task: state.task ?? "translate", size: state.size ?? "tiny", steps: Number(state.steps ?? 300), upload: state.upload ?? "" };
  let chosen = (state.runs ?? "").split(",").filter(Boolean);
  let known = { runs: [], uploads: [] };
  let details = new Map(); // name -> a run with its measurements
  let [timer, lostSince, closed] = [null, null, false];
  const trouble = h("p", { class: "st-trouble", role: "alert", hidden: true });
  const news = h("p", { class: "st-news", role: "status" });
  const form = h("form", { class: "st-begin", "aria-label": "A new run", onsubmit: begin });
  const list = h("ul", { class: "st-runs", "aria-label": "Runs" });
  const place = h("div", { class: "st-place" });
  const watched = attentionOf(h("div"));
  let [view, drawnForm, drawnList] = [null, "", ""];
  let reading = null; // whether the log is open, once somebody has said so

  // --- asking ---

  async function look() {
    clearTimeout(timer);
    try {
      known = await get("/studio/api/runs");
      chosen = chosen.filter((name) => known.runs.some((run) => run.name === name));
      if (!chosen.length && known.runs.length) chosen = [known.runs[0].name];
      const found = await Promise.all(chosen.map((name) => get(`/studio/api/runs/${encodeURIComponent(name)}`)));
      details = new Map(found.map((run) => [run.name, run]));
      if (lostSince) back();
      if (!closed) draw();
    } catch (error) {
      lost(error);
    }
    if (!closed) timer = setTimeout(look, OFTEN);
  }

  function lost(error) {
    lostSince ??= new Date();
    const kept = [...details.values()].map((run) => `${run.name} was at step ${lastStep(run)}, its checkpoint at ${run.checkpoint ?? "none yet"}`);
    say(trouble, `${error.message} Since ${clock(lostSince)} this page is on its own; runs go on by themselves, and checkpoints are safe. ${kept.join("; ")}. Trying again…`);
  }

  function back() {
    say(trouble, "");
    say(news, `The server is back; it was gone from ${clock(lostSince)} to ${clock(new Date())}. ${[...details.values()].map((run) => `${run.name} is ${run.state} at step ${lastStep(run)}`).join("; ")}.`);
    lostSince = null;
  }

  async function act(work) {
    try {
      await work();
      say(trouble, "");
    } catch (error) {
      say(trouble, error.message);
    }
    await look();
  }

  async function doWith(run, verb) {
    await post(`/studio/api/runs/${encodeURIComponent(run.name)}/${verb}`);
    if (verb !== "use") return;
    await studio.renew();
    studio.go(run.task === "words" ? "words" : "play", { model: run.name });
  }

  function begin(event) {
    event.preventDefault();
    act(async () => {
      const { task, size, steps, upload } = wish;
      const run = await post("/studio/api/runs", { task, size, steps, ...(upload ? { upload } : {}) });
      choose([run.name]);
      say(news, `${run.name} begins.`);
    });
  }

  function choose(names) {
    chosen = names;
    studio.set({ runs: chosen.join(",") });
  }

  async function send(file) {
    if (!file) return;
    await act(async () => {
      const { name } = await put(`/studio/api/runs/uploads/${encodeURIComponent(file.name)}`, file);
      wish.upload = name;
      say(news, `${name} is here.`);
    });
  }

  // --- drawing ---

  function draw() {
    drawForm();
    drawList();
    const runs = chosen.map((name) => details.get(name)).filter(Boolean);
    if (!runs.length) return place.replaceChildren(h("p", { class: "st-hint" }, "No run yet: begin one above."));
    view ??= frame(place, { name: "runs", label: "Runs", draw: drawRuns, picture: () => view.figure,
      json: () => ({ format: "clearhead-runs-1", runs: [...details.values()] }) }, {});
    view.redraw();
    return watched.follow(runs[0]);
  }

  function drawForm() {
    const now = JSON.stringify([wish.task, wish.upload, known.uploads]);
    if (now === drawnForm) return;
    drawnForm = now;
    const file = h("input", { type: "file", hidden: true, onchange: () => send(file.files[0]) });
    const set = (name) => (value) => {
      wish[name] = value;
      if (name === "task" && !UPLOADED.includes(value)) wish.upload = "";
      studio.set({ task: wish.task, size: wish.size, steps: wish.steps, upload: wish.upload });
      drawForm();
    };
    const sources = [["", "built in"], ...(UPLOADED.includes(wish.task) ? known.uploads.map((name) => [name, name]) : [])];
    const steps = h("input", { class: "st-input st-number", type: "number", min: 1, max: 1000000, value: wish.steps,
      "aria-label": "Steps", onchange: () => set("steps")(Number(steps.value)) });
    form.replaceChildren(
      menu("Task", TASKS, wish.task, set("task")),
      menu("Data", sources, wish.upload, set("upload")),
      ...(UPLOADED.includes(wish.task) ? [button("Upload a file", () => file.click()), file] : []),
      menu("Size", ["tiny", "small", "base"].map((size) => [size, size]), wish.size, set("size")),
      h("label", { class: "ch-menu" }, h("span", { class: "ch-label" }, "Steps"), steps),
      h("button", { class: "st-go" }, "Begin"));
  }

  function drawList() {
    const now = JSON.stringify([known.runs, chosen]);
    if (now === drawnList) return;
    drawnList = now;
    const focused = list.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    list.replaceChildren(...known.runs.map(entry));
    if (focused) [...list.querySelectorAll("button, input")].find((each) => each.getAttribute("aria-label") === focused)?.focus();
  }

  function entry(run) {
    const compare = toggle(run.name, chosen.includes(run.name), (on) => {
      choose(on ? [...chosen, run.name] : chosen.filter((name) => name !== run.name));
      look();
    });
    compare.querySelector("input").setAttribute("aria-label", `Show ${run.name}`);
    const verb = (name) => button(name, () => act(() => doWith(run, name)), `${name} ${run.name}`);
    return h("li", {}, compare, h("span", { class: `st-state st-is-${run.state}` }, run.state),
      h("span", { class: "ch-label" }, `${run.task} · ${run.data} · ${run.steps.toLocaleString("en")} steps`),
      h("span", { class: "st-verbs" }, VERBS[run.state].map(verb)));
  }

  function drawRuns() {
    const runs = chosen.map((name) => details.get(name)).filter(Boolean);
    title(view.heading, [runs.map((run) => run.name).join(", ")], runs.map(summary).join(" · "));
    const width = Math.max(300, Math.min(900, view.figure.clientWidth * (view.figure.clientWidth > 900 ? 0.58 : 1)));
    view.figure.replaceChildren(
      h("div", {}, partLabel("Loss: the line while training, the dots on examples that are held out"),
        plot(runs.flatMap((run, number) => curves(run, number, runs.length > 1)), { width, height: 300, x: "step", y: "loss" })),
      h("div", {}, samples(runs[0]), said(runs[0], reading ?? runs[0].state === "failed", (now) => { reading = now; })));
  }

  element.append(form, trouble, news, list, place, watched.element);
  drawForm();
  look();
  return {
    close() {
      closed = true;
      clearTimeout(timer);
      view?.destroy();
      watched.close();
    },
  };
}

function say(line, sentence) {
  line.textContent = sentence;
  line.hidden = !sentence;
}

function clock(time) {
  return time.toLocaleTimeString();
}

function lastStep({ metrics }) {
  return metrics.at(-1)?.step ?? 0;
}

function summary(run) {
  const last = run.metrics.filter(({ part }) => part === "validation").at(-1);
  const scores = Object.entries(last ?? {}).filter(([name, value]) => typeof value === "number" && name !== "step" && name !== "loss");
  const measured = last ? `, validation loss ${format(last.loss)}${scores.map(([name, value]) => `, ${name} ${format(value)}`).join("")}` : "";
  return `${run.state}, step ${lastStep(run).toLocaleString("en")} of ${run.steps.toLocaleString("en")}${measured}`;
}

function curves({ name, metrics }, number, several) {
  const of = (wanted) => metrics.filter(({ part, loss }) => part === wanted && Number.isFinite(loss)).map(({ step, loss }) => [step, loss]);
  const named = (what) => (several ? `${name}, ${what}` : what);
  return [
    { name: named("training"), points: of("train"), shade: 2 * number },
    { name: named("held out"), points: of("validation"), dots: true, shade: 2 * number + 1 },
  ].filter(({ points }) => points.length);
}

function samples({ metrics }) {
  const kept = metrics.filter(({ sample }) => sample).slice(-SAMPLES).reverse();
  if (!kept.length) return "";
  return h("section", { "aria-label": "Samples" }, partLabel("What it says, the newest first"),
    h("ol", { class: "st-samples" }, kept.map(({ step, sample }) =>
      h("li", {}, h("span", { class: "ch-label" }, `step ${step.toLocaleString("en")}`), h("span", { dir: "auto" }, sample.slice(0, 240))))));
}

function said({ said: log }, open, onToggle) {
  const last = log.trim().split("\n").slice(-8).join("\n");
  const details = h("details", { class: "st-code", open, ontoggle: () => onToggle(details.open) },
    h("summary", {}, "What the process said"), h("pre", {}, last));
  return last ? details : "";
}

/** One kind of attention at one evaluation, with words as people write them. */
function seenAt({ rows, columns, weights }, kind, evaluation) {
  const words = (tokens) => tokens.map((token) => token.replaceAll("▁", " ").trim() || "·");
  return { rows: words(rows), columns: words(columns), weights: weights[evaluation], causal: kind === "decoder.self" };
}

/** The attention of the fixed example, evaluation by evaluation: {element, follow, close}. */
function attentionOf(element) {
  let [view, history, newest, shown, chosen] = [null, null, "", null, {}];
  const tools = h("div", { class: "st-choices" });
  const place = h("div", { class: "st-place" });
  element.append(tools, place);

  async function follow({ name, metrics }) {
    const count = metrics.filter(({ part }) => part === "validation").length;
    if (!count || newest === `${name} ${count}`) return;
    newest = `${name} ${count}`;
    const atEnd = !history || shown === history.steps.length - 1;
    const found = await get(`/studio/api/runs/${encodeURIComponent(name)}/attention`).catch(() => null);
    if (!found?.steps.length) return clear();
    history = found;
    shown = atEnd || shown >= history.steps.length ? history.steps.length - 1 : shown;
    draw(name);
  }

  /** A run that keeps no attention, or none yet, shows none of another run. */
  function clear() {
    view?.destroy();
    [view, history] = [null, null];
    tools.replaceChildren();
  }

  function draw(name) {
    const { steps } = history;
    tools.replaceChildren(slider("Attention of one held-out example at", steps.length - 1, shown,
      (index) => `step ${steps[index].toLocaleString("en")}`, (index) => { shown = index; show(name); }));
    show(name);
  }

  function show(name) {
    const kinds = KINDS.filter((kind) => kind in history.attention);
    const attention = Object.fromEntries(kinds.map((kind) => [kind, seenAt(history.attention[kind], kind, shown)]));
    const data = { format: "clearhead-look-1", model: name, text: `Step ${history.steps[shown].toLocaleString("en")}`, output: "", attention };
    if (view) view.update(data, chosen);
    else view = mount(place, data, { chosen, onChange: (next) => { chosen = next; } });
  }

  return { element, follow, close: () => view?.destroy() };
}

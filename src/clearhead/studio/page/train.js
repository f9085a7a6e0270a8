// Train a model: start, watch, pause, resume, stop and compare runs.

import { get, post, put, remove } from "./api.js";
import { plot } from "./views/plot.js";
import { button, menu, partLabel, toggle } from "./views/controls.js";
import { h, roomIn } from "./views/dom.js";
import { frame, title } from "./views/frame.js";
import { mount } from "./views/history.js";
import { format } from "./views/numbers.js";

export const NAME = "Train";
export const ABOUT = "Start a run and watch it learn. It continues when you close this page or the server.";

const INTERVAL = 1500; // milliseconds between two updates
const NAMES = { finish: "use as it is" }; // of actions; others are called as they are

export function open(element, state, studio) {
  const request = { task: state.task, size: state.size ?? "tiny", steps: Number(state.steps ?? 300), upload: state.upload ?? "", settings: state.settings ?? "" };
  let chosen = (state.runs ?? "").split(",").filter(Boolean);
  let tasks = []; // what can be trained
  let known = { runs: [], uploads: [] };
  let details = new Map(); // name -> a run with its measurements
  let [timer, offlineSince, closed] = [null, null, false];
  const errorLine = h("p", { class: "st-error", role: "alert", hidden: true });
  const statusLine = h("p", { class: "st-news", role: "status" });
  const form = h("form", { class: "st-new-run", "aria-label": "New run", onsubmit: start });
  const preview = h("div", { class: "st-preview" });
  const list = h("ul", { class: "st-runs", "aria-label": "Runs" });
  const place = h("div", { class: "st-place" });
  const attention = attentionHistory(h("div"));
  let [view, drawnForm, drawnList] = [null, "", ""];
  let logOpen = null; // whether the log is open; null until the user opens or closes it

  // --- requests ---

  async function update() {
    clearTimeout(timer);
    try {
      if (!tasks.length) tasks = await get("/studio/api/tasks");
      known = await get("/studio/api/runs");
      chosen = chosen.filter((name) => known.runs.some((run) => run.name === name));
      if (!chosen.length && known.runs.length) chosen = [known.runs[0].name];
      const found = await Promise.all(chosen.map((name) => get(`/studio/api/runs/${encodeURIComponent(name)}`)));
      details = new Map(found.map((run) => [run.name, run]));
      if (offlineSince) reconnected();
      if (!closed) draw();
    } catch (error) {
      disconnected(error);
    }
    if (!closed) timer = setTimeout(update, INTERVAL);
  }

  function disconnected(error) {
    offlineSince ??= new Date();
    const last = [...details.values()].map((run) => `${run.name} was at step ${lastStep(run)}, its checkpoint at ${run.checkpoint ?? "none yet"}`);
    say(errorLine, `${error.message} The page has been offline since ${clock(offlineSince)}; runs continue without it, and checkpoints are safe. ${last.join("; ")}. Trying again…`);
  }

  function reconnected() {
    say(errorLine, "");
    say(statusLine, `The server is back; it was offline from ${clock(offlineSince)} to ${clock(new Date())}. ${[...details.values()].map((run) => `${run.name} is ${run.state} at step ${lastStep(run)}`).join("; ")}.`);
    offlineSince = null;
  }

  /** Run something that may fail, show its error, and update. */
  async function run(work) {
    try {
      await work();
      say(errorLine, "");
    } catch (error) {
      say(errorLine, error.message);
    }
    await update();
  }

  async function apply(action, { name }) {
    if (action === "delete") {
      if (confirm(`Delete ${name} with its model and its checkpoints?`)) await remove(`/studio/api/runs/${encodeURIComponent(name)}`);
      return;
    }
    await post(`/studio/api/runs/${encodeURIComponent(name)}/${action}`);
    if (action !== "use") return;
    await studio.reloadModels();
    const [model] = studio.models((each) => each.name === name);
    studio.go(model.reads === "words" ? "words" : "play", { model: name });
  }

  function start(event) {
    event.preventDefault();
    run(async () => {
      const { task, size, steps, upload } = request;
      const settings = request.settings.split(/\s+/).filter(Boolean);
      const started = await post("/studio/api/runs", { task, size, steps, settings, ...(upload ? { upload } : {}) });
      choose([started.name]);
      say(statusLine, `${started.name} has started.`);
    });
  }

  function choose(names) {
    chosen = names;
    studio.set({ runs: chosen.join(",") });
  }

  async function send(file) {
    if (!file) return;
    await run(async () => {
      const { name } = await put(`/studio/api/runs/uploads/${encodeURIComponent(file.name)}`, file);
      request.upload = name;
      say(statusLine, `${name} is uploaded.`);
    });
    await inspect();
  }

  /** Show what is in the chosen file, and what looks wrong in it, before a run starts. */
  async function inspect() {
    if (!request.upload) return preview.replaceChildren();
    const asked = checkAddress(request);
    try {
      const found = await get(asked);
      if (asked === checkAddress(request)) preview.replaceChildren(report(found)); // the form may ask for another by now
    } catch (error) {
      preview.replaceChildren(h("p", { class: "st-error", role: "alert" }, error.message));
    }
    return undefined;
  }

  // --- drawing ---

  function draw() {
    drawForm();
    drawList();
    const runs = chosen.map((name) => details.get(name)).filter(Boolean);
    if (!runs.length) return place.replaceChildren(firstRun());
    view ??= frame(place, { name: "runs", label: "Runs", draw: drawRuns, picture: () => view.figure,
      json: () => ({ format: "clearhead-runs-1", runs: [...details.values()] }) }, {});
    view.redraw();
    return attention.follow(runs[0]);
  }

  function drawForm() {
    if (!tasks.length) return;
    const chosenTask = tasks.find(({ name }) => name === request.task) ?? tasks[0];
    request.task = chosenTask.name;
    const now = JSON.stringify([request.task, request.upload, known.uploads]);
    if (now === drawnForm) return;
    drawnForm = now;
    const file = h("input", { type: "file", hidden: true, onchange: () => send(file.files[0]) });
    const set = (name) => (value) => {
      request[name] = value;
      if (name === "task" && !tasks.find((each) => each.name === value).upload) request.upload = "";
      studio.set({ task: request.task, size: request.size, steps: request.steps, upload: request.upload, settings: request.settings });
      drawForm();
      if (name === "task" || name === "upload") inspect();
    };
    const sources = [["", "built in"], ...(chosenTask.upload ? known.uploads.map((name) => [name, name]) : [])];
    const steps = h("input", { class: "st-input st-number", type: "number", min: 1, max: 1000000, value: request.steps,
      "aria-label": "Steps", onchange: () => set("steps")(Number(steps.value)) });
    const more = h("input", { class: "st-input", "aria-label": "More settings", autocomplete: "off", spellcheck: "false", placeholder: "key=value key=value",
      onchange: () => set("settings")(more.value) });
    more.value = request.settings;
    form.replaceChildren(
      menu("Task", tasks.map(({ name, title, needs }) => [name, `${title}: ${needs}`]), request.task, set("task")),
      menu("Data", sources, request.upload, set("upload")),
      ...(chosenTask.upload ? [button("Upload a file", () => file.click()), file] : []),
      menu("Size", ["tiny", "small", "base"].map((size) => [size, size]), request.size, set("size")),
      h("label", { class: "ch-menu", title: "One step is one batch of examples. 300 take a minute or two." }, h("span", { class: "ch-label" }, "Steps"), steps),
      h("details", { class: "st-settings", open: Boolean(request.settings) }, h("summary", {}, "More settings"), more, h("p", { class: "st-hint" }, "As for clearhead train, separated by blanks: model.layers=2 train.seed=7 data.kind=pairs")),
      h("button", { class: "st-go" }, "Start"));
  }

  function drawList() {
    const now = JSON.stringify([known.runs, chosen]);
    if (now === drawnList) return;
    drawnList = now;
    const focused = list.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    list.replaceChildren(...known.runs.map(listItem));
    if (focused) [...list.querySelectorAll("button, input")].find((each) => each.getAttribute("aria-label") === focused)?.focus();
  }

  function listItem(entry) {
    const compare = toggle(entry.name, chosen.includes(entry.name), (on) => {
      choose(on ? [...chosen, entry.name] : chosen.filter((name) => name !== entry.name));
      update();
    });
    compare.querySelector("input").setAttribute("aria-label", `Show ${entry.name}`);
    const action = (name) => button(NAMES[name] ?? name, () => run(() => apply(name, entry)), `${NAMES[name] ?? name} ${entry.name}`);
    return h("li", {}, compare, h("span", { class: `st-state st-is-${entry.state}` }, entry.state),
      h("span", { class: "ch-label" }, `${entry.task} · ${entry.data} · ${entry.steps.toLocaleString("en")} steps`),
      h("span", { class: "st-verbs" }, entry.actions.map(action)),
      ...(entry.why ? [h("p", { class: "st-why" }, entry.why)] : []));
  }

  function drawRuns() {
    const runs = chosen.map((name) => details.get(name)).filter(Boolean);
    title(view.heading, [runs.map(({ name }) => name).join(", ")], runs.map(summary).join(" · "));
    const width = Math.max(300, Math.min(900, roomIn(view.figure) * (view.figure.clientWidth > 900 ? 0.58 : 1)));
    view.figure.replaceChildren(
      h("div", {}, partLabel("Loss: training as a line, held-out examples as dots"),
        plot(runs.flatMap((run, number) => curves(run, number, runs.length > 1)), { width, height: 300, x: "step", y: "loss" })),
      h("div", {}, samples(runs[0]), logTail(runs[0], logOpen ?? runs[0].state === "failed", (open) => { logOpen = open; })));
  }

  element.append(form, preview, errorLine, statusLine, list, place, attention.element);
  update();
  if (request.upload) inspect();
  return {
    close() {
      closed = true;
      clearTimeout(timer);
      view?.destroy();
      attention.close();
    },
  };
}

/** Where the server says what is in an uploaded file and whether it suits the task. */
function checkAddress({ upload, task }) {
  return `/studio/api/runs/uploads/${encodeURIComponent(upload)}/check?task=${encodeURIComponent(task)}`;
}

/** What an empty page says: what will be seen here. */
function firstRun() {
  return h("div", { class: "st-hint" }, h("p", {}, "No run yet. Press Start: a tiny model begins to learn from built-in data, and here you watch"),
    h("ul", {}, ["the loss falling, on training examples and on examples that it never sees;", "samples of its output, from noise to words;",
      "the attention of one example at every evaluation, like a film."].map((text) => h("li", {}, text))));
}

/** What a file holds and what looks wrong in it. */
function report({ name, kind, unit, train, validation, first, faults }) {
  const count = (number) => number.toLocaleString("en");
  return h("section", { "aria-label": `What is in ${name}` },
    partLabel(h("strong", {}, name), ` · ${kind}: ${count(train)} ${unit} to learn from, ${count(validation)} held out`),
    h("pre", { class: "st-first", dir: "auto" }, first.join("\n")),
    faults.length ? h("ul", { class: "st-faults" }, faults.map((fault) => h("li", {}, `${fault.what}: ${count(fault.count)}${fault.places.length ? ` (${fault.places.join(", ")})` : ""}`)))
      : h("p", { class: "st-hint" }, "Nothing looks wrong in it."));
}

function say(line, message) {
  line.textContent = message;
  line.hidden = !message;
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
  const losses = (name) => metrics.filter(({ part, loss }) => part === name && Number.isFinite(loss)).map(({ step, loss }) => [step, loss]);
  const curveName = (part) => (several ? `${name}, ${part}` : part);
  return [
    { name: curveName("training"), points: losses("train"), shade: 2 * number },
    { name: curveName("held out"), points: losses("validation"), dots: true, shade: 2 * number + 1 },
  ].filter(({ points }) => points.length);
}

function samples({ metrics }) {
  const newest = metrics.filter(({ sample }) => sample).reverse();
  if (!newest.length) return "";
  return h("section", { "aria-label": "Samples" }, partLabel("Samples of its output, newest first"),
    h("ol", { class: "st-samples" }, newest.map(({ step, sample }) =>
      h("li", {}, h("span", { class: "ch-label" }, `step ${step.toLocaleString("en")}`), h("span", { dir: "auto" }, sample.slice(0, 240))))));
}

function logTail({ said: log }, open, onToggle) {
  const last = log.trim().split("\n").slice(-8).join("\n");
  const details = h("details", { class: "st-code", open, ontoggle: () => onToggle(details.open) },
    h("summary", {}, "Output of the process"), h("pre", {}, last));
  return last ? details : "";
}

/** The attention of a fixed example at each evaluation: {element, follow, close}. */
function attentionHistory(element) {
  let [view, newest, chosen, count] = [null, "", {}, 0];

  async function follow({ name, metrics }) {
    const evaluations = metrics.filter(({ part }) => part === "validation").length;
    if (!evaluations || newest === `${name} ${evaluations}`) return;
    newest = `${name} ${evaluations}`;
    const found = await get(`/studio/api/runs/${encodeURIComponent(name)}/attention`).catch(() => null);
    if (!found?.steps.length) return clear();
    if (chosen.step === count - 1) chosen = { ...chosen, step: undefined }; // stay at the newest
    count = found.steps.length;
    const data = { ...found, model: name };
    if (view) view.update(data, chosen);
    else view = mount(element, data, { chosen, onChange: (next) => { chosen = next; } });
  }

  /** Show nothing for a run without attention, instead of that of the previous run. */
  function clear() {
    view?.destroy();
    view = null;
  }

  return { element, follow, close: () => view?.destroy() };
}

// Train a model: start, watch, pause, resume, stop and compare runs, and take the finished model
// elsewhere.

import { get, post, put, remove } from "./api.js";
import { count, plural, t, tParts, translated } from "./i18n.js";
import { charts, confusion, dataReport, lastStep, logTail, samples,
  summary } from "./train-charts.js";
import { newRunForm } from "./train-form.js";
import { button, partLabel, toggle } from "./views/controls.js";
import { h, roomIn } from "./views/dom.js";
import { frame, title } from "./views/frame.js";
import { mount } from "./views/history.js";

export const NAME = t("Train");
export const ABOUT = t(
  "Start a run and watch it learn. It continues when you close this page or the server.");

const INTERVAL = 1500; // milliseconds between two updates
const ACTIONS = {
  pause: t("pause"), resume: t("resume"), stop: t("stop"), finish: t("use as it is"), use: t("use"),
  export: t("export"), serve: t("serve"), delete: t("delete"),
};
const FORMATS = { hf: "Hugging Face", gguf: "llama.cpp (GGUF)", onnx: "ONNX", ct2: "CTranslate2" };

export function open(element, state, studio) {
  const request = { task: state.task, size: state.size ?? "tiny", steps: Number(state.steps ?? 300),
    upload: state.upload ?? "", settings: state.settings ?? "" };
  let chosen = (state.runs ?? "").split(",").filter(Boolean);
  let tasks = []; // what can be trained
  let known = { runs: [], uploads: [] };
  let details = new Map(); // name -> a run with its measurements
  let [timer, offlineSince, closed] = [null, null, false];
  const errorLine = h("p", { class: "st-error", role: "alert", hidden: true });
  const statusLine = h("p", { class: "st-news", role: "status" });
  const form = newRunForm(request, { onChange: changed, onFile: send, onStart: start });
  const preview = h("div", { class: "st-preview" });
  const list = h("ul", { class: "st-runs", "aria-label": t("Runs") });
  const handOver = h("div", { class: "st-hand-over" });
  const place = h("div",
    { class: "st-place", "aria-busy": "true", "data-wait": t("Computing…") });
  const attention = attentionHistory(h("div"));
  const mistakes = confusion();
  let [view, drawnList] = [null, ""];
  let logOpen = null; // whether the log is open; null until the user opens or closes it

  // --- requests ---

  async function update() {
    clearTimeout(timer);
    try {
      if (!tasks.length) tasks = await get("/studio/api/tasks");
      known = await get("/studio/api/runs");
      chosen = chosen.filter((name) => known.runs.some((run) => run.name === name));
      if (!chosen.length && known.runs.length) chosen = [known.runs[0].name];
      const found = await Promise.all(chosen.map((name) => get(addressOf(name))));
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
    const last = [...details.values()]
      .map((run) => t("{run} was at step {step}, its checkpoint at {checkpoint}",
      { run: run.name, step: String(lastStep(run)), checkpoint: run.checkpoint ?? t("none yet") }));
    say(errorLine, [error.message,
      t("The page has been offline since {time}; runs continue without it, and " +
      "checkpoints are safe.", { time: clock(offlineSince) }), `${last.join("; ")}.`,
      t("Trying again…")].join(" "));
  }

  function reconnected() {
    say(errorLine, "");
    const now = [...details.values()].map((run) => t("{run} is {state} at step {step}",
      { run: run.name, state: t(run.state), step: lastStep(run) }));
    say(statusLine, `${t("The server is back; it was offline from {from} to {to}.",
      { from: clock(offlineSince), to: clock(new Date()) })} ${now.join("; ")}.`);
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

  async function apply(action, entry) {
    const { name } = entry;
    if (action === "export") return showExports(entry);
    if (action === "serve") return showService(entry);
    handOver.replaceChildren();
    if (action === "delete") {
      if (confirm(t("Delete {run} with its model and its checkpoints?",
        { run: name }))) await remove(addressOf(name));
      return undefined;
    }
    await post(`${addressOf(name)}/${action}`);
    if (action !== "use") return undefined;
    await studio.reloadModels();
    const [model] = studio.models((each) => each.name === name);
    return studio.go(model.reads === "words" ? "words" : "play", { model: name });
  }

  function start(event) {
    event.preventDefault();
    run(async () => {
      const { task, size, steps, upload } = request;
      const settings = request.settings.split(/\s+/).filter(Boolean);
      const started = await post("/studio/api/runs",
        { task, size, steps, settings, ...(upload ? { upload } : {}) });
      choose([started.name]);
      say(statusLine, t("{run} has started.", { run: started.name }));
    });
  }

  function choose(names) {
    chosen = names;
    studio.set({ runs: chosen.join(",") });
  }

  function changed(name) {
    studio.set(request);
    if (name === "task" || name === "upload") inspect();
  }

  async function send(file) {
    if (!file) return;
    await run(async () => {
      const { name } = await put(`/studio/api/runs/uploads/${encodeURIComponent(file.name)}`, file);
      request.upload = name;
      say(statusLine, t("{file} is uploaded.", { file: name }));
    });
    await inspect();
  }

  /** Show what is in the chosen file, and what looks wrong in it, before a run starts. */
  async function inspect() {
    if (closed || !request.task) return;
    const asked = checkAddress(request);
    try {
      const found = await get(asked);
      // it may be another by now
      if (asked === checkAddress(request)) preview.replaceChildren(dataReport(found));
    } catch (error) {
      preview.replaceChildren(h("p", { class: "st-error", role: "alert" }, error.message));
    }
  }

  // --- what a finished model can go on to ---

  async function showExports({ name }) {
    const formats = await get("/studio/api/exports");
    const result = h("p", { role: "status" });
    const write = async (format) => {
      result.className = "st-hint";
      result.replaceChildren(t("Writing…"));
      try {
        const { out, files } = await post(`${addressOf(name)}/export`, { format });
        const bytes = Object.values(files).reduce((sum, each) => sum + each, 0);
        result.replaceChildren(...tParts("{files} in {folder}",
          { folder: h("code", {}, out), files: plural(
          "{n} file, {size} MB", "{n} files, {size} MB", Object.keys(files).length,
          { size: megabytes(bytes) }) }));
      } catch (error) {
        result.className = "st-error";
        result.replaceChildren(error.message);
      }
    };
    handOver.replaceChildren(h("section", { "aria-label": t("Export {run}", { run: name }) },
      partLabel(t("Write {run} for another program:", { run: name })),
      h("div", { class: "st-more" }, formats
        .map((format) => button(FORMATS[format] ?? format, () => write(format)))),
      result));
    handOver.querySelector("button").focus();
  }

  function showService({ name, folder, task }) {
    const command = `clearhead serve ${folder}`;
    const { ask: [route, field] = [] } = tasks.find((each) => each.name === task) ?? {};
    const ask = route && `curl -s 127.0.0.1:8000/${route} -H 'Content-Type: application/json' ` +
      `-d '${JSON.stringify({ model: name, [field]: "…" })}'`;
    handOver.replaceChildren(h("section", { "aria-label": t("Serve {run}", { run: name }) },
      partLabel(t("Serve {run} over HTTP; type this in a terminal:", { run: name })),
      copyable(command),
      ...(ask ? [partLabel(t("Then programs ask it like this:")), copyable(ask)] : []),
      h("p", { class: "st-hint" }, h("a", { href: "/openapi.json", target: "_blank" },
        t("All routes (OpenAPI)")))));
    handOver.querySelector("button").focus();
  }

  // --- drawing ---

  function draw() {
    place.removeAttribute("aria-busy");
    form.draw(tasks, known.uploads);
    drawList();
    const runs = chosen.map((name) => details.get(name)).filter(Boolean);
    if (!runs.length) return place.replaceChildren(firstRun());
    view ??= frame(place, { name: "runs", label: t("Runs"), draw: drawRuns,
      picture: () => view.figure,
      json: () => ({ format: "clearhead-runs-1", runs: [...details.values()] }) }, {});
    view.redraw();
    return attention.follow(runs[0]);
  }

  function drawList() {
    const now = JSON.stringify([known.runs.map((each) => ({ ...each, left: 0 })), chosen]);
    if (now === drawnList) return;
    drawnList = now;
    const focused = list.contains(document.activeElement)
      ? document.activeElement.getAttribute("aria-label") : null;
    list.replaceChildren(...known.runs.map(listItem));
    const same = (each) => each.getAttribute("aria-label") === focused;
    if (focused) [...list.querySelectorAll("button, input")].find(same)?.focus();
  }

  function listItem(entry) {
    const { name } = entry;
    const data = entry.data === "builtin" ? t("built in") : entry.data;
    const compare = toggle(name, chosen.includes(name), (on) => {
      choose(on ? [...chosen, name] : chosen.filter((each) => each !== name));
      update();
    });
    compare.querySelector("input").setAttribute("aria-label", t("Show {run}", { run: name }));
    const action = (each) => button(ACTIONS[each], () => run(() => apply(each, entry)),
      `${ACTIONS[each]} ${name}`);
    return h("li", {}, compare, h("span", { class: `st-state st-is-${entry.state}` },
      t(entry.state)),
      h("span", { class: "ch-label" }, [t(entry.task), data,
        plural("{n} step", "{n} steps", entry.steps)].join(" · ")),
      h("span", { class: "st-verbs" }, entry.actions.map(action)),
      ...(entry.why ? [h("p", { class: "st-why" },
        translated(entry.why.replace(/^clearhead: /, "")))] : []));
  }

  function drawRuns() {
    const runs = chosen.map((name) => details.get(name)).filter(Boolean);
    title(view.heading, [runs.map(({ name }) => name).join(", ")], runs.map(summary).join(" · "));
    const beside = view.figure.clientWidth > 900;
    const width = Math.max(300, roomIn(view.figure) * (beside ? 0.58 : 1));
    const moving = view.figure.contains(document.activeElement)
      && document.activeElement.type === "range";
    if (moving) return; // a slider that is being moved stays
    view.figure.replaceChildren(
      h("div", {}, charts(runs, width)),
      h("div", {}, mistakes.draw(runs[0], width * 0.65, view.palette()), samples(runs[0]),
        logTail(runs[0], logOpen ?? runs[0].state === "failed", (open) => { logOpen = open; })));
  }

  element.append(form.element, preview, errorLine, statusLine, list, handOver, place,
    attention.element);
  update().then(inspect);
  return {
    close() {
      closed = true;
      clearTimeout(timer);
      view?.destroy();
      attention.close();
    },
  };
}

function addressOf(name) {
  return `/studio/api/runs/${encodeURIComponent(name)}`;
}

/** Where the server says what is in the data, and whether an uploaded file suits the task. */
function checkAddress({ upload, task }) {
  if (!upload) return `/studio/api/tasks/${encodeURIComponent(task)}/data`;
  const file = `/studio/api/runs/uploads/${encodeURIComponent(upload)}`;
  return `${file}/check?task=${encodeURIComponent(task)}`;
}

/** What an empty page says: what will be seen here. */
function firstRun() {
  const seen = [
    t("the loss falling, on training examples and on examples that it never sees;"),
    t("samples of its output, from noise to words;"),
    t("the attention of one example at every evaluation, like a film."),
  ];
  return h("div", { class: "st-hint" },
    h("p", {}, t("No run yet. Press Start: a tiny model begins to learn from built-in data, and " +
      "here you watch")),
    h("ul", {}, seen.map((text) => h("li", {}, text))));
}

function copyable(text) {
  const copy = button(t("Copy"), () => navigator.clipboard?.writeText(text));
  return h("div", { class: "st-command" }, h("code", { tabindex: 0 }, text), copy);
}

function say(line, message) {
  line.textContent = message;
  line.hidden = !message;
}

function clock(time) {
  return time.toLocaleTimeString();
}

function megabytes(bytes) {
  return count(bytes / 1e6, { maximumFractionDigits: 1 });
}

/** The attention of a fixed example at each evaluation: {element, follow, close}. */
function attentionHistory(element) {
  let [view, newest, chosen, evaluations] = [null, "", {}, 0];

  async function follow({ name, metrics }) {
    const measured = metrics.filter(({ part }) => part === "validation").length;
    if (!measured || newest === `${name} ${measured}`) return;
    newest = `${name} ${measured}`;
    const found = await get(`${addressOf(name)}/attention`).catch(() => null);
    if (!found?.steps.length) return clear();
    // stay at the newest
    if (chosen.step === evaluations - 1) chosen = { ...chosen, step: undefined };
    evaluations = found.steps.length;
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

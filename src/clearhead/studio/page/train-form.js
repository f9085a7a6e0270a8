// The form of a new run: task, data, size, steps, and settings, each with an explanation.

import { get } from "./api.js";
import { t } from "./i18n.js";
import { button, menu } from "./views/controls.js";
import { h } from "./views/dom.js";

const SIZES = { tiny: t("tiny: minutes"), small: t("small: an hour"), base: t("base: a night") };

/** The settings that most people change: [key, name, what it does]. */
const SETTINGS = [
  ["model.layers", t("Layers"),
    t("How many blocks stand on each other. More can learn more, and take longer.")],
  ["model.dim", t("Width"),
    t("How many numbers stand for one token. More can learn more, and take longer.")],
  ["model.heads", t("Heads"),
    t("How many attentions work side by side in a layer. They share the width.")],
  ["model.dropout", t("Dropout"),
    t("Share of the numbers that are set to 0 at random while it learns, so that it does not " +
      "learn by heart.")],
  ["train.learning_rate", t("Learning rate"),
    t("How far one step moves the weights. Too much, and the loss jumps; too little, and it " +
      "hardly falls.")],
  ["data.batch_tokens", t("Tokens in a batch"),
    t("How much it reads for one step. More gives calmer, slower steps.")],
  ["train.patience", t("Patience"),
    t("After how many evaluations without progress it stops early.")],
  ["train.seed", t("Seed"), t("Another number gives another random beginning.")],
];

/**
 * The form for `request` {task, size, steps, upload, settings: "key=value …"}: {element, draw}.
 *
 * `onChange(name)` is told what was changed, `onFile` gets a file, `onStart` the event of the
 * button.
 */
export function newRunForm(request, { onChange, onFile, onStart }) {
  const element = h("form", { class: "st-new-run", "aria-label": t("New run"), onsubmit: onStart });
  const fields = h("div", { class: "st-fields" });
  let drawn = "";

  function draw(tasks, uploads) {
    const task = tasks.find(({ name }) => name === request.task) ?? tasks[0];
    request.task = task.name;
    const now = JSON.stringify([request.task, request.size, request.upload, uploads]);
    if (now === drawn) return;
    drawn = now;
    const set = (name) => (value) => {
      request[name] = value;
      if (name === "task" && !tasks.find((each) => each.name === value).upload) request.upload = "";
      draw(tasks, uploads);
      onChange(name);
    };
    const file = h("input", { type: "file", hidden: true, onchange: () => onFile(file.files[0]) });
    const sources = [["", t("built in")],
      ...(task.upload ? uploads.map((name) => [name, name]) : [])];
    const steps = h("input", { class: "st-input st-number", type: "number", min: 1, max: 1000000,
      value: request.steps, "aria-label": t("Steps"),
      onchange: () => set("steps")(Number(steps.value)) });
    element.replaceChildren(
      menu(t("Task"), tasks.map(({ name, title, needs }) => [name, `${t(title)}: ${t(needs)}`]),
        request.task,
        set("task")),
      menu(t("Data"), sources, request.upload, set("upload")),
      ...(task.upload ? [button(t("Upload a file"), () => file.click()), file] : []),
      menu(t("Size"), Object.entries(SIZES), request.size, set("size")),
      h("label", { class: "ch-menu",
        title: t("One step is one batch of examples. 300 take a minute or two.") },
        h("span", { class: "ch-label" }, t("Steps")), steps),
      h("details", { class: "st-settings", open: Boolean(request.settings) },
        h("summary", {}, t("More settings")), fields),
      h("button", { class: "st-go" }, t("Start")));
    drawSettings();
  }

  /** A field for each setting that the task has; what is not filled in stays as usual. */
  async function drawSettings() {
    const { task } = request;
    const asked = `/studio/api/tasks/${encodeURIComponent(task)}/settings?size=${request.size}`;
    const usual = await get(asked).catch(() => ({}));
    // another by now
    if (!asked.endsWith(
      `/${encodeURIComponent(request.task)}/settings?size=${request.size}`)) return;
    const given = () => new Map(request.settings.split(/\s+/).filter(Boolean)
      .map((each) => [each.split("=")[0], each.slice(each.indexOf("=") + 1)]));
    const change = (key, value) => {
      const all = given();
      if (value) all.set(key, value);
      else all.delete(key);
      request.settings = [...all].map(([name, each]) => `${name}=${each}`).join(" ");
      written.value = request.settings;
      onChange("settings");
    };
    const field = ([key, name, about]) => {
      const input = h("input", { class: "st-input st-number", inputmode: "decimal",
        autocomplete: "off",
        placeholder: usual[key] === null ? t("none") : String(usual[key]), "aria-label": name,
        onchange: () => change(key, input.value.trim().replace(",", ".")) });
      input.value = given().get(key) ?? "";
      return h("label", { class: "st-field" }, h("span", {}, name), input,
        h("span", { class: "st-hint" }, about));
    };
    const written = h("input", { class: "st-input", "aria-label": t("All settings that differ"),
      spellcheck: "false",
      autocomplete: "off", placeholder: "key=value key=value",
      onchange: () => { request.settings = written.value.trim(); onChange(
        "settings"); drawSettings(); } });
    written.value = request.settings;
    fields.replaceChildren(...SETTINGS.filter(([key]) => key in usual).map(field),
      h("label", { class: "st-field st-all-settings" },
        h("span", {}, t("All settings that differ")), written,
        h("span", { class: "st-hint" },
          t("As clearhead train takes them, {n} in all: clearhead train {task} --help",
          { n: Object.keys(usual).length, task }))));
  }

  return { element, draw };
}

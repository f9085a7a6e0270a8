// The attention of one example at every evaluation of a training, like a film.
//
// data: History, format "clearhead-history-1". chosen: {step: index of an evaluation, at: the choice in the heads}.

import { signButton, slider } from "./controls.js";
import { clamp, h } from "./dom.js";
import { widget } from "./frame.js";
import { mount as mountHeads } from "./heads.js";
import { t } from "./i18n.js";

export const FORMAT = "clearhead-history-1";

const KINDS = ["encoder.self", "decoder.self", "decoder.cross"];
const PAUSE = 700; // milliseconds on each evaluation while playing

/** Show a history in an element: {update, destroy}. */
export function mount(element, data, options = {}) {
  let chosen = validChoice(data, options.chosen ?? {});
  let timer = null;
  const tools = h("div", { class: "ch-tools" });
  const heads = mountHeads(element, lookAt(data, chosen.step),
    { theme: options.theme, chosen: chosen.at, onChange: (at) => choose({ at }), above: tools, json: () => data });

  function choose(part) {
    chosen = { ...chosen, ...part };
    options.onChange?.(chosen);
  }

  function show(step) {
    choose({ step });
    if (!tools.contains(document.activeElement) || timer) drawTools(); // a slider that is being moved stays
    heads.update(lookAt(data, step), chosen.at);
  }

  function drawTools() {
    const focused = tools.contains(document.activeElement) ? document.activeElement.tagName : null;
    const write = (index) => t("step {step}", { step: data.steps[index] });
    const [sign, name] = timer ? ["pause", t("Pause")] : ["play", t("Play the training")];
    tools.replaceChildren(
      h("span", { class: "ch-player" }, signButton(sign, name, play)),
      slider(t("Attention of one held-out example at"), data.steps.length - 1, chosen.step, write, show));
    if (focused) tools.querySelector(focused)?.focus();
  }

  function play() {
    if (timer) return stop();
    if (chosen.step === data.steps.length - 1) show(0);
    timer = setInterval(() => (chosen.step < data.steps.length - 1 ? show(chosen.step + 1) : stop()), PAUSE);
    return drawTools();
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    drawTools();
  }

  drawTools();
  return {
    update(next, requested = chosen) {
      data = next;
      chosen = validChoice(data, requested);
      drawTools();
      heads.update(lookAt(data, chosen.step), chosen.at);
    },
    destroy() {
      clearInterval(timer);
      heads.destroy();
    },
  };
}

function validChoice({ steps }, { step = Infinity, at = {} }) {
  return { step: clamp(step, 0, steps.length - 1), at: at ?? {} };
}

/** One evaluation as the heads read it. */
function lookAt({ steps, attention, model = "" }, evaluation) {
  const readable = (tokens) => tokens.map((token) => token.replaceAll("▁", " ").trim() || "·");
  const kinds = KINDS.filter((kind) => kind in attention).map((kind) => {
    const { rows, columns, weights } = attention[kind];
    const words = { rows: readable(rows), columns: readable(columns) };
    return [kind, { ...words, weights: weights[evaluation], causal: kind === "decoder.self" }];
  });
  const text = t("Step {step}", { step: steps[evaluation] });
  return { format: "clearhead-look-1", model, text, output: "", attention: Object.fromEntries(kinds) };
}

export default widget(mount);

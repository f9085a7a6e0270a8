// The whole model as one picture, from the text to the single number; and what becomes of it when something is changed.

import { isAbort, post } from "./api.js";
import { plural, t } from "./i18n.js";
import { parseJson } from "./link.js";
import { pad } from "./pad.js";
import { findModel, inputBar, inputText, noModel, resultPanel } from "./shared.js";
import { menu, toggle } from "./views/controls.js";
import { h } from "./views/dom.js";
import { mount } from "./views/xray.js";

export const NAME = t("X-ray");
export const ABOUT = t("The whole model, from the text to the answer: click to zoom in, down to a single number and where it comes from.");
export const fits = ({ reads }) => reads !== "words";

const BEAMS = [["", t("As usual")],
  ...[2, 3, 4, 6].map((n) => [String(n), plural("{n} beam", "{n} beams", n)])];

export function open(element, state, studio) {
  const models = studio.models(fits);
  if (!models.length) return element.append(noModel(t("None of the loaded models has layers.")));
  const model = findModel(models, state.model);
  const { place, load, showError, element: panel } = resultPanel();
  const readsImage = model.reads === "image";
  const request = { text: inputText(model, state.text), generate: state.writes === "yes", image: state.image,
    beams: state.beams ?? "", target: state.target ?? "" };
  let chosen = parseJson(state.at);
  let changes = Array.isArray(parseJson(state.changes)) ? parseJson(state.changes) : [];
  let [mode, follow] = [state.show ?? "beside", state.follow === "yes"];
  let [view, beam] = [null, undefined];
  let waiting = null; // the request for the last change

  function body() {
    if (readsImage) return { model: model.name, image: request.image };
    const { text, target } = request;
    const generate = request.generate && model.continues;
    return { model: model.name, text, generate, beams: model.generates && (generate || !model.continues)
      ? Number(request.beams || 0) : 0,
      ...(target && !model.continues ? { target } : {}) };
  }

  function save() {
    studio.set({ model: model.name, text: readsImage ? "" : request.text, image: request.image, writes: request.generate
      ? "yes" : "",
      beams: request.beams, target: request.target, changes: changes.length ? JSON.stringify(changes) : "",
      show: changes.length && mode !== "beside" ? mode : "", follow: changes.length && follow ? "yes" : "" });
  }

  function refresh(changed = {}) {
    if ("text" in changed || "image" in changed) {
      chosen = "at" in changed ? changed.at : {};
      [changes, request.target] = [[], ""];
    }
    Object.assign(request, changed);
    save();
    load(async (isCurrent) => {
      const asked = body();
      const data = await post("/studio/api/xray", { ...asked, eager: true });
      if (!isCurrent()) return;
      beam = data.beam;
      view?.destroy();
      view = mount(place, data, { chosen, load: fetcher(asked), onChange: choose, onText: openText, change: { make,
        mode: setMode, follow: setFollow } });
      if (changes.length) await compare(false);
    });
  }

  /** What fetches the tensors and weights of an X-ray. */
  function fetcher(asked) {
    return async (wanted) => ("item" in wanted
      ? post("/studio/api/xray/values", { ...asked, ...wanted })
      : (await post("/studio/api/xray/weights", { ...asked, ...wanted })).rows);
  }

  function choose(next) {
    chosen = next;
    studio.set({ at: next.node ? JSON.stringify(next) : "" });
  }

  // --- changes ---

  function make(next, { live }) {
    changes = next;
    if (!live) save();
    compare(live).catch((error) => { if (!isAbort(error)) showError(error.message); });
  }

  function setMode(next) {
    mode = next;
    save();
  }

  function setFollow(on) {
    follow = on;
    make(changes, { live: false });
  }

  /** Compute the model with the changes, what is in sight first; a newer change replaces one that is under way. */
  async function compare(live) {
    waiting?.abort();
    const mine = (waiting = new AbortController());
    if (!changes.length) return view.compare({ changes, answers: null });
    const asked = { ...body(), changes, follow };
    view.compare({ changes, mode, follow, canFollow: model.generates && !model.continues, ...(live ? {}
      : { answers: null }) }, { live });
    const data = await post("/studio/api/xray", { ...asked, items: view.items() }, mine.signal);
    if (mine.signal.aborted) return undefined;
    view.compare({ data: beam ? { ...data, beam } : data, load: fetcher(asked), changes }, { live });
    showError("");
    const answers = await post("/studio/api/xray/answer", asked, mine.signal);
    if (!mine.signal.aborted) view.compare({ changes, answers }, { live });
    return undefined;
  }

  /** The X-ray of another text that a beam search considered. */
  function openText(text) {
    if (model.continues) refresh({ text: request.text + text, generate: false });
    else refresh({ target: text });
  }

  const onModel = (name) => studio.go("xray", { model: name });
  if (readsImage) {
    const drawing = pad({ models, model, image: state.image, example: true,
      onImage: (image) => refresh({ image }), onModel });
    element.append(h("div", { class: "st-beside st-narrow" }, drawing.element, panel));
    if (state.image) refresh();
  } else {
    const generating = toggle(t("While it generates"), request.generate, (generate) => refresh({ generate }));
    const search = menu(t("Search with"), BEAMS, request.beams, (beams) => refresh({ beams, target: "" }));
    const more = [...(model.continues ? [generating] : []), ...(model.generates ? [search] : [])];
    const bar = inputBar({ models, model, text: request.text, action: t("X-ray"), more,
      onSubmit: (text) => refresh({ text }), onModel });
    element.append(bar.element, panel);
    refresh();
  }
  return {
    close() {
      waiting?.abort();
      view?.destroy();
    },
  };
}

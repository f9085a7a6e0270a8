// Two sentences side by side: a vector of one is dragged into the other, and the answer changes.
//
// Without a pointer: Enter or Space takes the vector that has the focus, and puts it where the focus is next; Escape lets it go.

import { isAbort, post } from "./api.js";
import { t } from "./i18n.js";
import { formatLink, parseJson } from "./link.js";
import { modelMenu, resultPanel } from "./shared.js";
import { button, partLabel } from "./views/controls.js";
import { arrow, h } from "./views/dom.js";
import { partName } from "./views/names.js";
import { extent, format, percent, visible } from "./views/numbers.js";
import { palette } from "./views/theme.js";

const HINT = t("Drag a square of the upper sentence onto a token of the lower one: its vector replaces "
  + "the one there. With the keyboard: Enter takes a square, Enter again puts it down, Escape lets it go.");
const [TAKE, PUT] = [t("Take from"), t("Put into")];
const STACKS = { encoder: t("Encoder"), decoder: t("Decoder") };

/** Put the panel into an element. */
export function patchPanel(element, { models, model, state, studio }) {
  const [own = "", other = own] = model.examples;
  const request = { text: state.text ?? own, donor: state.donor ?? other };
  let patches = Array.isArray(parseJson(state.patches)) ? parseJson(state.patches) : [];
  let [data, held] = [null, null]; // held: {state, taken}
  let justDragged = false;
  const { place, load, element: panel } = resultPanel();
  const note = h("p", { class: "st-hint st-held", role: "status" }, HINT);
  const root = h("div", { class: "clearhead st-patching" });
  place.append(root);

  function refresh(changes = {}) {
    Object.assign(request, changes);
    if (Object.keys(changes).length) patches = [];
    ask();
  }

  function ask() {
    studio.set({ model: model.name, tab: "patch", ...request, patches: patches.length ? JSON.stringify(patches) : "" });
    load(async (isCurrent) => {
      const found = await post("/studio/api/patch", { model: model.name, ...request, patches });
      if (!isCurrent()) return;
      data = found;
      draw();
    }).catch((error) => { if (!isAbort(error)) throw error; });
  }

  function put(name, token) {
    const { state: taken } = held;
    if (taken !== name) {
      hold(null);
      note.textContent = t("This vector fits only {state}: put it onto a token of that row.",
        { state: partName(taken) });
      return;
    }
    patches = [...patches.filter((each) => each.state !== name || each.token !== token), { state: name,
      taken: held.taken, token }];
    hold(null);
    ask();
  }

  function hold(next) {
    held = next;
    root.classList.toggle("st-holding", Boolean(next));
    for (const cell of root.querySelectorAll("[data-side=own]")) cell.classList.toggle("st-target",
      cell.dataset.state === next?.state);
    for (const cell of root.querySelectorAll("[data-side=donor]")) cell.setAttribute("aria-pressed",
      String(cell.dataset.state === next?.state && Number(cell.dataset.token) === next?.taken));
    note.textContent = next ? t("You hold the vector of “{word}” at {state}: put it onto a token of the "
      + "lower sentence.", { word: visible(wordOf("donor", next.state, next.taken)), state: partName(next.state) })
      : HINT;
  }

  function wordOf(side, name, token) {
    return data[side].tokens[name.split(".")[0]]?.[token] ?? String(token);
  }

  function draw() {
    const focused = root.contains(document.activeElement) ? document.activeElement.dataset : null;
    const key = focused?.side
      && `[data-side="${focused.side}"][data-state="${focused.state}"][data-token="${focused.token}"]`;
    const scrolled = [...root.querySelectorAll(".ch-scroll")].map((each) => each.scrollTop);
    const colours = palette(root);
    root.replaceChildren(
      sentence("donor", TAKE, colours), sentence("own", PUT, colours), answers());
    root.querySelectorAll(".ch-scroll").forEach((each, place) => { each.scrollTop = scrolled[place] ?? 0; });
    if (key) root.querySelector(key)?.focus({ preventScroll: true });
  }

  /** A sentence: a table for each stack, a row for each state, a square for each token. */
  function sentence(side, label, colours) {
    const { text, tokens, output, sizes } = data[side];
    const most = extent(Object.values(sizes)) || 1;
    const tables = Object.keys(tokens).map((stack) => table(side, stack, tokens[stack], sizes, most, colours));
    return h("section", { class: "st-sentence", "aria-label": `${label}: ${text}` },
      partLabel(h("strong", {}, label), " ", h("bdi", {}, text), " → ", h("bdi", {}, output)), h("div",
        { class: "st-stacks" }, tables));
  }

  function table(side, stack, words, sizes, most, colours) {
    const states = data.states.filter((name) => name.startsWith(`${stack}.`)).reverse(); // the last block on top
    const body = h("tbody", {}, states.map((name) => h("tr", {}, h("th", { scope: "row", title: name }, shortName(name)),
      words.map((word, token) => h("td", {}, cell(side, name, token, word, sizes[name][token] / most, colours))))));
    body.addEventListener("keydown", (event) => move(event, body, words.length));
    return h("div", { class: "ch-scroll" }, partLabel(STACKS[stack]), h("table", { class: "st-states",
      "aria-label": STACKS[stack] }, body,
      h("tfoot", {}, h("tr", {}, h("td", {}), words.map((word) => h("th", { scope: "col", dir: "auto" },
        visible(word)))))));
  }

  function cell(side, name, token, word, share, colours) {
    const patch = side === "own" ? patches.find((each) => each.state === name && each.token === token) : null;
    const colour = colours.share(share);
    const label = patch ? t("{word}, {state}, taken from {donor}", { word: visible(word), state: partName(name),
      donor: visible(wordOf("donor", name, patch.taken)) }) : `${visible(word)}, ${partName(name)}`;
    const made = h("button", { type: "button", class: patch ? "st-state st-patched" : "st-state",
      "data-side": side, "data-state": name, "data-token": token, "aria-label": label, title: label,
        "aria-pressed": side === "donor" ? "false" : null,
      style: { background: colour, color: colours.inkOn(colour) }, tabindex: token === 0 && name === data.states.at(-1)
        ? 0 : -1,
      onclick: () => choose(side, name, token) }, patch ? visible(wordOf("donor", name, patch.taken)) : "");
    if (side === "donor") made.addEventListener("pointerdown", (event) => drag(event, made, { state: name,
      taken: token }));
    return made;
  }

  /** Drag a vector with the pointer, also with a finger: a copy of the square follows it. */
  function drag(event, cell, taken) {
    const from = { x: event.clientX, y: event.clientY };
    let ghost = null;
    cell.setPointerCapture(event.pointerId);
    const move = (next) => {
      if (!ghost && Math.hypot(next.clientX - from.x, next.clientY - from.y) < 5) return;
      if (!ghost) {
        hold(taken);
        ghost = h("div", { class: "st-ghost", "aria-hidden": "true" }, visible(wordOf("donor", taken.state,
          taken.taken)));
        root.append(ghost);
      }
      ghost.style.transform = `translate(${next.clientX + 8}px, ${next.clientY + 8}px)`;
    };
    const end = (last) => {
      cell.removeEventListener("pointermove", move);
      cell.removeEventListener("pointerup", end);
      cell.removeEventListener("pointercancel", end);
      if (!ghost) return; // a click
      ghost.remove();
      justDragged = true;
      setTimeout(() => { justDragged = false; }, 0); // the click that ends a drag takes nothing
      const under = last.type === "pointerup" ? document.elementFromPoint(last.clientX,
        last.clientY)?.closest("[data-side=own]") : null;
      if (under) put(under.dataset.state, Number(under.dataset.token));
      else hold(null);
    };
    cell.addEventListener("pointermove", move);
    cell.addEventListener("pointerup", end);
    cell.addEventListener("pointercancel", end);
  }

  function choose(side, name, token) {
    if (justDragged) return;
    if (side === "donor") hold(held?.state === name && held.taken === token ? null : { state: name, taken: token });
    else if (held) put(name, token);
    else takeBack(name, token);
  }

  function takeBack(name, token) {
    if (!patches.some((each) => each.state === name && each.token === token)) return;
    patches = patches.filter((each) => each.state !== name || each.token !== token);
    ask();
  }

  function move(event, body, across) {
    if (event.key === "Escape" && held) return hold(null);
    const cells = [...body.querySelectorAll("button")];
    const next = arrow(event, cells.indexOf(document.activeElement), cells.length, across);
    if (next === null) return undefined;
    event.preventDefault();
    for (const each of cells) each.tabIndex = -1;
    cells[next].tabIndex = 0;
    return cells[next].focus();
  }

  function answers() {
    const changes = patches.map((each) => ({ kind: "patch", donor: request.donor, ...each }));
    const link = formatLink("xray", { model: model.name, text: request.text, changes: JSON.stringify(changes) });
    const chip = ({ state: name, taken, token }) => h("li", {},
      h("span", {}, t("{state}: “{word}” into “{other}”", { state: partName(name),
        word: visible(wordOf("donor", name, taken)), other: visible(wordOf("own", name, token)) })),
      button("×", () => takeBack(name, token), t("Take this patch back")));
    const line = (label, text) => h("p", { class: "ch-answer-line" }, h("span", { class: "ch-label" }, label), h("bdi",
      { class: "st-output" }, text));
    return h("section", { class: "ch-changes", "aria-label": t("Answers") },
      h("div", { class: "ch-answers", "aria-live": "polite" }, line(t("Original answer"), data.own.output),
        line(t("Patched answer"), patches.length ? data.changed.output : "–")),
      ...(patches.length ? [h("ul", { "aria-label": t("Patches") }, patches.map(chip)), rows(),
        h("div", { class: "ch-change-tools" }, button(t("Take all back"), () => { patches = []; ask(); }),
          h("a", { href: link }, t("See it in the X-ray")))] : []));
  }

  /** The likeliest answers of each position, before and after. */
  function rows() {
    const said = (list) => `${visible(list[0][0])} ${percent(list[0][1])}`;
    return h("div", { class: "ch-scroll" }, h("table", { class: "ch-table st-rows" },
      h("thead", {}, h("tr", {}, [t("After"), t("Original"), t("Patched"), t("KL divergence")].map((name) =>
        h("th", { scope: "col" }, name)))),
      h("tbody", {}, data.rows.map(({ after, before, now, divergence }) => h("tr", { class: before[0][0] === now[0][0]
        ? null : "st-flipped" },
        h("th", { scope: "row", dir: "auto" }, visible(after || t("the input"))),
        h("td", { dir: "auto" }, said(before)), h("td", { dir: "auto" }, said(now)),
        h("td", {}, format(divergence)))))));
  }

  const field = (name, label) => {
    const input = h("input", { class: "st-input", "aria-label": label, value: request[name], maxlength: 2000,
      autocomplete: "off", spellcheck: "false" });
    return { input, element: h("label", { class: "st-field" }, h("span", { class: "ch-label" }, label), input) };
  };
  const [donor, text] = [field("donor", TAKE), field("text", PUT)];
  const submit = (event) => {
    event.preventDefault();
    refresh({ donor: donor.input.value, text: text.input.value });
  };
  element.append(modelMenu(models, model, (name) => studio.go("what-if", { model: name, tab: "patch" })),
    h("form", { class: "st-two", onsubmit: submit }, donor.element, text.element,
      h("button", { class: "st-go" }, t("Read both"))), note, panel);
  ask();
  return {};
}

/** encoder.embedded -> embedding, encoder.2.hidden -> block 2. */
function shortName(name) {
  const [, block, last] = name.split(".");
  return last ? t("block {block}", { block }) : t("embedding");
}

// The frame of the Studio: navigation, the open view and its link, undo, the palette, light and
// dark, lessons and tour.

import { get } from "./api.js";
import { LANGUAGES, chooseLanguage, language, t, translated } from "./i18n.js";
import { formatLink, parseLink } from "./link.js";
import { h } from "./views/dom.js";

import { viewPages } from "./view-pages.js";

import * as beam from "./beam.js";
import * as cells from "./cells.js";
import * as chat from "./chat.js";
import * as heads from "./heads.js";
import * as image from "./image.js";
import * as importance from "./importance.js";
import * as learn from "./learn.js";
import * as modelsPage from "./models.js";
import * as play from "./play.js";
import * as positions from "./positions.js";
import * as steps from "./steps.js";
import * as train from "./train.js";
import * as whatIf from "./what-if.js";
import * as words from "./words.js";
import * as xray from "./xray.js";
import { LESSONS, lessonLink, lessonPanel } from "./course.js";
import { explained } from "./glossary.js";
import { commandPalette } from "./palette.js";
import { presentation } from "./present.js";
import { tourCard } from "./tour.js";

const VIEWS = { xray, play, heads, steps, beam, image, "what-if": whatIf, words, positions, cells,
  importance, learn, train, chat, models: modelsPage, ...viewPages };
const GROUPS = [
  [t("Start here"), ["xray", "learn"]],
  [t("Use"), ["play", "chat", "models"]],
  [t("See attention"), ["heads", "steps", "rollout", "flow", "induction", "scaling"]],
  [t("Explain an answer"), ["what-if", "lens", "relevance", "gradients", "beam", "image"]],
  [t("See what it knows"), ["words", "positions", "cells", "importance"]],
  [t("Make"), ["train"]],
];
const THEMES = [["", t("System")], ["light", t("Light")], ["dark", t("Dark")]];

let models = [];
let open = { view: "play", state: {}, page: null };
let before = []; // links to which undo returns, the newest last
let [settling, timer] = [false, null]; // whether the next change is a part of the last one, and until when
const SETTLE = 600; // milliseconds: a slider that is being moved is one change, what is pressed next is another

const main = h("main", { id: "view", tabindex: -1 });
const card = h("div", { class: "st-side-place" });
let palette = null;
const nav = h("nav", { class: "st-nav", "aria-label": t("Views") });

const here = h("span", {}); // the name of the open view
const menuButton = h("button", { type: "button", class: "ch-button st-menu", "aria-expanded": "false",
  "aria-controls": "views", onclick: () => openMenu(!nav.hasAttribute("data-open")) },
h("span", { "aria-hidden": "true" }, "☰ "), here);

const studio = {
  async reloadModels() {
    models = await get("/studio/api/models");
  },
  models: (fits) => models.filter(fits),
  /** Those of some views that fit a model. */
  views: (model, names) => names.filter((view) => VIEWS[view].fits?.(model))
    .map((view) => ({ view, title: VIEWS[view].NAME, about: VIEWS[view].ABOUT })),
  set(changes) {
    const old = location.hash;
    open.state = { ...open.state, ...changes };
    history.replaceState(null, "", formatLink(open.view, open.state));
    presentation.share();
    if (location.hash === old || !open.complete) return;
    if (!settling) before.push(old);
    clearTimeout(timer);
    [settling, timer] = [true, setTimeout(() => { settling = false; }, SETTLE)];
  },
  go(view, state) {
    location.hash = formatLink(view, state);
  },
};

document.addEventListener("pointerdown", () => { settling = false; }, { capture: true });

/** Return to what was shown before the last change. */
function undo() {
  const last = before.pop();
  if (last === undefined) return;
  history.replaceState(null, "", last);
  show();
}

function show() {
  const { view, state } = parseLink(location.hash);
  const known = VIEWS[view] ? view : "xray";
  open.page?.close?.();
  if (open.view !== known) before = [];
  open = { view: known, state, page: null, complete: false };
  document.title = `${VIEWS[known].NAME} · Clearhead Studio`;
  for (const link of nav.querySelectorAll("a")) {
    if (link.dataset.view !== known) {
      link.removeAttribute("aria-current");
      continue;
    }
    link.setAttribute("aria-current", "page");
    link.scrollIntoView({ block: "nearest" });
  }
  here.replaceChildren(VIEWS[known].NAME);
  openMenu(false);
  const body = h("div", { class: `st-view st-${known}` });
  main.replaceChildren(
    h("header", { class: "st-heading" }, h("h1", {}, VIEWS[known].NAME),
      h("p", {}, explained(VIEWS[known].ABOUT, false))), ...(known === "play" || known === "xray" ? welcome() : []),
      body);
  open.page = VIEWS[known].open(body, state, studio);
  // what a view sets while it opens is no change of the user's
  setTimeout(() => { open.complete = true; }, 0);
  card.replaceChildren(...tourCard(state.tour, studio), ...lessonPanel(state.lesson, studio));
  main.scrollTo(0, 0);
  presentation.share();
}

/** One sentence and one click for a first visit. */
function welcome() {
  if (localStorage.getItem("visited")) return [];
  const close = () => {
    localStorage.setItem("visited", "yes");
    banner.remove();
  };
  const banner = h("p", { class: "st-welcome" },
    t("This page shows every number that a real language model computes " +
      "while it reads and writes."), " ",
    h("a", { class: "st-go", href: lessonLink(1), onclick: close },
      t("Start with a five-minute lesson")),
    h("button", { type: "button", class: "ch-button", onclick: close },
      t("Look around by myself")));
  return [banner];
}

/** Everything that the palette finds. */
function commands() {
  const views = Object.entries(VIEWS)
    .map(([view, { NAME, ABOUT }]) =>
      ({ name: NAME, hint: ABOUT, run: () => studio.go(view, handedOn(view)) }));
  const lessons = LESSONS.map(({ title }, index) =>
    ({ name: title, hint: t("lesson {n}", { n: index + 1 }),
      run: () => { location.hash = lessonLink(index + 1); } }));
  const fits = (model) => (VIEWS[open.view].fits?.(model) ? open.view
    : Object.keys(VIEWS).find((view) => VIEWS[view].fits?.(model)) ?? "play");
  const known = models.map((model) =>
    ({ name: model.name, hint: t("model: {title}", { title: translated(model.title) }),
      run: () => studio.go(fits(model), { model: model.name }) }));
  const examples = models.flatMap((model) => model.examples
    .map((text) => ({ name: text.replaceAll("\n", " "),
      hint: t("example for {model}", { model: model.name }),
      run: () => studio.go(fits(model), { model: model.name, text }) })));
  const themes = THEMES.map(([value, name]) =>
    ({ name, hint: t("theme"), run: () => setTheme(value) }));
  const languages = Object.entries(LANGUAGES).map(([code, name]) =>
    ({ name, hint: t("language"), run: () => chooseLanguage(code) }));
  const others = [{ name: t("Undo"), hint: t("return to what was shown before"), run: undo },
    { name: t("Present"), hint: t("teacher’s mode: large type, no controls"),
      run: () => presentation.toggle() }];
  return [...views, ...lessons, ...known, ...examples, ...themes, ...languages, ...others];
}

/** Ctrl+K finds anything, Ctrl+Z undoes a change of the view. */
function shortcut(event) {
  if (!(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey) return;
  const writes = event.target.matches?.(
    "input:not([type=range], [type=radio], [type=checkbox]), textarea");
  const action = { k: () => palette.open(), z: writes ? null : undo }[event.key.toLowerCase()];
  if (!action) return;
  event.preventDefault();
  action();
}

/**
 * The state with which a view opens: the current model and text, if the view fits the model, and
 * what is selected.
 */
function handedOn(view) {
  const { model, text, image } = open.state;
  const fits = models.some((each) => each.name === model && VIEWS[view].fits?.(each));
  if (!fits) return {};
  const selected = VIEWS[open.view].selection?.(open.state) ?? {};
  return { model, text, image, ...VIEWS[view].select?.(selected) };
}

/** Open a view with what is chosen now. */
function openView(event, view) {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  openMenu(false); // the view may be open already
  studio.go(view, handedOn(view));
}

/** On a phone the views are a menu below the bar; elsewhere they are always there. */
function openMenu(on) {
  nav.toggleAttribute("data-open", on);
  menuButton.setAttribute("aria-expanded", String(on));
  if (on) nav.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
}

function drawNavigation() {
  const link = (view) => h("li", {}, h("a", {
    href: `#${view}`, "data-view": view, onclick: (event) => openView(event, view),
  }, VIEWS[view].NAME));
  const group = ([name, views]) => h("div", { class: "st-group" }, h("p", {}, name),
    h("ul", { "aria-label": name }, views.map(link)));
  nav.replaceChildren(
    h("div", { class: "st-top" },
      h("a", { class: "st-brand", href: "#play" }, h("strong", {}, "Clearhead"), " Studio"),
      menuButton,
      h("button", { type: "button", class: "ch-button", "aria-label": t("Find…"),
        title: `${t("Find…")} Ctrl+K`,
        onclick: () => palette.open() }, "⌕")),
    h("div", { class: "st-links", id: "views" }, GROUPS.map(group)),
    h("div", { class: "st-foot" },
      h("button", { type: "button", class: "ch-button", title: "Ctrl+Z", onclick: undo },
        t("Undo")),
      h("button", { type: "button", class: "ch-button", title: t("Teacher’s mode: Esc ends it"),
        onclick: () => presentation.toggle() }, t("Present")),
      themeMenu(), languageMenu()));
}

function languageMenu() {
  const select = h("select", { "aria-label": t("Language"),
    onchange: () => chooseLanguage(select.value) },
    Object.entries(LANGUAGES).map(([code, name]) =>
      h("option", { value: code, lang: code, selected: code === language() }, name)));
  return h("label", { class: "st-theme" }, select);
}

function themeMenu() {
  const select = h("select", {
    "aria-label": t("Light or dark"),
    onchange: () => setTheme(select.value),
  }, THEMES.map(([value, text]) => h("option", { value, selected: value === theme() }, text)));
  return h("label", { class: "st-theme" }, select);
}

function theme() {
  return localStorage.getItem("theme") ?? "";
}

function setTheme(value) {
  localStorage.setItem("theme", value);
  applyTheme();
  nav.querySelector(".st-theme select").value = value;
}

function applyTheme() {
  if (theme()) document.documentElement.dataset.theme = theme();
  else delete document.documentElement.dataset.theme;
}

function skipNavigation(event) {
  event.preventDefault();
  main.focus();
}

async function start() {
  applyTheme();
  drawNavigation();
  document.body.replaceChildren(h("a", { class: "st-skip", href: "#view", onclick: skipNavigation },
    t("To the view")), nav, main, card);
  main.replaceChildren(h("p", { class: "st-empty", role: "status" }, t("The models are being loaded…")));
  palette = commandPalette(commands);
  addEventListener("keydown", shortcut);
  nav.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !nav.hasAttribute("data-open")) return;
    openMenu(false);
    menuButton.focus();
  });
  try {
    await studio.reloadModels();
  } catch (error) {
    main.replaceChildren(h("p", { class: "st-error", role: "alert" }, error.message));
    return;
  }
  addEventListener("hashchange", show);
  presentation.join();
  show();
}

start();

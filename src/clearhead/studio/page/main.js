// The frame of the Studio: navigation, the open view and its link, light and dark, the tour.

import { get } from "./api.js";
import { formatLink, parseLink } from "./link.js";
import { h } from "./views/dom.js";

import * as beam from "./beam.js";
import * as cells from "./cells.js";
import * as heads from "./heads.js";
import * as image from "./image.js";
import * as learn from "./learn.js";
import * as play from "./play.js";
import * as positions from "./positions.js";
import * as steps from "./steps.js";
import * as train from "./train.js";
import * as whatIf from "./what-if.js";
import * as words from "./words.js";
import * as xray from "./xray.js";
import { tourCard } from "./tour.js";

const VIEWS = { xray, play, heads, steps, beam, image, "what-if": whatIf, words, positions, cells, learn, train };
const GROUPS = [
  ["Use", ["play"]],
  ["Look inside", ["xray", "heads", "steps", "beam", "image", "what-if", "words", "positions", "cells"]],
  ["Understand", ["learn"]],
  ["Make", ["train"]],
];
const THEMES = [["", "System theme"], ["light", "Light"], ["dark", "Dark"]];

let models = [];
let open = { view: "play", state: {}, page: null };

const main = h("main", { id: "view", tabindex: -1 });
const card = h("div", { class: "st-tour-place" });
const nav = h("nav", { class: "st-nav", "aria-label": "Views" });

const studio = {
  async reloadModels() {
    models = await get("/studio/api/models");
  },
  models: (fits) => models.filter(fits),
  set(changes) {
    open.state = { ...open.state, ...changes };
    history.replaceState(null, "", formatLink(open.view, open.state));
  },
  go(view, state) {
    location.hash = formatLink(view, state);
  },
};

function show() {
  const { view, state } = parseLink(location.hash);
  const known = VIEWS[view] ? view : "xray";
  open.page?.close?.();
  open = { view: known, state, page: null };
  document.title = `${VIEWS[known].NAME} · Clearhead Studio`;
  for (const link of nav.querySelectorAll("a")) {
    if (link.dataset.view === known) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const body = h("div", { class: `st-view st-${known}` });
  main.replaceChildren(
    h("header", { class: "st-heading" }, h("h1", {}, VIEWS[known].NAME), h("p", {}, VIEWS[known].ABOUT)), body);
  open.page = VIEWS[known].open(body, state, studio);
  card.replaceChildren(...tourCard(state.tour, studio));
  main.scrollTo(0, 0);
}

/** Open a view with the current model and text, if the view fits the model. */
function openView(event, view) {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const { model, text } = open.state;
  const fits = models.some((each) => each.name === model && VIEWS[view].fits?.(each));
  studio.go(view, fits ? { model, text } : {});
}

function drawNavigation() {
  const link = (view) => h("li", {}, h("a", {
    href: `#${view}`, "data-view": view, onclick: (event) => openView(event, view),
  }, VIEWS[view].NAME));
  const group = ([name, views]) => [h("p", {}, name), h("ul", { "aria-label": name }, views.map(link))];
  nav.replaceChildren(
    h("a", { class: "st-brand", href: "#play" }, h("strong", {}, "Clearhead"), " Studio"),
    h("div", { class: "st-links" }, GROUPS.flatMap(group)), themeMenu());
}

function themeMenu() {
  const select = h("select", {
    "aria-label": "Light or dark",
    onchange: () => {
      localStorage.setItem("theme", select.value);
      applyTheme();
    },
  }, THEMES.map(([value, text]) => h("option", { value, selected: value === theme() }, text)));
  return h("label", { class: "st-theme" }, select);
}

function theme() {
  return localStorage.getItem("theme") ?? "";
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
  document.body.replaceChildren(h("a", { class: "st-skip", href: "#view", onclick: skipNavigation }, "To the view"), nav, main, card);
  try {
    await studio.reloadModels();
  } catch (error) {
    main.replaceChildren(h("p", { class: "st-error", role: "alert" }, error.message));
    return;
  }
  addEventListener("hashchange", show);
  show();
}

start();

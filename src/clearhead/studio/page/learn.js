// The course, and the ideas of the lectures, each with its equation, its code and a link to a view
// that shows it; and a guided tour.

import { get } from "./api.js";
import { courseList } from "./course.js";
import { t } from "./i18n.js";
import { courseLink } from "./link.js";
import { resultPanel } from "./shared.js";
import { STOPS } from "./tour.js";
import { h } from "./views/dom.js";
import { equation } from "./views/equation.js";

export const NAME = t("Learn");
export const ABOUT = t(
  "Ten short lessons with a real model, and every idea of the lectures with its equation and its " +
  "code.");

export function open(element, state, studio) {
  const { place, load, element: panel } = resultPanel();
  element.append(courseList(), h("h2", { class: "st-part" },
    t("Every idea, with its equation and its code")), invitation(), panel);
  load(async (isCurrent) => {
    const ideas = await get("/studio/api/ideas");
    if (!isCurrent()) return;
    const opened = Number(state.idea ?? -1);
    place.append(h("ol", { class: "st-ideas" },
      ideas.map((idea, number) => entry(idea, number, number === opened, studio))));
    place.querySelectorAll("details")[opened]?.scrollIntoView({ block: "center" });
  });
  return {};
}

function invitation() {
  const [view, state] = STOPS[0].at;
  return h("p", { class: "st-invitation" },
    h("a", { class: "st-go", href: courseLink(view, { ...state, tour: 1 }) }, t("Take the tour")),
    " ", t("{n} stops, ten minutes: from one sentence to the inside of a Transformer.",
      { n: STOPS.length }));
}

function entry({ title, lectures, equation: formula, says, file, line, source, view, state },
  number, open, studio) {
  const details = h("details", { class: "st-code", open },
    h("summary", {}, t("The code: {file}, line {line}", { file, line: String(line) })),
    h("pre", {}, h("code", {}, source)));
  details.addEventListener("toggle", () => studio.set({ idea: details.open ? number : "" }));
  return h("li", { class: "st-idea" },
    h("h2", {}, t(title)), equation(formula), h("p", {}, t(says)),
    h("p", { class: "st-idea-foot" }, h("a", { href: courseLink(view, state) }, t("See it live")),
      h("span", { class: "ch-label" }, t(lectures))),
    details);
}

// The lecture map: each idea with its equation, its code, and the view in which it can be seen; and a tour of ten stops.

import { get } from "./api.js";
import { write } from "./link.js";
import { answers } from "./parts.js";
import { STOPS } from "./tour.js";
import { h } from "./views/dom.js";
import { equation } from "./views/equation.js";

export const NAME = "Learn";
export const ABOUT = "The ideas of the lectures, in the order in which one needs them. Each can be seen at work in a real model.";

export function open(element, state, studio) {
  const { place, attempt, element: answer } = answers();
  element.append(invitation(), answer);
  attempt(async (current) => {
    const ideas = await get("/studio/api/ideas");
    if (!current()) return;
    const wanted = Number(state.idea ?? -1);
    place.append(h("ol", { class: "st-ideas" }, ideas.map((idea, number) => entry(idea, number, number === wanted, studio))));
    place.querySelectorAll("details")[wanted]?.scrollIntoView({ block: "center" });
  });
  return {};
}

function invitation() {
  const [view, state] = STOPS[0].at;
  return h("p", { class: "st-invitation" },
    h("a", { class: "st-go", href: write(view, { ...state, tour: 1 }) }, "Take the tour"),
    ` ${STOPS.length} stops, ten minutes: from one sentence to what is inside a Transformer.`);
}

function entry({ title, lectures, equation: written, says, file, line, source, view, state }, number, open, studio) {
  const details = h("details", { class: "st-code", open }, h("summary", {}, `The code: ${file}, line ${line}`),
    h("pre", {}, h("code", {}, source)));
  details.addEventListener("toggle", () => studio.set({ idea: details.open ? number : "" }));
  return h("li", { class: "st-idea" },
    h("h2", {}, title), equation(written), h("p", {}, says),
    h("p", { class: "st-idea-foot" }, h("a", { href: write(view, state) }, "See it live"), h("span", { class: "ch-label" }, lectures)),
    details);
}

// The controls that all views share: native inputs, which work with the keyboard and with screen readers.

import { h, sheet, svg } from "./dom.js";
import { percent } from "./numbers.js";

// Radio buttons of one name are one group in the whole page, and a notebook loads this module once for each widget.
const own = Math.random().toString(36).slice(2);
let made = 0;

/** Radio buttons: options [[value, text], ...]. */
export function choice(label, options, chosen, onChange) {
  const name = `ch-choice-${own}-${(made += 1)}`;
  const option = ([value, text]) =>
    h("label", {},
      h("input", { type: "radio", name, value, checked: value === chosen, onchange: () => onChange(value) }),
      h("span", {}, text));
  return h("fieldset", { class: "ch-choice", role: "radiogroup", "aria-label": label },
    h("span", { class: "ch-label", "aria-hidden": "true" }, label),
    h("span", { class: "ch-options" }, options.map(option)));
}

/** A whole number from 0 to `last`, with its value written beside it by `write`. */
export function slider(label, last, value, write, onChange) {
  const output = h("span", { class: "ch-value", "aria-hidden": "true" }, write(value));
  const input = h("input", {
    type: "range", min: 0, max: last, step: 1, value, "aria-valuetext": write(value),
    oninput: () => {
      const chosen = Number(input.value);
      output.textContent = write(chosen);
      input.setAttribute("aria-valuetext", write(chosen));
      onChange(chosen);
    },
  });
  return h("label", { class: "ch-slider" }, h("span", { class: "ch-label" }, label), input, output);
}

/** A drop-down list. */
export function menu(label, options, chosen, onChange) {
  const select = h("select", { onchange: () => onChange(select.value) },
    options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
  return h("label", { class: "ch-menu" }, h("span", { class: "ch-label" }, label), select);
}

/** A check box. */
export function toggle(label, on, onChange) {
  const input = h("input", { type: "checkbox", checked: on, onchange: () => onChange(input.checked) });
  return h("label", { class: "ch-toggle" }, input, h("span", {}, label));
}

/** A button; `name` is its name for screen readers where the text is short. */
export function button(text, onClick, name = null) {
  return h("button", { type: "button", class: "ch-button", "aria-label": name, title: name, onclick: onClick }, text);
}

const SHAPES = {
  play: "M4,2 L14,8 L4,14 Z",
  pause: "M4,2 H7 V14 H4 Z M9,2 H12 V14 H9 Z",
  forward: "M3,2 L10,8 L3,14 Z M11,2 H13 V14 H11 Z",
  back: "M13,2 L6,8 L13,14 Z M3,2 H5 V14 H3 Z",
};

/** A button with a sign on it: play, pause, forward or back. */
export function signButton(sign, name, onClick) {
  return button(sheet(16, 16, { "aria-hidden": "true" }, svg("path", { d: SHAPES[sign] })), onClick, name);
}

/** The heading of a part of a figure. */
export function partLabel(...children) {
  return h("p", { class: "ch-part-label" }, ...children);
}

/** A share as a bar; negative ones in another colour. */
export function meter(share) {
  const length = `${Math.max(0.5, 100 * Math.abs(share))}%`;
  return h("span", { class: share < 0 ? "ch-meter ch-below" : "ch-meter", "aria-hidden": "true" },
    h("span", { style: { width: length } }));
}

/** A list of shares: [[name, share, marked?], ...]. */
export function shareList(entries) {
  return h("ul", { class: "ch-rivals" }, entries.map(([name, share, own]) =>
    h("li", { "aria-current": own ? "true" : null },
      h("span", { dir: "auto" }, name), meter(share), h("span", { class: "ch-number" }, percent(share)))));
}

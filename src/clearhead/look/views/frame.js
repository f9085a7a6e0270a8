// What surrounds every view: a heading, controls, the figure, a line that says what is under the pointer, and saving.

import { button } from "./controls.js";
import { h } from "./dom.js";
import { pngOf, svgOf } from "./picture.js";
import { palette, watchTheme } from "./theme.js";

/**
 * Put a frame into an element.
 *
 * `draw` is called when the figure has to be drawn again: its width changed, or light became dark. `json` gives what
 * the JSON button saves, `picture` the element that the SVG and PNG buttons save. `options` are those of `mount`.
 */
export function frame(element, { name, label, draw, json, picture }, options) {
  const heading = h("div", { class: "ch-heading" });
  const tools = h("div", { class: "ch-tools", role: "group", "aria-label": `${label}: what to show` });
  const figure = h("div", { class: "ch-figure" });
  const readout = h("p", { class: "ch-readout", role: "status", "aria-live": "polite" });
  const file = (ending, type, parts) => save(`${name}.${ending}`, new Blob(parts, { type }));
  const saving = h("div", { class: "ch-saving", role: "group", "aria-label": "Save this view" },
    h("span", { class: "ch-label", "aria-hidden": "true" }, "Save"),
    button("SVG", () => file("svg", "image/svg+xml", [svgOf(picture())]), "Save as SVG"),
    button("PNG", async () => file("png", "image/png", [await pngOf(picture())]), "Save as PNG"),
    button("JSON", () => file("json", "application/json", [JSON.stringify(json())]), "Save as JSON"));
  const root = h("section", { class: `clearhead ch-${name}`, "aria-label": label, "data-theme": options.theme },
    h("header", { class: "ch-header" }, heading, saving), tools, figure, readout);
  element.replaceChildren(root);
  const redraw = () => { if (figure.clientWidth) draw(); }; // a hidden element is drawn when it is shown
  const stops = [watchTheme(redraw), watchWidth(figure, redraw)];
  return {
    heading, tools, figure, redraw,
    palette: () => palette(root),
    say: (text) => { if (readout.textContent !== text) readout.textContent = text; },
    destroy: () => {
      stops.forEach((stop) => stop());
      root.remove();
    },
  };
}

/** The heading's two lines: what was read and what came of it, and below it the small print. */
export function title(heading, parts, small) {
  const arrow = () => h("span", { class: "ch-to" }, " → ");
  const words = parts.flatMap((part, index) => [...(index ? [arrow()] : []), h("bdi", {}, part)]);
  heading.replaceChildren(h("h2", {}, words), h("p", {}, small));
}

/** Call `redraw` when the width of an element has changed; returns what stops it. */
function watchWidth(element, redraw) {
  let known = element.clientWidth;
  const observer = new ResizeObserver(() => {
    if (element.clientWidth === known) return;
    known = element.clientWidth;
    redraw();
  });
  observer.observe(element);
  return () => observer.disconnect();
}

function save(name, blob) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/**
 * A view as a notebook widget: its `data` comes from Python, and what the reader chose goes back as `chosen`.
 */
export function widget(mount) {
  return {
    render({ model, el }) {
      let said = null;
      const onChange = (chosen) => {
        said = JSON.stringify(chosen);
        model.set("chosen", chosen);
        model.save_changes();
      };
      const view = mount(el, model.get("data"), { chosen: model.get("chosen"), onChange });
      const renew = () => view.update(model.get("data"));
      const follow = () => { // Python chose; what came from here is shown already
        if (JSON.stringify(model.get("chosen")) !== said) view.update(model.get("data"), model.get("chosen") ?? {});
      };
      model.on("change:data", renew);
      model.on("change:chosen", follow);
      return () => {
        model.off("change:data", renew);
        model.off("change:chosen", follow);
        view.destroy();
      };
    },
  };
}

// The frame around every view: heading, controls, figure, a status line for what is under the pointer, save buttons.

import { button } from "./controls.js";
import { h } from "./dom.js";
import { t } from "./i18n.js";
import { pngOf, svgOf } from "./picture.js";
import { palette, watchTheme } from "./theme.js";

/**
 * Put a frame into an element.
 *
 * `draw` is called when the figure has to be drawn again: its width or the colour scheme changed. `json` returns what
 * the JSON button saves, `picture` the element that the SVG and PNG buttons save. `options` are those of `mount`.
 */
export function frame(element, { name, label, draw, json, picture }, options) {
  const heading = h("div", { class: "ch-heading" });
  const tools = h("div", { class: "ch-tools", role: "group", "aria-label": t("{view}: what to show",
    { view: label }) });
  const figure = h("div", { class: "ch-figure" });
  const readout = h("p", { class: "ch-readout", role: "status", "aria-live": "polite" });
  const file = (ending, type, parts) => save(`${name}.${ending}`, new Blob(parts, { type }));
  const saving = h("div", { class: "ch-saving", role: "group", "aria-label": t("Save this view") },
    h("span", { class: "ch-label", "aria-hidden": "true" }, t("Save")),
    button("SVG", () => file("svg", "image/svg+xml", [svgOf(picture())]), t("Save as SVG")),
    button("PNG", async () => file("png", "image/png", [await pngOf(picture())]), t("Save as PNG")),
    button("JSON", () => file("json", "application/json", [JSON.stringify(json())]), t("Save as JSON")));
  const root = h("section", { class: `clearhead ch-${name}`, "aria-label": label, "data-theme": options.theme },
    h("header", { class: "ch-header" }, heading, saving), tools, figure, readout);
  element.replaceChildren(root);
  const redraw = () => { if (figure.clientWidth) draw(); }; // a hidden element is drawn once it is visible
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

/** The two lines of the heading: input and output, and below them details in small print. */
export function title(heading, parts, small) {
  const arrow = () => h("span", { class: "ch-to" }, " → ");
  const words = parts.flatMap((part, index) => [...(index ? [arrow()] : []), h("bdi", {}, part)]);
  heading.replaceChildren(h("h2", {}, words), h("p", {}, small));
}

/** Call `redraw` when the width of an element has changed; returns a function that stops it. */
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
 * Draw a view for the first time -> its handle: `update` shows other data, `destroy` removes the view.
 *
 * `replace(data, chosen)` stores the new data and choice before they are drawn; `stop` ends what runs, a timer say.
 */
export function handle(view, replace, stop = () => {}) {
  view.redraw();
  return {
    update(data, chosen) {
      replace(data, chosen);
      view.redraw();
    },
    destroy() {
      stop();
      view.destroy();
    },
  };
}

/**
 * A view as a notebook widget: its `data` comes from Python, and the choice of the reader goes back as `chosen`.
 */
export function widget(mount) {
  return {
    render({ model, el }) {
      let sent = null;
      const onChange = (chosen) => {
        sent = JSON.stringify(chosen);
        model.set("chosen", chosen);
        model.save_changes();
      };
      const view = mount(el, model.get("data"), { chosen: model.get("chosen"), onChange });
      const showData = () => view.update(model.get("data"));
      const showChosen = () => { // only what Python chose: what came from here is shown already
        if (JSON.stringify(model.get("chosen")) !== sent) view.update(model.get("data"), model.get("chosen") ?? {});
      };
      model.on("change:data", showData);
      model.on("change:chosen", showChosen);
      return () => {
        model.off("change:data", showData);
        model.off("change:chosen", showChosen);
        view.destroy();
      };
    },
  };
}

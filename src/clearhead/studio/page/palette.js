// The command palette: Ctrl+K opens a field that finds views, lessons, models and examples by
// their names.

import { t } from "./i18n.js";
import { h } from "./views/dom.js";

const MOST = 12; // entries shown

/** A palette over `commands()` [{name, hint, run}]: {open}. */
export function commandPalette(commands) {
  let [found, chosen] = [[], 0];
  const input = h("input", { class: "st-input", "aria-label": t("Find anything"),
    autocomplete: "off", spellcheck: "false", placeholder: t("Find anything…"), role: "combobox",
    "aria-expanded": "true", "aria-controls": "st-found" });
  const list = h("ul", { id: "st-found", role: "listbox", "aria-label": t("Found") });
  const dialog = h("dialog", { class: "st-palette", "aria-label": t("Command palette") }, input,
    list);

  function draw() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = commands().filter(({ name, hint }) =>
      words.every((word) => `${name} ${hint}`.toLowerCase().includes(word))).slice(0, MOST);
    chosen = Math.min(chosen, Math.max(0, found.length - 1));
    list.replaceChildren(...found.map(({ name, hint }, index) =>
      h("li", { id: `st-found-${index}`, role: "option", "aria-selected": String(index === chosen),
        onclick: () => run(index) },
      h("span", {}, name), h("span", { class: "ch-label" }, hint))));
    if (found.length) input.setAttribute("aria-activedescendant", `st-found-${chosen}`);
  }

  function run(index) {
    dialog.close();
    found[index]?.run();
  }

  input.addEventListener("input", () => { chosen = 0; draw(); });
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) chosen = (chosen + step + found.length) % Math.max(1, found.length);
    else if (event.key === "Enter") return run(chosen);
    else return undefined;
    event.preventDefault();
    return draw();
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  document.body.append(dialog);
  return {
    open() {
      if (dialog.open) return;
      [input.value, chosen] = ["", 0];
      draw();
      dialog.showModal();
      input.focus();
    },
  };
}

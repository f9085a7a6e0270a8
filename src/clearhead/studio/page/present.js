// Teacher's mode: large type, no controls, the keys of a presenter's remote, a spotlight, a window
// for the class.
//
// The class sees a window of its own, on the projector, which follows the teacher's; frozen it
// stays as it is while
// the teacher prepares what comes next.

import { t } from "./i18n.js";
import { h } from "./views/dom.js";

const root = document.documentElement;
const TURNS = { PageDown: "next", PageUp: "prev" }; // what presenters' remotes send
const HINT = 8000; // milliseconds that the keys are shown
const PAUSE = 250; // milliseconds: a slider that is being moved is told once
const isClass = new URLSearchParams(location.search).has("class");
const channel = new BroadcastChannel("clearhead-class");
const badge = h("p", { class: "st-frozen", role: "status" });
let frozen = false;
let telling = null; // the timer after which the class is told

const KEYS = { s: spotlight, f: freeze, c: openClass, b: blank, ".": blank };

function press(event) {
  if (event.key === "Escape") return presentation.toggle(false);
  const writes = event.target.matches(
    "input:not([type=range], [type=radio], [type=checkbox]), textarea, select");
  if (writes || event.ctrlKey || event.metaKey || event.altKey) return undefined;
  const link = TURNS[event.key] && document.querySelector(`.st-side a[rel="${TURNS[event.key]}"]`);
  const action = link ? () => link.click() : KEYS[event.key.toLowerCase()];
  if (!action) return undefined;
  event.preventDefault();
  return action();
}

function spotlight() {
  root.toggleAttribute("data-spotlight");
}

/** Black, as the remote's own button makes it. */
function blank() {
  root.toggleAttribute("data-blank");
}

/** The class's window stays as it is; once more, and it shows what the teacher shows. */
function freeze() {
  frozen = !frozen;
  badge.textContent = frozen
    ? t("Frozen: the class still sees what was here. F lets it follow again.") : "";
  if (frozen) document.body.append(badge);
  else badge.remove();
  presentation.share();
}

function openClass() {
  const address = new URL(location.href);
  address.searchParams.set("class", "1");
  window.open(address, "clearhead-class", "popup,width=1280,height=720");
}

/** The spotlight follows the pointer. */
function follow({ clientX, clientY }) {
  root.style.setProperty("--st-x", `${clientX}px`);
  root.style.setProperty("--st-y", `${clientY}px`);
}

function hint() {
  const keys = [["Page Up / Page Down", t("lesson before, next lesson")],
    ["C", t("window for the class")],
    ["F", t("freeze it")], ["S", t("spotlight")], ["B", t("black")], ["Esc", t("end")]];
  const shown = h("ul", { class: "st-keys", role: "status" },
    keys.map(([key, does]) => h("li", {}, h("kbd", {}, key), ` ${does}`)));
  document.body.append(shown);
  setTimeout(() => shown.remove(), HINT);
}

export const presentation = {
  toggle(on = !root.hasAttribute("data-present")) {
    root.toggleAttribute("data-present", on);
    root.removeAttribute("data-spotlight");
    root.removeAttribute("data-blank");
    if (frozen) freeze();
    document.querySelector(".st-keys")?.remove();
    const change = on ? addEventListener : removeEventListener;
    change("keydown", press);
    change("pointermove", follow);
    if (on && !isClass) hint();
    if (on) presentation.share();
  },

  /** Tell the class's window what is shown here. */
  share() {
    clearTimeout(telling);
    telling = setTimeout(() => {
      if (!isClass && !frozen && root.hasAttribute("data-present")) channel.postMessage(
        location.hash);
    }, PAUSE);
  },

  /** In the window of a class: large from the beginning, and following. */
  join() {
    if (!isClass) return;
    presentation.toggle(true);
    channel.addEventListener("message", ({ data }) => { location.hash = data; });
  },
};

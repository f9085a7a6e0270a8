// Teacher's mode: large type, no controls, the keys of a presenter's remote for the next and the last lesson, a spotlight.

const root = document.documentElement;
const TURNS = { PageDown: "next", PageUp: "prev" }; // what presenters' remotes send

function turn(event) {
  if (event.key === "Escape") return presentation.toggle(false);
  if (event.key.toLowerCase() === "s" && !event.ctrlKey && !event.metaKey && !event.target.matches("input, textarea")) {
    return root.toggleAttribute("data-spotlight");
  }
  const link = TURNS[event.key] && document.querySelector(`.st-side a[rel="${TURNS[event.key]}"]`);
  if (!link) return undefined;
  event.preventDefault();
  return link.click();
}

/** The spotlight follows the pointer. */
function follow({ clientX, clientY }) {
  root.style.setProperty("--st-x", `${clientX}px`);
  root.style.setProperty("--st-y", `${clientY}px`);
}

export const presentation = {
  toggle(on = !root.hasAttribute("data-present")) {
    root.toggleAttribute("data-present", on);
    root.removeAttribute("data-spotlight");
    const change = on ? addEventListener : removeEventListener;
    change("keydown", turn);
    change("pointermove", follow);
  },
};

// The link that restores a view: #heads?model=en-es&text=we%20are%20eating%20bread

/** Parse a link into {view, state}; every value of the state is a string. */
export function parseLink(hash) {
  const [view, rest = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  return { view, state: Object.fromEntries(new URLSearchParams(rest)) };
}

/** The link of a view with a state; empty values are left out. */
export function formatLink(view, state) {
  const present = Object.entries(state)
    .filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(present
    .map(([name, value]) => [name, String(value)])).toString();
  return `#${view}${query ? `?${query}` : ""}`;
}

/** A link of the course or the tour: their sentences are about what the bundled translator does with them. */
export function courseLink(view, state) {
  return formatLink(view, { ...(state.text ? { model: "en-es" } : {}), ...state });
}

/** Parse JSON from a link; {} if it is not valid. */
export function parseJson(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}

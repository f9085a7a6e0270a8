// The link that restores a view: #heads?model=en-es&text=we%20are%20eating%20bread

/** What a link says: {view, state}; every value of the state is a text. */
export function parse(hash) {
  const [view, rest = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  return { view, state: Object.fromEntries(new URLSearchParams(rest)) };
}

/** The link of a view; what is empty is left out. */
export function write(view, state) {
  const said = Object.entries(state).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const words = new URLSearchParams(said.map(([name, value]) => [name, String(value)])).toString();
  return `#${view}${words ? `?${words}` : ""}`;
}

/** Something that was put into a link as JSON; nothing where it cannot be read. */
export function unpack(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}

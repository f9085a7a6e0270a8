// Making elements. Text is always set as text, so that no input or output of a model can become markup.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element: `h("button", { type: "button", onclick: go }, "Go")`. */
export function h(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS(SVG, tag), attributes, children);
}

/** An SVG drawing of a given size in units; on a large screen a unit is more than a pixel. */
export function sheet(width, height, attributes, ...children) {
  const size = { width: width * unit(), height: height * unit() };
  return svg("svg", { ...size, viewBox: `0 0 ${width} ${height}`, ...attributes }, ...children);
}

/** The pixels of one unit: drawings grow with the type of the page. */
export function unit() {
  return Math.max(1, parseFloat(getComputedStyle(document.documentElement).fontSize) / 16);
}

/** The width of an element in units. */
export function roomIn(element) {
  return element.clientWidth / unit();
}

/** A text in a drawing, its middle at the height y. */
export function label(text, x, y, size, attributes = {}) {
  return svg("text", { x, y, "font-size": size, "dominant-baseline": "central", ...attributes }, text);
}

function furnish(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) set(element, name, value);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Set one attribute: a function becomes a listener, an object styles, null and false remove the attribute. */
export function set(element, name, value) {
  if (typeof value === "function") element.addEventListener(name.replace(/^on/, ""), value);
  else if (name === "style") for (const [key, part] of Object.entries(value)) element.style.setProperty(key, part);
  else if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : value);
}

/** The key that was pressed; empty for a browser command such as Alt and an arrow. */
export function keyOf(event) {
  return event.altKey || event.ctrlKey || event.metaKey ? "" : event.key;
}

/** The index that a key leads to from `index`, among `count` things in rows of `across`; null for other keys. */
export function arrow(event, index, count, across) {
  const steps = { ArrowLeft: index - 1, ArrowRight: index + 1, ArrowUp: index - across, ArrowDown: index + across };
  const next = { ...steps, Home: 0, End: count - 1 }[keyOf(event)] ?? null;
  return next !== null && (next < 0 || next >= count) ? index : next;
}

/** A number limited to a range. */
export function clamp(value, low, high) {
  return Math.min(high, Math.max(low, value));
}

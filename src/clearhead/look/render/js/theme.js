// The colours of style.css for drawings, read from the element, so that light and dark schemes work.

const STOPS = 5;
const NAMED = ["ink", "quiet", "faint", "edge", "surface", "sunken", "raised", "accent", "mark"];
const LEGIBLE = 4.5; // contrast that WCAG AA asks for
const SHADES = 257; // odd, so that the middle of a scale is one of them

/** The current colours of the style sheet: colour scales as functions of a number -> "rgb(r, g, b)". */
export function palette(root) {
  const probe = document.createElement("span");
  probe.hidden = true;
  root.append(probe);
  const read = (name) => {
    probe.style.color = `var(--ch-${name})`;
    return getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  };
  const scale = (name) => shades(Array.from({ length: STOPS }, (_, stop) => read(`${name}-${stop}`)));
  const [sequential, diverging] = [scale("seq"), scale("div")];
  const [ink, paper, overlay] = [read("ink"), read("surface"), read("overlay")];
  const named = Object.fromEntries(NAMED.map((name) => [name, css(read(name))]));
  probe.remove();
  return {
    ...named,
    table: sequential,
    signs: diverging,
    overlay: css(overlay),
    weight: (weight) => css(shade(sequential, bright(weight))),
    share: (share) => css(shade(sequential, share)),
    signed: (value) => css(shade(diverging, 0.5 + value / 2)),
    inkOn: (colour) => css(readable(colour.match(/\d+/g).map(Number), ink, paper)),
  };
}

/** The place of a weight 0..1 on the colour scale: its square root, so that 1/60 can still be seen. */
export function bright(weight) {
  return Math.sqrt(Math.max(0, weight));
}

/** The nearest of a scale's shades; the middle for what is no number. */
export function shade(table, place) {
  return table[Math.round(Math.min(1, Math.max(0, Number.isNaN(place) ? 0.5 : place)) * (SHADES - 1))];
}

function shades(stops) {
  return Array.from({ length: SHADES }, (_, step) => {
    const place = (step / (SHADES - 1)) * (stops.length - 1);
    const left = Math.min(Math.floor(place), stops.length - 2);
    return stops[left].map((part, band) => Math.round(part + (stops[left + 1][band] - part) * (place - left)));
  });
}

function css([red, green, blue]) {
  return `rgb(${red}, ${green}, ${blue})`;
}

/** The ink that is seen best on a colour; black or white where neither of the page's own is seen well enough. */
function readable(colour, ...inks) {
  const seen = (ink) => contrast(luminance(colour), luminance(ink));
  const best = (some) => some.reduce((one, other) => (seen(other) > seen(one) ? other : one));
  return seen(best(inks)) >= LEGIBLE ? best(inks) : best([[0, 0, 0], [255, 255, 255]]);
}

function contrast(one, other) {
  return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
}

function luminance(colour) {
  const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const [red, green, blue] = colour.map((part) => linear(part / 255));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** Call `redraw` when the system or the page changes the colour scheme; returns a function that stops it. */
export function watchTheme(redraw) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const observer = new MutationObserver(redraw);
  const attributes = { attributes: true, attributeFilter: ["data-theme", "class", "data-jp-theme-light"] };
  for (const element of [document.documentElement, document.body]) observer.observe(element, attributes);
  system.addEventListener("change", redraw);
  return () => {
    observer.disconnect();
    system.removeEventListener("change", redraw);
  };
}

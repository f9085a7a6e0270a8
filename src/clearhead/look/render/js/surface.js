// What attention is drawn over: the patches of an image, the tokens of a text. A click makes one of them the query.

import { arrow, h, sheet, svg } from "./dom.js";
import { t } from "./i18n.js";
import { percent, visible } from "./numbers.js";
import { patchName } from "./shares.js";

const STRONGEST = 0.78; // opacity of the largest share

/** The image of a Look as a canvas of its own size. */
export function imageOf(pixels) {
  const [height, width] = [pixels.length, pixels[0].length];
  const image = new ImageData(width, height);
  pixels.forEach((row, y) => row.forEach((channels, x) => {
    const [red, green = red, blue = red] = channels;
    image.data.set([red, green, blue, 255], 4 * (y * width + x));
  }));
  const canvas = h("canvas", { width, height });
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

/**
 * An image under its patches: {element, paint}.
 *
 * `onPick(patch)` gets the patch that was clicked or reached by the arrow keys, if patches are `selectable`;
 * `onHover(patch)` the one under the pointer.
 */
export function patchSurface(canvas, [rows, columns], size, { onPick, onHover, selectable }) {
  const whole = { width: size, height: (size * canvas.height) / canvas.width };
  const one = { width: whole.width / columns, height: whole.height / rows };
  const patches = Array.from({ length: rows * columns }, (_, patch) => {
    const place = { x: (patch % columns) * one.width, y: Math.floor(patch / columns) * one.height };
    const role = { tabindex: -1, role: selectable ? "button" : "img", "aria-label": patchName(patch, columns) };
    return svg("rect", { class: "ch-patch", ...one, ...place, ...role });
  });
  const ring = svg("rect", { class: "ch-ring", ...one, visibility: "hidden" });
  const sharp = { preserveAspectRatio: "none", style: { "image-rendering": "pixelated" } };
  const name = { class: "ch-surface", role: "group", "aria-label": t("Image; arrow keys move between patches") };
  const element = sheet(whole.width, whole.height, name,
    svg("image", { href: canvas.toDataURL(), ...whole, ...sharp }), patches, ring);
  patches.forEach((each, patch) => {
    each.addEventListener("pointerenter", () => onHover(patch));
    each.addEventListener("focus", () => onHover(patch));
    if (selectable) each.addEventListener("click", () => onPick(patch));
    each.addEventListener("keydown", (event) => {
      const next = arrow(event, patch, patches.length, columns);
      if (next === null) return;
      event.preventDefault();
      patches[next].focus();
      if (selectable) onPick(next);
    });
  });
  return { element, paint: (shares, chosen) => paintPatches(patches, ring, shares, chosen) };
}

function paintPatches(patches, ring, shares, chosen) {
  const most = Math.max(...shares) || 1;
  patches.forEach((each, patch) => {
    each.setAttribute("fill-opacity", STRONGEST * (shares[patch] / most));
    each.setAttribute("tabindex", patch === (chosen ?? 0) ? 0 : -1);
    each.setAttribute("aria-pressed", String(patch === chosen));
  });
  ring.setAttribute("visibility", chosen === null ? "hidden" : "visible");
  if (chosen === null) return;
  for (const side of ["x", "y"]) ring.setAttribute(side, patches[chosen].getAttribute(side));
}

/** Tokens as buttons: {element, mark, paint}; `onPick(place)` gets the one that was pressed. */
export function wordSurface(words, label, { onPick }) {
  const button = (word, place) =>
    h("button", { type: "button", class: "ch-word", dir: "auto", onclick: () => onPick(place) }, visible(word));
  const buttons = words.map(button);
  const mark = (chosen) => {
    buttons.forEach((each, place) => each.setAttribute("aria-pressed", String(place === chosen)));
  };
  const paint = (shares, chosen, colours) => {
    const most = Math.max(...shares) || 1;
    buttons.forEach((each, place) => paintWord(each, shares[place], colours.share(shares[place] / most), colours));
    mark(chosen);
  };
  return { element: h("div", { class: "ch-words", role: "group", "aria-label": label }, buttons), mark, paint };
}

function paintWord(button, share, fill, colours) {
  button.style.background = fill;
  button.style.color = colours.inkOn(fill);
  button.title = percent(share);
}

/** A small overlay: shares (rows × columns) over the image. */
export function thumbnail(canvas, [rows, columns], shares, colour) {
  const small = h("canvas", { width: canvas.width, height: canvas.height, "aria-hidden": "true" });
  const pen = small.getContext("2d");
  pen.drawImage(canvas, 0, 0);
  pen.fillStyle = colour;
  const most = Math.max(...shares) || 1;
  const [width, height] = [canvas.width / columns, canvas.height / rows];
  shares.forEach((share, patch) => {
    pen.globalAlpha = STRONGEST * (share / most);
    pen.fillRect((patch % columns) * width, Math.floor(patch / columns) * height, width, height);
  });
  return small;
}

// A pad to draw on or to drop an image on; both give an image in the size that the model reads.

import { t } from "./i18n.js";
import { modelMenu } from "./shared.js";
import { button } from "./views/controls.js";
import { h } from "./views/dom.js";

const SIDE = 280; // pixels of the pad
const LINE_WIDTH = 20;
const MARGIN = 4 / 28; // around the drawing, as in the MNIST images
// an example, in sides of the pad
const SEVEN = [[0.28, 0.2], [0.72, 0.2], [0.55, 0.55], [0.43, 0.85]];
const INTERVAL = 120; // milliseconds between two images while drawing

/**
 * The pad: {element}. With `example` it opens with a digit instead of an empty pad. `onImage` gets
 * the image, a PNG as a data URL, while it is drawn and when one is dropped.
 */
export function pad({ models, model, image, example = false, onModel, onImage }) {
  const canvas = h("canvas", {
    width: SIDE, height: SIDE, class: "st-pad", tabindex: 0, role: "img",
    "aria-label": t("A pad: draw with the pointer, drop an image, or choose a file"),
  });
  const context = canvas.getContext("2d");
  const file = h("input", { type: "file", accept: "image/*", hidden: true,
    onchange: () => readFile(file.files[0]) });
  let strokes = []; // each a list of [x, y]
  let lastSent = 0;

  function wipe() {
    context.fillStyle = "black";
    context.fillRect(0, 0, SIDE, SIDE);
  }

  function clear() {
    strokes = [];
    wipe();
    canvas.focus();
  }

  function begin(event) {
    if (!strokes.length) wipe(); // a drawing does not start on top of an image
    canvas.setPointerCapture(event.pointerId);
    strokes.push([]);
    move(event);
  }

  function move(event) {
    if (!canvas.hasPointerCapture(event.pointerId)) return;
    const box = canvas.getBoundingClientRect();
    const scale = SIDE / box.width;
    strokes.at(-1).push([(event.clientX - box.left) * scale, (event.clientY - box.top) * scale]);
    draw(context, strokes.slice(-1), LINE_WIDTH, (point) => point);
    if (event.timeStamp - lastSent < INTERVAL) return;
    lastSent = event.timeStamp;
    send();
  }

  function end(event) {
    if (!canvas.hasPointerCapture(event.pointerId)) return;
    canvas.releasePointerCapture(event.pointerId);
    send();
  }

  function send() {
    onImage(normalizedImage(strokes, model.image.side));
  }

  /** Draw a seven and send it; the next stroke begins anew. */
  function drawExample() {
    strokes = [SEVEN.map(([x, y]) => [x * SIDE, y * SIDE])];
    draw(context, strokes, LINE_WIDTH, (point) => point);
    send();
    strokes = [];
  }

  async function readFile(selected) {
    if (!selected?.type.startsWith("image/")) return;
    const bitmap = await createImageBitmap(selected).catch(() => null);
    if (!bitmap) return;
    strokes = [];
    const small = scaled(bitmap, model.image.side);
    paint(small);
    onImage(small.toDataURL());
  }

  function paint(source) {
    wipe();
    context.imageSmoothingEnabled = false;
    context.drawImage(source, 0, 0, SIDE, SIDE);
  }

  async function restore(url) {
    const saved = new Image();
    saved.src = url;
    await saved.decode().then(() => paint(saved), () => {});
  }

  canvas.addEventListener("pointerdown", begin);
  canvas.addEventListener("pointermove", move);
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("dragover", (event) => event.preventDefault());
  canvas.addEventListener("drop", (event) => {
    event.preventDefault();
    readFile(event.dataTransfer.files[0]);
  });
  wipe();
  if (image?.startsWith("data:image/png;base64,")) restore(image);
  else if (example) queueMicrotask(drawExample);
  const element = h("div", { class: "st-drawing" },
    modelMenu(models, model, onModel), canvas,
    h("div", { class: "st-more" },
      button(t("Clear"), clear), button(t("Choose an image"), () => file.click()), file,
      h("span", { class: "ch-label" }, t("Draw, or drop an image here"))));
  return { element };
}

/** The drawing, centred and scaled like the images that the model was trained on. */
function normalizedImage(strokes, side) {
  const canvas = h("canvas", { width: side, height: side });
  const context = canvas.getContext("2d");
  context.fillStyle = "black";
  context.fillRect(0, 0, side, side);
  const points = strokes.flat();
  const [low, high] = [0, 1].map((axis) => points.map((point) => point[axis]))
    .reduce(([minima, maxima], values) =>
      [[...minima, Math.min(...values)], [...maxima, Math.max(...values)]], [[], []]);
  const size = Math.max(high[0] - low[0], high[1] - low[1], SIDE / 8);
  const width = side * 0.085;
  const scale = (side * (1 - 2 * MARGIN) - width) / size;
  const put = (value, axis) => side / 2 + (value - (low[axis] + high[axis]) / 2) * scale;
  draw(context, strokes, width, ([x, y]) => [put(x, 0), put(y, 1)]);
  return canvas.toDataURL();
}

function draw(context, strokes, width, place) {
  Object.assign(context, { strokeStyle: "white", lineWidth: width, lineCap: "round",
    lineJoin: "round" });
  for (const stroke of strokes) {
    const [first, ...others] = stroke.map(place);
    context.beginPath();
    context.moveTo(...first);
    context.lineTo(...first); // a dot
    for (const point of others) context.lineTo(...point);
    context.stroke();
  }
}

function scaled(image, side) {
  const canvas = h("canvas", { width: side, height: side });
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(image, 0, 0, side, side);
  return canvas;
}

// A pad to draw on, and a place to drop an image: both give a picture in the size that the model reads.

import { modelMenu } from "./parts.js";
import { button } from "./views/controls.js";
import { h } from "./views/dom.js";

const SIDE = 280; // pixels of the pad
const PEN = 20;
const MARGIN = 4 / 28; // of the picture around what is drawn, as in the images of handwritten digits
const OFTEN = 120; // milliseconds between two pictures while drawing

/**
 * The pad: {element}. `onImage` is told the picture, a PNG as a data URL, while it is drawn or when it is dropped.
 */
export function pad({ models, model, image, onModel, onImage }) {
  const canvas = h("canvas", {
    width: SIDE, height: SIDE, class: "st-pad", tabindex: 0, role: "img",
    "aria-label": "A pad: draw with the pointer, drop an image, or choose a file",
  });
  const pen = canvas.getContext("2d");
  const file = h("input", { type: "file", accept: "image/*", hidden: true, onchange: () => take(file.files[0]) });
  let strokes = []; // each a list of [x, y]
  let last = 0;

  function wipe() {
    pen.fillStyle = "black";
    pen.fillRect(0, 0, SIDE, SIDE);
  }

  function clear() {
    strokes = [];
    wipe();
    canvas.focus();
  }

  function begin(event) {
    if (!strokes.length) wipe(); // what is drawn stands alone, not on an image
    canvas.setPointerCapture(event.pointerId);
    strokes.push([]);
    move(event);
  }

  function move(event) {
    if (!canvas.hasPointerCapture(event.pointerId)) return;
    const box = canvas.getBoundingClientRect();
    const scale = SIDE / box.width;
    strokes.at(-1).push([(event.clientX - box.left) * scale, (event.clientY - box.top) * scale]);
    draw(pen, strokes.slice(-1), PEN, (point) => point);
    if (event.timeStamp - last < OFTEN) return;
    last = event.timeStamp;
    tell();
  }

  function end(event) {
    if (!canvas.hasPointerCapture(event.pointerId)) return;
    canvas.releasePointerCapture(event.pointerId);
    tell();
  }

  function tell() {
    onImage(picture(strokes, model.image.side));
  }

  async function take(given) {
    if (!given?.type.startsWith("image/")) return;
    const found = await createImageBitmap(given).catch(() => null);
    if (!found) return;
    strokes = [];
    const small = shrunk(found, model.image.side);
    paint(small);
    onImage(small.toDataURL());
  }

  function paint(source) {
    wipe();
    pen.imageSmoothingEnabled = false;
    pen.drawImage(source, 0, 0, SIDE, SIDE);
  }

  async function restore(url) {
    const known = new Image();
    known.src = url;
    await known.decode().then(() => paint(known), () => {});
  }

  canvas.addEventListener("pointerdown", begin);
  canvas.addEventListener("pointermove", move);
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("dragover", (event) => event.preventDefault());
  canvas.addEventListener("drop", (event) => {
    event.preventDefault();
    take(event.dataTransfer.files[0]);
  });
  wipe();
  if (image?.startsWith("data:image/png;base64,")) restore(image);
  const element = h("div", { class: "st-drawing" },
    modelMenu(models, model, onModel), canvas,
    h("div", { class: "st-more" },
      button("Clear", clear), button("Choose an image", () => file.click()), file,
      h("span", { class: "ch-label" }, "Draw, or drop an image here")));
  return { element };
}

/** What is drawn, moved to the middle and to the size that such a model has learned. */
function picture(strokes, side) {
  const canvas = h("canvas", { width: side, height: side });
  const pen = canvas.getContext("2d");
  pen.fillStyle = "black";
  pen.fillRect(0, 0, side, side);
  const points = strokes.flat();
  const [low, high] = [0, 1].map((axis) => points.map((point) => point[axis]))
    .reduce(([least, most], own) => [[...least, Math.min(...own)], [...most, Math.max(...own)]], [[], []]);
  const size = Math.max(high[0] - low[0], high[1] - low[1], SIDE / 8);
  const width = side * 0.085;
  const scale = (side * (1 - 2 * MARGIN) - width) / size;
  const put = (value, axis) => side / 2 + (value - (low[axis] + high[axis]) / 2) * scale;
  draw(pen, strokes, width, ([x, y]) => [put(x, 0), put(y, 1)]);
  return canvas.toDataURL();
}

function draw(pen, strokes, width, place) {
  Object.assign(pen, { strokeStyle: "white", lineWidth: width, lineCap: "round", lineJoin: "round" });
  for (const stroke of strokes) {
    const [first, ...others] = stroke.map(place);
    pen.beginPath();
    pen.moveTo(...first);
    pen.lineTo(...first); // a dot
    for (const point of others) pen.lineTo(...point);
    pen.stroke();
  }
}

function shrunk(image, side) {
  const canvas = h("canvas", { width: side, height: side });
  const pen = canvas.getContext("2d");
  pen.imageSmoothingQuality = "high";
  pen.drawImage(image, 0, 0, side, side);
  return canvas;
}

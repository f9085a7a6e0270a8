// Any element of a view as an SVG document: boxes, text as text, drawings and canvases, in their places on the page.

import { h, svg } from "./dom.js";

const MARGIN = 16;
const FONT = ["font-family", "font-size", "font-weight", "font-style"];
const STROKE = ["stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap"];
const KEPT = [...FONT, ...STROKE, "fill", "fill-opacity", "opacity", "text-anchor", "dominant-baseline", "visibility"];

/** An element of the page, as the text of an SVG file. */
export function svgOf(element) {
  const { picture } = draw(element);
  return new XMLSerializer().serializeToString(picture);
}

/** An element of the page as a PNG of twice its size. */
export async function pngOf(element) {
  const { picture, width, height } = draw(element);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(picture))}`;
  await image.decode();
  const canvas = h("canvas", { width: Math.ceil(width * 2), height: Math.ceil(height * 2) });
  const pen = canvas.getContext("2d");
  pen.scale(2, 2);
  pen.drawImage(image, 0, 0, width, height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

function draw(element) {
  const box = element.getBoundingClientRect();
  const width = Math.max(box.width, element.scrollWidth) + 2 * MARGIN;
  const height = Math.max(box.height, element.scrollHeight) + 2 * MARGIN;
  const origin = { x: box.left - MARGIN, y: box.top - MARGIN };
  const picture = svg("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` });
  const paper = getComputedStyle(element.closest(".clearhead")).backgroundColor;
  picture.append(svg("rect", { width, height, fill: paper }), ...shapes(element, origin));
  return { picture, width, height };
}

function shapes(element, origin) {
  const style = getComputedStyle(element);
  if (style.display === "none" || style.visibility === "hidden" || Number(style.opacity) === 0) return [];
  if (element.matches("[data-screen-only], input, select, button.ch-button")) return [];
  if (element instanceof SVGSVGElement) return [drawing(element, origin)];
  if (element instanceof HTMLCanvasElement) return [bitmap(element, origin)];
  const inside = [...element.childNodes].flatMap((child) =>
    child instanceof Element ? shapes(child, origin) : child instanceof Text ? lines(child, style, origin) : []);
  return [...boxes(element, style, origin), ...inside];
}

function boxes(element, style, origin) {
  const filled = !/rgba\(.*, 0\)|transparent/.test(style.backgroundColor);
  const paint = { fill: style.backgroundColor, rx: parseFloat(style.borderRadius) || 0 };
  return filled ? [...element.getClientRects()].map((box) => svg("rect", { ...place(box, origin), ...paint })) : [];
}

function lines(node, style, origin) {
  const ascent = ascentOf(style);
  const font = Object.fromEntries(FONT.map((name) => [name, style.getPropertyValue(name)]));
  const look = { ...font, fill: style.color, "xml:space": "preserve" };
  return linesOf(node).map(({ text, box }) =>
    svg("text", { x: box.left - origin.x, y: box.top - origin.y + ascent, ...look }, text));
}

/** The lines that a text is broken into: [{text, box}]. */
function linesOf(node) {
  const range = document.createRange();
  range.selectNodeContents(node);
  const boxes = range.getClientRects();
  if (boxes.length <= 1) return boxes.length && node.data.trim() ? [{ text: node.data, box: boxes[0] }] : [];
  const found = [];
  for (let start = 0, end = 0; start < node.length; start = end) {
    end = start + String.fromCodePoint(node.data.codePointAt(start)).length;
    range.setStart(node, start);
    range.setEnd(node, end);
    const [box] = range.getClientRects();
    if (!box) continue;
    const last = found.at(-1);
    if (last && Math.abs(last.box.top - box.top) < 2) last.text += range.toString();
    else found.push({ text: range.toString(), box });
  }
  return found;
}

function ascentOf(style) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  return pen.measureText("x").fontBoundingBoxAscent;
}

function bitmap(canvas, origin) {
  const where = place(canvas.getBoundingClientRect(), origin);
  const sharp = { "image-rendering": "pixelated" };
  return svg("image", { ...where, href: canvas.toDataURL(), preserveAspectRatio: "none", style: sharp });
}

function drawing(source, origin) {
  const copy = source.cloneNode(true);
  const originals = source.querySelectorAll("*");
  [...copy.querySelectorAll("*")].forEach((part, index) => keepStyle(part, getComputedStyle(originals[index])));
  copy.querySelectorAll("[data-screen-only]").forEach((part) => part.remove());
  const where = place(source.getBoundingClientRect(), origin);
  for (const [name, value] of Object.entries(where)) copy.setAttribute(name, value);
  return copy;
}

function keepStyle(part, style) {
  for (const name of KEPT) part.style.setProperty(name, style.getPropertyValue(name));
  for (const name of ["tabindex", "class", "role"]) part.removeAttribute(name);
}

function place(box, origin) {
  return { x: box.left - origin.x, y: box.top - origin.y, width: box.width, height: box.height };
}

// The width of texts in pixels, for labels in any script.

const pen = document.createElement("canvas").getContext("2d");

/** The width in pixels of a text in the font of the views. */
export function widthOf(text, size) {
  pen.font = `${size}px system-ui, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif`;
  return pen.measureText(text).width;
}

/** The width of the widest of some texts. */
export function widest(texts, size) {
  return Math.max(0, ...texts.map((text) => widthOf(text, size)));
}

/** As much of a text as fits, with … if it is cut. */
export function cut(text, room, size) {
  if (widthOf(text, size) <= room) return text;
  const letters = [...text];
  while (letters.length > 1 && widthOf(`${letters.join("")}…`, size) > room) letters.pop();
  return `${letters.join("")}…`;
}

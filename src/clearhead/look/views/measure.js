// How wide a text is, so that labels have the room they need, in any script.

const pen = document.createElement("canvas").getContext("2d");

/** The width in pixels of a text in the views' own font. */
export function widthOf(text, size) {
  pen.font = `${size}px system-ui, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif`;
  return pen.measureText(text).width;
}

/** The width of the widest of some texts. */
export function widest(texts, size) {
  return Math.max(0, ...texts.map((text) => widthOf(text, size)));
}

/** As much of a text as fits, with … where something is left out. */
export function cut(text, room, size) {
  if (widthOf(text, size) <= room) return text;
  const letters = [...text];
  while (letters.length > 1 && widthOf(`${letters.join("")}…`, size) > room) letters.pop();
  return `${letters.join("")}…`;
}

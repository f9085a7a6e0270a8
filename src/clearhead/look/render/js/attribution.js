// What one answer rests on: the tokens or patches that were read, coloured by how much each contributed.
//
// data: {model, text, output, rows: the answers, query: the one that is explained, tokens, values, image, grid}, and
// `every` where others are known: the values of each answer, or null.

import { menu, partLabel, shareList } from "./controls.js";
import { clamp, h, roomIn } from "./dom.js";
import { frame, handle, title } from "./frame.js";
import { t } from "./i18n.js";
import { amountLegend, signedLegend } from "./legend.js";
import { matrix } from "./matrix.js";
import { extent, format, percent, visible } from "./numbers.js";
import { patchName } from "./shares.js";
import { imageOf, patchSurface } from "./surface.js";

/** `mount` of a view of this kind; `about` says what its numbers mean. chosen: {query}. */
export function attribution(name, label, about) {
  return function mountAttribution(element, data, options = {}) {
    let chosen = { query: data.query, ...options.chosen };
    const view = frame(element, { name, label, draw, json: () => data, picture: () => view.figure }, options);

    function draw() {
      const answer = data.rows[data.query] ?? data.output;
      const read = data.image ? t("the image") : data.text;
      title(view.heading, [read, data.output.trim() ? data.output : visible(answer)],
        t("{model} · what “{answer}” rests on", { model: data.model, answer: visible(answer) }));
      const answers = data.rows.map((word, row) => [String(row), `${row}: ${visible(word)}`]);
      const several = data.rows.length > 1 && options.onChange;
      view.tools.replaceChildren(...(several ? [menu(t("Answer"), answers, String(data.query), pick)] : []));
      const colours = view.palette();
      const most = extent(data.values) || 1;
      const signed = data.values.some((value) => value < 0);
      const paint = (value) => (signed ? colours.signed(value / most) : colours.share(value / most));
      const legend = signed && !data.image ? signedLegend(colours, most, [t("against it"), t("for it")])
        : amountLegend(colours, [t("nothing"), t("most: {value}", { value: format(most) })], 1, colours.share);
      view.figure.replaceChildren(h("div", { class: "ch-one-beside" },
        h("div", {}, data.image ? picture(most) : text(colours, paint), legend, h("p", { class: "ch-note" }, about)),
        strongest()), ...(data.every && !data.image ? [everyAnswer(colours)] : []));
      view.say("");
    }

    function pick(query) {
      chosen = { query: Number(query) };
      options.onChange(chosen); // a listener loads the numbers of this answer
    }

    function text(colours, paint) {
      const word = (token, place) => {
        const fill = paint(data.values[place]);
        const say = () => view.say(`${visible(token)}: ${format(data.values[place])}`);
        return h("span", {
          class: "ch-chip", dir: "auto", title: format(data.values[place]), onpointerenter: say,
          style: { background: fill, color: colours.inkOn(fill) },
        }, visible(token));
      };
      return h("p", { class: "ch-chips ch-large-chips" }, data.tokens.map(word));
    }

    /** A row for each answer that is known, as shares of the row; a click chooses the answer. */
    function everyAnswer(colours) {
      const known = data.rows.map((_, row) => row).filter((row) => data.every[row]);
      const weights = known.map((row) => shares(data.every[row]));
      const signed = weights.flat().some((share) => share < 0);
      const own = { query: known.indexOf(data.query), key: -1 };
      const drawn = matrix({ rows: known.map((row) => data.rows[row]), columns: data.tokens, weights },
        roomIn(view.figure), colours, {
          onHover: (cell) => {
            drawn.isolate(cell ?? own);
            if (!cell) return;
            const [answer, word] = [visible(data.rows[known[cell.query]]), visible(data.tokens[cell.key])];
            const share = percent(weights[cell.query][cell.key]);
            view.say(t("“{answer}” rests on “{word}” by {share}", { answer, word, share }));
          },
          onPick: (cell) => { if (cell) pick(known[cell.query]); },
          paint: signed ? colours.signed : (share) => colours.share(Math.max(0, share)), write: percent,
        });
      drawn.isolate(own);
      return h("div", { class: "ch-below-all" }, partLabel(t("Every answer, in shares of its row")), drawn.element);
    }

    function picture(most) {
      const [rows, columns] = data.grid;
      const values = data.values.slice(-rows * columns);
      const size = clamp(roomIn(view.figure) * 0.42, 240, 560);
      const onHover = (patch) => view.say(`${patchName(patch, columns)}: ${format(values[patch])}`);
      const drawn = patchSurface(imageOf(data.image), data.grid, size, { onPick: onHover, onHover, selectable: false });
      drawn.paint(values.map((value) => Math.max(0, value) / most), null);
      return drawn.element;
    }

    function strongest() {
      if (data.image) return "";
      const ranked = shares(data.values).map((share, place) => [place, share])
        .sort((one, other) => Math.abs(other[1]) - Math.abs(one[1])).slice(0, 8);
      return h("div", {}, partLabel(t("The strongest, as a share of all")),
        shareList(ranked.map(([place, share], rank) => [visible(data.tokens[place]), share, rank === 0])));
    }

    return handle(view, (next, requested = { query: next.query }) => {
      data = next;
      chosen = requested;
    });
  };
}

/** Numbers as shares of the sum of their sizes. */
function shares(values) {
  const total = values.reduce((sum, value) => sum + Math.abs(value), 0) || 1;
  return values.map((value) => value / total);
}

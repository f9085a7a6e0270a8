// A chat with a language model: stop, regenerate, the alternatives of each token, and what each
// token looked at.

import { lines, post } from "./api.js";
import { decimal, t } from "./i18n.js";
import { parseJson } from "./link.js";
import { findModel, modelMenu, noModel, resultPanel } from "./shared.js";
import { button, meter, partLabel, slider } from "./views/controls.js";
import { h } from "./views/dom.js";
import { amountLegend } from "./views/legend.js";
import { percent, visible } from "./views/numbers.js";
import { palette } from "./views/theme.js";

export const NAME = t("Chat");
export const ABOUT = t(
  "Talk with a language model. Click a token of an answer to see its alternatives and which " +
  "words it looked at.");
export const fits = ({ continues }) => continues;

const MAX_TEMPERATURE = 15; // tenths
const LONGEST = 200; // tokens of an answer
const NEAR = 80; // pixels from the end of the page within which it follows the answer
const STARTERS = [t("Who are you?"), t("Tell me about the sea."), t("Where do you come from?")];

export function open(element, state, studio) {
  const models = [...studio.models(fits)]
    .sort((one, other) => Number(other.chats) - Number(one.chats)
      || other.parameters - one.parameters);
  if (!models.length) return element.append(
    noModel(t("None of the loaded models is a language model.")));
  const model = findModel(models, state.model);
  const { place, load, element: panel } = resultPanel();
  let messages = parseJson(state.chat ?? "[]"); // [{role, content, tokens?}]
  if (!Array.isArray(messages)) messages = [];
  let [running, temperature, seed, selected, looked] = [null, Number(state.temperature ?? 0.7), 0,
    null, null];

  const input = h("textarea", { class: "st-input", "aria-label": t("Message"), rows: 2,
    maxlength: 4000, placeholder: t("Write a message") });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
  });

  function send(event) {
    event.preventDefault();
    if (input.value.trim()) begin(input.value.trim());
    input.value = "";
  }

  function begin(content) {
    messages = [...messages, { role: "user", content }];
    answer([]);
  }

  /**
   * Let the model answer the last message of the user; `forced` are the ids that its answer begins
   * with.
   */
  function answer(forced) {
    running?.abort();
    running = new AbortController();
    [selected, looked] = [null, null];
    const asked = messages;
    messages = [...asked, { role: "assistant", content: "", tokens: [] }];
    draw();
    load(async (isCurrent) => {
      const body = { model: model.name, messages: plain(asked), temperature, seed, forced,
        longest: LONGEST };
      try {
        for await (const { token, text } of lines("/studio/api/chat", body, running.signal)) {
          if (!isCurrent()) return;
          const last = messages.at(-1);
          messages = [...asked, { ...last, content: text ?? last.content,
            tokens: token ? [...last.tokens, token] : last.tokens }];
          draw();
        }
      } finally {
        running = null;
        save();
        draw();
      }
    });
  }

  function regenerate() {
    if (messages.at(-1)?.role !== "assistant") return;
    messages = messages.slice(0, -1);
    seed += 1;
    answer([]);
  }

  function save() {
    studio.set({ model: model.name, temperature,
      chat: messages.length ? JSON.stringify(plain(messages)) : "" });
  }

  function select(index) {
    selected = index;
    looked = null;
    draw();
    const { tokens } = messages.at(-1);
    load(async (isCurrent) => {
      const body = { model: model.name, messages: plain(messages.slice(0, -1)),
        forced: tokens.map(({ id }) => id), token: index };
      const found = await post("/studio/api/chat/attention", body);
      if (!isCurrent() || selected !== index) return;
      looked = found;
      draw();
    });
  }

  function draw() {
    const colours = palette(element.closest(".clearhead"));
    const page = element.closest("main");
    const isAtEnd = page.scrollHeight - page.scrollTop - page.clientHeight < NEAR;
    place.replaceChildren(h("div", { class: "st-conversation" },
      messages.length ? "" : h("div", { class: "st-starters" },
        h("p", {}, t("Say something, or begin with")),
        STARTERS.map((text) => button(text, () => begin(text)))),
      h("ol", { class: "st-talk", "aria-label": t("Conversation") },
        messages.map((message, index) => bubble(message, index === messages.length - 1, colours)))),
      h("div", { class: "st-inspector" }, selected === null ? h("p", { class: "st-hint" },
        t("Click a word of the answer: here you see what the model could have said instead, and which " +
          "words it looked at. The stronger the colour of a word, the surer the model was.")) : inspector(colours)));
    if (running && isAtEnd) page.scrollTo(0, page.scrollHeight); // what is being written stays in sight
    stop.disabled = !running;
    again.disabled = Boolean(running) || messages.at(-1)?.role !== "assistant";
  }

  function bubble({ role, content, tokens }, last, colours) {
    const shown = last && tokens?.length
      ? tokens.map((token, index) => tokenButton(token, index, colours)) : content || "…";
    return h("li", { class: `st-said st-by-${role}` },
      h("span", { class: "ch-label" }, role === "user" ? t("You") : model.name),
      h("div", { dir: "auto" }, shown));
  }

  function tokenButton(token, index, colours) {
    const fill = colours.share(token.probability);
    return h("span", { class: "st-token", role: "button", tabindex: 0,
      "aria-pressed": String(index === selected), title: percent(token.probability),
      style: { background: fill, color: colours.inkOn(fill) }, onclick: () => select(index),
      onkeydown: (event) => { if (event.key === "Enter") select(index); } },
      index ? token.piece : token.piece.trimStart());
  }

  /** The alternatives of the selected token, and the words that it looked at. */
  function inspector(colours) {
    const { tokens } = messages.at(-1);
    const token = tokens[selected];
    if (!token) return "";
    const instead = ({ id, word, probability }) =>
      h("li", { "aria-current": id === token.id ? "true" : null },
      h("button", { type: "button", class: "st-alternative", onclick: () => continueWith(id) },
        h("span", { dir: "auto" }, visible(word)), meter(probability),
        h("span", { class: "ch-number" }, percent(probability))));
    return h("div", {},
      h("section", { class: "st-alternatives", "aria-label": t("Alternatives") },
        partLabel(t("Instead of “{word}”; click one to continue from it",
          { word: visible(token.word) })), h("ol", {}, token.alternatives.map(instead))),
      h("section", { "aria-label": t("What it looked at") },
        partLabel(t("What the model looked at when it chose “{word}”: mean of all heads",
          { word: visible(token.word) })),
        looked ? attended(looked, colours) : h("p", { class: "st-hint" }, t("Computing…"))));
  }

  function continueWith(id) {
    const ids = messages.at(-1).tokens.slice(0, selected).map((token) => token.id);
    messages = messages.slice(0, -1);
    answer([...ids, id]);
  }

  const stop = button(t("Stop"), () => running?.abort());
  const again = button(t("Regenerate"), regenerate, t("Answer again with another random seed"));
  const clear = button(t("New chat"),
    () => { running?.abort(); [messages, selected] = [[], null]; save(); draw(); });
  const heat = slider(t("Temperature"), MAX_TEMPERATURE, Math.round(10 * temperature),
    (tenths) => decimal((tenths / 10).toFixed(1)), (tenths) => { temperature = tenths / 10; });
  const note = model.chats ? "" : h("p", { class: "st-hint" },
    t("{model} never learned to chat: it continues the conversation as if it were a play. Open a " +
      "chat model on the Models page.", { model: model.name }));
  element.append(modelMenu(models, model, (name) => studio.go("chat", { model: name })), note,
    panel,
    h("form", { class: "st-bar st-say", onsubmit: send },
      h("div", { class: "st-ask" }, input, h("button", { class: "st-go" }, t("Send"))),
      h("div", { class: "st-more" }, heat, stop, again, clear)));
  draw();
  return { close: () => running?.abort() };
}

/**
 * Every word of the conversation, coloured by the attention that it got; the first token, where
 * heads rest, has its own share.
 */
function attended({ pieces, shares }, colours) {
  const most = Math.max(...shares.slice(1)) || 1;
  const word = (piece, place) => {
    const fill = colours.share(place ? shares[place] / most : 0);
    return h("span", { title: percent(shares[place]),
      style: { background: fill, color: colours.inkOn(fill) } }, piece);
  };
  return [h("p", { class: "st-attended", dir: "auto" }, pieces.map(word)),
    amountLegend(colours, ["0 %", percent(most)], 1, colours.share),
    h("p", { class: "st-hint" },
      t("{share} rest on the first token: heads that look for nothing look there.",
        { share: percent(shares[0]) }))];
}

/** Messages as the server reads them. */
function plain(messages) {
  return messages.map(({ role, content }) => ({ role, content }));
}

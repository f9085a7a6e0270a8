// Requests to the server. An error response throws an Error with the server's message.

import { language, t, translated } from "./i18n.js";

const UNREACHABLE = t("The server does not answer. Is `clearhead studio` still running?");

/** GET a JSON document: `await get("/studio/api/models")`. */
export async function get(path) {
  return (await send(path, {})).json();
}

/** POST a JSON document, and return the JSON response. */
export async function post(path, body = {}, signal = undefined) {
  return (await send(path, { ...json(body), signal })).json();
}

/** DELETE something, and return the JSON response. */
export async function remove(path) {
  return (await send(path, { method: "DELETE" })).json();
}

/** PUT a file, and return the JSON response. */
export async function put(path, file) {
  return (await send(path, { method: "PUT", body: file })).json();
}

/**
 * POST a JSON document, and yield the lines of the response, each parsed as JSON, as they arrive.
 */
export async function* lines(path, body, signal) {
  const reader = (await send(path, { ...json(body), signal })).body.pipeThrough(
    new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    const parts = (rest + (value ?? "")).split("\n");
    rest = parts.pop();
    for (const part of parts) yield checked(JSON.parse(part));
    if (done) return;
  }
}

/** Whether an error comes from a request that we aborted ourselves. */
export function isAbort(error) {
  return error.name === "AbortError";
}

function json(body) {
  return { method: "POST", headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body) };
}

async function send(path, options) {
  const response = await fetch(path, options).catch((error) => {
    throw isAbort(error) ? error : new Error(UNREACHABLE, { cause: error });
  });
  if (response.ok) return response;
  const document = await response.json().catch(() => null);
  const said = document?.error?.message;
  throw new Error(said ? inLanguage(said)
    : t("The server answered {status}.", { status: response.status }));
}

function checked(line) {
  if (line.error) throw new Error(inLanguage(line.error));
  return line;
}

/** An error of the server in the reader's language; one that no dictionary has is announced as English. */
function inLanguage(said) {
  const found = translated(said);
  return found !== said || language() === "en" ? found
    : t("The server reports, in English: {sentence}", { sentence: said });
}

// Questions to the server. A refusal is an error whose message is the server's own sentence.

const GONE = "The server does not answer. Is `clearhead studio` still running?";

/** A document: `await get("/studio/api/models")`. */
export async function get(path) {
  return (await ask(path, {})).json();
}

/** The answer to a document. */
export async function post(path, body = {}, signal = undefined) {
  return (await ask(path, { ...json(body), signal })).json();
}

/** Send a file under its name. */
export async function put(path, file) {
  return (await ask(path, { method: "PUT", body: file })).json();
}

/** The lines of an answer, each a document, as they come. */
export async function* lines(path, body, signal) {
  const reader = (await ask(path, { ...json(body), signal })).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    const parts = (rest + (value ?? "")).split("\n");
    rest = parts.pop();
    for (const part of parts) yield understood(JSON.parse(part));
    if (done) return;
  }
}

/** Whether an error only says that we changed our mind. */
export function isAbort(error) {
  return error.name === "AbortError";
}

function json(body) {
  return { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
}

async function ask(path, options) {
  const response = await fetch(path, options).catch((error) => {
    throw isAbort(error) ? error : new Error(GONE, { cause: error });
  });
  if (response.ok) return response;
  const said = await response.json().catch(() => null);
  throw new Error(said?.error?.message ?? `The server answered ${response.status}.`);
}

function understood(line) {
  if (line.error) throw new Error(line.error);
  return line;
}

// Where answers come from: a server with the model, or the answers inside this file.

const held = document.getElementById("answers");
const inside = held && JSON.parse(held.textContent);
const known = new Map(inside ? inside.answers.map(([ask, answer]) => [sorted(ask), answer]) : []);
const remembered = new Map();
const MOST_REMEMBERED = 200;

export class NotHere extends Error {}

export const live = !inside;

function sorted(value) {
  if (Array.isArray(value)) return `[${value.map(sorted).join()}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  return `{${Object.keys(value).sort().map((key) => `${key}:${sorted(value[key])}`).join()}}`;
}

// A file has one text only, so its requests leave it out.
function bare(ask) {
  return ask.run ? { ...ask, run: { ...ask.run, text: "", target: "" } } : ask;
}

// Answers are cached by request; `signal` cancels a request.
export async function ask(question, model, signal) {
  if (inside) {
    const found = known.get(sorted(bare(question)));
    if (found === undefined) throw new NotHere(`Not in this file; it needs the live page: triform look ${inside.name}`);
    return found;
  }
  const key = sorted([model ?? null, question]);
  if (remembered.has(key)) return remembered.get(key);
  const found = await send("v1/look", model ? { model, ask: question } : { ask: question }, { signal });
  remembered.set(key, found);
  if (remembered.size > MOST_REMEMBERED) remembered.delete(remembered.keys().next().value);
  return found;
}

// One request; with `each`, a stream whose chunks are passed to it.
export async function send(path, body, { signal, each } = {}) {
  const response = await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal });
  if (!response.ok) return parsed(response);
  if (!each) return response.json();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return null;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") return null;
      const piece = JSON.parse(data);
      if (piece.error) throw new Error(piece.error.message);
      each(piece);
    }
  }
}

// The JSON of a response; an error with the server's message.
async function parsed(response) {
  const found = await response.json().catch(() => ({}));
  if (response.status === 401) throw new Error("You are signed out. Reload the page to sign in again.");
  if (!response.ok) throw new Error(worded(found.error) ?? `The server answered ${response.status}.`);
  return found;
}

function worded(error) {
  return error?.param && !error.message.includes(error.param) ? `${error.param}: ${error.message}` : error?.message;
}

// The chapters of the lectures, and one of them with the results of its lessons.
export async function contents() {
  return inside ? inside.lessons.contents : once("page/lessons");
}

export async function chapter(name) {
  return inside ? inside.lessons.chapters[name] : once(`page/lessons/${encodeURIComponent(name)}`);
}

async function once(path) {
  if (!remembered.has(path)) remembered.set(path, await parsed(await fetch(path)));
  return remembered.get(path);
}

export async function signOut() {
  await fetch("sign-out", { method: "POST" });
  location.reload();
}

// The models, the forms of the playground, and the first text.
export async function opening() {
  if (inside) return { models: [inside.name], text: inside.text, target: inside.target, forms: {}, lessons: Boolean(inside.lessons), signed_in: false };
  return parsed(await fetch("v1/look"));
}

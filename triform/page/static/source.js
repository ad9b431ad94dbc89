// Where answers come from: a server that has the model, or the answers that were put into this file.

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

// In a file there is one text only, so the questions in it do not repeat it.
function bare(ask) {
  return ask.run ? { ...ask, run: { ...ask.run, text: "", target: "" } } : ask;
}

// Answers that have come are remembered under their question. A question that `signal` ends is not asked any further.
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

// One request; with `each`, an answer that comes in pieces, and every piece is told as it comes.
export async function send(path, body, { signal, each } = {}) {
  const response = await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal });
  if (!response.ok) return told(response);
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

// What a server says: its answer, or an error in its own words.
async function told(response) {
  const found = await response.json().catch(() => ({}));
  if (response.status === 401) throw new Error("You are signed out. Reload the page to sign in again.");
  if (!response.ok) throw new Error(worded(found.error) ?? `The server answered ${response.status}.`);
  return found;
}

function worded(error) {
  return error?.param && !error.message.includes(error.param) ? `${error.param}: ${error.message}` : error?.message;
}

// The chapters of the lectures, and one of them with what its lessons found.
export async function contents() {
  return inside ? inside.lessons.contents : once("page/lessons");
}

export async function chapter(name) {
  return inside ? inside.lessons.chapters[name] : once(`page/lessons/${encodeURIComponent(name)}`);
}

async function once(path) {
  if (!remembered.has(path)) remembered.set(path, await told(await fetch(path)));
  return remembered.get(path);
}

export async function signOut() {
  await fetch("sign-out", { method: "POST" });
  location.reload();
}

// Which models there are, what may be tried with them, and the text to begin with.
export async function opening() {
  if (inside) return { models: [inside.name], text: inside.text, target: inside.target, forms: {}, lessons: Boolean(inside.lessons), signed_in: false };
  return told(await fetch("v1/look"));
}

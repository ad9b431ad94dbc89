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

export async function ask(question, model) {
  if (inside) {
    const found = known.get(sorted(bare(question)));
    if (found === undefined) throw new NotHere(`Not in this file; it needs the live page: triform look ${inside.name}`);
    return found;
  }
  const key = sorted([model ?? null, question]);
  if (remembered.has(key)) return remembered.get(key);
  const response = await fetch("v1/look", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(model ? { model, ask: question } : { ask: question }),
  });
  const found = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(found.error?.message ?? `The server answered ${response.status}.`);
  remembered.set(key, found);
  if (remembered.size > MOST_REMEMBERED) remembered.delete(remembered.keys().next().value);
  return found;
}

// Which models there are, and the text to begin with.
export async function opening() {
  if (inside) return { models: [inside.name], text: inside.text, target: inside.target };
  return (await fetch("v1/look")).json();
}

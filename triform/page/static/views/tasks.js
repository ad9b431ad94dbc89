// The playground: one form per task of the model, as the server describes it, and a drawing of the answer, which is
// text and numbers, never markup.

import { button, choice, h, note, number, panel, percent, shown, whole } from "../dom.js";
import { chances } from "../chart.js";
import { heat, legend } from "../heat.js";
import { send } from "../source.js";
import { change, forms, page, nameOf } from "../state.js";

const NAMES = { complete: "Complete", chat: "Chat", translate: "Translate", summarize: "Summarize", classify: "Classify", tag: "Tag", answer: "Answer", fill: "Fill", embed: "Embed", search: "Search" };
const tried = new Map(); // model and task → its form and answer, kept while another view is open
let task = null;

export const tasks = { id: "try", title: "Playground", bar: false, here: () => forms().length > 0, unsaved: true, show };

async function show() {
  const known = forms();
  const form = known.find((one) => one.task === task) ?? known[0];
  const key = `${nameOf()}/${form.task}`;
  if (!tried.has(key)) tried.set(key, form.task === "chat" ? conversation(form) : once(form));
  return [panel("Playground", "Each form sends one request to this server.",
    h("div", { class: "row", role: "group", "aria-label": "tasks" }, known.map((one) => button(NAMES[one.task] ?? one.task, () => { task = one.task; change({}); }, { "aria-pressed": String(one.task === form.task), "data-key": `task-${one.task}` }))),
    tried.get(key))];
}

// --- a form, as the server describes it ---------------------------------------------------------------------------------

function drawn(form) {
  const inputs = form.fields.map((field) => [field, input(field)]);
  const wide = (kind) => ["text", "lines", "messages"].includes(kind);
  const element = h("form", { class: "try", novalidate: true },
    inputs.filter(([field]) => wide(field.kind)).map(([field, one]) => h("label", { class: "field" }, h("span", {}, field.label), one)),
    h("div", { class: "row" }, inputs.filter(([field]) => !wide(field.kind)).map(([field, one]) => (field.kind === "choice" ? one : h("label", { class: "choice" }, h("span", {}, field.label), one)))));
  return { element, values: () => Object.fromEntries(inputs.map(([field, one]) => [field.name, read(field, one)]).filter(([, value]) => value !== null)), inputs: Object.fromEntries(inputs.map(([field, one]) => [field.name, one])) };
}

function input({ name, kind, label, value = "", least, most, step, options }) {
  if (kind === "number") return h("input", { type: "number", name, min: least, max: most, step, value: String(value) });
  if (kind === "flag") return h("input", { type: "checkbox", name, checked: Boolean(value) });
  if (kind === "choice") return choice(label, options.map((one) => [one, one]), value, () => {}, name);
  return h("textarea", { name, rows: kind === "lines" ? 4 : 3, spellcheck: "false" }, kind === "text" && name === "prompt" && !page.start.words ? "3 14 15" : value);
}

// The value to send; null for an empty number.
function read({ name, kind }, element) {
  if (kind === "flag") return element.checked || null;
  if (kind === "choice") return element.querySelector("select").value;
  if (kind === "number") return element.value === "" ? null : Number(element.value);
  if (kind === "lines") return element.value.split("\n").map((line) => line.trim()).filter(Boolean);
  if (name === "prompt" && !page.start.words) return element.value.split(/\s+/).filter(Boolean).map(Number); // it reads ids
  return element.value;
}

// The button of a form: runs the request or stops it; shows an error in one line. Returns a function that stops it.
function running(element, does, word = "Run") {
  const alert = h("p", { class: "alert", role: "alert" });
  const press = h("button", { type: "submit", class: "go" }, word);
  let request = null; // the request whose answer is being drawn
  const end = () => {
    request?.abort();
    request = null;
    press.textContent = word;
    element.removeAttribute("aria-busy");
  };
  element.append(h("div", { class: "row" }, press), alert);
  element.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (request) return end();
    const { signal } = request = new AbortController();
    alert.textContent = "";
    press.textContent = "Stop";
    element.setAttribute("aria-busy", "true");
    try {
      await does(signal);
    } catch (error) {
      if (error.name !== "AbortError") alert.textContent = error.message.replace(/\s+/g, " ");
    }
    if (!signal.aborted) end();
  });
  return end;
}

function once(form) {
  const { element, values } = drawn(form);
  const result = h("div", { class: "result tried", "aria-live": "polite" });
  running(element, async (signal) => {
    const asked = values();
    result.replaceChildren();
    if (form.streams) return written(form, asked, signal, result);
    const found = await send(form.path, { model: nameOf(), ...asked }, { signal });
    result.replaceChildren(...(DRAWN[form.task]?.(found, asked) ?? [h("pre", {}, JSON.stringify(found, null, 1))]).filter(Boolean), used(found.usage));
  });
  return h("div", {}, h("p", { class: "soft" }, `${form.says} `, h("code", {}, `POST /${form.path}`)), element, result);
}

function used(usage) {
  if (!usage) return "";
  const wrote = usage.completion_tokens ? `, ${whole(usage.completion_tokens)} generated` : "";
  return h("p", { class: "soft" }, `${whole(usage.prompt_tokens)} prompt tokens${wrote}`);
}

// --- streaming -----------------------------------------------------------------------------------------------------------

async function streamed(form, asked, signal, wrote) {
  let usage = null;
  const body = { model: nameOf(), ...asked, stream: true, stream_options: { include_usage: true } };
  await send(form.path, body, { signal, each: (piece) => {
    const [one] = piece.choices;
    wrote(one?.text ?? one?.delta?.content ?? "");
    usage = piece.usage ?? usage;
  } });
  return usage;
}

async function written(form, asked, signal, result) {
  const text = h("bdi", { class: "wrote" });
  const begun = Array.isArray(asked.prompt) ? asked.prompt.join(" ") : asked.prompt;
  result.replaceChildren(h("p", { class: "text" }, page.start.diagram.form === "decoder" && h("bdi", { class: "soft" }, begun), text));
  const usage = await streamed(form, asked, signal, (more) => text.append(more));
  result.append(used(usage));
}

function conversation(form) {
  const { element, values, inputs } = drawn(form);
  let messages = []; // of this conversation; a new chat has a new list
  const talk = h("ol", { class: "talk", "aria-live": "polite" });
  const add = (role, content) => {
    const text = h("bdi", { class: "text" }, content);
    talk.append(h("li", { class: role }, h("strong", {}, role), text));
    return text;
  };
  const stop = running(element, async (signal) => {
    const asked = values();
    const mine = { role: "user", content: asked.messages };
    const before = messages;
    inputs.messages.value = ""; // at once: text typed while the answer streams is the next message
    const question = add("user", mine.content);
    const text = add("assistant", "");
    try {
      await streamed(form, { ...asked, messages: [...before, mine] }, signal, (more) => text.append(more));
    } finally {
      if (text.textContent) before.push(mine, { role: "assistant", content: text.textContent });
      else for (const one of [question, text]) one.closest("li").remove();
      if (!text.textContent) inputs.messages.value ||= mine.content;
    }
  }, "Send");
  element.lastChild.previousSibling.append(button("New chat", () => {
    stop();
    messages = [];
    talk.replaceChildren();
  }));
  return h("div", {}, h("p", { class: "soft" }, `${form.says} `, h("code", {}, `POST /${form.path}`)), talk, element);
}

// --- answers -------------------------------------------------------------------------------------------------------------

const DRAWN = {
  translate: ({ answers: [one] }) => [h("p", { class: "text" }, h("bdi", {}, one.text)), cut(one), one.alignment && aligned(one.alignment)],
  summarize: ({ answers: [one] }) => [h("p", { class: "text" }, h("bdi", {}, one.text)), cut(one)],
  classify: ({ answers: [one] }) => [typeof one.number === "number" ? h("p", { class: "text" }, number(one.number, 4)) : chances(one.chances.map(({ label, probability }) => ({ word: label, now: probability, marked: one.labels.includes(label) })), "labels"), cut(one)],
  tag: ({ answers: [one] }, asked) => [marked(asked.text, one.entities.map(({ start, end, kind, probability }) => [start, end, `${kind} ${percent(probability)}`])), one.entities.length === 0 && note("No entities found."), cut(one)],
  answer: ({ answers: [one] }, asked) => [
    h("p", { class: "text" }, one.text ? h("bdi", {}, one.text) : h("span", { class: "soft" }, "no answer")),
    one.start !== null && one.start !== undefined && marked(asked.context, [[one.start, one.end, percent(one.score)]]), cut(one)],
  fill: ({ answers: [one] }) => [h("p", { class: "text" }, h("bdi", {}, one.text)), h("div", { class: "pair" }, one.masks.map((words, i) => chances(words.map(({ text, probability }) => ({ word: text, now: probability })), `mask ${i + 1}`))), cut(one)],
  search: ({ answers: [one] }) => [h("ol", { class: "hits" }, one.hits.map(({ file, line, text, score }) => h("li", {}, h("p", {}, h("bdi", {}, text)), h("p", { class: "soft" }, h("bdi", {}, `${shown(file)}:${line}`), ` · ${number(score, 3)}`)))), one.hits.length === 0 && note("No passages found.")],
  embed: ({ data }, asked) => [alike(data.map(({ embedding }) => embedding), asked.input)],
};

function cut(one) {
  return one.cut > 0 && note(`${whole(one.cut)} tokens did not fit and were ignored.`);
}

// Offsets are in characters (code points), as in Python.
function marked(text, places) {
  const signs = [...text];
  const found = [];
  let at = 0;
  for (const [start, end, label] of [...places].sort((a, b) => a[0] - b[0])) {
    if (start < at) continue;
    found.push(signs.slice(at, start).join(""), h("mark", {}, h("bdi", {}, signs.slice(start, end).join("")), h("small", {}, label)));
    at = end;
  }
  return h("p", { class: "text" }, found, signs.slice(at).join(""));
}

function aligned({ source, target, weights }) {
  return h("figure", {}, h("figcaption", {}, "cross-attention; rows: target, columns: source"),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "alignment" },
      heat({ values: weights, rows: { labels: target }, columns: { labels: source }, most: 1, cell: 22, label: "weights of target words on source words; use the arrow keys to read cells" })), legend(1, false, "weight"));
}

function alike(vectors, texts) {
  const unit = vectors.map((vector) => { const length = Math.hypot(...vector) || 1; return vector.map((x) => x / length); });
  const values = unit.map((a) => unit.map((b) => a.reduce((sum, x, i) => sum + x * b[i], 0)));
  return h("figure", {}, h("figcaption", {}, `cosines between ${texts.length} vectors of ${vectors[0].length} numbers`),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "cosines" },
      heat({ values, rows: { labels: texts }, columns: { labels: texts }, most: 1, cell: 34, label: "cosine of every pair; use the arrow keys to read cells" })), legend(1, true, "cosine"));
}

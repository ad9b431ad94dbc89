// The state of the page: what is shown, and what the pointer is on. Views send their requests from here.

import { ask } from "./source.js";

export const WINDOW = 32; // tokens that are shown at once
export const WHOLE = 64; // max tokens of a generated target: the same number is in session.py

export const UNCHANGED = { heads: [], feedforward: [], positions: "kept", mask: "kept", window: 0, temperature: 1, context: 0, changes: [], source: "", texts: [], toward: [], away: [] };

export const page = {
  start: null, // the answer to the request "start"
  model: null, // its name, if there are several
  run: { text: "", target: "", change: UNCHANGED },
  view: "flow",
  stack: "", kind: "self", layer: 0, head: 0,
  picked: {}, // the chosen token of each stack
  from: {}, // where the window of each stack begins
  keysFrom: null, // where the window of the keys begins; null: with the queries
  change: UNCHANGED, // the interventions
  sampling: 1, // temperature of the probabilities
  neighbours: [], // texts that an embedding is compared with
  names: [], // of all models
  signedIn: false,
  forms: {}, // of the playground, by model
  hasLessons: false,
  chapter: "", // the open chapter of the lectures
  lesson: "", // the lesson to scroll to
  given: null, // numbers of a lesson that a view draws instead of the model's
};

const listeners = new Set();
const pointers = new Set();

export function onChange(listener) {
  listeners.add(listener);
}

export function change(what) {
  Object.assign(page, what);
  for (const listener of listeners) listener(what);
}

// --- requests: each belongs to the state that was shown when it was sent ------------------------------------------------

let drawing = new AbortController();

// A new state is drawn: the requests of the one before are cancelled, so that the server does not compute them.
export function startDrawing() {
  drawing.abort();
  drawing = new AbortController();
  return drawing.signal;
}

export function question(view, more = {}, run = page.run) {
  return ask({ view, run, ...more }, page.model, drawing.signal);
}

export function plainQuestion(view, more = {}) {
  return ask({ view, ...more }, page.model, drawing.signal);
}

export function nameOf() {
  return page.model ?? page.names[0];
}

export function forms() {
  return page.forms[nameOf()] ?? [];
}

let opening = new AbortController();

// Opens a text in a model. Cancels an earlier call that still waits.
export async function begin(run, model = page.model) {
  opening.abort();
  opening = new AbortController();
  const { signal } = opening;
  const start = await ask({ view: "start", run }, model, signal);
  signal.throwIfAborted();
  const names = Object.keys(start.stacks);
  const last = names.at(-1);
  const at = Object.fromEntries(names.map((name) => [name, start.stacks[name].tokens.length - 1]));
  at[last] = start.position_asked;
  const same = page.start && page.start.name === start.name;
  change({
    start, model, run: { text: start.text, target: start.target, change: UNCHANGED }, picked: at, keysFrom: null, given: null,
    from: Object.fromEntries(names.map((name) => [name, 0])),
    ...(same ? {} : { stack: last, kind: "self", layer: middle(start, last), head: 0, change: UNCHANGED, sampling: 1, neighbours: [] }),
  });
}

function middle(start, stack) {
  return Math.floor((floor(stack, start).layers - 1) / 2);
}

export function floor(stack = page.stack, start = page.start) {
  return start.diagram.stacks.find((one) => one.name === stack);
}

export function tokens(stack = page.stack) {
  return page.start.stacks[stack].tokens;
}

export function stacks() {
  return Object.keys(page.start.stacks);
}

export function last() {
  return stacks().at(-1);
}

// The attention layers that this model has: encoder, masked decoder, cross.
export function kinds() {
  const names = stacks();
  const found = names.map((stack) => ({ stack, kind: "self", title: stack === "encoder" ? "encoder self-attention" : "masked self-attention" }));
  return names.length === 2 ? [...found, { stack: "decoder", kind: "cross", title: "cross-attention" }] : found;
}

export function keysOf(stack, kind) {
  return kind === "cross" ? "encoder" : stack;
}

export function windowOf(stack) {
  const from = page.from[stack];
  return [from, Math.min(tokens(stack).length, from + WINDOW)];
}

export function keysWindow(stack, kind) {
  const side = keysOf(stack, kind);
  if (page.keysFrom === null || side !== stack) return windowOf(side);
  return [page.keysFrom, Math.min(tokens(side).length, page.keysFrom + WINDOW)];
}

// --- pointing: a token or a head is highlighted wherever it is drawn -------------------------------------------------

export function onPoint(listener) {
  pointers.add(listener);
}

export function forgetPointers() {
  pointers.clear();
}

let lit = [];

export function point(what) {
  for (const element of lit) element.classList.remove("lit");
  lit = what ? [...document.querySelectorAll(selector(what))] : [];
  for (const element of lit) element.classList.add("lit");
  for (const listener of pointers) listener(what ?? {});
}

function selector({ token, head }) {
  const found = [...(token ?? []).map((one) => `[data-token="${one}"]`), ...(head ? [`[data-head="${head}"]`] : [])];
  return found.join() || "#nothing";
}

export function followPointer() {
  const follow = (event) => {
    const element = event.target instanceof Element ? event.target.closest("[data-token], [data-head]") : null;
    if (!element && event.target instanceof Element && event.target.closest("canvas")) return; // a canvas does this itself
    point(element ? { token: element.dataset.token ? [element.dataset.token] : [], head: element.dataset.head } : null);
  };
  document.addEventListener("pointerover", follow);
  document.addEventListener("focusin", follow);
}

let readout;

export function say(text) {
  readout ??= document.getElementById("readout");
  readout.textContent = text;
}

// From a view with the numbers of a lesson back to the lesson.
export function backToLesson() {
  const { chapter, lesson } = page.given;
  change({ view: "lessons", chapter, lesson, given: null });
}

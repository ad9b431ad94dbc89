// The page: header, tabs, tokens, and the view that is open. Everything else is in the views.

import { button, choice, h, note, shown, whole } from "./dom.js";
import { forgetInk } from "./heat.js";
import { live, NotHere, opening } from "./source.js";
import { begin, change, floor, followPointer, forgetPointers, kinds, onChange, page, stacks, tokens, windowOf, WINDOW } from "./state.js";
import { attention } from "./views/attention.js";
import { cost } from "./views/cost.js";
import { decoding } from "./views/decoding.js";
import { flow } from "./views/flow.js";
import { interventions } from "./views/interventions.js";
import { lessons } from "./views/lessons.js";
import { positions } from "./views/positions.js";
import { query } from "./views/query.js";
import { stream } from "./views/stream.js";
import { tasks } from "./views/tasks.js";

const ALL = [flow, attention, query, stream, positions, decoding, interventions, cost, tasks, lessons];
const views = () => ALL.filter(({ here }) => !here || here());
const opened = () => views().find(({ id }) => id === page.view) ?? flow;
const root = document.getElementById("view");
let drawing = 0;

async function boot() {
  followPointer();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { forgetInk(); show(); });
  addEventListener("hashchange", () => { if (read()) change({}); });
  try {
    const { models: names, text, target, forms } = await opening();
    Object.assign(page, { names, forms, model: live && names.length > 1 ? names[0] : null });
    await begin({ ...page.run, text, target });
    read();
    header(names);
    onChange(refresh);
    refresh({});
  } catch (error) {
    root.replaceChildren(note(error.message, "note alert"));
  }
}

function refresh(what) {
  page.view = opened().id; // another model may not have what was open
  if (what.view) {
    root.focus({ preventScroll: true });
    scrollTo({ top: 0 });
  }
  write();
  tabs();
  strip();
  show();
}

// --- the address says what is open, so that a view can be linked to -------------------------------------------------------

function write() {
  const parts = page.view === "lessons" ? [page.view, page.chapter] : [page.view, page.stack, page.kind, page.layer, page.head];
  const hash = `#${parts.join("/")}`;
  if (location.hash !== hash) history.replaceState(null, "", hash);
}

function read() {
  const [view, stack, kind, layer, head] = location.hash.slice(1).split("/");
  if (!views().some((one) => one.id === view)) return false;
  Object.assign(page, { view, given: null });
  if (view === "lessons") page.chapter = stack ?? "";
  if (!kinds().some((one) => one.stack === stack && one.kind === kind)) return true;
  const { layers, heads } = floor(stack);
  Object.assign(page, { stack, kind, layer: Math.min(Math.max(0, Number(layer) || 0), layers - 1), head: Math.min(Math.max(0, Number(head) || 0), heads - 1) });
  return true;
}

// --- header -------------------------------------------------------------------------------------------------------------

function header(names) {
  const { start } = page;
  const title = h("div", { class: "title" }, h("h1", {}, h("bdi", {}, shown(start.name))), h("p", {}, `${start.diagram.form}, ${whole(start.diagram.parameters)} parameters, ${start.dtype}`));
  document.title = `${shown(start.name)} · Triform`;
  document.getElementById("top").replaceChildren(title, live ? form(names) : given());
}

function given() {
  return h("p", { class: "given" }, h("bdi", {}, shown(page.run.text)), page.run.target && h("bdi", {}, ` → ${shown(page.run.target)}`));
}

function form(names) {
  const pair = stacks().length === 2;
  const text = h("textarea", { rows: 1, name: "text", spellcheck: "false", "aria-label": pair ? "source" : "text" });
  text.value = page.run.text;
  const target = pair && h("textarea", { rows: 1, name: "target", spellcheck: "false", "aria-label": "target", placeholder: "target: the model’s own" });
  if (target) target.value = page.run.target;
  const told = h("p", { class: "alert", role: "alert" });
  const look = async (event) => {
    event?.preventDefault();
    told.textContent = "";
    document.body.setAttribute("aria-busy", "true");
    try {
      await begin({ ...page.run, text: text.value, target: target ? target.value : "" });
    } catch (error) {
      told.textContent = error.message;
    } finally {
      document.body.removeAttribute("aria-busy");
    }
  };
  const enter = (event) => { if (event.key === "Enter" && !event.shiftKey) look(event); };
  text.addEventListener("keydown", enter);
  if (target) target.addEventListener("keydown", enter);
  const several = names.length > 1 && choice("model", names.map((name) => [name, name]), page.model, async (name) => {
    page.model = name;
    await look();
    header(names);
  });
  return h("form", { class: "ask", onsubmit: look }, several, text, target, h("button", { type: "submit", class: "go" }, "Look"), told);
}

// --- tabs ---------------------------------------------------------------------------------------------------------------

function tabs() {
  const list = h("div", { role: "tablist", "aria-label": "Views" }, views().map(({ id, title }) => h("button", {
    type: "button", role: "tab", id: `tab-${id}`, "aria-selected": String(id === page.view), "aria-controls": "view", tabindex: id === page.view ? "0" : "-1", "data-key": `tab-${id}`,
    onclick: () => change({ view: id, given: null }),
  }, title)));
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const all = views();
    const at = all.findIndex(({ id }) => id === page.view);
    change({ view: all[(at + step + all.length) % all.length].id, given: null });
    document.getElementById(`tab-${page.view}`).focus();
  });
  keepFocus(document.getElementById("tabs"), [list, bar()]);
  document.getElementById(`tab-${page.view}`).scrollIntoView({ block: "nearest", inline: "nearest" });
  root.setAttribute("aria-labelledby", `tab-${page.view}`);
}

// Which attention, layer and head is looked at: the same in every view that has one.
function bar() {
  const wanted = opened().bar;
  if (!wanted || page.given) return null;
  const here = floor();
  const upto = (count) => Array.from({ length: count }, (_, i) => [i, i]);
  const clamp = (stack) => ({ layer: Math.min(page.layer, floor(stack).layers - 1), head: Math.min(page.head, floor(stack).heads - 1) });
  if (wanted === "stack") {
    return stacks().length > 1 && h("div", { class: "row bar" }, choice("stack", stacks().map((name) => [name, name]), page.stack, (stack) => change({ stack, kind: "self", ...clamp(stack) })));
  }
  const options = kinds().map(({ stack, kind, title }) => [`${stack}/${kind}`, title]);
  return h("div", { class: "row bar" },
    options.length > 1 && choice("attention", options, `${page.stack}/${page.kind}`, (value) => { const [stack, kind] = value.split("/"); change({ stack, kind, ...clamp(stack) }); }),
    choice("layer", upto(here.layers), page.layer, (value) => change({ layer: Number(value) })),
    choice("head", upto(here.heads), page.head, (value) => change({ head: Number(value) })));
}

// --- tokens -------------------------------------------------------------------------------------------------------------

function strip() {
  const apart = page.given || opened().here; // what is not about this text
  keepFocus(document.getElementById("strip"), apart ? [] : stacks().map(line));
}

function line(stack) {
  const [from, to] = windowOf(stack);
  const labels = tokens(stack);
  const ids = page.start.stacks[stack].ids;
  const chips = labels.slice(from, to).map((label, i) => h("button", {
    type: "button", class: "chip", "data-token": `${stack}:${from + i}`, "data-key": `chip-${stack}-${from + i}`, "aria-pressed": String(page.picked[stack] === from + i), tabindex: page.picked[stack] === from + i || (i === 0 && !inside(page.picked[stack], from, to)) ? "0" : "-1",
    onclick: () => change({ picked: { ...page.picked, [stack]: from + i }, ...(stacks().length > 1 && page.kind === "self" ? { stack } : {}) }),
  }, h("bdi", {}, shown(label)), label !== String(ids[from + i]) && h("small", {}, String(ids[from + i]))));
  const list = h("div", { class: "chips", role: "group", "aria-label": `${stack}: tokens` }, chips);
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = step && document.activeElement && chips[chips.indexOf(document.activeElement) + step];
    if (next) { event.preventDefault(); next.focus(); }
  });
  return h("div", { class: "line" }, stacks().length > 1 && h("span", { class: "which" }, stack), list, labels.length > WINDOW && moving(stack, from, to, labels.length));
}

function inside(at, from, to) {
  return at >= from && at < to;
}

function moving(stack, from, to, count) {
  const go = (to) => {
    const first = Math.max(0, Math.min(Math.floor((count - 1) / WINDOW) * WINDOW, to));
    change({ from: { ...page.from, [stack]: first }, picked: { ...page.picked, [stack]: first }, keysFrom: null });
  };
  return h("div", { class: "row moving" },
    button("‹", () => go(from - WINDOW), { "aria-label": `${stack}: earlier tokens`, "data-key": `earlier-${stack}`, disabled: from === 0 }),
    h("input", { type: "range", min: 0, max: Math.floor((count - 1) / WINDOW), value: Math.floor(from / WINDOW), "aria-label": `${stack}: window of tokens`, "data-key": `slide-${stack}`, onchange: (event) => go(Number(event.target.value) * WINDOW) }),
    button("›", () => go(from + WINDOW), { "aria-label": `${stack}: later tokens`, "data-key": `later-${stack}`, disabled: to === count }),
    h("span", { class: "soft" }, `tokens ${whole(from)} to ${whole(to - 1)} of ${whole(count)}: a window, so that nothing stalls`));
}

// --- the view -------------------------------------------------------------------------------------------------------------

async function show() {
  const mine = ++drawing;
  const view = opened();
  const slow = setTimeout(() => root.setAttribute("aria-busy", "true"), 120);
  let drawn;
  forgetPointers();
  try {
    drawn = (await view.show()).filter(Boolean);
  } catch (error) {
    drawn = [note(error.message, error instanceof NotHere ? "note" : "note alert")];
  }
  clearTimeout(slow);
  if (mine !== drawing) return; // something else has been asked for meanwhile
  root.removeAttribute("aria-busy");
  keepFocus(root, drawn);
  if (page.lesson) root.querySelector(`[data-lesson="${CSS.escape(page.lesson)}"]`)?.scrollIntoView();
  page.lesson = "";
  root.dataset.shown = `${page.view}/${mine}`;
}

// What had the focus has it again after it was drawn anew.
function keepFocus(place, children) {
  const key = place.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  place.replaceChildren(...children.filter(Boolean));
  if (key) place.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

boot();

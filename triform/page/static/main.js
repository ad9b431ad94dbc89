// The page: header, tabs, tokens, and the view that is open. Everything else is in the views.

import { button, choice, h, note, shown, whole } from "./dom.js";
import { forgetInk } from "./heat.js";
import { live, NotHere, opening, signOut } from "./source.js";
import { begin, change, floor, followPointer, forgetPointers, kinds, onChange, page, stacks, startDrawing, tokens, windowOf, WINDOW } from "./state.js";
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
let drawings = 0;
let drawnFor = null; // the view and the text that stand on the page

async function boot() {
  followPointer();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { forgetInk(); show(); });
  addEventListener("hashchange", () => { if (read()) change({}); });
  try {
    const { models: names, text, target, forms, lessons: hasLessons, signed_in: signedIn } = await opening();
    Object.assign(page, { names, forms, hasLessons, signedIn });
    await begin({ ...page.run, text, target }, live && names.length > 1 ? names[0] : null);
    read();
    header();
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
  if (what.start) header();
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

let asking = null; // the form, kept while texts and models change: what is typed into it stays

function header() {
  const { start } = page;
  const title = h("div", { class: "title" }, h("h1", {}, h("bdi", {}, shown(start.name))), h("p", {}, `${start.diagram.form}, ${whole(start.diagram.parameters)} parameters, ${start.dtype}`));
  document.title = `${shown(start.name)} · Triform`;
  const place = document.getElementById("top");
  if (!live) return place.replaceChildren(title, given());
  if (!asking) place.append(asking = form());
  asking.elements.target.hidden = stacks().length < 2;
  place.querySelector(".title")?.remove();
  return place.prepend(title);
}

function given() {
  return h("p", { class: "given" }, h("bdi", {}, shown(page.run.text)), page.run.target && h("bdi", {}, ` → ${shown(page.run.target)}`));
}

function form() {
  const text = h("textarea", { rows: 1, name: "text", spellcheck: "false", "aria-label": "text" });
  text.value = page.run.text;
  const target = h("textarea", { rows: 1, name: "target", spellcheck: "false", "aria-label": "target", placeholder: "target: the model’s own" });
  target.value = page.run.target;
  const told = h("p", { class: "alert", role: "alert" });
  const several = page.names.length > 1 && choice("model", page.names.map((name) => [name, name]), page.model, () => look());
  const look = async (event) => {
    event?.preventDefault();
    const model = several ? several.querySelector("select").value : page.model;
    told.textContent = "";
    document.body.setAttribute("aria-busy", "true");
    try {
      if (model !== page.model) target.value = ""; // it was made for the other model
      await begin({ ...page.run, text: text.value, target: target.value }, model);
    } catch (error) {
      if (error.name === "AbortError") return; // another text was asked for meanwhile
      told.textContent = error.message;
      if (several) several.querySelector("select").value = page.model;
    }
    document.body.removeAttribute("aria-busy");
  };
  const enter = (event) => { if (event.key === "Enter" && !event.shiftKey) look(event); };
  text.addEventListener("keydown", enter);
  target.addEventListener("keydown", enter);
  return h("form", { class: "ask", onsubmit: look }, several, text, target, h("button", { type: "submit", class: "go" }, "Look"), page.signedIn && button("Sign out", signOut), told);
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

// State comes from what the reader does, and is drawn at once as far as it can be; answers fill in the rest. An answer to
// a state that is no longer shown is dropped.
async function show() {
  const mine = ++drawings;
  const signal = startDrawing();
  const view = opened();
  const draw = (children) => {
    if (signal.aborted) return;
    drawnFor = { view, start: page.start };
    if (children.length !== root.childNodes.length || children.some((one, i) => one !== root.childNodes[i])) keepFocus(root, children);
  };
  if (drawnFor?.view !== view || drawnFor.start !== page.start) draw([note(`${view.title} …`, "note waiting")]);
  const slow = setTimeout(() => root.setAttribute("aria-busy", "true"), 120);
  forgetPointers();
  let drawn;
  try {
    drawn = (await view.show(draw)).filter(Boolean);
  } catch (error) {
    drawn = [note(error.message, error instanceof NotHere ? "note" : "note alert")];
  }
  clearTimeout(slow);
  if (signal.aborted) return; // something else is shown meanwhile
  root.removeAttribute("aria-busy");
  draw(drawn);
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

// Interventions: dials, switches and changes in words; the answer before and after, and the difference.

import { button, choice, h, note, number, panel, shown, table, token } from "../dom.js";
import { chances, difference } from "../chart.js";
import { live, NotHere } from "../source.js";
import { change, floor, kinds, last, page, question, stacks, tokens, UNCHANGED, WHOLE, windowOf } from "../state.js";

export const interventions = { id: "interventions", title: "Interventions", bar: false, show };

// What is typed or chosen but not yet added.
const draft = { what: "off", stack: null, layer: 0, part: "", head: 0, at: "", amount: 2, source: "", texts: "", toward: "", away: "", neighbours: "" };

// The switches show the state at once; the answer is drawn when it arrives.
async function show(draw) {
  const asked = { run: page.run, off: page.change, sampling: page.sampling, position: Math.min(page.picked[last()], tokens(last()).length - 1) };
  const result = h("div", { class: "result", "aria-live": "polite" }, h("p", { class: "lead" }, `Computing with ${named(asked)} …`));
  const says = live ? "What you change is changed only in this view; the model stays as it is." : "This file has the answers for one head off at a time; the live page takes any change.";
  const drawn = [panel("Change how the model runs", says, h("div", { class: "pair wide" }, h("div", {}, controls()), result))];
  draw(drawn);
  result.replaceChildren(...await compared(asked));
  return drawn;
}

// What is changed, as text.
function named({ off, sampling }) {
  const { heads, feedforward, positions, mask, temperature, window, context, changes } = off;
  const count = (list, one, many) => list.length > 0 && `${list.length} ${list.length === 1 ? one : many} off`;
  const parts = [count(heads, "head", "heads"), count(feedforward, "feed-forward", "feed-forwards"), positions !== "kept" && `positions ${positions}`,
    mask !== "kept" && `mask: ${mask === "all" ? "none" : "only the past"}`, window > 0 && `a window of ${window}`, temperature !== 1 && `attention temperature ${number(temperature)}`,
    context > 0 && `the last ${context} tokens`, ...changes, sampling !== 1 && `sampling temperature ${number(sampling)}`];
  return parts.filter(Boolean).join(", ") || "nothing off";
}

const tag = (stack, kind, layer, head) => ({ stack, kind, layer, head });
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

function toggle(list, one) {
  return list.some((each) => same(each, one)) ? list.filter((each) => !same(each, one)) : live ? [...list, one] : [one];
}

function set(what) {
  change({ change: { ...page.change, ...what } });
}

function controls() {
  const untouched = same(page.change, UNCHANGED) && page.sampling === 1;
  return [h("div", { class: "row" }, button("Reset", () => change({ change: UNCHANGED, sampling: 1 }), { class: "go", "data-key": "on", disabled: untouched })),
    live && dials(), boards(), live && language()];
}

// --- dials: where a slide has a number ------------------------------------------------------------------------------------

function dials() {
  const off = page.change;
  const length = tokens(last()).length;
  const [stack, width] = [page.stack, Math.sqrt(floor().head_width)];
  const { heads, layers } = floor();
  const kept = heads - new Set(off.heads.filter((one) => one.stack === stack && one.kind === "self").map((one) => one.head)).size;
  const hide = (count) => [...off.heads.filter((one) => one.stack !== stack || one.kind !== "self"),
    ...Array.from({ length: layers }, (_, layer) => Array.from({ length: heads - count }, (_, i) => tag(stack, "self", layer, count + i))).flat()];
  const power = (value) => 2 ** value;
  return h("section", { class: "board" }, h("h3", {}, "Dials"),
    dial("scores divided by", -5, 5, 0.25, Math.log2(off.temperature), (value) => set({ temperature: power(value) }),
      (value) => `${number(width * power(value))} (trained: √${floor().head_width} = ${number(width)})`),
    heads > 1 && dial(`heads of each layer${stacks().length > 1 ? `, ${stack}` : ""}`, 0, heads, 1, kept, (value) => set({ heads: hide(value) }), (value) => `${value} of ${heads}`),
    dial("the mask's window", 1, length, 1, off.window || length, (value) => set({ window: value >= length ? 0 : value }), (value) => (value >= length ? "no limit" : `${value} ${value === 1 ? "token" : "tokens"}`)),
    page.start.writes && stacks().length === 1 && dial("context", 1, length, 1, off.context || length, (value) => set({ context: value >= length ? 0 : value }), (value) => (value >= length ? "the whole text" : `the last ${value} ${value === 1 ? "token" : "tokens"}`)),
    page.start.speaks && dial("sampling temperature", -3, 3, 0.25, Math.log2(page.sampling), (value) => change({ sampling: power(value) }), (value) => number(power(value))),
    h("div", { class: "row" },
      choice("positions", [["kept", "unchanged"], ["removed", "removed"], ["shuffled", "shuffled"]], off.positions, (positions) => set({ positions })),
      choice("mask", [["kept", "unchanged"], ["all", "none"], ["past", "only the past"]], off.mask, (mask) => set({ mask }))));
}

// The number follows the hand; the model answers when it lets go.
function dial(name, min, max, step, value, turn, worded) {
  const says = h("output", {}, worded(value));
  const slider = h("input", { type: "range", min, max, step, value, "aria-label": name, "data-key": `dial-${name}`,
    oninput: () => { says.textContent = worded(Number(slider.value)); slider.setAttribute("aria-valuetext", says.textContent); },
    onchange: () => turn(Number(slider.value)) });
  slider.value = value; // once its ends are known
  return h("div", { class: "dial-row" }, h("span", {}, name), slider, says);
}

// --- switches -------------------------------------------------------------------------------------------------------------

function boards() {
  const off = page.change; // for drawing; a press changes the state of that moment
  return kinds().map(({ stack, kind, title }) => {
    const { layers, heads } = floor(stack);
    const rows = Array.from({ length: layers }, (_, layer) => h("div", { class: "switchrow", role: "group", "aria-label": `layer ${layer}` }, h("span", { class: "soft" }, String(layer)),
      Array.from({ length: heads }, (_, head) => {
        const one = tag(stack, kind, layer, head);
        const pressed = off.heads.some((each) => same(each, one));
        return button("", () => set({ heads: toggle(page.change.heads, one) }), { class: "switch", "aria-pressed": String(pressed), "aria-label": `${title}: layer ${layer}, head ${head} off`, title: `layer ${layer}, head ${head}`, "data-head": `${stack}:${kind}:${layer}:${head}`, "data-key": `off-${stack}-${kind}-${layer}-${head}` });
      }),
      kind === "self" && live && [feedforward(stack, layer), whole(stack, layer)]));
    return h("section", { class: "board" }, h("h3", {}, title), h("p", { class: "soft" }, `Press to switch off. Rows: layers, columns: heads${kind === "self" && live ? "; FF: the feed-forward, all: the whole layer" : ""}.`), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `switches of ${title}` }, rows));
  });
}

function feedforward(stack, layer) {
  const one = { stack, layer };
  return button("FF", () => set({ feedforward: toggle(page.change.feedforward, one) }), { class: "switch ff", "aria-pressed": String(page.change.feedforward.some((each) => same(each, one))), "aria-label": `feed-forward of ${stack} layer ${layer} off`, "data-key": `ff-${stack}-${layer}` });
}

function whole(stack, layer) {
  const line = `off ${stack}.L${layer}`;
  return button("all", () => set({ changes: toggle(page.change.changes, line) }), { class: "switch ff", "aria-pressed": String(page.change.changes.includes(line)), "aria-label": `the whole ${stack} layer ${layer} off`, "data-key": `all-${stack}-${layer}` });
}

// --- changes in words, the same as in Python and on the command line ------------------------------------------------------

const WHATS = [["off", "switch off"], ["scale", "scale"], ["patch", "patch from another text"], ["mean", "replace by the mean"], ["resample", "replace by another text's"], ["steer", "steer"]];
const NEEDS = { patch: ["source"], mean: ["texts"], resample: ["texts"], steer: ["toward", "away"] };
const FIELDS = { source: "the other text", texts: "texts to take values from, one per line", toward: "texts to go towards, one per line", away: "texts to go away from, one per line" };

function language() {
  draft.stack = stacks().includes(draft.stack) ? draft.stack : last();
  const box = h("section", { class: "board language", "aria-label": "changes in words" });
  const redraw = () => box.replaceChildren(...form(redraw));
  redraw();
  return box;
}

function form(redraw) {
  const { layers, heads } = floor(draft.stack);
  const cross = kinds().some(({ stack, kind }) => stack === draft.stack && kind === "cross");
  const take = (name) => (value) => { draft[name] = value; redraw(); };
  const upto = (count) => Array.from({ length: count }, (_, i) => [i, i]);
  const parts = [["", "the stream after it"], [".attention", "its attention"], ...(cross ? [[".cross", "its cross-attention"]] : []), [".feedforward", "its feed-forward"], ["H", "a head"], ...(cross ? [["X", "a cross-attention head"]] : [])];
  const field = (name, label, props = {}) => {
    const area = h("textarea", { rows: name === "source" || name === "at" ? 1 : 2, spellcheck: "false", "aria-label": label, "data-key": `draft-${name}`, oninput: () => { draft[name] = area.value; }, ...props });
    area.value = draft[name];
    return h("div", { class: "field" }, h("span", {}, label), area);
  };
  const amounts = ["scale", "steer"].includes(draft.what);
  return [h("h3", {}, "A change in words"),
    h("div", { class: "row" },
      choice("change", WHATS, draft.what, take("what")),
      stacks().length > 1 && choice("in the", stacks().map((name) => [name, name]), draft.stack, (value) => { Object.assign(draft, { stack: value, layer: 0, head: 0, part: "" }); redraw(); }),
      choice("layer", upto(layers), Math.min(draft.layer, layers - 1), (value) => { draft.layer = Number(value); }, "draft-layer"),
      choice("what of it", parts, draft.part, take("part")),
      ["H", "X"].includes(draft.part) && choice("head", upto(heads), Math.min(draft.head, heads - 1), (value) => { draft.head = Number(value); }, "draft-head")),
    amounts && amount(),
    (NEEDS[draft.what] ?? []).map((name) => field(name, FIELDS[name])),
    field("at", "positions, as 0,4 or 2:5 or −1; empty: all"),
    h("div", { class: "row" }, button("Add", add, { class: "go", "data-key": "add-line" })),
    h("ul", { class: "lines-on", "aria-label": "changes" }, page.change.changes.map((line, i) => h("li", {}, line,
      button("×", () => set({ changes: page.change.changes.filter((_, each) => each !== i) }), { "aria-label": `remove: ${line}`, "data-key": `line-${i}` })))),
    embeds() && [field("neighbours", "texts to compare the embedding with, one per line"), h("div", { class: "row" }, button("Compare", () => change({ neighbours: listed(draft.neighbours) }), { "data-key": "compare" }))],
  ].flat(2).filter(Boolean);
}

function amount() {
  const says = h("output", {}, number(draft.amount));
  const slider = h("input", { type: "range", min: draft.what === "scale" ? -1 : -10, max: draft.what === "scale" ? 3 : 10, step: draft.what === "scale" ? 0.1 : 0.5, "aria-label": "amount", "data-key": "draft-amount", oninput: () => { draft.amount = Number(slider.value); says.textContent = number(draft.amount); } });
  slider.value = draft.amount;
  return h("div", { class: "dial-row" }, h("span", {}, draft.what === "scale" ? "times" : "so far"), slider, says);
}

const listed = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

// A model without words or labels to predict answers with its vectors.
function embeds() {
  return !page.start.speaks && page.start.embeds;
}

function add() {
  const head = { H: `H${draft.head}`, X: `H${draft.head}.cross` }[draft.part] ?? draft.part;
  const at = draft.at.trim().replaceAll("−", "-").replaceAll(" ", "");
  const line = `${draft.what} ${draft.stack}.L${draft.layer}${head}${at && `@${at}`}${["scale", "steer"].includes(draft.what) ? ` ${draft.amount}` : ""}`;
  const held = Object.fromEntries((NEEDS[draft.what] ?? []).map((name) => [name, name === "source" ? draft.source : listed(draft[name])]));
  set({ changes: [...page.change.changes.filter((one) => one !== line), line], ...held });
}

async function compared({ run, off, sampling, position }) {
  const changed = !same(off, UNCHANGED) || sampling !== 1;
  let now;
  try {
    now = await question("answer", { position, sampling, neighbours: embeds() ? page.neighbours : [] }, { ...run, change: off });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return [note(error.message, error instanceof NotHere ? "note" : "note alert")];
  }
  const words = named({ off, sampling });
  const where = h("p", { class: "lead" }, page.start.writes ? "Next token after " : "At ", token(last(), position, tokens(last())[position]), changed ? `: before → after, with ${words}` : `, with ${words}`);
  const all = changed && now.was ? now.was.words.map((word, i) => ({ word, before: now.was.before[i], now: now.was.after[i] }))
    : now.labels.map((word, i) => ({ word, now: now.chances[i] }));
  const rows = all.sort((a, b) => (b.before ?? b.now) - (a.before ?? a.now)).slice(0, 12);
  const score = now.score !== null && h("p", { class: "text" }, "score ", changed && now.was ? `${number(now.was.score, 4)} → ` : "", number(now.score, 4));
  return [where, now.nearest ? nearest(now.nearest) : score || chances(rows, changed ? "probabilities: before → after, difference" : "probabilities"),
    now.parted !== null && h("p", { class: "soft" }, `KL divergence of the two distributions: ${number(now.parted, 3)} nats.`),
    now.turned && turned(now.turned), page.start.writes && await written(run, off)].filter(Boolean);
}

// Cosines of the embedding: with itself unchanged, and with other texts.
function nearest({ texts, before, after }) {
  return table(["cosine with", "before", "after", "difference"], ["itself, unchanged", ...texts].map((text, i) => [h("bdi", {}, shown(text)), number(before[i], 4), number(after[i], 4), difference(after[i] - before[i])]), { "aria-label": "cosines of the embedding", class: "numerals" });
}

function turned(degrees) {
  const [from, to] = windowOf(last());
  const most = Math.max(...degrees, 1e-9);
  return h("figure", {}, h("figcaption", {}, `angle between the last vectors before and after, per token: up to ${number(most, 3)}°`),
    h("p", { class: "turned" }, tokens(last()).slice(from, to).map((label, i) => h("bdi", { class: "token", "data-token": `${last()}:${from + i}`, title: `${number(degrees[from + i], 3)}°`, css: { "--strength": String(0.5 * Math.sqrt(degrees[from + i] / most)) } }, shown(label)))));
}

// Greedy decoding of the whole target where there is one, else of the next tokens.
async function written(run, off) {
  const changed = !same(off, UNCHANGED);
  const say = async (change) => (await question("steps", { count: stacks().length === 2 ? WHOLE : 8 }, { ...run, change })).steps.map((step) => step.token);
  const drawn = (words, other) => h("dd", {}, words.map((word, i) => h("bdi", { class: other && word !== other[i] ? "token new differs" : "token new" }, shown(word))));
  const lines = [];
  try {
    const before = await say(UNCHANGED);
    lines.push(h("dt", {}, changed ? "unchanged" : "it generates"), drawn(before));
    if (changed) {
      const after = await say(off);
      const parted = after.filter((word, i) => word !== before[i]).length;
      lines.push(h("dt", {}, named({ off, sampling: 1 })), drawn(after, before), h("dt", {}, "difference"), h("dd", {}, `${parted} of ${after.length} tokens, underlined`));
    }
  } catch (error) {
    if (error.name === "AbortError") throw error;
    lines.push(h("dd", {}, note(error.message)));
  }
  return h("dl", { class: "writes" }, lines);
}

// Attention: all heads of a layer as small multiples; one head large, as a heat map and as lines between tokens.

import { button, cut, h, note, number, panel, shown, svg, token } from "../dom.js";
import { heat, largest, legend } from "../heat.js";
import { backToLesson, change, floor, keysOf, keysWindow, kinds, onPoint, page, question, tokens, windowOf, WINDOW } from "../state.js";

const STAGES = [
  ["scores", "scores before the mask", "q · k, scaled"],
  ["mask", "mask", "what is added: −∞ for a key that a token may not attend to"],
  ["masked", "scores after the mask", "their sum"],
  ["weights", "weights", "softmax: each row sums to 1"],
];
let stage = "weights";

export const attention = { id: "attention", title: "Attention", bar: true, show };

async function show() {
  if (page.given) return fromLesson(page.given);
  const small = await Promise.all(kinds().map(multiples));
  const found = await question("formula", where());
  return [
    panel(`All heads of layer ${page.layer}`, "One square per head; rows: queries, columns: keys. Press a head to see it large.",
      h("div", { class: `columns kinds-${small.length}` }, small), legend(1, false, "weight")),
    panel(`Head ${page.head}, layer ${page.layer}`, headLead(found), stages(found, sides()), large(found, sides())),
    await overview(),
  ];
}

// The numbers of a lesson, drawn like those of a head.
function fromLesson({ title, rows, columns, ...found }) {
  const same = rows.join() === columns.join();
  const both = { rows: { labels: rows, stack: "lesson", from: 0 }, columns: { labels: columns, stack: same ? "lesson" : "lesson-keys", from: 0 } };
  return [panel(title, "Numbers of a slide instead of this model's; rows: queries, columns: keys.", stages(found, both), large(found, both),
    found.weights.flat().includes(null) && note("Grey weights: a score of that row is missing in the text of the slide.", "soft"),
    h("div", { class: "row" }, button("Back to the lesson", backToLesson, { class: "go" })))];
}

function stages(found, both) {
  return h("div", { class: "stages" }, STAGES.filter(([name]) => valuesOf(name, found)).map((one) => staged(one, found, both)));
}

export function where() {
  return { stack: page.stack, kind: page.kind, layer: page.layer, head: page.head, queries: windowOf(page.stack), keys: keysWindow(page.stack, page.kind) };
}

function headLead(found) {
  return `Recomputed from the kernel's inputs; relative difference to the kernel's own output: ${number(found.error, 2)}.`;
}

export function sides(stack = page.stack, kind = page.kind) {
  const [from, to] = windowOf(stack);
  const [first, last] = keysWindow(stack, kind);
  const source = keysOf(stack, kind);
  return {
    rows: { labels: tokens(stack).slice(from, to), stack, from },
    columns: { labels: tokens(source).slice(first, last), stack: source, from: first },
  };
}

async function multiples({ stack, kind, title }) {
  const layer = Math.min(page.layer, floor(stack).layers - 1);
  const found = await question("heads", { stack, kind, layer, queries: windowOf(stack), keys: keysWindow(stack, kind) });
  const chosen = stack === page.stack && kind === page.kind;
  const cell = Math.max(1, Math.min(9, Math.floor(72 / Math.max(found.weights[0].length, found.weights[0][0].length))));
  const squares = found.weights.map((values, head) => h("button", {
    type: "button", class: "square", "data-head": `${stack}:${kind}:${layer}:${head}`, "data-key": `head-${stack}-${kind}-${head}`,
    "aria-pressed": String(chosen && head === page.head), "aria-label": `${title}, head ${head}`,
    onclick: () => change({ stack, kind, layer: Math.min(page.layer, floor(stack).layers - 1), head }), // the layer chosen by now
  }, heat({ values, ...sides(stack, kind), most: 1, label: "", cell, labels: false, keys: false }), h("span", {}, String(head))));
  return h("section", { class: chosen ? "kind chosen" : "kind", "aria-label": title }, h("h3", {}, title), h("div", { class: "squares" }, squares));
}

function valuesOf(name, found) {
  if (name !== "masked") return found[name];
  return found.scores?.map((row, i) => row.map((value, j) => (value === null || found.mask[i][j] === null ? null : value + found.mask[i][j])));
}

function staged([name, title, says], found, both) {
  const values = valuesOf(name, found);
  const cell = Math.max(1, Math.min(14, Math.floor(120 / Math.max(values.length, values[0].length))));
  const unmasked = name === "mask" && values.every((row) => row.every((value) => value === 0));
  return h("button", {
    type: "button", class: "stage", "aria-pressed": String(open(found) === name), "data-key": `stage-${name}`,
    onclick: () => { stage = name; change({}); },
  }, h("strong", {}, title), heat({ values, ...both, most: name === "weights" ? 1 : undefined, label: "", cell, labels: false, keys: false }), h("span", {}, unmasked ? "nothing is added: every token may attend to every token" : says));
}

// The stage that is shown large; a lesson may not have the one that was chosen.
function open(found) {
  return valuesOf(stage, found) ? stage : "weights";
}

function large(found, both) {
  const name = open(found);
  const values = valuesOf(name, found);
  const weights = name === "weights";
  const space = Math.min(440, innerWidth - 170); // 170: labels and margins
  const cell = Math.max(10, Math.min(38, Math.floor(space / Math.max(values.length, values[0].length))));
  const title = STAGES.find(([each]) => each === name)[1];
  const map = heat({
    values, ...both, most: weights ? 1 : undefined, cell,
    nothing: page.given && name !== "mask" ? (name === "masked" ? "−∞, or missing on the slide" : "missing on the slide") : undefined,
    label: `${title}${page.given ? "" : ` of head ${page.head}`}: ${both.rows.labels.length} queries and ${both.columns.labels.length} keys; use the arrow keys to read cells`,
    pick: (i) => change({ picked: { ...page.picked, [both.rows.stack]: both.rows.from + i } }),
  });
  return h("div", { class: "large" },
    h("figure", {}, h("figcaption", {}, title, " · rows: queries, columns: keys"), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "heat map" }, map),
      weights ? legend(1, false, "weight") : legend(largest(values), true, "score"), outside(found)),
    h("figure", {}, h("figcaption", {}, "lines from queries (left) to keys (right)"), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "lines between tokens" }, linked(found.weights, both))),
    strongest(found, both));
}

function outside(found) {
  const most = Math.max(...(found.outside ?? [0]));
  return most > 0.005 && note(`Up to ${number(100 * most, 2)} % of a row's weight is on keys outside this window.`, "soft");
}

// Queries on the left, keys on the right; the line is as strong as the weight.
function linked(weights, { rows, columns }) {
  const step = 20;
  const [left, right, width] = [104, 256, 360];
  const height = step * Math.max(rows.labels.length, columns.labels.length) + 10;
  const y = (i) => 14 + i * step;
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "lines", role: "img", "aria-label": "lines from queries to keys", css: { width: `${width}px` } });
  weights.forEach((row, i) => row.forEach((weight, j) => {
    if (weight === null || weight < 0.02) return;
    root.append(svg("path", { d: `M${left},${y(i)} C${left + 70},${y(i)} ${right - 70},${y(j)} ${right},${y(j)}`, class: "link", "data-from": `${rows.stack}:${rows.from + i}`, "data-to": `${columns.stack}:${columns.from + j}`, css: { opacity: String(Math.sqrt(weight)), "stroke-width": String(0.6 + 3 * weight) } }));
  }));
  const write = (side, x, anchor) => side.labels.forEach((text, i) => root.append(
    svg("text", { x, y: y(i) + 4, "text-anchor": anchor, "data-token": `${side.stack}:${side.from + i}` }, cut(shown(text), 13))));
  write(rows, left - 8, "end");
  write(columns, right + 8, "start");
  onPoint(({ token: pointed = [] }) => {
    root.classList.toggle("dimmed", pointed.length > 0);
    for (const line of root.querySelectorAll(".link")) line.classList.toggle("strong", pointed.includes(line.dataset.from) || pointed.includes(line.dataset.to));
  });
  return root;
}

// The same as text, for screen readers and for exact numbers.
function strongest(found, { rows, columns }) {
  const at = Math.max(0, Math.min(rows.labels.length - 1, (page.picked[rows.stack] ?? Infinity) - rows.from));
  const best = found.weights[at].map((weight, j) => [weight, j]).filter(([weight]) => weight > 0).sort((a, b) => b[0] - a[0]).slice(0, 6);
  return h("section", { class: "strongest" }, h("h3", {}, "What ", token(rows.stack, rows.from + at, rows.labels[at]), " attends to"),
    h("ol", {}, best.map(([weight, j]) => h("li", {}, token(columns.stack, columns.from + j, columns.labels[j]), h("span", { class: "numeral" }, number(weight, 3))))),
    !page.given && button("Compute it step by step", () => change({ view: "query" }), { class: "go" }));
}

// Overview of a long text: the largest weight in each square of tokens; pressing a cell moves the window there.
async function overview() {
  const source = keysOf(page.stack, page.kind);
  if (Math.max(tokens(page.stack).length, tokens(source).length) <= WINDOW) return null;
  const found = await question("overview", { stack: page.stack, kind: page.kind, layer: page.layer, head: page.head });
  const side = (count) => ({ labels: Array.from({ length: count }, (_, i) => `from token ${i * found.step}`) });
  const cell = Math.max(1.5, 460 / Math.max(found.cells.length, found.cells[0].length));
  const map = heat({
    values: found.cells, rows: side(found.cells.length), columns: side(found.cells[0].length), most: 1, labels: false, cell,
    label: `overview of the head, ${found.cells.length} by ${found.cells[0].length} squares of ${found.step} tokens; press Enter to move the window`,
    pick: (i, j) => {
      const begin = (at, stack) => Math.max(0, Math.min(tokens(stack).length - WINDOW, at * found.step - WINDOW / 2));
      const from = { ...page.from, [page.stack]: begin(i, page.stack) };
      change(source === page.stack ? { from, keysFrom: begin(j, source) } : { from: { ...from, [source]: begin(j, source) } });
    },
  });
  return panel("The whole text", `Each cell is the largest weight among ${found.step} × ${found.step} tokens. Press one to move the window of ${WINDOW} tokens there.`, map,
    page.keysFrom !== null && button("Reset the window of the keys", () => change({ keysFrom: null }), { class: "go" }));
}

// Cost: what a forward pass of this model costs, from its spec alone: by operation, and by text length.

import { choice, h, number, panel, short, svg, table, whole } from "../dom.js";
import { key, lines, ticks } from "../chart.js";
import { live } from "../source.js";
import { change, page, plainQuestion, stacks } from "../state.js";

const PHASES = { reading: "forward pass", prefill: "prefill", step: "one decoding step", generation: "generation", training: "training step" };
const INKS = { "QKV projection": "blue", scores: "orange", "weighted values": "gold", "output projection": "violet", "feed-forward": "green", head: "rose" };
let phase = "reading";
let batch = 1;
let length = null;

export const cost = { id: "cost", title: "Cost", bar: false, show };

async function show() {
  const { context, form } = page.start.diagram;
  const phases = Object.entries(PHASES).filter(([id]) => form !== "encoder" || id === "reading" || id === "training");
  const lengths = sizes(context);
  length ??= Math.min(128, lengths.at(-1));
  if (!lengths.includes(length)) length = lengths.at(-1);
  const set = (what) => { ({ phase = phase, batch = batch, length = length } = what); change({}); };
  const found = await plainQuestion("costs", { phase, batch, length });
  const pick = (name, options, value, key) => choice(name, options, value, (chosen) => set({ [key]: key === "phase" ? chosen : Number(chosen) }));
  return [
    panel("Cost", "Predicted from the spec. The tests compare FLOPs and bytes with a real pass: they are equal.",
      h("div", { class: "row" }, pick("phase", phases, phase, "phase"), live && pick("tokens", lengths.map((each) => [each, whole(each)]), length, "length"), live && pick("batch size", [1, 4, 16, 64].map((each) => [each, each]), batch, "batch")),
      summary(found), stacked(found), rows(found)),
    await growth(lengths, found),
  ];
}

export function sizes(context) {
  return [...[16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192].filter((each) => each < context), context].slice(0, 10);
}

function summary(found) {
  const facts = [["FLOPs", short(found.flops)], ["bytes moved", short(found.moved, "B")], ["FLOPs per byte", number(found.flops / found.moved, 3)], ["memory", short(found.memory.total, "B")], ["cache", short(found.memory.cache + found.memory.cross, "B")]];
  return h("dl", { class: "facts tiles" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function stacked(found) {
  const bars = [...new Set(found.rows.map((row) => row.stack))].map((stack) => [stack, found.rows.filter((row) => row.stack === stack && row.flops > 0)]).filter(([, each]) => each.length);
  return h("figure", {}, h("figcaption", {}, "where the FLOPs go"), bars.map(([stack, each]) => h("div", { class: "share" }, h("span", {}, stack),
    h("div", { class: "sharebar", css: { width: `${100 * each.reduce((sum, row) => sum + row.flops, 0) / found.flops}%` } }, each.map((row) => h("i", { class: `fill ${inkOf(row)}`, title: `${row.name}: ${short(row.flops)}`, css: { "flex-grow": String(row.flops) } }))))),
    key([...new Map(found.rows.filter((row) => row.flops > 0).map((row) => [inkOf(row), { name: row.name.replace("cross ", ""), colour: inkOf(row) }])).values()]));
}

function inkOf({ name }) {
  return INKS[name] ?? (name.includes("scores") ? "orange" : name.includes("values") ? "gold" : name.includes("output") ? "violet" : "blue");
}

function rows(found) {
  return table(["operation", "stack", "lecture", "exact", "FLOPs", "bytes", "FLOPs per byte"], found.rows.map((row) =>
    [row.name, row.stack, row.lecture, row.formula, row.flops ? short(row.flops) : "0", short(row.moved, "B"), number(row.intensity, 3)]), { "aria-label": "cost of each operation", class: "numerals costs" });
}

// Matrices grow with n, scores with n²: they are equal at n = 6d in a standard layer.
async function growth(lengths, found) {
  const all = await Promise.all(lengths.map((each) => plainQuestion("costs", { phase: "reading", batch: 1, length: each })));
  const stack = stacks().at(-1);
  const meets = found.crossovers.find((each) => each.stack === stack);
  const says = `In the ${stack}, scores and weighted values cost as much as all matrices at n = ${whole(Math.round(meets.n))} tokens = ${number(meets.widths, 3)} · d.`;
  if (all.length < 3) return panel("Cost by text length", says);
  const quadratic = (row) => /scores|values/.test(row.name);
  const sum = (one, keep) => one.rows.filter((row) => row.stack === stack && keep(row)).reduce((total, row) => total + row.flops, 0);
  const log = Math.log10;
  const curve = (keep) => all.map((one, i) => [log(lengths[i]), log(Math.max(1, sum(one, keep)))]);
  const both = [curve((row) => !quadratic(row)), curve(quadratic)];
  const [least, most] = [Math.floor(Math.min(...both.flat().map(([, y]) => y))), Math.ceil(Math.max(...both.flat().map(([, y]) => y)))];
  const drawn = lines([{ points: both[0], colour: "green" }, { points: both[1], colour: "orange" }], {
    x: [log(lengths[0]), log(lengths.at(-1))], y: [least, most], ys: ticks(least, most).filter(Number.isInteger), format: (value) => short(10 ** value), xs: lengths.map((each) => [log(each), whole(each)]), label: "FLOPs of a forward pass over the number of tokens",
  });
  if (meets.n <= lengths.at(-1)) drawn.root.append(svg("line", { x1: drawn.across(log(meets.n)), x2: drawn.across(log(meets.n)), y1: 14, y2: drawn.height - drawn.bottom, class: "end" }));
  return panel("Cost by text length", says, drawn.root, key([{ name: "matrices: n · d²", colour: "green" }, { name: "scores and weighted values: n² · d", colour: "orange" }]));
}

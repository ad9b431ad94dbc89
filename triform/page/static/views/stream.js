// The residual stream: what each part added, vector lengths, predictions after each layer, a word in several contexts.

import { button, cut, h, note, number, panel, percent, shown, svg, table, token } from "../dom.js";
import { frame, key, lines, SERIES, ticks } from "../chart.js";
import { heat, legend, usual } from "../heat.js";
import { live } from "../source.js";
import { change, last, page, plainQuestion, question, tokens, windowOf } from "../state.js";

const INKS = { input: "grey", attention: "blue", cross: "violet", feedforward: "green" };
const NAMES = { input: "the stream before", attention: "attention", cross: "cross-attention", feedforward: "feed-forward" };
const PRESETS = {
  mole: ["The European mole is a mammal", "Take a biopsy of the mole", "One mole of carbon dioxide"],
  lion: ["lion", "sea lion", "sea lion cuddly toy"],
};
const LENS = 12;
let word = "mole";
let texts = PRESETS.mole;
let place = null; // the chosen layer; null: the last
let typed = null; // other texts while they are typed

export const stream = { id: "stream", title: "Residual stream", bar: "stack", show };

async function show() {
  const [from, to] = windowOf(page.stack);
  const found = await question("stream", { stack: page.stack, tokens: [from, to] });
  const at = Math.max(from, Math.min(to - 1, page.picked[page.stack])) - from;
  return [ledger(found, from, at), maps(found, from, to), await lens(), await contexts()];
}

function ink(entry) {
  return INKS[entry] ?? "gold";
}

function ledger(found, from, at) {
  const rows = found.shares.map((layer) => layer.map((entry) => entry[at]));
  const ends = rows.map((row) => [row.filter((v) => v < 0).reduce((a, b) => a + b, 0), row.filter((v) => v > 0).reduce((a, b) => a + b, 0)]);
  const [least, most] = [Math.min(0, ...ends.map(([low]) => low)), Math.max(...ends.map(([, high]) => high))];
  const every = Math.ceil(rows.length / 16);
  const drawn = frame({
    x: [-0.6, rows.length - 0.4], y: [least, most * 1.04], ys: ticks(least, most), format: (value) => number(value, 3), height: 300,
    xs: rows.map((_, i) => [i, String(i)]).filter((_, i) => i % every === 0), label: `what each layer added to ${shown(tokens(page.stack)[from + at])}, layer by layer`,
  });
  const wide = Math.min(44, 0.66 * (drawn.across(1) - drawn.across(0)));
  rows.forEach((row, i) => {
    const base = { up: 0, down: 0 };
    row.forEach((value, j) => {
      const way = value < 0 ? "down" : "up";
      const [a, b] = [base[way], base[way] + value];
      base[way] = b;
      const top = drawn.up(Math.max(a, b));
      drawn.root.append(svg("rect", { x: drawn.across(i) - wide / 2, y: top, width: wide, height: Math.max(0.5, drawn.up(Math.min(a, b)) - top), class: `fill ${ink(found.entries[j])}` },
        svg("title", {}, `layer ${i}, ${NAMES[found.entries[j]] ?? found.entries[j]}: ${number(value, 4)}`)));
    });
    const sum = row.reduce((a, b) => a + b, 0);
    drawn.root.append(svg("line", { x1: drawn.across(i) - wide / 2 - 3, x2: drawn.across(i) + wide / 2 + 3, y1: drawn.up(sum), y2: drawn.up(sum), class: "end" }));
  });
  drawn.root.append(svg("text", { x: drawn.width / 2, y: drawn.height - 2, "text-anchor": "middle" }, "layer"));
  const names = [...new Set(found.entries.map(ink))].map((colour) => ({ colour, name: NAMES[found.entries.find((entry) => ink(entry) === colour)] ?? "norm of the stream" }));
  return panel("What each layer adds", null,
    h("p", { class: "lead" }, "For ", token(page.stack, from + at, tokens(page.stack)[from + at]), ": the share of each part, along the direction of the block's output. The parts of a bar sum to the line across it, the length of that output. Largest error of the sums: ", number(found.error, 2), "."),
    key(names), drawn.root,
    h("details", {}, h("summary", {}, "The numbers"), table(["layer", ...found.entries.map((entry) => NAMES[entry] ?? entry), "length"],
      rows.map((row, i) => [String(i), ...row.map((value) => number(value, 4)), number(row.reduce((a, b) => a + b, 0), 4)]), { "aria-label": "what each layer adds, in numbers", class: "numerals" })));
}

function maps(found, from, to) {
  const columns = { labels: tokens(page.stack).slice(from, to), stack: page.stack, from };
  const cell = Math.max(9, Math.min(20, Math.floor(420 / columns.labels.length)));
  const pick = (_, j) => change({ picked: { ...page.picked, [page.stack]: from + j } });
  const one = (title, values, names) => {
    const most = usual(values, 0.9); // the first token of many models grows a hundred times as long as the others
    return h("figure", {}, h("figcaption", {}, title),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, heat({ values, rows: { labels: names }, columns, cell, most, label: `${title}, layers by tokens`, pick })), legend(most, false, "up to"));
  };
  return panel("Length and direction, layer by layer", "Columns: tokens, rows: layers. Press a token to see what each layer adds to it.",
    h("div", { class: "pair" }, one("length of the vector", found.lengths, found.places), one("angle to the layer before, in degrees", found.degrees, found.places.slice(1))));
}

async function lens() {
  if (!page.start.speaks || page.stack !== last()) return null;
  const count = tokens(page.stack).length;
  const [from] = windowOf(page.stack);
  const first = Math.max(0, Math.min(count - LENS, Math.max(from, page.picked[page.stack] - LENS + 1)));
  const asked = live ? [first, Math.min(count, first + LENS)] : [Math.max(0, count - LENS), count];
  const found = await question("lens", { tokens: asked });
  const heads = ["", ...tokens(page.stack).slice(...asked)];
  return panel("Predictions after each layer (logit lens)", "The head applied to the stream after each layer. The stronger the colour, the higher the probability.",
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "predictions after each layer" }, h("table", { class: "lens" },
      h("thead", {}, h("tr", {}, heads.map((label, i) => (i ? h("th", { scope: "col" }, token(page.stack, asked[0] + i - 1, label)) : h("td", {}))))),
      h("tbody", {}, found.places.map((_, i) => found.places.length - 1 - i).map((i) => h("tr", {}, h("th", { scope: "row" }, found.places[i]),
        found.words[i].map((said, j) => h("td", { css: { "--strength": String(found.chances[i][j] * 0.55) }, title: percent(found.chances[i][j]) }, h("bdi", {}, cut(shown(said), 11))))))))));
}

// --- a word in several contexts ---------------------------------------------------------------------------------------

async function contexts() {
  if (!page.start.words) return null;
  const box = h("div", { class: "contexts" });
  const title = "A word in several contexts";
  let found;
  try {
    found = await plainQuestion("contexts", { texts, word });
  } catch (error) {
    return panel(title, null, form(), note(error.message, "note alert"), box);
  }
  const last = found.places.length - 1;
  const redraw = (at) => box.replaceChildren(h("div", { class: "pair" }, arrows(found, at), parting(found, at)), lengths(found));
  redraw(Math.min(place ?? last, last));
  const side = found.causal ? " This is a decoder: a word attends only to the words before it." : "";
  return panel(title, `The word starts as the same vector in every text; context changes its direction and length.${side}`, form(),
    h("label", { class: "choice slide" }, h("span", {}, "layer"), h("input", { type: "range", min: 0, max: last, value: Math.min(place ?? last, last), oninput: (event) => redraw(place = Number(event.target.value)), "data-key": "place" })), box);
}

function form() {
  const presets = Object.entries(PRESETS).map(([name, given]) => button(`the three ${name}s`, () => { [word, texts, typed] = [name, given, null]; change({}); }, { "aria-pressed": String(word === name && texts === given), "data-key": `preset-${name}` }));
  if (!live) return h("div", { class: "row" }, presets);
  const own = h("input", { type: "text", value: typed?.word ?? word, "data-key": "word", size: 10, oninput: () => keep() });
  const given = h("textarea", { rows: 3, "data-key": "contexts", spellcheck: "false", oninput: () => keep() }, typed?.texts ?? texts.join("\n"));
  const keep = () => { typed = { word: own.value, texts: given.value }; };
  const go = () => {
    word = own.value.trim() || "mole";
    texts = given.value.split("\n").map((text) => text.trim()).filter(Boolean).slice(0, 6);
    typed = null;
    change({});
  };
  return h("div", {}, h("div", { class: "row" }, presets),
    h("details", { open: typed !== null }, h("summary", {}, "Other texts"), h("div", { class: "row" }, h("label", { class: "choice" }, h("span", {}, "word"), own), h("label", { class: "choice grow" }, h("span", {}, "texts, one per line"), given), button("Compare", go, { class: "go" }))));
}

function arrows(found, place) {
  const points = found.plane[place];
  const reach = 1.12 * Math.max(...points.map(([a, b]) => Math.hypot(a, b)), 1e-9);
  const side = 300;
  const to = (value) => side / 2 + value / reach * (side / 2 - 10);
  const root = svg("svg", { viewBox: `0 0 ${side} ${side}`, class: "chart arrows", role: "img", "aria-label": `directions and lengths at ${found.places[place]}` },
    svg("circle", { cx: side / 2, cy: side / 2, r: side / 2 - 10, class: "ring" }), svg("circle", { cx: side / 2, cy: side / 2, r: side / 4 - 5, class: "ring" }));
  points.forEach(([a, b], i) => root.append(
    svg("line", { x1: side / 2, y1: side / 2, x2: to(a), y2: to(-b), class: `arrow ${SERIES[i]}` }), svg("circle", { cx: to(a), cy: to(-b), r: 5, class: `fill ${SERIES[i]}` })));
  return h("figure", {}, h("figcaption", {}, `direction and length at: ${found.places[place]}`), root,
    key(found.texts.map((text, i) => ({ name: h("bdi", {}, `${cut(shown(text), 34)} · length ${number(found.lengths[place][i], 3)}`), colour: SERIES[i] }))));
}

function parting(found, place) {
  const count = found.texts.length;
  const pairs = [];
  for (let i = 0; i < count; i += 1) for (let j = i + 1; j < count; j += 1) pairs.push([i, j]);
  if (!pairs.length) return note("Give two or more texts to compare.");
  const most = Math.max(5, ...found.degrees.flat(2));
  const n = found.places.length;
  const every = Math.ceil(n / 8);
  const drawn = lines(pairs.map(([i, j]) => ({ points: found.degrees.map((at, x) => [x, at[i][j]]) })), {
    width: 460, height: 300, x: [0, n - 1], y: [0, most * 1.05], ys: ticks(0, most), format: (value) => `${value}°`,
    xs: found.places.map((name, i) => [i, name.replace("block ", "")]).filter((_, i) => i % every === 0 || i === n - 1), label: "angle between the word's vectors in degrees, layer by layer",
  });
  drawn.root.append(svg("line", { x1: drawn.across(place), x2: drawn.across(place), y1: 14, y2: drawn.height - drawn.bottom, class: "end" }));
  return h("figure", {}, h("figcaption", {}, "angle between them in degrees, layer by layer"), drawn.root,
    key(pairs.map(([i, j], k) => ({ name: `${i + 1} and ${j + 1}: ${number(found.degrees[place][i][j], 3)}°`, colour: SERIES[k % SERIES.length] }))));
}

function lengths(found) {
  return h("details", {}, h("summary", {}, "The numbers"), table(["layer", ...found.texts.map((_, i) => `length ${i + 1}`)],
    found.places.map((name, i) => [name, ...found.lengths[i].map((value) => number(value, 4))]), { "aria-label": "lengths by layer", class: "numerals" }));
}

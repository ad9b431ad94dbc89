// Positions: the position encoding of this model: added to the embeddings, to q and k, or to the scores.

import { button, h, note, number, panel, svg } from "../dom.js";
import { key, lines, SERIES, ticks } from "../chart.js";
import { heat, largest, legend, usual } from "../heat.js";
import { backToLesson, page, plainQuestion } from "../state.js";

let turnedTo = 5;

export const positions = { id: "positions", title: "Positions", bar: "stack", show };

async function show() {
  const found = page.given ?? await plainQuestion("positions", { stack: page.stack, count: 64 });
  const drawn = { sinusoid: waves, learned, rotary, buckets, alibi, noposition: none }[found.kind](found);
  return page.given ? [panel(page.given.title, "Numbers of a slide instead of this model's.", h("div", { class: "row" }, button("Back to the lesson", backToLesson, { class: "go" }))), ...drawn] : drawn;
}

function figure(title, drawn, ...more) {
  return h("figure", {}, h("figcaption", {}, title), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, drawn), more);
}

function counted(count, name) {
  return { labels: Array.from({ length: count }, (_, i) => `${name}${i}`) };
}

function vectors(found) {
  const columns = { labels: found.columns.map(String) };
  return figure("position vectors; rows: positions, columns: dimensions",
    heat({ values: found.vectors, rows: counted(found.count, ""), columns, cell: Math.max(4, Math.min(9, 560 / columns.labels.length)), most: usual(found.vectors), label: "vectors of positions" }), legend(usual(found.vectors), true, ""));
}

function alike(found) {
  return figure("cosine of every pair of positions", heat({ values: found.alike, rows: counted(found.count, ""), columns: counted(found.count, ""), most: 1, cell: 6, label: "cosine between positions" }), legend(1, true, "cosine"));
}

function waves(found) {
  const chosen = [0, 1, 2, 3].map((i) => found.columns[Math.floor(i * (found.columns.length - 1) / 5 / 2) * 2]).map((column) => found.columns.indexOf(column));
  const drawn = lines(chosen.map((j) => ({ points: found.vectors.map((row, x) => [x, row[j]]) })), {
    x: [0, found.count - 1], y: [-1.05, 1.05], ys: [-1, 0, 1], xs: ticks(0, found.count - 1).map((at) => [at, String(at)]), height: 220, label: "waves over positions",
  });
  return [panel("Sinusoids", "sin and cos of pos / 10000^(2i/D) are added to the embedding: slow waves encode large distances, fast ones small ones.",
    drawn.root, key(chosen.map((j, i) => ({ name: `dimension ${found.columns[j]}`, colour: SERIES[i] }))), h("div", { class: "pair" }, vectors(found), alike(found)))];
}

function learned(found) {
  return [panel("Learned positions", `A trained vector per position, added to the embedding; the first ${found.count} are shown.`, h("div", { class: "pair" }, vectors(found), alike(found)))];
}

function rotary(found) {
  const { frequencies, count } = found;
  const values = frequencies.map((f) => Array.from({ length: count }, (_, at) => Math.cos(at * f)));
  const dials = h("div", { class: "dials" });
  const draw = (at) => {
    turnedTo = Number(at);
    const every = Math.max(1, Math.floor(frequencies.length / 12));
    dials.replaceChildren(...frequencies.filter((_, i) => i % every === 0).slice(0, 12).map((f, i) => dial(i * every, turnedTo * f)));
  };
  draw(turnedTo);
  const mean = Array.from({ length: count }, (_, at) => [at, frequencies.reduce((sum, f) => sum + Math.cos(at * f), 0) / frequencies.length]);
  const drawn = lines([{ points: mean }], { x: [0, count - 1], y: [-0.3, 1.05], ys: [0, 0.5, 1], xs: ticks(0, count - 1).map((at) => [at, String(at)]), height: 220, width: 460, label: "product of a query with an equal key over their distance" });
  return [panel("Rotary angles", `Each pair of numbers in q and k is rotated by position × frequency: ${frequencies.length} pairs, from ${number(frequencies[0])} to ${number(frequencies.at(-1))} radians per position. The product of q and k then depends only on their distance.`,
    h("label", { class: "choice slide" }, h("span", {}, "position"), h("input", { type: "range", min: 0, max: count - 1, value: turnedTo, "data-key": "turn", oninput: (event) => draw(event.target.value) })), dials,
    h("div", { class: "pair" },
      figure("cosine of each angle; rows: pairs, columns: positions", heat({ values, rows: counted(frequencies.length, "pair "), columns: counted(count, ""), most: 1, cell: 7, label: "cosine of rotary angles" }), legend(1, true, "")),
      figure("q · k of equal vectors over their distance", drawn.root)))];
}

function dial(pair, angle) {
  const [x, y] = [26 + 20 * Math.cos(angle), 26 - 20 * Math.sin(angle)];
  return h("figure", { class: "dial" }, svg("svg", { viewBox: "0 0 52 52", role: "img", "aria-label": `pair ${pair} is rotated by ${number(angle, 3)} radians` },
    svg("circle", { cx: 26, cy: 26, r: 20, class: "ring" }), svg("line", { x1: 26, y1: 26, x2: x, y2: y, class: "arrow blue" })), h("figcaption", {}, `pair ${pair}`));
}

function overDistance(found, says) {
  const shownHeads = found.bias.slice(0, SERIES.length);
  const all = shownHeads.flat();
  const [least, most] = [Math.min(...all), Math.max(...all)];
  const ends = [found.distances[0], found.distances.at(-1)];
  const drawn = lines(shownHeads.map((head) => ({ points: head.map((value, i) => [found.distances[i], value]) })), {
    x: ends, y: [least, most + 0.05 * (most - least || 1)], ys: ticks(least, most), format: (value) => number(value, 3), xs: ticks(...ends).map((at) => [at, String(at)]), label: "bias added to the scores over the distance from query to key",
  });
  const more = found.bias.length > SERIES.length ? ` The first ${SERIES.length} of ${found.bias.length} heads.` : "";
  return figure(`bias added to the scores, over the distance from query to key.${more}`, drawn.root, key(shownHeads.map((_, i) => ({ name: `head ${i}`, colour: SERIES[i] }))), says);
}

function buckets(found) {
  const n = found.weights.length;
  const cell = Math.max(10, Math.min(16, 480 / n));
  const flipped = found.weights[0].map((_, head) => found.weights.map((row) => row[head]));
  const spans = found.weights.map((_, bucket) => found.distances.filter((_, i) => found.buckets[i] === bucket));
  return [panel("Buckets of distance", `Each head has a trained bias for each of ${n} buckets, added to its scores in every layer. Small distances have one bucket each, large ones share.`,
    overDistance(found), figure("trained biases; rows: heads, columns: buckets", heat({ values: flipped, rows: counted(flipped.length, "head "), columns: counted(n, ""), cell, label: "trained numbers of buckets" }), legend(largest(flipped), true, "")),
    h("details", {}, h("summary", {}, "Which distances share a bucket"), h("ol", { class: "buckets", start: 0 }, spans.map((span) => h("li", {}, span.length ? (span.length === 1 ? String(span[0]) : `${span[0]} to ${span.at(-1)}`) : "none in range")))))];
}

function alibi(found) {
  return [panel("ALiBi", `Each head subtracts its own slope times the distance: ${found.slopes.map((slope) => number(slope, 3)).join(", ")}. Nothing is trained.`, overDistance(found))];
}

function none() {
  const says = page.stack === "decoder" ? "This model has no position encoding. Only the causal mask tells it about order: the first token sees one, the second two." : "This model has no position encoding: it is the same for any order of the tokens.";
  return [panel("No positions", null, note(says))];
}

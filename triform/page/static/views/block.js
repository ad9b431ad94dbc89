// One block: a token on its way through it, operation by operation, every matrix at small size.

import { button, h, note, number, panel, shown, token, whole } from "../dom.js";
import { heat, largest, legend, strip, usual } from "../heat.js";
import { floor, page, question, tokens } from "../state.js";

const NAMES = {
  before: "Norm", qkv: "Queries, keys, values", q: "Queries", q_norm: "Norm of the queries", k_norm: "Norm of the keys", turn: "Position", attend: "Attention",
  out: "Output of attention", up: "Wider", down: "Narrower", after: "Norm", add: "Addition", outer: "Norm",
};
const SYMBOLS = { qkv: "W_qkv", q: "W_q", attend: "weights", out: "W_O", up: "W₁", down: "W₂", before: "gain", after: "gain", outer: "gain", q_norm: "gain", k_norm: "gain", add: "what is added" };
const PACE = 1600; // milliseconds per step while it plays
let wanted = 0; // the chosen step
let playing = null; // its timer

export const block = { id: "block", title: "One block", bar: "layer", show };

async function show() {
  stop();
  const query = Math.min(page.picked[page.stack], tokens().length - 1);
  const { steps } = await question("block", { stack: page.stack, layer: page.layer, query });
  const box = h("div", { class: "player", tabindex: "0", role: "group", "aria-label": "player; use the arrow keys" });
  const live = h("p", { class: "soft", role: "status" });
  const play = button("Play", () => (playing ? stop(play) : start()), { class: "go", "data-key": "play" });
  const go = (to) => {
    wanted = Math.max(0, Math.min(steps.length - 1, to));
    live.textContent = `step ${wanted + 1} of ${steps.length}`;
    box.replaceChildren(rail(steps, go), stepOf(steps[wanted]));
  };
  const start = () => {
    play.textContent = "Pause";
    go(wanted >= steps.length - 1 ? 0 : wanted);
    playing = setInterval(() => {
      if (!box.isConnected || wanted >= steps.length - 1) stop(play);
      else go(wanted + 1);
    }, PACE);
  };
  box.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by || event.target instanceof HTMLCanvasElement) return;
    event.preventDefault();
    go(wanted + by);
    box.focus();
  });
  go(Math.min(wanted, steps.length - 1));
  const lead = h("p", { class: "lead" }, "The token ", token(page.stack, query, tokens()[query]), ` goes through layer ${page.layer} of ${floor().layers}: what enters, the matrix it is multiplied with, what leaves. Choose another token above.`);
  return [panel("One token through one block", null, lead,
    h("div", { class: "row" }, button("←", () => go(wanted - 1), { "aria-label": "previous step", "data-key": "back" }), play,
      button("→", () => go(wanted + 1), { "aria-label": "next step", "data-key": "next" }), live), box)];
}

function stop(play) {
  clearInterval(playing);
  playing = null;
  if (play) play.textContent = "Play";
}

function sublayer(path) {
  return path.split(".")[3].replace("cross", "cross-attention").replace("feedforward", "feed-forward");
}

function rail(steps, go) {
  const groups = [];
  steps.forEach((step, i) => {
    const name = sublayer(step.path);
    if (groups.at(-1)?.name !== name) groups.push({ name, each: [] });
    groups.at(-1).each.push(button(NAMES[step.name], () => go(i), { class: "stop-at", "aria-current": i === wanted ? "step" : null, "data-key": `step-${i}` }));
  });
  return h("div", { class: "rails" }, groups.map(({ name, each }) => h("section", {}, h("h3", {}, name), h("ol", {}, each.map((one) => h("li", {}, one))))));
}

function stepOf({ name, path, says, given, matrix, made }) {
  const most = Math.max(largest([given.numbers]), largest([made.numbers]));
  return h("section", { class: "operation" },
    h("h3", {}, `${NAMES[name]} of ${sublayer(path)}`), h("p", { class: "soft" }, says),
    vector(name === "attend" ? "queries" : "in", given, most),
    matrix && matrixOf(name, path, matrix),
    vector("out", made, most), h("code", { class: "soft" }, path));
}

function vector(name, { numbers, count, length }, most) {
  return h("p", { class: "vector" }, h("span", {}, name), strip(numbers, `${name}: ${count} numbers`, most), h("span", { class: "soft sized" }, `${whole(count)} numbers, length ${number(length, 3)}`));
}

function matrixOf(name, path, { shape, cells }) {
  const [rows, columns] = shape;
  if (rows === 1) return h("p", { class: "vector" }, h("span", {}, name === "add" ? "+" : "·"), strip(cells[0], SYMBOLS[name] ?? "matrix"), h("span", { class: "soft sized" }, `${SYMBOLS[name] ?? ""}, ${whole(columns)} numbers`));
  const weights = name === "attend";
  const cell = Math.max(3, Math.min(14, Math.floor(260 / Math.max(cells.length, cells[0].length))));
  const most = weights ? 1 : usual(cells);
  const coarse = rows > cells.length || columns > cells[0].length;
  const step = (all, drawn) => Array.from({ length: drawn }, (_, i) => String(i * Math.ceil(all / drawn)));
  return h("figure", {}, h("figcaption", {}, weights ? `weights: ${rows} heads × ${whole(columns)} keys` : `${SYMBOLS[name] ?? "matrix"}: ${whole(rows)} × ${whole(columns)}`, coarse && " · each cell is the largest of several numbers"),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "matrix" },
      heat({ values: cells, rows: { labels: step(rows, cells.length) }, columns: { labels: step(columns, cells[0].length) }, most, cell, labels: false, label: `${SYMBOLS[name] ?? "matrix"} of ${path}; use the arrow keys to read cells` })),
    legend(most, !weights, weights ? "weight" : "number"));
}

// Interventions: heads, feed-forwards, positions and masks switched off; the prediction before and after.

import { button, choice, h, note, number, panel, shown, token } from "../dom.js";
import { chances } from "../chart.js";
import { live, NotHere } from "../source.js";
import { change, floor, kinds, last, page, question, stacks, tokens, UNCHANGED, WHOLE, windowOf } from "../state.js";

export const interventions = { id: "interventions", title: "Interventions", bar: false, show };

// The switches show the state at once; the answer is drawn when it arrives.
async function show(draw) {
  const asked = { run: page.run, off: page.change, position: Math.min(page.picked[last()], tokens(last()).length - 1) };
  const result = h("div", { class: "result", "aria-live": "polite" }, h("p", { class: "lead" }, `Computing with ${named(asked.off)} …`));
  const drawn = [panel("Switch parts off", live ? "Press a head to switch it off. It is off only in this view." : "This file has the answers for one head off at a time; the live page takes any combination.",
    h("div", { class: "pair wide" }, h("div", {}, switches()), result))];
  draw(drawn);
  result.replaceChildren(...await compared(asked));
  return drawn;
}

// What is switched off, as text.
function named({ heads, feedforward, positions, mask, temperature }) {
  const count = (list, one, many) => list.length > 0 && `${list.length} ${list.length === 1 ? one : many} off`;
  const parts = [count(heads, "head", "heads"), count(feedforward, "feed-forward", "feed-forwards"), positions !== "kept" && `positions ${positions}`,
    mask !== "kept" && `mask: ${mask === "all" ? "none" : "only the past"}`, temperature !== 1 && `attention temperature ${temperature}`];
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

function switches() {
  const off = page.change; // for drawing; a press changes the state of that moment
  const boards = kinds().map(({ stack, kind, title }) => {
    const { layers, heads } = floor(stack);
    const rows = Array.from({ length: layers }, (_, layer) => h("div", { class: "switchrow", role: "group", "aria-label": `layer ${layer}` }, h("span", { class: "soft" }, String(layer)),
      Array.from({ length: heads }, (_, head) => {
        const one = tag(stack, kind, layer, head);
        const pressed = off.heads.some((each) => same(each, one));
        return button("", () => set({ heads: toggle(page.change.heads, one) }), { class: "switch", "aria-pressed": String(pressed), "aria-label": `${title}: layer ${layer}, head ${head} off`, title: `layer ${layer}, head ${head}`, "data-head": `${stack}:${kind}:${layer}:${head}`, "data-key": `off-${stack}-${kind}-${layer}-${head}` });
      }),
      kind === "self" && live && (() => {
        const one = { stack, layer };
        return button("FF", () => set({ feedforward: toggle(page.change.feedforward, one) }), { class: "switch ff", "aria-pressed": String(off.feedforward.some((each) => same(each, one))), "aria-label": `feed-forward of ${stack} layer ${layer} off`, "data-key": `ff-${stack}-${layer}` });
      })()));
    return h("section", { class: "board" }, h("h3", {}, title), h("p", { class: "soft" }, "rows: layers, columns: heads"), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `switches of ${title}` }, rows));
  });
  const more = live && h("div", { class: "row" },
    choice("positions", [["kept", "unchanged"], ["removed", "removed"], ["shuffled", "shuffled"]], off.positions, (positions) => set({ positions })),
    choice("mask", [["kept", "unchanged"], ["all", "none"], ["past", "only the past"]], off.mask, (mask) => set({ mask })),
    choice("attention temperature", [[0.25, "much sharper"], [0.5, "sharper"], [1, "unchanged"], [2, "flatter"], [4, "much flatter"]], off.temperature, (value) => set({ temperature: Number(value) })));
  return [more, boards, h("div", { class: "row" }, button("Reset", () => change({ change: UNCHANGED }), { class: "go", "data-key": "on", disabled: same(off, UNCHANGED) }))];
}

async function compared({ run, off, position }) {
  const changed = !same(off, UNCHANGED);
  let now;
  try {
    now = await question("answer", { position }, { ...run, change: off });
  } catch (error) {
    if (!(error instanceof NotHere) && live && !/position|mask|temperature/.test(error.message)) throw error;
    return [note(error.message)];
  }
  const where = h("p", { class: "lead" }, page.start.writes ? "Next token after " : "At ", token(last(), position, tokens(last())[position]), changed ? `: before → after, with ${named(off)}` : `, with ${named(off)}`);
  const all = changed && now.was ? now.was.words.map((word, i) => ({ word, before: now.was.before[i], now: now.was.after[i] }))
    : now.labels.map((word, i) => ({ word, now: now.chances[i] }));
  const rows = all.sort((a, b) => (b.before ?? b.now) - (a.before ?? a.now)).slice(0, 12);
  const score = now.score !== null && h("p", { class: "text" }, "score ", changed && now.was ? `${number(now.was.score, 4)} → ` : "", number(now.score, 4));
  return [where, score || (rows.length ? chances(rows, "probabilities") : note("This model has no labels or words to predict: its output is the vectors.")),
    now.parted !== null && h("p", { class: "soft" }, `KL divergence of the two distributions: ${number(now.parted, 3)} nats.`),
    now.turned && turned(now.turned), page.start.writes && await written(run, off)].filter(Boolean);
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
  const say = async (change) => {
    const found = await question("steps", { count: stacks().length === 2 ? WHOLE : 8 }, { ...run, change });
    return found.steps.map((step) => h("bdi", { class: "token new" }, shown(step.token)));
  };
  const lines = [];
  try {
    lines.push(h("dt", {}, changed ? "unchanged" : "it generates"), h("dd", {}, await say(UNCHANGED)));
    if (changed) lines.push(h("dt", {}, named(off)), h("dd", {}, await say(off)));
  } catch (error) {
    if (error.name === "AbortError") throw error;
    lines.push(h("dd", {}, note(error.message)));
  }
  return h("dl", { class: "writes" }, lines);
}

// Decoding: one token at a time; the candidates, what is computed, and what is read from the cache.

import { button, h, note, panel, short, shown, token, whole } from "../dom.js";
import { chances } from "../chart.js";
import { page, question, stacks, WHOLE } from "../state.js";

const COUNT = 16;
const SHOWN = 48; // positions of the grid
let wanted = 0; // the chosen step; a text may have fewer

export const decoding = { id: "decoding", title: "Decoding", bar: false, show };

async function show() {
  if (!page.start.writes) {
    const why = page.start.diagram.form === "encoder" ? "This model is an encoder: it generates no text. Decoders and encoder-decoders generate token by token." : "This model has no language-model head, so it does not generate text.";
    return [panel("Decoding", null, note(why))];
  }
  const pair = stacks().length === 2;
  const found = await question("steps", { count: pair ? WHOLE : COUNT });
  const last = found.steps.length - 1;
  const box = h("div", { class: "decoding" });
  const slider = h("input", { type: "range", min: 0, max: last, value: Math.min(wanted, last), "data-key": "step", "aria-label": "step", oninput: (event) => go(Number(event.target.value)) });
  const go = (to) => {
    wanted = Math.max(0, Math.min(last, to));
    slider.value = wanted;
    box.replaceChildren(...drawn(found, wanted));
  };
  box.append(...drawn(found, Math.min(wanted, last)));
  const step = (by) => go(Math.min(wanted, last) + by);
  const reads = pair ? "The encoder has read the source; the decoder begins with its start token." : "The first step is the prefill: it reads the whole text.";
  return [panel(pair ? "Generating the target, token by token" : "Generating, token by token", `Greedy decoding: the likeliest token is chosen. ${reads} Then only the newest token is computed; the rest is read from the cache.`,
    h("div", { class: "row" }, button("← previous step", () => step(-1), { "data-key": "back" }), slider, button("next step →", () => step(1), { class: "go", "data-key": "next" })), box)];
}

function drawn(found, at) {
  const step = found.steps[at];
  const length = found.read + at;
  const sum = (ranges) => ranges.reduce((total, [from, to]) => total + to - from, 0);
  const [computed, read] = [sum(step.computed), sum(step.from_cache)];
  const without = found.steps.slice(0, at + 1).reduce((total, _, i) => total + found.read + i, 0);
  const done = found.steps.slice(0, at + 1).reduce((total, each) => total + sum(each.computed), 0);
  return [
    text(found, at),
    h("div", { class: "pair" },
      chances(step.words.map((word, i) => ({ word, now: step.chances[i], marked: word === step.token && i === 0 })), `step ${at + 1}: next-token probabilities`),
      h("div", {},
        h("dl", { class: "facts" },
          fact("computed in this step", `${whole(computed)} ${computed === 1 ? "position" : "positions"}`, "computed"),
          fact("read from the cache", `${whole(read)} ${read === 1 ? "position" : "positions"}`, "cached"),
          fact("cache size", `${whole(length)} positions, ${short(length * page.start.cache_bytes, "B")}`),
          fact("positions computed in total", `${whole(done)}; without a cache ${whole(without)}`)), grid(found, at))),
  ];
}

function fact(name, value, kind) {
  return [h("dt", {}, kind && h("i", { class: `box ${kind}` }), name), h("dd", {}, value)];
}

function text(found, at) {
  const from = Math.max(0, found.read - 24);
  const stack = "decoder";
  return h("p", { class: "written" }, from > 0 && h("span", { class: "soft" }, `… ${whole(from)} tokens before … `),
    found.tokens.slice(from, found.read).map((label, i) => token(stack, from + i, label)),
    found.steps.slice(0, at + 1).map((step, i) => h("bdi", { class: i === at ? "token new now" : "token new" }, shown(step.token))));
}

function grid(found, at) {
  const total = found.read + found.steps.length - 1;
  const end = Math.min(total, Math.max(SHOWN, found.read + at)); // with the positions of this step
  const from = Math.max(0, end - SHOWN);
  const inside = (ranges, i) => ranges.some(([a, b]) => i >= a && i < b);
  const rows = found.steps.slice(0, at + 1).map((step, i) => h("div", { class: i === at ? "steprow now" : "steprow" }, Array.from({ length: end - from }, (_, j) => from + j).map((place) =>
    h("i", { class: inside(step.computed, place) ? "box computed" : inside(step.from_cache, place) ? "box cached" : "box", "data-token": `decoder:${place}` }))));
  return h("figure", {}, h("figcaption", {}, `rows: steps, columns: positions${end - from < total ? ` (${from} to ${end - 1} of ${total})` : ""}: computed, read from the cache, not used`), h("div", { class: "scroll", tabindex: "0", role: "img", "aria-label": "positions computed and read at each step" }, h("div", { class: "grid" }, rows)));
}

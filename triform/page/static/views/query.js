// One query, step by step: q · k, scaled, masked, softmax, weighted values, and what is added to the stream.

import { h, note, number, panel, shown, token } from "../dom.js";
import { largest, strip } from "../heat.js";
import { live, NotHere } from "../source.js";
import { floor, page, question, tokens, windowOf } from "../state.js";
import { sides, where } from "./attention.js";

export const query = { id: "query", title: "One query", bar: true, show };

async function show() {
  const [from, to] = windowOf(page.stack);
  const at = Math.max(from, Math.min(to - 1, page.picked[page.stack]));
  const found = await question("formula", where());
  const row = at - from;
  const { columns } = sides();
  const label = tokens(page.stack)[at];
  const named = () => token(page.stack, at, label);
  const most = largest(found.v);
  const scale = found.scale === 1 ? "1" : `1/√${floor().head_width} = ${number(found.scale, 3)}`;
  return [
    panel("", null, h("p", { class: "lead" }, "The token ", named(), ` is the query, in head ${page.head} of layer ${page.layer}. Choose another token above, or another head.`),
      step(1, "Its query, and every key", `q and k are ${floor().head_width} numbers each; the score is their product, times ${scale}.`,
        h("p", { class: "vector" }, h("span", {}, "q"), strip(found.q[row], `query of ${shown(label)}`)), first(found.q[row])),
      step(2, "Scores, mask, softmax, weighted values", "A score becomes a weight: e to the score, divided by the sum over the row. −∞ becomes exactly 0.", answers(found, row, columns, most)),
      step(3, "Weighted sum of the values", "The output of the head.",
        h("p", { class: "vector" }, h("span", {}, "Σ"), strip(found.mixed[row], "mixed values", most)), first(found.mixed[row]))),
    await addition(at, named),
  ];
}

function step(count, title, says, ...children) {
  return h("section", { class: "step" }, h("h3", {}, h("span", { class: "count" }, String(count)), title), h("p", { class: "soft" }, says), children);
}

function first(values) {
  return h("p", { class: "digits" }, `${values.slice(0, 8).map((value) => number(value, 3)).join("   ")}${values.length > 8 ? "   …" : ""}`);
}

function answers(found, row, columns, most) {
  const rows = columns.labels.map((label, j) => {
    const [score, added, weight] = [found.scores[row][j], found.mask[row][j], found.weights[row][j]];
    return h("tr", { class: added === null ? "masked" : null },
      h("th", { scope: "row" }, token(columns.stack, columns.from + j, label)),
      h("td", { class: "numeral" }, number(score / found.scale, 4)),
      h("td", { class: "numeral" }, number(score, 4)),
      h("td", { class: "numeral" }, added === null ? "−∞" : number(added, 3)),
      h("td", { class: "numeral" }, added === null ? "−∞" : number(score + added, 4)),
      h("td", { class: "bar wide" }, h("i", { css: { width: `${100 * Math.max(weight, 0.002)}%` } })),
      h("td", { class: "numeral" }, number(weight, 3)),
      h("td", { class: "value" }, strip(found.v[j].map((value) => value * weight), `weight times value of ${shown(label)}`, most)));
  });
  const heads = ["key", "q · k", "scaled", "mask", "sum", "weight", "", "weight · value"];
  const rest = found.outside[row];
  return [
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "scores and weights of every key" },
      h("table", { class: "answers" }, h("thead", {}, h("tr", {}, heads.map((head, i) => (head ? h("th", { scope: "col", class: i ? "numeral" : null }, head) : h("td", {}))))), h("tbody", {}, rows))),
    rest > 0.0005 && note(`Keys outside this window have ${number(rest, 3)} of the weight.`, "soft"),
  ];
}

async function addition(at, named) {
  const asked = { stack: page.stack, kind: page.kind, layer: page.layer, head: page.head, query: at };
  let found;
  try {
    found = await question("added", asked);
  } catch (error) {
    if (live || !(error instanceof NotHere)) throw error;
    return panel("", null, step(4, "What is added to the stream", "", note(error.message)));
  }
  const most = Math.max(...["before", "head", "others", "after"].map((name) => largest([found[name].numbers])));
  const line = (sign, title, name) => h("tr", {}, h("th", { scope: "row" }, `${sign} ${title}`), h("td", {}, strip(found[name].numbers, title, most)), h("td", { class: "numeral" }, number(found[name].length, 4)));
  return panel("", null, step(4, "What is added to the stream", "The output of the head times its part of W_O has the width of the stream and is added to it, as are the other heads'.",
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "what is added" },
      h("table", { class: "sum" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, named()), h("td", {}), h("th", { scope: "col", class: "numeral" }, "length"))),
        h("tbody", {}, line(" ", "before", "before"), line("+", `head ${page.head}`, "head"), line("+", "the other heads", "others"), line("=", "after", "after"))))));
}

// All heads of all layers at once, layers × heads: the entry to attention. Pressing a cell opens the head.

import { choice, h, panel, whole } from "../dom.js";
import { heat, largest, legend } from "../heat.js";
import { change, kinds, page, question, tokens } from "../state.js";

const SAYS = {
  "first token": "Mean weight on the first token: heads that have nothing to do look there (attention sinks).",
  "previous token": "Mean weight on the token before.",
  "own token": "Mean weight on the token itself.",
  induction: "Mean weight on the token behind an earlier occurrence of the same token.",
  spread: "Entropy of the weights, as a share of the largest possible: 0 is one key, 1 is all keys alike.",
  distance: "Mean distance between query and key, in tokens.",
};
let measure = "first token";

export const birdseye = { id: "heads", title: "All heads", bar: false, show };

async function show() {
  const found = await question("birdseye");
  const names = [...new Set(found.kinds.flatMap((one) => Object.keys(one.measures)))];
  if (!names.includes(measure)) measure = names[0];
  const boards = found.kinds.filter((one) => measure in one.measures).map(board);
  const long = Math.max(...found.kinds.map((one) => tokens(one.stack).length)) > found.tokens;
  return [panel("All heads", "Rows: layers, columns: heads. Press a head to open it.",
    h("div", { class: "row" }, choice("measure", names.map((name) => [name, name]), measure, (value) => { measure = value; change({}); })),
    h("p", { class: "soft" }, SAYS[measure] ?? "", long && ` Of the first ${whole(found.tokens)} tokens.`), h("div", { class: "columns" }, boards))];
}

function board({ stack, kind, measures }) {
  const values = measures[measure];
  const side = (count) => ({ labels: Array.from({ length: count }, (_, i) => String(i)) });
  const most = measure === "distance" ? largest(values) : 1;
  const { title } = kinds().find((one) => one.stack === stack && one.kind === kind);
  const cell = Math.max(12, Math.min(34, Math.floor(Math.min(460, innerWidth - 180) / Math.max(values[0].length, 6))));
  return h("figure", {}, h("figcaption", {}, `${title}: ${measure}`),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${title}: layers and heads` },
      heat({ values, rows: side(values.length), columns: side(values[0].length), most, cell, label: `${measure} of ${title}, ${values.length} layers and ${values[0].length} heads; arrow keys read cells, Enter opens the head`,
        pick: (layer, head) => change({ view: "attention", stack, kind, layer, head, given: null }) })),
    legend(most, false, measure));
}

// Flow: the parts of this model in order, with their sizes; press a part to open it.

import { button, choice, h, note, panel, short, table, whole } from "../dom.js";
import { change, floor, page, stacks, tokens } from "../state.js";

let open = null; // the path of the part that is open

export const flow = { id: "flow", title: "Flow", bar: false, show };

async function show() {
  const { diagram } = page.start;
  const detail = h("aside", { class: "detail", "aria-live": "polite" });
  const press = (part, stack) => {
    open = part.path;
    detail.replaceChildren(...opened(part, stack));
    for (const box of document.querySelectorAll(".part")) box.setAttribute("aria-expanded", String(box.dataset.path === open));
  };
  const floors = diagram.stacks.map((one) => drawn(one, press));
  const end = [box(diagram.head, diagram.stacks.at(-1).name, press), h("p", { class: "size" }, outcome())];
  floors.at(-1).append(h("ol", { class: "rail tail" }, end.map((each) => h("li", {}, each))));
  const parts = diagram.stacks.flatMap((one) => [...one.before, ...one.block, ...one.after].map((part) => [part, one.name]));
  const [first, stack] = parts.find(([part]) => part.path === open) ?? parts.find(([part]) => part.role === "attention");
  detail.replaceChildren(...opened(open === "readout" ? diagram.head : first, stack));
  return [panel("The path through the model", lead(diagram),
    h("div", { class: `flow floors-${floors.length}` }, h("div", { class: "floors" }, floors), detail))];
}

function lead({ form, parameters, width, context }) {
  const shape = form === "encoder-decoder" ? "An encoder reads the source; a decoder generates the target and attends to the source in every block"
    : form === "encoder" ? "An encoder: every token attends to the whole text" : "A decoder: every token attends to itself and the tokens before it";
  return `${shape}. ${whole(parameters)} parameters, width ${whole(width)}, context ${whole(context)} tokens.`;
}

function drawn(one, press) {
  const size = () => h("p", { class: "size" }, `${whole(tokens(one.name).length)} × ${whole(page.start.diagram.width)}`);
  const item = (part) => h("li", { class: part.adds ? "adds" : null }, box(part, one.name, press), part.adds && h("span", { class: "plus", "aria-hidden": "true" }, "+"));
  const mono = ["attention", "cross", "feedforward"];
  return h("section", { class: "floor", "aria-label": one.name },
    h("h3", {}, one.name),
    h("ol", { class: "rail" },
      h("li", {}, h("p", { class: "size" }, `${whole(tokens(one.name).length)} tokens`)),
      one.before.map(item),
      h("li", {}, size()),
      h("li", { class: "block" },
        h("p", { class: "times" }, `× ${one.layers} ${one.layers === 1 ? "layer" : "layers"}`),
        h("ol", { class: "rail inner" }, one.block.filter((part) => mono.includes(part.role)).map(item))),
      h("li", {}, size()),
      one.after.map(item),
      one.name === "encoder" && stacks().length === 2 && h("li", {}, h("p", { class: "memory" }, "memory: keys and values for every cross-attention →"))));
}

function box(part, stack, press) {
  return h("button", {
    type: "button", class: `part ${part.role}`, "data-path": part.path, "data-key": part.path,
    "aria-expanded": String(part.path === open), onclick: () => press(part, stack),
  }, h("strong", {}, part.title), h("span", {}, part.sizes), part.role === "cross" && h("em", {}, "← memory of the encoder"));
}

function outcome() {
  const { speaks, diagram } = page.start;
  const count = whole(tokens(diagram.stacks.at(-1).name).length);
  return speaks ? `${count} × ${whole(diagram.vocab)} scores` : "output";
}

function opened(part, stack) {
  const rows = part.tensors.map(({ path, shape }) => [h("code", {}, path), shape.map(whole).join(" × "), short(shape.reduce((a, b) => a * b, 1))]);
  const goes = {
    attention: ["See its attention", { view: "attention", stack, kind: "self" }],
    cross: ["See its attention", { view: "attention", stack, kind: "cross" }],
    position: ["See its positions", { view: "positions", stack }],
    feedforward: ["See what it adds", { view: "stream", stack }],
    norm: ["See the stream", { view: "stream", stack }],
    embedding: ["See the stream", { view: "stream", stack }],
    head: ["See its predictions", { view: page.start.writes ? "decoding" : "interventions" }],
  }[part.role];
  const layered = part.path.includes("*");
  return [
    h("h3", {}, part.title),
    h("p", {}, part.says),
    h("p", { class: "soft" }, `${whole(part.parameters)} parameters${layered ? " in each layer" : ""}, module `, h("code", {}, part.path)),
    rows.length ? table(["tensor", "shape", "numbers"], rows, { "aria-label": "tensors" }) : note("This part has no trained weights."),
    h("div", { class: "row" },
      layered && choice("layer", Array.from({ length: floor(stack).layers }, (_, i) => [i, i]), Math.min(page.layer, floor(stack).layers - 1), (value) => change({ layer: Number(value) }), "flow-layer"),
      button(goes[0], () => change(goes[1]), { class: "go" })),
  ];
}

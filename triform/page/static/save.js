// Saves what the open view shows as a picture: SVG of lines, texts and cells (no HTML in it), or PNG made from it. Always
// on a light ground, as papers want it.

import { svg } from "./dom.js";
import { forgetInk, ink, vectors } from "./heat.js";

const UNSAVED = "[data-unsaved], label, input, select, textarea, .moving";
const STYLED = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "opacity", "font-size", "font-weight", "font-style", "font-family", "text-anchor"];
const MARGIN = 16;
const SHARPNESS = 2; // pixels of a PNG per pixel of the page

export async function saveView(root, kind, name, caption) {
  const drawn = drawLight(root, caption);
  const text = `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(drawn)}\n`;
  const file = kind === "svg" ? new Blob([text], { type: "image/svg+xml" }) : await rastered(text, drawn);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = `${name.replace(/[^\w.-]+/g, "-").slice(0, 80)}.${kind}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// The page is laid out light for a moment; nothing is painted meanwhile.
function drawLight(root, caption) {
  const { classList } = document.documentElement;
  classList.add("saving");
  forgetInk();
  try {
    return drawn(root, caption);
  } finally {
    classList.remove("saving");
    forgetInk();
  }
}

function drawn(root, caption) {
  const box = root.getBoundingClientRect();
  const sheet = { nodes: [], left: box.left - MARGIN, top: box.top - MARGIN - 26, right: box.right, bottom: box.top, on: document.createElement("canvas").getContext("2d", { willReadFrequently: true }) };
  for (const child of root.children) paint(child, sheet);
  const [width, height] = [Math.ceil(sheet.right - sheet.left + MARGIN), Math.ceil(sheet.bottom - sheet.top + MARGIN)];
  const title = svg("text", { x: MARGIN, y: 24, "font-family": "sans-serif", "font-size": "13", fill: "#55606b" }, caption);
  return svg("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` },
    svg("title", {}, caption), svg("rect", { width, height, fill: "#ffffff" }), title, sheet.nodes);
}

function paint(element, sheet) {
  const style = getComputedStyle(element);
  const box = element.getBoundingClientRect();
  if (style.display === "none" || style.visibility === "hidden" || element.matches(UNSAVED)) return;
  if (element instanceof HTMLCanvasElement) return cells(element, box, sheet);
  if (element instanceof SVGSVGElement) return copy(element, box, sheet);
  if (box.width && box.height) boxed(style, box, sheet);
  for (const which of ["::before", "::after"]) behind(getComputedStyle(element, which), box, sheet);
  for (const child of element.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) words(child, style, sheet);
    else if (child instanceof Element) paint(child, sheet);
  }
}

function put(sheet, box, node) {
  sheet.right = Math.max(sheet.right, box.right);
  sheet.bottom = Math.max(sheet.bottom, box.bottom);
  sheet.nodes.push(node);
}

// Any CSS colour as #rrggbb and an opacity, which every program that reads SVG knows.
function plain(colour, { on }) {
  on.clearRect(0, 0, 1, 1);
  on.fillStyle = colour;
  on.fillRect(0, 0, 1, 1);
  const [red, green, blue, alpha] = on.getImageData(0, 0, 1, 1).data;
  return { paint: `#${[red, green, blue].map((part) => part.toString(16).padStart(2, "0")).join("")}`, alpha: alpha / 255 };
}

function boxed(style, box, sheet) {
  const [x, y] = [box.left - sheet.left, box.top - sheet.top];
  const fill = plain(style.backgroundColor, sheet);
  const rx = Math.min(parseFloat(style.borderTopLeftRadius) || 0, box.height / 2);
  if (fill.alpha > 0) put(sheet, box, svg("rect", { x, y, width: box.width, height: box.height, rx, fill: fill.paint, "fill-opacity": fill.alpha }));
  const sides = ["Top", "Right", "Bottom", "Left"].map((side) => ({ wide: style[`border${side}Style`] === "none" ? 0 : parseFloat(style[`border${side}Width`]), ...plain(style[`border${side}Color`], sheet) }));
  if (sides.every(({ wide, paint }) => wide && wide === sides[0].wide && paint === sides[0].paint)) {
    const { wide, paint: stroke, alpha } = sides[0];
    if (alpha) put(sheet, box, svg("rect", { x: x + wide / 2, y: y + wide / 2, width: box.width - wide, height: box.height - wide, rx, fill: "none", stroke, "stroke-width": wide, "stroke-opacity": alpha, "stroke-dasharray": style.borderTopStyle === "dashed" ? "4 3" : null }));
    return;
  }
  const [right, bottom] = [x + box.width, y + box.height];
  const ends = [[x, y, right, y], [right, y, right, bottom], [x, bottom, right, bottom], [x, y, x, bottom]];
  sides.forEach(({ wide, paint: stroke, alpha }, i) => {
    const [x1, y1, x2, y2] = ends[i];
    if (wide && alpha) put(sheet, box, svg("line", { x1, y1, x2, y2, stroke, "stroke-width": wide, "stroke-opacity": alpha }));
  });
}

// Lines and arrows that a style draws: boxes that stand at a place in their element.
function behind(style, box, sheet) {
  if (style.content === "none" || style.content === "normal" || style.position !== "absolute") return;
  const [left, top, width, height] = [style.left, style.top, style.width, style.height].map(parseFloat);
  if ([left, top, width, height].some(Number.isNaN)) return;
  const place = { left: box.left + left, top: box.top + top, width, height };
  boxed(style, { ...place, right: place.left + width, bottom: place.top + height }, sheet);
}

// A text node, line by line, where the browser has put its words.
function words(node, style, sheet) {
  const range = document.createRange();
  const lines = [];
  for (const found of node.data.matchAll(/\S+/g)) {
    range.setStart(node, found.index);
    range.setEnd(node, found.index + found[0].length);
    const box = range.getBoundingClientRect();
    if (!box.width) continue;
    const line = lines.at(-1);
    if (line && Math.abs(line.box.top - box.top) < 2) {
      line.text += ` ${found[0]}`;
      line.box = { left: line.box.left, top: line.box.top, right: box.right, bottom: box.bottom };
    } else lines.push({ text: found[0], box });
  }
  const { paint: fill, alpha } = plain(style.color, sheet);
  sheet.on.font = style.font;
  const { fontBoundingBoxAscent: above, fontBoundingBoxDescent: below } = sheet.on.measureText("x");
  for (const { text, box } of lines) {
    const y = (box.top + box.bottom - above - below) / 2 + above - sheet.top;
    const cased = style.textTransform === "uppercase" ? text.toUpperCase() : text;
    put(sheet, box, svg("text", { x: box.left - sheet.left, y, fill, "fill-opacity": alpha, "font-family": style.fontFamily, "font-size": style.fontSize, "font-weight": style.fontWeight, "font-style": style.fontStyle }, cased));
  }
}

function cells(canvas, box, sheet) {
  const { wide, tall, draw } = vectors.get(canvas);
  const scale = `translate(${box.left - sheet.left} ${box.top - sheet.top}) scale(${box.width / wide} ${box.height / tall})`;
  put(sheet, box, svg("g", { transform: scale, "font-family": "sans-serif" }, draw(ink())));
}

function copy(element, box, sheet) {
  const made = element.cloneNode(true);
  const [from, to] = [[element, ...element.querySelectorAll("*")], [made, ...made.querySelectorAll("*")]];
  from.forEach((one, i) => {
    const style = getComputedStyle(one);
    for (const name of STYLED) {
      const value = style.getPropertyValue(name);
      to[i].setAttribute(name, (name === "fill" || name === "stroke") && value !== "none" ? plain(value, sheet).paint : value);
    }
    to[i].removeAttribute("class");
    to[i].removeAttribute("style");
  });
  for (const [name, value] of Object.entries({ x: box.left - sheet.left, y: box.top - sheet.top, width: box.width, height: box.height })) made.setAttribute(name, value);
  put(sheet, box, made);
}

async function rastered(text, drawn) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = SHARPNESS * drawn.getAttribute("width");
  canvas.height = SHARPNESS * drawn.getAttribute("height");
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

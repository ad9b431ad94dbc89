// A heat map on a canvas: one colour scale everywhere, a crosshair, arrow keys, and each cell as text. Blue is above
// zero, orange below, grey is masked.

import { cut, h, number, shown, svg } from "./dom.js";
import { onPoint, point, say } from "./state.js";

let inks = null;

export const vectors = new WeakMap(); // canvas → its size and what draws it as SVG

export function ink() {
  if (!inks) {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name).trim();
    inks = { paper: of("--card"), line: of("--line"), text: of("--ink"), soft: of("--soft"), up: of("--blue"), down: of("--orange"), none: of("--none") };
  }
  return inks;
}

export function forgetInk() {
  inks = null;
}

// The square root of the share, so that small weights are visible.
export function strength(value, most) {
  return Math.min(1, Math.sqrt(Math.abs(value) / (most || 1)));
}

export function largest(rows) {
  let most = 0;
  for (const row of rows) for (const value of row) if (value !== null && Math.abs(value) > most) most = Math.abs(value);
  return most;
}

// A scale that ignores a few outliers.
export function usual(rows, share = 0.995) {
  const sizes = rows.flat().filter((value) => value !== null).map(Math.abs).sort((a, b) => a - b);
  return sizes[Math.floor(share * (sizes.length - 1))] || 1;
}

export function heat({ values, rows, columns, most, label, cell = 16, labels = true, pick, keys = true, nothing }) {
  const margin = labels ? { left: 76, top: 64 } : { left: 0, top: 0 };
  const [height, width] = [values.length, values[0].length];
  const canvas = h("canvas", { class: labels ? "heat" : "heat small", role: label ? "img" : null, "aria-label": label || null, "aria-hidden": label ? null : "true", tabindex: keys ? "0" : null });
  const tall = margin.top + height * cell;
  const wide = margin.left + width * cell + (labels ? 14 : 0);
  const ratio = Math.min(3, globalThis.devicePixelRatio || 1);
  canvas.width = wide * ratio;
  canvas.height = tall * ratio;
  canvas.style.setProperty("width", `${wide}px`);
  canvas.style.setProperty("aspect-ratio", `${wide} / ${tall}`);
  const top = most ?? largest(values);
  let cursor = null;

  function draw(what = {}) {
    const colours = ink();
    const on = canvas.getContext("2d");
    on.setTransform(ratio, 0, 0, ratio, 0, 0);
    on.clearRect(0, 0, wide, tall);
    on.fillStyle = colours.paper;
    on.fillRect(margin.left, margin.top, width * cell, height * cell);
    const gap = cell >= 8 && height > 1 ? 1 : 0;
    values.forEach((row, i) => row.forEach((value, j) => {
      on.globalAlpha = value === null ? 0.55 : strength(value, top);
      on.fillStyle = value === null ? colours.none : value < 0 ? colours.down : colours.up;
      on.fillRect(margin.left + j * cell, margin.top + i * cell, cell - gap, cell - gap);
    }));
    on.globalAlpha = 1;
    const lit = { rows: placesOf(rows, what), columns: placesOf(columns, what) };
    if (labels) names(on, colours, lit);
    on.strokeStyle = colours.text;
    on.lineWidth = cell >= 6 ? 1.5 : 1;
    for (const i of lit.rows) on.strokeRect(margin.left - 0.5, margin.top + i * cell - 0.5, width * cell, cell);
    for (const j of lit.columns) on.strokeRect(margin.left + j * cell - 0.5, margin.top - 0.5, cell, height * cell);
    if (cursor) on.strokeRect(margin.left + cursor[1] * cell - 1, margin.top + cursor[0] * cell - 1, cell + 1, cell + 1);
  }

  function names(on, colours, lit) {
    const sparse = (side) => Math.ceil((side.stack ? 11 : 22) / cell); // tokens need more space than counts
    const every = { rows: sparse(rows), columns: sparse(columns) };
    on.textBaseline = "middle";
    const write = (at, text, place, turned, strong) => {
      on.save();
      on.font = `${strong ? "600 " : ""}11.5px system-ui, sans-serif`;
      on.fillStyle = strong ? colours.text : colours.soft;
      on.translate(...place);
      if (turned) on.rotate(-Math.PI / 3.2);
      on.textAlign = turned ? "left" : "right";
      on.fillText(text, 0, 0);
      on.restore();
    };
    rows.labels.forEach((text, i) => {
      if (i % every.rows === 0 || lit.rows.includes(i)) write(i, cut(shown(text), 11), [margin.left - 6, margin.top + (i + 0.5) * cell], false, lit.rows.includes(i));
    });
    columns.labels.forEach((text, j) => {
      if (j % every.columns === 0 || lit.columns.includes(j)) write(j, cut(shown(text), 9), [margin.left + (j + 0.55) * cell, margin.top - 6], true, lit.columns.includes(j));
    });
  }

  function go(i, j) {
    cursor = [i, j];
    point({ token: [tag(rows, i), tag(columns, j)].filter(Boolean) });
    say(`${shown(rows.labels[i])} → ${shown(columns.labels[j])}: ${values[i][j] === null && nothing ? nothing : number(values[i][j], 4)}`);
  }

  function cellAt(event) {
    const box = canvas.getBoundingClientRect();
    const scale = wide / box.width;
    const i = Math.floor(((event.clientY - box.top) * scale - margin.top) / cell);
    const j = Math.floor(((event.clientX - box.left) * scale - margin.left) / cell);
    return i >= 0 && j >= 0 && i < height && j < width ? [i, j] : null;
  }

  canvas.addEventListener("pointermove", (event) => {
    const at = cellAt(event);
    if (at) go(...at);
  });
  canvas.addEventListener("pointerleave", () => {
    cursor = null;
    point(null);
  });
  canvas.addEventListener("click", (event) => {
    const at = cellAt(event);
    if (at && pick) pick(...at);
  });
  const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && cursor && pick) pick(...cursor);
    if (!moves[event.key]) return;
    event.preventDefault();
    const [i, j] = cursor ?? [0, 0];
    const [down, right] = cursor ? moves[event.key] : [0, 0];
    go(Math.max(0, Math.min(height - 1, i + down)), Math.max(0, Math.min(width - 1, j + right)));
  });
  onPoint(draw);
  draw();
  vectors.set(canvas, { wide, tall, draw: (colours) => [...squaresOf(colours), ...(labels ? namesOf(colours) : [])] });
  return canvas;

  function squaresOf(colours) {
    const gap = cell >= 8 && height > 1 ? 1 : 0;
    return values.flatMap((row, i) => row.map((value, j) => svg("rect", {
      x: margin.left + j * cell, y: margin.top + i * cell, width: cell - gap, height: cell - gap,
      fill: value === null ? colours.none : value < 0 ? colours.down : colours.up,
      "fill-opacity": (value === null ? 0.55 : strength(value, top)).toFixed(3),
    })));
  }

  function namesOf(colours) {
    const every = (side) => Math.ceil((side.stack ? 11 : 22) / cell);
    const write = (text, x, y, more) => svg("text", { x, y, fill: colours.soft, "font-size": 11.5, ...more }, text);
    return [
      ...rows.labels.flatMap((text, i) => (i % every(rows) ? [] : [write(cut(shown(text), 11), margin.left - 6, margin.top + (i + 0.5) * cell + 4, { "text-anchor": "end" })])),
      ...columns.labels.flatMap((text, j) => {
        const [x, y] = [margin.left + (j + 0.55) * cell, margin.top - 6];
        return j % every(columns) ? [] : [write(cut(shown(text), 9), x, y, { transform: `rotate(-56 ${x} ${y})` })];
      }),
    ];
  }
}

function tag(side, at) {
  return side.stack ? `${side.stack}:${side.from + at}` : null;
}

function placesOf(side, { token = [] }) {
  if (!side.stack) return [];
  return token.filter((one) => one?.startsWith(`${side.stack}:`)).map((one) => Number(one.split(":")[1]) - side.from)
    .filter((at) => at >= 0 && at < side.labels.length);
}

// A vector as a strip of colours; its label and the readout have the numbers.
export function strip(values, label, most) {
  const wide = Math.min(720, Math.max(180, values.length * 4));
  const side = { labels: values.map((_, i) => String(i)) };
  const drawn = heat({ values: [values], rows: { labels: [label] }, columns: side, most, label: `${label}: ${values.length} numbers, from ${number(Math.min(...values))} to ${number(Math.max(...values))}`, cell: wide / values.length, labels: false, keys: false });
  drawn.classList.add("strip");
  drawn.style.removeProperty("aspect-ratio");
  return drawn;
}

export function legend(most, signed, text) {
  const stops = signed ? [-1, -0.5, 0, 0.5, 1] : [0, 0.05, 0.25, 0.5, 1];
  return h("div", { class: "legend" }, h("span", {}, text), stops.map((stop) =>
    h("span", { class: "stop" }, h("i", { class: stop < 0 ? "below" : "", css: { "--strength": String(strength(stop, 1)) } }), number(stop * most, 2))));
}

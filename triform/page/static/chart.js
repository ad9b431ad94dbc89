// Small SVG charts: bars, lines, stacks, in the colours of the page, light and dark.

import { cut, h, number, percent, shown, svg } from "./dom.js";

export const SERIES = ["blue", "orange", "green", "violet", "gold", "rose"];

// Words with probabilities as bars; of two numbers the first is drawn above, faintly.
export function chances(rows, label) {
  const most = Math.max(...rows.map(({ now, before }) => Math.max(now, before ?? 0)), 1e-9);
  return h("table", { class: "chances" }, h("caption", {}, label),
    h("tbody", {}, rows.map(({ word, now, before, marked }) =>
      h("tr", { class: marked ? "marked" : null },
        h("th", { scope: "row" }, h("bdi", {}, cut(shown(word), 22))),
        h("td", { class: "bar" }, before !== undefined && bar(before / most, "was"), bar(now / most, "")),
        h("td", { class: "numeral" }, before === undefined ? percent(now) : [`${percent(before)} → ${percent(now)}`, h("small", {}, ` ${difference(now - before, 100)}`)])))));
}

// A difference with its sign; `times` 100 for per cent.
export function difference(value, times = 1) {
  const text = number(Math.abs(value * times), 2);
  return `${Math.abs(value * times) < 1e-4 ? "±0" : value < 0 ? `−${text}` : `+${text}`}`;
}

function bar(value, kind) {
  return h("i", { class: kind, css: { width: `${100 * Math.max(value, 0.002)}%` } });
}

export function frame({ width = 720, height = 280, left = 52, right = 30, top = 14, bottom = 34, x, y, xs, ys, label, format = String }) {
  const across = (value) => left + (value - x[0]) / ((x[1] - x[0]) || 1) * (width - left - right);
  const up = (value) => height - bottom - (value - y[0]) / ((y[1] - y[0]) || 1) * (height - top - bottom);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": label });
  for (const tick of ys) {
    root.append(svg("line", { x1: left, x2: width - right, y1: up(tick), y2: up(tick), class: "grid" }),
      svg("text", { x: left - 8, y: up(tick) + 4, "text-anchor": "end" }, format(tick)));
  }
  for (const [at, text] of xs) root.append(svg("text", { x: across(at), y: height - bottom + 18, "text-anchor": "middle" }, text));
  return { root, across, up, width, height, left, bottom };
}

export function lines(series, options) {
  const drawn = frame(options);
  series.forEach(({ points, colour }, i) => {
    const path = points.map(([a, b], j) => `${j ? "L" : "M"}${drawn.across(a).toFixed(1)},${drawn.up(b).toFixed(1)}`).join("");
    drawn.root.append(svg("path", { d: path, class: `curve ${colour ?? SERIES[i % SERIES.length]}` }));
  });
  return drawn;
}

export function key(names) {
  return h("ul", { class: "key" }, names.map(({ name, colour }) => h("li", {}, h("i", { class: `fill ${colour}` }), name)));
}

// About five round numbers from least to most.
export function ticks(least, most) {
  const rough = (most - least || 1) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough * 0.999);
  const found = [];
  for (let at = Math.ceil(least / step) * step; at <= most + step * 1e-6; at += step) found.push(Number(at.toPrecision(6)));
  return found;
}

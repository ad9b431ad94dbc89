// DOM elements from values. Text is always textContent, so it can never become markup.

const NAMESPACE = "http://www.w3.org/2000/svg";

export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS(NAMESPACE, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "css") for (const [key, set] of Object.entries(value)) element.style.setProperty(key, set);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Control characters and bidirectional marks are shown as numbers, so that they have no effect.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const SIGNS = { "\n": "⏎", "\t": "⇥", "\r": "␍" };

export function shown(label) {
  const text = label.replace(UNSEEN, (one) => SIGNS[one] ?? `⟨${one.codePointAt(0).toString(16)}⟩`);
  return text.trim() === "" ? "␣".repeat(Math.max(1, text.length)) : text.trim();
}

export function cut(text, most = 12) {
  const signs = [...text];
  return signs.length > most ? `${signs.slice(0, most - 1).join("")}…` : text;
}

// --- numbers -------------------------------------------------------------------------------------------------------

export function number(value, digits = 3) {
  if (value === null) return "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size >= 1e5 || size < 1e-4 ? value.toExponential(1) : String(Number(value.toPrecision(digits)));
  return text.replace("-", "−");
}

export function whole(value) {
  return value.toLocaleString("en");
}

const PREFIXES = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

export function short(value, unit = "") {
  const [power, prefix] = PREFIXES.find(([each]) => Math.abs(value) >= 0.9995 * each) ?? [1, ""];
  return `${Number((value / power).toPrecision(3))} ${prefix}${unit}`.trim();
}

export function percent(value) {
  if (value >= 0.9995) return "100 %";
  return value >= 0.0995 ? `${(100 * value).toFixed(0)} %` : value >= 0.001 ? `${(100 * value).toFixed(1)} %` : "< 0.1 %";
}

// --- shared elements -----------------------------------------------------------------------------------------------

export function token(stack, at, label, props = {}) {
  return h("bdi", { class: "token", "data-token": `${stack}:${at}`, ...props }, shown(label));
}

export function note(text, kind = "note") {
  return h("p", { class: kind }, text);
}

export function panel(title, lead, ...children) {
  return h("section", { class: "panel" }, h("h2", {}, title), lead && h("p", { class: "lead" }, lead), ...children);
}

export function choice(label, options, value, change, key) {
  const select = h("select", { "data-key": key ?? label, onchange: () => change(select.value) },
    options.map(([id, text]) => h("option", { value: id, selected: String(id) === String(value) }, text)));
  return h("label", { class: "choice" }, h("span", {}, label), select);
}

export function button(text, press, props = {}) {
  return h("button", { type: "button", onclick: press, ...props }, text);
}

export function table(heads, rows, props = {}) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": props["aria-label"] ?? "table" },
    h("table", { class: props.class },
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows.map(([first, ...rest]) =>
        h("tr", {}, h("th", { scope: "row" }, first), rest.map((cell) => h("td", {}, cell)))))));
}

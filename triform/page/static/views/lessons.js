// The lessons of the lectures: claims with their verdicts, tables and plots, and links to the views that draw them.

import { button, h, note, number, panel, shown, svg, table } from "../dom.js";
import { frame, key, SERIES, ticks } from "../chart.js";
import { heat, largest, legend } from "../heat.js";
import { chapter, contents } from "../source.js";
import { change, page } from "../state.js";

const SIGNS = { holds: "✓", "holds with a condition": "◐", "mistake on the slide": "✗" };
const KINDS = { holds: "holds", "holds with a condition": "condition", "mistake on the slide": "mistake" };

export const lessons = { id: "lessons", title: "Lessons", bar: false, here: () => page.hasLessons, show };

let mode = "read"; // or "quiz", or "lecture": one lesson per screen
let at = 0; // the lesson of the lecturer's mode
const guesses = new Map(); // lesson → the verdict that was guessed

async function show(draw) {
  if (mode === "lecture") return lecture();
  const all = await contents();
  const open = all.find(({ name }) => name === page.chapter);
  const list = h("ol", { class: "chapters" }, all.map(({ name, title, lessons: each }) => h("li", {}, h("button", {
    type: "button", class: "chapter", "aria-pressed": String(name === page.chapter), "data-key": `chapter-${name}`, onclick: () => change({ chapter: name }),
  }, h("strong", {}, title), h("span", {}, `${each.length} lessons`)))));
  const lead = "What the slides say, compared with a run: numbers are computed when you open a chapter; lessons that train or measure run in a terminal.";
  const chapters = panel("The lectures, computed", lead, list);
  if (!open) return [chapters];
  draw([chapters, note(`Running the lessons of “${open.title}” …`)]);
  return [chapters, ...await chapterOf(open.name)];
}

async function chapterOf(name) {
  const found = await chapter(name);
  const see = found.seen_in && button(`See it in ${shown(page.start.name)}`, () => change({ view: found.seen_in, given: null }), { class: "go" });
  const asked = found.lessons.filter((one) => one.verdict);
  const turn = (to) => () => { mode = to; at = 0; change({}); };
  const modes = h("div", { class: "row", "data-unsaved": true }, see,
    mode === "read" ? button("Quiz me", turn("quiz"), { "data-key": "quiz" }) : button("End the quiz", turn("read"), { "data-key": "quiz" }),
    button("Lecture", () => { turn("lecture")(); document.documentElement.requestFullscreen?.().catch(() => {}); }, { "data-key": "lecture", title: "full screen, one lesson at a time; arrow keys, Escape ends" }),
    button("Print", () => print(), { "data-key": "print", title: "a handout on paper or as PDF" }));
  return [panel(found.title, found.opening, modes, mode === "quiz" && score(asked)), ...found.lessons.map((one) => (mode === "quiz" && one.verdict ? riddle(one, name) : lesson(one, name)))];
}

// --- quiz: the verdict is hidden until it is guessed; it comes from the lesson's run --------------------------------------

function riddle(one, chapterName) {
  if (guesses.has(one.id)) {
    const right = guesses.get(one.id) === one.verdict;
    const drawn = lesson(one, chapterName);
    drawn.querySelector(".head").after(h("p", { class: right ? "verdict holds" : "verdict mistake", role: "status" }, right ? "Right: the run agrees with you." : `Not what the run gives: you said “${guesses.get(one.id)}”.`));
    return drawn;
  }
  return h("section", { class: "panel lesson", "data-lesson": one.id },
    h("div", { class: "head" }, h("h2", {}, `${one.items.join(", ")} · ${one.title}`)),
    h("p", {}, h("strong", {}, "The slide: "), one.slide, " ", h("span", { class: "soft" }, one.where)),
    h("p", {}, "Does a run agree?"),
    h("div", { class: "row" }, Object.keys(SIGNS).map((verdict) => button(verdict, () => { guesses.set(one.id, verdict); change({}); }, { "data-key": `guess-${one.id}-${KINDS[verdict]}` }))));
}

function score(asked) {
  const done = asked.filter((one) => guesses.has(one.id));
  const wrong = done.filter((one) => guesses.get(one.id) !== one.verdict);
  return h("p", { class: "lead", role: "status" }, `${done.length - wrong.length} of ${done.length} right, ${asked.length - done.length} to go.`, wrong.length > 0 && ` Read again: ${wrong.map((one) => `${one.id} ${one.title}`).join("; ")}.`);
}

// --- lecturer's mode: full screen, one lesson per screen, keys ------------------------------------------------------------

async function lecture() {
  const { title, opening, lessons: each } = await chapter(page.chapter);
  document.documentElement.classList.add("lecturing");
  const go = (by) => { at = Math.max(0, Math.min(each.length, at + by)); change({}); };
  const end = () => { mode = "read"; document.exitFullscreen?.().catch(() => {}); change({}); };
  const keys = (event) => {
    if (!slide.isConnected) return removeEventListener("keydown", keys);
    const act = { ArrowRight: () => go(1), PageDown: () => go(1), ArrowLeft: () => go(-1), PageUp: () => go(-1), Escape: end }[event.key];
    if (!act || event.target instanceof HTMLCanvasElement) return;
    event.preventDefault();
    removeEventListener("keydown", keys);
    act();
  };
  const slide = h("div", { class: "slide" }, at === 0 ? panel(title, opening) : lesson(each[at - 1], page.chapter),
    h("div", { class: "row", "data-unsaved": true }, button("←", () => go(-1), { "aria-label": "previous lesson", "data-key": "slide-back" }), h("span", { class: "soft" }, `${at} of ${each.length}`),
      button("→", () => go(1), { "aria-label": "next lesson", "data-key": "slide-next" }), button("End (Esc)", end, { "data-key": "slide-end" })));
  addEventListener("keydown", keys);
  return [slide];
}

function lesson(one, chapterName) {
  const verdict = one.verdict && h("p", { class: `verdict ${KINDS[one.verdict]}` }, `${SIGNS[one.verdict]} ${one.verdict}`, one.mistakes.length > 0 && h("small", {}, ` ${one.mistakes.join(", ")}`));
  return h("section", { class: "panel lesson", "data-lesson": one.id },
    h("div", { class: "head" }, h("h2", {}, `${one.items.join(", ")} · ${one.title}`), verdict),
    h("p", {}, h("strong", {}, "The slide: "), one.slide, " ", h("span", { class: "soft" }, one.where)),
    h("p", {}, h("strong", {}, "Here: "), one.shows),
    one.trouble && note(`This lesson's own check fails: ${one.trouble}`, "note alert"),
    one.verdict ? evidence(one) : note(`This lesson ${one.kind === "trained" ? "trains a small model" : "measures this machine"}; it runs in a terminal: triform lecture ${one.id}`),
    one.opens && h("div", { class: "row" }, button(`Open in the ${one.opens.view} view: ${one.opens.title}`, () => change({ view: one.opens.view, given: { ...one.opens.numbers, title: one.opens.title, chapter: chapterName, lesson: one.id } }), { class: "go", "data-key": `opens-${one.id}` })));
}

function evidence({ claims, facts, tables, plots, title }) {
  return [
    listed(claims, `claims of: ${title}`),
    facts.length > 0 && [h("h3", { class: "also" }, "Facts"), listed(facts, `facts of: ${title}`)],
    tables.map((one) => h("figure", {}, h("figcaption", {}, one.title), table(one.columns, one.rows, { "aria-label": one.title, class: "numerals" }))),
    h("div", { class: "pair" }, plots.map(picture)),
  ];
}

function listed(claims, label) {
  return h("ul", { class: "claims", "aria-label": label }, claims.map((one) => h("li", { class: KINDS[one.verdict] },
    h("span", { class: "sign", role: "img", "aria-label": one.verdict }, SIGNS[one.verdict]),
    h("span", {}, one.says, one.verdict === "holds with a condition" && h("em", {}, ` only if ${one.only_if}`), one.found && h("span", { class: "soft" }, ` ${one.found}`)))));
}

// --- plots -----------------------------------------------------------------------------------------------------------------

function picture(plot) {
  return h("figure", {}, h("figcaption", {}, plot.title), { heat: squares, bars, lines: curves }[plot.type](plot));
}

function squares({ title, rows, columns, cells }) {
  const most = largest(cells);
  const cell = Math.max(9, Math.min(26, Math.floor(400 / Math.max(rows.length, columns.length))));
  return [h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
    heat({ values: cells, rows: { labels: rows }, columns: { labels: columns }, most, cell, label: `${title}; use the arrow keys to read cells` })), legend(most, cells.flat().some((value) => value < 0), "value")];
}

function bars({ values, unit }) {
  const most = Math.max(...Object.values(values).map(Math.abs), 1e-12);
  return h("table", { class: "chances" }, h("tbody", {}, Object.entries(values).map(([name, value]) => h("tr", {},
    h("th", { scope: "row" }, name), h("td", { class: "bar" }, h("i", { css: { width: `${100 * Math.max(Math.abs(value) / most, 0.002)}%` } })), h("td", { class: "numeral" }, `${number(value, 3)} ${unit}`)))));
}

// An axis that is logarithmic is drawn over the powers of ten.
function scaled(values, log) {
  const to = log ? Math.log10 : (value) => value;
  const ends = [Math.min(...values.map(to)), Math.max(...values.map(to))];
  const text = (at) => number(log ? 10 ** at : at, 3);
  const marks = log ? ticks(...ends).filter((at) => Number.isInteger(at)) : ticks(...ends);
  return { to, ends, text, marks: marks.length > 1 ? marks : ends };
}

function curves({ title, x, y, curves: all, log_x: logX, log_y: logY, marks }) {
  const points = all.flatMap((one) => one.points);
  const across = scaled(points.map(([a]) => a), logX);
  const up = scaled(points.map(([, b]) => b), logY);
  const drawn = frame({ width: 460, height: 300, left: 64, x: across.ends, y: up.ends, xs: across.marks.map((at) => [at, across.text(at)]), ys: up.marks, format: up.text, label: `${title}: ${y} over ${x}` });
  all.forEach(({ points: some, joined }, i) => {
    const places = some.map(([a, b]) => [drawn.across(across.to(a)).toFixed(1), drawn.up(up.to(b)).toFixed(1)]);
    const colour = SERIES[i % SERIES.length];
    drawn.root.append(...(joined ? [svg("path", { d: places.map((at, j) => `${j ? "L" : "M"}${at}`).join(""), class: `curve ${colour}` })] : places.map(([cx, cy]) => svg("circle", { cx, cy, r: 5, class: `fill ${colour}` }))));
  });
  for (const [at, text] of marks) {
    const x1 = drawn.across(across.to(at));
    drawn.root.append(svg("line", { x1, x2: x1, y1: 14, y2: drawn.height - drawn.bottom, class: "end" }), svg("text", { x: x1 + 4, y: 24 }, text));
  }
  return [drawn.root, h("p", { class: "soft" }, `${y} over ${x}`), key(all.map(({ name }, i) => ({ name, colour: SERIES[i % SERIES.length] })))];
}

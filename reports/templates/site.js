"use strict";
const MOST_ROWS = 64, STRIP = 120, HIGH = 16, WIDE = 0.06, SVG = "http://www.w3.org/2000/svg";

// ---- Tables.  A long one's rows lie in a script element as JSON until it is opened; rows beyond MOST_ROWS come on demand.

const tables = new Map();  // the state of each table: its rows in order, what is chosen, how many are shown

function cell(text, href) {
  const found = document.createElement("td");
  if (href) {
    const link = found.appendChild(document.createElement("a"));
    link.href = href;
    link.textContent = text;
  } else found.textContent = text;
  found.className = /^(–|-?[\d,.]+(e[+-]?\d+)?)$/.test(text) ? "n" : text.length > 50 ? "prose" : "";
  return found;
}

function row(cells) {
  const found = document.createElement("tr");
  for (const each of cells) {
    if (typeof each === "string") found.append(cell(each));
    else if (each.s !== undefined) found.append(strip(document.createElement("td"), each.s));
    else found.append(cell(each[0], each[1]));
  }
  return found;
}

function known(table) {
  if (!tables.has(table)) {
    const data = table.closest("details")?.querySelector("script");
    const rows = data ? JSON.parse(data.textContent).map(row) : [...table.tBodies[0].rows];
    data?.remove();
    tables.set(table, { rows, chosen: new Map(), words: "", shown: MOST_ROWS });
  }
  return tables.get(table);
}

function fits(each, { chosen, words }) {
  for (const [column, text] of chosen) if (each.cells[column].textContent !== text) return false;
  const text = words && each.textContent.toLowerCase();
  return !words || words.split(/\s+/).every(word => text.includes(word));
}

function show(table) {
  const state = known(table), found = state.rows.filter(each => fits(each, state));
  table.tBodies[0].replaceChildren(...found.slice(0, state.shown));
  const article = table.closest("article"), more = article.querySelector(".more"), count = article.querySelector("output");
  if (more) more.hidden = found.length <= state.shown;
  if (count) count.textContent = `${Math.min(found.length, state.shown)} of ${state.rows.length} rows`;
}

// A click on a column's head sorts its table: numbers by value, texts as they read, missing cells last either way.
function value(each, column) {
  const found = each.cells[column], text = found.textContent.trim();
  const number = Number(found.dataset.v ?? text.replaceAll(",", ""));
  return text === "–" || text === "" ? null : Number.isNaN(number) ? text : number;
}
function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}
const compareTexts = (a, b) => a.localeCompare(b, "en", { numeric: true });
function sort(head) {
  const table = head.closest("table"), state = known(table), column = head.cellIndex;
  const turn = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  const pairs = state.rows.map(each => [value(each, column), each]);
  pairs.sort(([a], [b]) => a === null || b === null ? (a === null) - (b === null) : turn * compare(a, b));
  state.rows = pairs.map(([, each]) => each);
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", turn > 0 ? "ascending" : "descending");
  show(table);
}

// Tools above a table: words that its rows have, and values of the columns that it names.
function tools(article) {
  const bar = article.querySelector(".tools"), table = article.querySelector("table");
  if (!bar || bar.children.length) return;
  const state = known(table), heads = [...table.tHead.rows[0].cells].map(head => head.textContent);
  const change = () => { state.shown = MOST_ROWS; show(table); };
  for (const name of JSON.parse(bar.dataset.filters)) {
    const column = heads.indexOf(name), values = [...new Set(state.rows.map(each => each.cells[column].textContent))];
    if (values.length < 2) continue;
    const choice = labelled(bar, name, "select");
    choice.append(new Option("all", ""), ...values.sort(compareTexts).map(text => new Option(text, text)));
    const choose = () => choice.value ? state.chosen.set(column, choice.value) : state.chosen.delete(column);
    choice.onchange = () => { choose(); change(); };
    choice.value = JSON.parse(bar.dataset.chosen)[name] ?? "";
    choose();
  }
  const words = labelled(bar, "filter", "input");
  words.type = "search";
  words.oninput = () => { state.words = words.value.trim().toLowerCase(); change(); };
  bar.append(document.createElement("output"));
  const more = document.createElement("button");
  more.className = "more";
  more.textContent = `Show ${MOST_ROWS} more rows`;
  more.onclick = () => { state.shown += MOST_ROWS; show(table); };
  article.querySelector(".scroll").after(more);
  show(table);
}
function labelled(bar, name, kind) {
  const label = bar.appendChild(document.createElement("label"));
  label.append(`${name} `);
  return label.appendChild(document.createElement(kind));
}

// ---- Samples: a tick for each, the median and its interval, from WIDE below the median to WIDE above it.

function strip(at, data) {
  const [median, low, high, ...samples] = data.split(" ").map(Number);
  at.classList.add("s");
  if (!samples.length) return at;
  const place = x => Math.max(0, Math.min(STRIP, STRIP * (0.5 + (x / median - 1) / (2 * WIDE)))).toFixed(1);
  const svg = document.createElementNS(SVG, "svg");
  const add = (name, attributes) => {
    const element = svg.appendChild(document.createElementNS(SVG, name));
    for (const [key, text] of Object.entries(attributes)) element.setAttribute(key, text);
    return element;
  };
  const say = x => x.toPrecision(4);
  const text = `${samples.length} samples from ${say(Math.min(...samples))} to ${say(Math.max(...samples))} ms, `
    + `median ${say(median)} ms, 95 % interval ${say(low)} to ${say(high)} ms`;
  for (const [key, each] of Object.entries({ width: STRIP, height: HIGH, role: "img", "aria-label": text })) svg.setAttribute(key, each);
  add("title", {}).textContent = `${text}: ${samples.map(say).join(", ")}`;
  add("rect", { x: place(low), y: 1, width: Math.max(1, place(high) - place(low)), height: HIGH - 2 });
  add("path", { d: samples.map(x => `M${place(x)} 3V${HIGH - 3}`).join("") });
  add("line", { x1: place(median), x2: place(median), y1: 0, y2: HIGH });
  at.replaceChildren(svg);
  return at;
}

// ---- Search.  The index is a script of its own, loaded at the first search.

let entries = null;
function searchable(found) { entries = found; find(); }  // search.js calls it
const field = document.querySelector(".search input"), list = document.querySelector(".search ul");
const base = document.body.dataset.base;
function find() {
  const words = field.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  const rank = ([title]) => Number(title.toLowerCase() !== words.join(" ")) + Number(!title.toLowerCase().startsWith(words[0]));
  const found = entries && words.length ? entries.filter(([title, , kind]) =>
    words.every(word => `${title} ${kind}`.toLowerCase().includes(word))).sort((a, b) => rank(a) - rank(b)) : [];
  list.replaceChildren(...found.slice(0, 12).map(([title, href, kind]) => {
    const item = document.createElement("li"), link = item.appendChild(document.createElement("a"));
    link.href = base + href;
    const small = document.createElement("small");
    small.textContent = ` ${kind}`;
    link.append(title, small);
    return item;
  }));
}
if (field) {
  field.oninput = () => {
    if (entries) return find();
    if (document.querySelector("script[data-search]")) return;
    const script = document.head.appendChild(document.createElement("script"));
    script.dataset.search = "";
    script.src = `${base}search.js`;
  };
  field.onkeydown = event => {
    if (event.key === "Enter" && list.firstElementChild) location = list.querySelector("a").href;
    if (event.key === "Escape") { field.value = ""; list.replaceChildren(); }
  };
  document.addEventListener("keydown", event => {
    if (event.key === "/" && !/INPUT|SELECT/.test(document.activeElement.tagName)) { event.preventDefault(); field.focus(); }
  });
}

// ---- The page

for (const at of document.querySelectorAll("td[data-s]")) strip(at, at.dataset.s);
for (const head of document.querySelectorAll("th")) head.firstElementChild.addEventListener("click", () => sort(head));
for (const table of document.querySelectorAll("article table")) {
  const article = table.closest("article"), details = article.querySelector("details:not(.source)");
  details?.addEventListener("toggle", () => { tools(article); show(table); });
  if (!details || details.open) tools(article);
}
function paged(most) {  // on paper a table that is open has all its rows
  for (const [table, state] of tables) if (table.closest("details")?.open ?? true) { state.shown = most; show(table); }
}
addEventListener("beforeprint", () => paged(Infinity));
addEventListener("afterprint", () => paged(MOST_ROWS));
function reveal() {  // opens what a link leads to
  const details = document.getElementById(decodeURIComponent(location.hash.slice(1)))?.querySelector("details:not(.source)");
  if (details) details.open = true;
}
addEventListener("hashchange", reveal);
reveal();

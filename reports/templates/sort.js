"use strict";
// A long table's rows lie in a script element as JSON until it is opened first: a page with all of them loads slowly.
function fill(details) {
  const data = details.querySelector("script");
  if (!data) return;
  const body = details.querySelector("tbody");
  for (const cells of JSON.parse(data.textContent)) {
    const row = body.insertRow();
    for (const text of cells) {
      const cell = row.insertCell();
      cell.textContent = text;
      cell.className = /^(–|-?[\d,.]+(e[+-]?\d+)?)$/.test(text) ? "n" : text.length > 50 ? "prose" : "";
    }
  }
  data.remove();
}
for (const details of document.querySelectorAll("details")) details.addEventListener("toggle", () => fill(details));
// A click on a column's head sorts its table: numbers by value, texts as they read, missing cells last either way.
function value(row, column) {
  const cell = row.cells[column];
  const text = cell.textContent.trim();
  const number = Number(cell.dataset.v ?? text.replaceAll(",", ""));
  return text === "–" || text === "" ? null : Number.isNaN(number) ? text : number;
}
function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}
function sort(head) {
  const table = head.closest("table"), body = table.tBodies[0], column = head.cellIndex;
  const turn = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  const rows = Array.from(body.rows, row => [value(row, column), row]);
  rows.sort(([a], [b]) => a === null || b === null ? (a === null) - (b === null) : turn * compare(a, b));
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", turn > 0 ? "ascending" : "descending");
  body.append(...rows.map(([, row]) => row));
}
for (const head of document.querySelectorAll("th")) head.firstElementChild.addEventListener("click", () => sort(head));

"use strict";
// Elements, texts and places. Whatever a model wrote becomes an element's text, never markup.
let D = null; // the page's data, once it is unpacked

async function unpacked() {
  const raw = Uint8Array.from(atob(document.getElementById("data").textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

// An element: attributes (functions are listeners), then children; texts among them are set as text.
function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const text = (number) => (number === null || number === undefined ? "" : D.texts[number]);
const known = (value) => value !== null && value !== undefined;
const mean = (values) => {
  const there = values.filter(known);
  return there.length ? there.reduce((sum, value) => sum + value, 0) / there.length : null;
};
function number(value, digits = 3) {
  if (!known(value)) return "n/a";
  const short = Number(value.toPrecision(digits));
  return short && Math.abs(short) < 0.001 ? short.toExponential() : String(short);
}
const percent = (value, digits = 1) => (known(value) ? (100 * value).toFixed(digits) : "n/a");
const counted = (count, one, many = one + "s") => `${count} ${count === 1 ? one : many}`;

// A table in a box that scrolls. A heading that begins with ">" sets its column to the right; "code:" and "wide:" say how
// a column breaks its lines. A row that is a text is a heading of those below it. One that is `stacked` becomes a list on
// a phone, each cell beside its heading.
function table(headings, rows, stacked = false) {
  const kinds = headings.map((heading) => (heading[0] === ">" ? "right" : /^(code|wide):/.exec(heading)?.[1] ?? null));
  const words = headings.map((heading) => heading.replace(/^(>|code:|wide:)/, ""));
  const head = h("tr", null, words.map((word, at) => h("th", { class: kinds[at] === "right" ? "right" : null }, word)));
  const body = rows.map((row) => h("tr", null, !Array.isArray(row) ? h("th", { colspan: words.length, class: "group" }, row) : row.map((cell, at) => h("td", { class: kinds[at], "data-of": words[at] }, cell))));
  return h("div", { class: "scroll" }, h("table", { class: stacked ? "stacked" : null }, h("thead", null, head), h("tbody", null, body)));
}

// -- places: #/view/part/part, each part encoded -----------------------------------------------------------------------
const place = (...parts) => "#/" + parts.map((part) => encodeURIComponent(part)).join("/");
const parts = () => location.hash.replace(/^#\//, "").split("/").map(decodeURIComponent);
const link = (words, ...to) => h("a", { href: place(...to) }, words);

function choice(label, options, chosen, change) {
  const select = h("select", { change: () => change(select.value), "aria-label": label });
  for (const [value, words] of options) select.append(h("option", { value, selected: String(value) === String(chosen) }, words));
  return h("label", null, label, select);
}

function box(label, chosen, change) {
  const input = h("input", { type: "checkbox", checked: chosen, change: () => change(input.checked) });
  return h("label", null, input, label);
}

function search(label, value, change) {
  return h("input", { type: "search", placeholder: label, "aria-label": label, value, input: (event) => change(event.target.value) });
}

// Shows the first of many rows, and the rest when asked.
function folded(items, shown, draw) {
  const list = h("div", null, items.slice(0, shown).map(draw));
  if (items.length <= shown) return list;
  const more = h("button", { type: "button", click: () => more.replaceWith(folded(items.slice(shown), shown, draw)) },
    `${items.length - shown} more`);
  list.append(more);
  return list;
}

// -- runs and their colours --------------------------------------------------------------------------------------------
const PALETTE = ["#1f77d0", "#e07b00", "#2a9d4a", "#c93a6b", "#8457c9", "#00a0a8", "#9a6a2f", "#6b7785"];
const arms = () => [...new Set(D.runs.map((run) => run.arm))];
const colour = (at) => PALETTE[at % PALETTE.length];
const runColour = (run) => colour(arms().indexOf(run.arm));
const runAt = (at) => D.runs[Number(at)];
// A run among the others of the page: runs over seeds are told apart by what they are runs of.
const called = (run) => (run.arm === run.name || arms().length < 2 ? run.name : `${run.arm}: ${run.name}`);
const runChoices = () => D.runs.map((run, at) => [at, called(run)]);

// -- light and dark ----------------------------------------------------------------------------------------------------
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
function setTheme(name) {
  document.documentElement.dataset.theme = name;
}
setTheme(prefersDark.matches ? "dark" : "light");
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// App: the head of the page, its keys and dialogs, and which part of the page is visible.
//
// An element with data-state shows this part of the state and sets it.

import { json, pack, packs, query, Rows } from "./api.js";
import { goToPair, redrawComparison, showComparison } from "./compare.js";
import { byId, bytes, count, later, make, press } from "./dom.js";
import { refresh, showFilters, varyingColumns } from "./filters.js";
import { placeAfter, redrawTiles, reveal, showRows } from "./grid.js";
import { layersOf } from "./overlay.js";
import { redrawSample, showSample } from "./sample.js";
import { flip, partsOf, QUERY, state, typed, update, watch } from "./state.js";

const MOST_ALONE = 1000; // ms
const startsWide = window.innerWidth >= 900; // the panel of filters is open at first
const controls = () => document.querySelectorAll("[data-state]");
let rows = null; // of the filter
let asked = null; // the newest rows that were asked for

async function start() {
  packs.push(...(await json("packs")).packs);
  if (state.p >= packs.length) state.p = 0;
  watch(show);
  show(new Set(Object.keys(state)));
}

/** Show what changed in the state; names: of the changed parts. */
async function show(names) {
  const has = (...wanted) => wanted.some((name) => names.has(name));
  if (has("p")) showPack();
  showControls(names);
  if (has(...QUERY)) await ask();
  else if (has("size") || (has("view") && state.view === "grid")) showRows();
  else if (has("at") && state.view === "grid") reveal(state.at);
  if (has("off", "opacity", "mode")) [redrawTiles, redrawSample, redrawComparison].forEach((redraw) => redraw());
  if (has("view", "p", "row", "show", "geometry", "seed") && state.view === "sample") showSample();
  if (has("view", "row", "pair", "field") && state.view === "compare") showComparison();
  if (has("view") && state.view === "grid") byId("grid").focus({ preventScroll: true });
}

function showPack() {
  const { name, samples, format, bytes: size } = pack();
  document.title = `${name} – packer view`;
  byId("facts").textContent = `${count(samples)} samples · ${format} · ${bytes(size)}`;
  const columns = varyingColumns().filter(({ type, of }) => type !== "text" && !of);
  const sorts = ["key", ...columns.map((column) => column.name)];
  const options = ["", ...sorts].map((value) => make("option", { value }, value || "pack order"));
  byId("sort").replaceChildren(...options);
  const buttons = packs.map((each, p) => {
    const attributes = { title: each.path, onclick: () => update({ p, view: "grid" }), "aria-pressed": String(p === state.p) };
    return make("button", attributes, each.name);
  });
  byId("packs").replaceChildren(...buttons);
  const layers = layersOf(pack()).map((field, at) => {
    const key = at < 9 ? make("kbd", {}, String(at + 1)) : null;
    return make("button", { title: "Show or hide this layer", onclick: () => switchLayer(at) }, key, field.name);
  });
  byId("layers").replaceChildren(...layers);
  byId("opacity").hidden = !layersOf(pack()).some(({ kind }) => kind === "mask");
  byId("filters").replaceChildren();
}

function switchLayer(at) {
  const layer = layersOf(pack())[at];
  if (layer) flip("off", layer.name);
}

function showControls(names) {
  document.documentElement.dataset.mode = state.mode;
  const shown = [state.view, state.view === "sample" && state.show, packs.length > 1 && "two"];
  for (const part of document.querySelectorAll("[data-for]")) {
    part.hidden = !part.dataset.for.split(" ").some((name) => shown.includes(name));
  }
  for (const control of controls()) {
    const value = String(state[control.dataset.state]);
    if (control.matches("button")) press(control, control.value === value);
    else if (names.has(control.dataset.state) || names.has("p")) control.value = value;
  }
  const off = partsOf("off");
  const hasPanel = startsWide !== partsOf("toggled").includes("panel");
  document.body.classList.toggle("with-panel", hasPanel);
  press(byId("toggle-panel"), hasPanel);
  layersOf(pack()).forEach(({ name }, at) => press(byId("layers").children[at], !off.includes(name)));
  press(byId("to-compare"), state.view === "compare");
  byId("clear").hidden = !state.where;
  byId("place").textContent = rows?.total ? `${count(state.at + 1)} of ${count(rows.total)}` : "";
}

/** Ask for the rows of the filter; show them, or what is wrong with the filter. */
async function ask() {
  const found = (asked = new Rows());
  const problem = await found.get(0).then(() => "", (error) => error.message);
  if (found !== asked) return; // the filter has changed meanwhile
  byId("problem").textContent = problem;
  byId("where").setAttribute("aria-invalid", String(Boolean(problem)));
  if (problem) byId("total").textContent = "–";
  if (problem) return;
  rows = found;
  const all = count(pack().samples);
  byId("total").textContent = rows.total === pack().samples ? `all ${all}` : `${count(rows.total)} of ${all}`;
  if (state.at >= rows.total) update({ at: Math.max(0, rows.total - 1) });
  showControls(new Set());
  const deadline = new Promise((done) => setTimeout(done, MOST_ALONE));
  await Promise.race([showRows(rows), deadline]); // the histograms do not delay the first images
  if (found !== asked) return;
  if (!byId("filters").children.length) showFilters();
  refresh();
}

/** Go to another sample of the filter; on the page of a sample, to its page. */
async function go(place, view = state.view) {
  const row = view === "sample" ? await rows?.get(place) : state.row;
  if (row !== undefined) update({ at: place, row, view });
}

async function compare() {
  if (packs.length < 2) return;
  if (state.view === "grid") return goToPair(state.pair);
  const row = state.p ? (await json("same", { p: 1, row: state.row })).row : state.row;
  update({ view: "compare", p: 0, row: row ?? 0 });
}

// key -> id of the button or label that it presses
const KEYS = { g: "to-grid", Escape: "to-grid", c: "to-compare", "?": "to-help", f: "toggle-panel", "/": "to-filter" };

function pressKey(event) {
  const { key, target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (target.matches("input:not([type=range]), select, textarea")) {
    if (key === "Escape") target.blur(); // also where the grid is hidden
    if (key === "Escape") byId("grid").focus();
    return;
  }
  const isArrow = key.startsWith("Arrow");
  if (isArrow && target.matches("[type=range]")) return;
  const steps = { j: "j", k: "k", ArrowRight: "j", ArrowLeft: "k" };
  const place = placeAfter(state.view === "grid" ? key : steps[key]);
  if (KEYS[key]) byId(KEYS[key]).click();
  else if (/^[1-9]$/.test(key)) switchLayer(Number(key) - 1);
  else if (key === "Enter" && state.view === "grid" && !target.matches("button, summary")) go(state.at, "sample");
  else if (state.view === "compare" && steps[key]) goToPair(state.pair + (steps[key] === "j" ? 1 : -1));
  else if (state.view !== "compare" && place !== undefined) go(place);
  else return;
  event.preventDefault();
}

async function showCopy() {
  if (!byId("copy").open) byId("copy").showModal();
  try {
    const route = state.view === "compare" ? "differences" : "export";
    const first = byId("first").value;
    const { total, keys, command, python } = await json(route, { ...query(), field: state.field, count: first });
    if (first !== byId("first").value) return;
    byId("copy-note").textContent = `${count(keys.length)} of ${count(total)} keys`;
    [...byId("copy").querySelectorAll("section")].forEach((section, at) => {
      const text = [`${keys.join("\n")}\n`, command, python][at];
      section.hidden = !text;
      section.querySelector("textarea").value = text;
      section.querySelector("button").textContent = "Copy";
    });
  } catch (error) {
    byId("copy-note").textContent = error.message;
  }
}

/** Copy a text, or select it where the page must not write to the clipboard: it may on this machine only. */
async function copyText(button) {
  const text = button.parentElement.querySelector("textarea");
  text.select();
  button.textContent = await navigator.clipboard.writeText(text.value).then(() => "Copied", () => "Press Ctrl-C");
}

for (const control of controls()) {
  const name = control.dataset.state;
  const kind = { button: "click", submit: "click", range: "input" }[control.type] ?? "change";
  const set = () => update({ [name]: typed(name, control.value) });
  control.addEventListener(kind, kind === "input" ? later(60, set) : set); // browsers limit the changes of the URL
}
const clicks = {
  clear: () => update({ where: "" }),
  previous: () => go(placeAfter("k")),
  next: () => go(placeAfter("j")),
  "to-compare": compare,
  "to-copy": showCopy,
  "to-help": () => byId("help").showModal(),
  "toggle-panel": () => flip("toggled", "panel"),
};
for (const [id, act] of Object.entries(clicks)) byId(id).addEventListener("click", act);
byId("first").oninput = showCopy;
byId("copy").onclose = () => (byId("first").value = "");
for (const button of document.querySelectorAll("#copy section button")) button.onclick = () => copyText(button);
for (const button of document.querySelectorAll("dialog .close")) button.onclick = () => button.closest("dialog").close();
document.addEventListener("keydown", pressKey);
start();

// Grid: the samples of a filter as tiles. Only tiles near the window exist, and only they ask for images.
//
// Browsers limit the height of an element. The spacer that gives the scroll bar its length therefore has at most
// MOST_HEIGHT px. Above it, small movements scroll px by px, and large ones go to the share of the scroll bar.

import { image, isCancelled, json, pack } from "./api.js";
import { byId, fit, keyText, later, make } from "./dom.js";
import { drawShapes, firstImage, layersOf } from "./overlay.js";
import { partsOf, state, update } from "./state.js";

const MOST_HEIGHT = 10_000_000;
const [GAP, CAPTION, PADDING] = [10, 38, 12]; // px
const SHAPE = 0.75; // height of a tile by its width
const MOST_AT_ONCE = 48; // samples of one request

const scroller = byId("grid");
const tiles = new Map(); // place -> tile
let rows = null;
let top = 0; // px of the full height above the window
let lastScroll = 0;

/** Show the rows of a filter; without an argument the same rows, in tiles of another size. Resolves with the images. */
export async function showRows(newRows = rows) {
  tiles.forEach((tile) => tile.close());
  tiles.clear();
  rows = newRows;
  if (!rows || scroller.hidden) return;
  byId("spacer").style.height = `${shape().height}px`;
  byId("empty").hidden = rows.total > 0;
  scrollToPlace(state.at);
  await load();
}

/** Return the filter of the rows. The text of the state may be one that is not valid. */
export const shownFilter = () => rows?.query.where ?? "";

/** Show another choice of layers. */
export const redrawTiles = () => tiles.forEach((tile) => tile.isAsked && tile.load());

/** Return the place that a key goes to from the current one; undefined for another key. */
export function placeAfter(key) {
  const { columns, page } = shape();
  const down = { ArrowDown: columns, ArrowUp: -columns, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
  const steps = { j: 1, k: -1, ArrowRight: 1, ArrowLeft: -1, ...down };
  return key in steps && rows?.total ? Math.min(rows.total - 1, Math.max(0, state.at + steps[key])) : undefined;
}

/** Scroll to a place. */
export function reveal(place) {
  scrollToPlace(place);
  loadLater();
}

function scrollToPlace(place) {
  const { columns, step, view } = shape();
  const upper = Math.floor(place / columns) * step;
  const lower = upper + step + 2 * PADDING - view;
  scrollTo(upper < top ? upper : Math.max(top, lower));
}

class Tile {
  constructor(place, width) {
    this.width = width;
    this.height = Math.round(width * SHAPE);
    this.info = null;
    this.images = new Map(); // field -> bitmap
    this.cancel = new Map(); // field -> AbortController of its request
    this.canvas = make("canvas");
    this.caption = make("figcaption");
    const open = () => this.row !== undefined && update({ view: "sample", at: place, row: this.row });
    const attributes = { id: `tile-${place}`, role: "option", onclick: open, style: `width: ${width}px` };
    this.element = make("figure.tile", attributes, this.canvas, this.caption);
    fit(this.canvas, this.width, this.height);
  }

  /** Write the caption; info: {key, size, incomplete, overlays, columns} of the sample. */
  describe(info) {
    this.info = info;
    const { key, incomplete, error, columns = {} } = info;
    const types = new Map(pack().columns.map(({ name, type }) => [name, type]));
    const classes = Object.keys(columns).filter((name) => types.get(name) === "class" && name !== "split");
    const counts = info.overlays?.map(({ field, total }) => `${field} ${total}`) ?? [];
    const sorted = types.get(state.sort) === "number" ? [columns[state.sort]] : [];
    const size = info.size ? [`${info.size[1]} × ${info.size[0]}`] : [];
    const text = [...sorted, ...size, ...classes.map((name) => columns[name]), ...counts].join(" · ");
    const warning = error ? "damaged" : incomplete ? "incomplete" : null;
    const note = warning && make("span.warning", { title: error ?? incomplete }, warning);
    this.caption.replaceChildren(keyText(key), make("div.class.note", { title: text }, note, note && " ", text));
    this.element.setAttribute("aria-label", `${key} ${text}`);
    this.draw();
  }

  /** Ask for the images that are shown, and drop the requests for others. */
  load() {
    const off = new Set(partsOf("off"));
    const masks = layersOf(pack()).filter(({ name, kind }) => kind === "mask" && !off.has(name));
    const wanted = new Set([firstImage(pack()), ...masks].map((field) => field?.name).filter(Boolean));
    this.cancel.forEach((controller, name) => wanted.has(name) || controller.abort());
    const missing = [...wanted].filter((name) => !this.cancel.has(name));
    this.draw();
    return Promise.all(missing.map((name) => this.ask(name)));
  }

  async ask(field) {
    const controller = new AbortController();
    this.cancel.set(field, controller);
    const width = Math.min(1024, Math.ceil((this.width * window.devicePixelRatio) / 64) * 64); // few different URLs
    try {
      this.images.set(field, await image("image", state.p, { row: this.row, field, width }, controller.signal));
      this.draw();
    } catch (error) {
      if (isCancelled(error)) this.cancel.delete(field);
      else this.element.title = error.message;
      this.element.classList.toggle("failed", !isCancelled(error));
    }
  }

  draw() {
    const first = this.images.get(firstImage(pack())?.name);
    if (!first) return;
    const context = fit(this.canvas, this.width, this.height);
    const fitting = Math.min(this.width / first.width, this.height / first.height);
    const [wide, high] = [first.width * fitting, first.height * fitting];
    const [left, upper] = [(this.width - wide) / 2, (this.height - high) / 2];
    const off = new Set(partsOf("off"));
    context.drawImage(first, left, upper, wide, high);
    context.globalAlpha = state.opacity / 100;
    const masks = layersOf(pack()).filter(({ name }) => !off.has(name) && this.images.has(name));
    masks.forEach(({ name }) => context.drawImage(this.images.get(name), left, upper, wide, high));
    context.globalAlpha = 1;
    if (!this.info?.overlays) return;
    const scale = [wide / this.info.size[1], high / this.info.size[0]];
    const weight = Math.min(1, this.width / 240);
    drawShapes(context, this.info.overlays, { scale, origin: [left, upper], off, weight });
  }

  close() {
    this.cancel.forEach((controller) => controller.abort());
    this.element.remove();
  }
}

/** Return the columns, the width of a tile, the height of a line, of the window and of everything, in px. */
function shape() {
  const inner = scroller.clientWidth - 2 * PADDING;
  const columns = Math.max(1, Math.round((inner + GAP) / (state.size + GAP)));
  const width = Math.max(48, Math.floor((inner - GAP * (columns - 1)) / columns));
  const step = Math.round(width * SHAPE) + CAPTION + GAP;
  const view = scroller.clientHeight;
  const page = Math.max(1, Math.floor(view / step)) * columns;
  const full = Math.ceil((rows?.total ?? 0) / columns) * step + 2 * PADDING;
  const height = Math.min(full, MOST_HEIGHT);
  return { columns, width, step, view, page, height, most: Math.max(0, full - view), end: Math.max(1, height - view) };
}

function scrollTo(px) {
  const { most, end } = shape();
  top = Math.min(most, Math.max(0, px));
  scroller.scrollTop = (top / Math.max(1, most)) * end;
  lastScroll = scroller.scrollTop;
  render();
}

scroller.addEventListener("scroll", () => {
  const { most, end, view } = shape();
  const moved = scroller.scrollTop - lastScroll;
  if (!moved) return;
  lastScroll += moved;
  const isAtEnd = lastScroll <= 0 || lastScroll >= end - 1;
  const isFine = Math.abs(moved) < 1.5 * view && !isAtEnd;
  top = Math.min(most, Math.max(0, isFine ? top + moved : (lastScroll / end) * most));
  render();
  loadLater();
  settle();
});

/** After scrolling: the current sample is one that can be seen, and the scroll bar shows the exact place. */
const settle = later(200, () => {
  if (scroller.hidden) return;
  const { columns, step, view } = shape();
  const upper = Math.floor(state.at / columns) * step;
  const isSeen = upper + step > top && upper < top + view;
  if (!isSeen) update({ at: Math.max(0, Math.min(rows.total - 1, Math.ceil(top / step) * columns)) });
  scrollTo(top);
});

function render() {
  const { columns, width, step, view } = shape();
  const first = Math.max(0, Math.floor(top / step) - 1) * columns;
  const last = Math.min(rows.total, (Math.floor((top + view) / step) + 2) * columns);
  for (const [place, tile] of tiles) {
    if (place >= first && place < last) continue;
    tile.close();
    tiles.delete(place);
  }
  for (let place = first; place < last; place++) {
    const tile = tiles.get(place) ?? new Tile(place, width);
    if (!tiles.has(place)) byId("tiles").append(tile.element);
    tiles.set(place, tile);
    const x = PADDING + (place % columns) * (width + GAP);
    const y = PADDING + Math.floor(place / columns) * step - top;
    tile.element.style.transform = `translate(${x}px, ${Math.round(y)}px)`;
    tile.element.setAttribute("aria-selected", String(place === state.at));
  }
  scroller.setAttribute("aria-activedescendant", `tile-${state.at}`);
}

/** Ask for what the tiles show, once for each tile, and wait for the images. */
async function load() {
  const { p } = state;
  const shown = [...tiles].sort(([one], [other]) => one - other);
  try {
    for (const [place, tile] of shown) tile.row ??= await rows.get(place);
    const asking = shown.map(([, tile]) => tile).filter(({ isAsked, element }) => !isAsked && element.isConnected);
    const images = asking.map((tile) => tile.load());
    for (const tile of asking) tile.isAsked = true;
    for (let at = 0; at < asking.length; at += MOST_AT_ONCE) {
      const some = asking.slice(at, at + MOST_AT_ONCE);
      const { samples } = await json("overlays", { p, rows: some.map(({ row }) => row), where: shownFilter() });
      samples.forEach((sample, place) => some[place].describe(sample));
    }
    await Promise.all(images);
  } catch (error) {
    byId("problem").textContent = error.message;
  }
}
const loadLater = later(60, load); // when the window rests

const isFitting = () => !scroller.hidden && [...tiles.values()][0]?.width === shape().width;
new ResizeObserver(later(80, () => (isFitting() ? reveal(state.at) : showRows()))).observe(scroller);

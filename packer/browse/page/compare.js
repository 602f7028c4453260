// Comparison: the samples with equal keys of two packs: side by side, in turn (flicker), or as absolute difference.

import { depth, image, isCancelled, json, packs, sample } from "./api.js";
import { byId, count, drawImage, keyText, later, make } from "./dom.js";
import { describe } from "./grid.js";
import { PIXELS } from "./overlay.js";
import { fieldCard } from "./sample.js";
import { state, update } from "./state.js";

const LISTED = 100; // differing samples that are listed at a time
const FLICKER = 600; // ms
const root = byId("compare");
let cancel = new AbortController();
let listed = { start: -1, total: Infinity };
let pairs = [];
let flickered = 0; // the pack that flicker shows

/** Show the list of differing samples, and the sample of the state in both packs. */
export async function showComparison() {
  cancel.abort();
  cancel = new AbortController();
  const { signal } = cancel;
  if (packs.length < 2) {
    root.replaceChildren(make("p.hint", {}, "One pack is open. packer view PACK PACK2 compares two by key."));
    return;
  }
  try {
    await list(state.pair, signal);
    root.replaceChildren(sidebar(), make("div.compared", {}, await compared(signal)));
    root.querySelector("[aria-current=true]")?.scrollIntoView({ block: "nearest" });
    await Promise.all(pairs.map((pair) => pair.load(signal)));
  } catch (error) {
    if (!isCancelled(error)) root.replaceChildren(make("p.failure", {}, error.message));
  }
}

/** Go to another of the differing samples. */
export async function goToPair(place) {
  const pair = Math.max(0, Math.min(listed.total - 1, place));
  await list(pair, new AbortController().signal);
  if (listed.total) update({ view: "compare", p: 0, pair, row: listed.rows[pair - listed.start][0] });
  else update({ view: "compare", p: 0 });
}

/** Draw the images again, after another mode or gain. */
export const redrawComparison = () => pairs.forEach((pair) => pair.draw());

async function list(place, signal) {
  const start = Math.floor(place / LISTED) * LISTED;
  if (packs.length < 2 || listed.start === start) return;
  const { total, only, rows } = await json("differences", { offset: start, count: LISTED }, signal);
  const found = await describe(0, rows.map(([row]) => row), signal);
  listed = { start, total, only, rows, keys: rows.map(([row]) => found.get(row).key) };
}

function sidebar() {
  const { start, total, only, rows, keys } = listed;
  const lines = rows.map(([row], at) => {
    const open = () => update({ pair: start + at, row });
    const attributes = { "aria-current": String(row === state.row), onclick: open };
    return make("li", {}, make("button.pair", attributes, keyText(keys[at])));
  });
  const title = make("h2", {}, `${count(total)} of ${count(packs[0].samples - only[0])} differ`);
  const facts = packs.map(({ name }, p) => `${count(only[p])} only in ${name}`);
  if (total > rows.length) facts.push(`${count(start + 1)} to ${count(start + rows.length)}; j and k go on`);
  return make("aside", {}, title, facts.map((fact) => make("p.note", {}, fact)), make("ol", {}, lines));
}

async function compared(signal) {
  const first = await sample(0, state.row, signal);
  const { row } = await json("same", { p: 0, row: state.row }, signal);
  const title = make("h2", {}, keyText(first.key));
  pairs = [];
  if (row === null) return [title, make("p.hint", {}, `Only ${packs[0].name} contains this key.`)];
  const second = await sample(1, row, signal);
  const both = first.fields.map((field) => [field, second.fields.find(({ name }) => name === field.name)]);
  const common = both.filter(([, other]) => other);
  const images = common.filter(([one, other]) => PIXELS.includes(one.kind) && other.kind === one.kind);
  pairs = images.map(([field]) => new Pair(field, [first.row, row]));
  const differing = common.filter(([one, other]) => one.crc32 !== other.crc32);
  const names = (some) => some.map(([field]) => field.name).join(", ");
  const note = (text, some) => (some.length ? make("p.note", {}, `${text}: ${names(some)}`) : null);
  const more = second.fields.filter(({ name }) => !common.some(([one]) => one.name === name)).map((field) => [field]);
  const cards = differing.map((two) => make("div.columns", {}, two.map((field, p) => fieldCard(p, field))));
  const notes = [
    note("equal", common.filter((pair) => !differing.includes(pair))),
    note(`only in ${packs[0].name}`, both.filter(([, other]) => !other)),
    note(`only in ${packs[1].name}`, more),
  ];
  return [title, pairs.map(({ element }) => element), cards, notes];
}

class Pair {
  constructor(field, rows) {
    this.field = field;
    this.rows = rows;
    this.canvases = packs.map(({ name }) => make("canvas", { role: "img", "aria-label": `${field.name} of ${name}` }));
    this.notes = packs.map(() => make("span.note"));
    const columns = packs.map((_, p) => make("div", {}, this.canvases[p], this.notes[p]));
    this.frame = make("div.columns", {}, columns);
    this.element = make("figure", {}, make("b", {}, field.name), this.frame);
    new ResizeObserver(later(30, () => this.draw())).observe(this.element);
  }

  async load(signal) {
    const name = this.field.name;
    try {
      this.bitmaps = await Promise.all(
        this.rows.map(async (row, p) => (await image("image", p, { row, field: name, width: 0 }, signal)).bitmap),
      );
      const isDepth = this.field.kind === "depth";
      const values = isDepth ? this.rows.map((row, p) => depth(p, row, name, signal)) : this.bitmaps.map(pixelsOf);
      this.difference = differenceOf(...(await Promise.all(values)), isDepth ? 1 : 4);
      this.draw();
    } catch (error) {
      if (!isCancelled(error)) this.frame.replaceChildren(make("p.failure", {}, error.message));
    }
  }

  draw() {
    if (!this.difference) return;
    const { bitmaps, difference } = this;
    const names = packs.map(({ name }) => name);
    const [shown, notes] = {
      side: () => [bitmaps, names],
      flicker: () => [[bitmaps[flickered]], [names[flickered]]],
      difference: () => [[difference.draw(state.gain)], [difference.text]],
    }[state.mode]();
    const wide = this.frame.clientWidth / shown.length - 8;
    shown.forEach((bitmap, at) => {
      this.notes[at].textContent = notes[at];
      drawImage(this.canvases[at], bitmap, wide, 0.7 * root.clientHeight);
    });
  }
}

function pixelsOf(bitmap) {
  const { width, height } = bitmap;
  const context = new OffscreenCanvas(width, height).getContext("2d");
  context.drawImage(bitmap, 0, 0);
  return { width, height, values: context.getImageData(0, 0, width, height).data };
}

/** Return {text, draw} of two images: draw(gain) makes a canvas that is bright where they differ. */
function differenceOf(one, other, channels) {
  const { width, height, values } = one;
  const empty = { text: "The sizes differ.", draw: () => new OffscreenCanvas(1, 1) };
  if (width !== other.width || height !== other.height) return empty;
  const isSame = (at) => Object.is(values[at], other.values[at]); // also where both have no depth
  const differences = values.map((value, at) => (isSame(at) ? 0 : Math.abs(value - other.values[at])));
  const ofPixel = (_, at) => Math.max(...differences.subarray(at * channels, (at + 1) * channels));
  const pixels = Float32Array.from({ length: width * height }, ofPixel);
  const most = pixels.reduce((largest, value) => (value > largest ? value : largest), 0);
  const differing = pixels.reduce((number, value) => number + (value !== 0), 0);
  const share = `${((100 * differing) / pixels.length).toFixed(2)} %`;
  const text = `${count(differing)} px differ (${share}), at most by ${Number(most.toPrecision(4))}`;
  const white = channels === 1 ? most : 255;
  const draw = (gain) => {
    const shown = new ImageData(width, height);
    const value = (at) => (at % 4 === 3 ? 255 : (differences[channels === 1 ? at >> 2 : at] * gain * 255) / white);
    shown.data.forEach((_, at) => (shown.data[at] = value(at)));
    const canvas = new OffscreenCanvas(width, height);
    canvas.getContext("2d").putImageData(shown, 0, 0);
    return canvas;
  };
  return { text: differing ? text : "equal pixels", draw };
}

setInterval(() => {
  if (state.view !== "compare" || state.mode !== "flicker") return;
  flickered = 1 - flickered;
  redrawComparison();
}, FLICKER);

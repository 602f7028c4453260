// Comparison: the samples with equal keys of two packs: side by side, in turn (flicker), or as absolute difference.

import { depth, image, isCancelled, json, packs, sample } from "./api.js";
import { byId, count, drawImage, keyText, later, make } from "./dom.js";
import { drawShapes, PIXELS } from "./overlay.js";
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

/** Draw the images again, after another mode, gain or choice of layers. */
export const redrawComparison = () => pairs.forEach((pair) => pair.draw());

async function list(place, signal) {
  const start = Math.floor(place / LISTED) * LISTED;
  if (listed.start === start) return;
  listed = { start, ...(await json("differences", { offset: start, count: LISTED }, signal)) };
}

function sidebar() {
  const { start, total, only, rows, keys } = listed;
  const lines = rows.map(([row], at) => line(keys[at], { pair: start + at, row }, row === state.row));
  const title = make("h2", {}, `${count(total)} of ${count(packs[0].samples - only[0])} differ`);
  const shown = `${count(start + 1)} to ${count(start + rows.length)}; j and k go on`;
  const note = total > rows.length ? make("p.note", {}, shown) : null;
  return make("aside", {}, title, note, make("ol", {}, lines), packs.map((_, p) => onlyIn(p)));
}

function line(key, changes, isCurrent = false) {
  const attributes = { "aria-current": String(isCurrent), "aria-label": key, onclick: () => update(changes) };
  return make("li", {}, make("button.pair", attributes, keyText(key)));
}

/** Return the list of the keys that one pack alone contains. It asks for them when it opens. */
function onlyIn(p) {
  const lines = make("ol");
  const place = { view: "sample", p, where: "", sort: "", incomplete: 0 };
  const load = async () => {
    const { total, rows, keys } = await json("only", { p });
    const cut = total > rows.length ? [make("li.note", {}, `the first ${count(rows.length)}`)] : [];
    lines.replaceChildren(...cut, ...rows.map((row, at) => line(keys[at], { ...place, row })));
  };
  const title = make("summary.note", {}, `${count(listed.only[p])} only in ${packs[p].name}`);
  return make("details", { ontoggle: load }, title, lines);
}

async function compared(signal) {
  const first = await sample(0, state.row, signal);
  const { row } = await json("same", { p: 0, row: state.row }, signal);
  const head = make("h2", {}, keyText(first.key));
  pairs = [];
  if (row === null) return [head, make("p.hint", {}, `Only ${packs[0].name} contains this key.`)];
  const second = await sample(1, row, signal);
  const both = first.fields.map((field) => [field, second.fields.find(({ name }) => name === field.name)]);
  const common = both.filter(([, other]) => other);
  const images = common.filter(([one, other]) => PIXELS.includes(one.kind) && other.kind === one.kind);
  pairs = images.map(([field]) => new Pair(field, [first, second]));
  const isSame = images.some(([one, other]) => String(one.size) === String(other.size));
  const title = isSame ? "" : "No image of this sample has the same size in both packs";
  Object.assign(byId("to-difference"), { disabled: !isSame, title });
  const differing = common.filter(([one, other]) => one.crc32 !== other.crc32);
  const names = (some) => some.map(([field]) => field.name).join(", ");
  const note = (text, some) => (some.length ? make("p.note", {}, `${text}: ${names(some)}`) : null);
  const more = second.fields.filter(({ name }) => !common.some(([one]) => one.name === name)).map((field) => [field]);
  const cards = differing.map((two) => make("div.columns", {}, two.map((field, p) => fieldCard(p, field))));
  const equal = note("equal", common.filter((pair) => !differing.includes(pair)));
  const only = [both.filter(([, other]) => !other), more].map((some, p) => note(`only in ${packs[p].name}`, some));
  return [head, pairs.map(({ element }) => element), cards, equal, only];
}

class Pair {
  constructor(field, samples) {
    this.field = field;
    this.samples = samples;
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
        this.samples.map(async ({ row }, p) => (await image("image", p, { row, field: name, width: 0 }, signal)).bitmap),
      );
      const isDepth = this.field.kind === "depth";
      const values = isDepth ? this.samples.map(({ row }, p) => depth(p, row, name, signal)) : this.bitmaps.map(pixelsOf);
      this.difference = differenceOf(this.bitmaps, await Promise.all(values), isDepth ? 1 : 4);
      this.draw();
    } catch (error) {
      if (!isCancelled(error)) this.frame.replaceChildren(make("p.failure", {}, error.message));
    }
  }

  draw() {
    if (!this.difference) return;
    const { bitmaps, difference } = this;
    const stored = bitmaps.map((bitmap, p) => [bitmap, packs[p].name, this.samples[p]]);
    const shown = {
      side: () => stored,
      flicker: () => [stored[flickered]],
      difference: () => [[difference.draw(state.gain), difference.text]],
    }[state.mode]();
    const most = this.frame.clientWidth / shown.length - 8;
    shown.forEach(([bitmap, note, drawn], at) => {
      this.notes[at].textContent = note;
      const { context, wide, high } = drawImage(this.canvases[at], bitmap, most, 0.7 * root.clientHeight);
      if (!drawn || this.field.kind === "mask") return;
      const [height, width] = drawn.fields.find(({ kind }) => PIXELS.includes(kind)).size;
      const matrix = [wide / width, 0, 0, 0, high / height, 0];
      drawShapes(context, drawn.overlays, { matrix, off: new Set(state.off.split(",")), labels: true, weight: 1.2 });
    });
  }
}

function pixelsOf(bitmap) {
  const { width, height } = bitmap;
  const context = new OffscreenCanvas(width, height).getContext("2d");
  context.drawImage(bitmap, 0, 0);
  return context.getImageData(0, 0, width, height).data;
}

/** Return {text, draw} of two images and their values: draw(gain) makes a canvas that is bright where they differ. */
function differenceOf([{ width, height }, second], [values, others], channels) {
  const empty = { text: "The sizes differ.", draw: () => new OffscreenCanvas(1, 1) };
  if (width !== second.width || height !== second.height) return empty;
  const isSame = (at) => Object.is(values[at], others[at]); // also where both have no depth
  const differences = values.map((value, at) => (isSame(at) ? 0 : Math.abs(value - others[at])));
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

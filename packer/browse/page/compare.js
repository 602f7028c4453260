// Comparison: the samples with equal keys of two packs: side by side, in turn (flicker), or as absolute difference.

import { depth, image, isCancelled, json, packs, sample } from "./api.js";
import { byId, count, drawImage, keyText, later, make, short } from "./dom.js";
import { drawShapes, PIXELS } from "./overlay.js";
import { fieldCard } from "./sample.js";
import { partsOf, state, update } from "./state.js";
import { valuesTerm } from "./terms.js";

const root = byId("compare");
let cancel = new AbortController();
let listed = {}; // pairs that differ in the field of the state
let pairs = [];

/** Show the list of differing samples, and the sample of the state in both packs. */
export async function showComparison() {
  cancel.abort();
  cancel = new AbortController();
  const { signal } = cancel;
  try {
    await list(state.field, signal);
    root.replaceChildren(sidebar(), make("div.compared", {}, await compared(signal)));
    root.querySelector("[aria-current=true]")?.scrollIntoView({ block: "nearest" });
    await Promise.all(pairs.map((pair) => pair.load(signal)));
  } catch (error) {
    if (!isCancelled(error)) root.replaceChildren(make("p.failure", {}, error.message));
  }
}

/** Go to another of the samples that differ in a field; field: "" for any. */
export async function goToPair(place, field = state.field) {
  await list(field, new AbortController().signal);
  const pair = Math.max(0, Math.min(listed.rows.length - 1, place));
  update({ view: "compare", p: 0, field, ...(listed.total && { pair, row: listed.rows[pair][0] }) });
}

/** Draw the images again, after another mode or choice of layers. */
export const redrawComparison = () => pairs.forEach((pair) => pair.draw());

async function list(field, signal) {
  if (listed.field !== field) listed = { field, ...(await json("differences", { field }, signal)) };
}

function sidebar() {
  const { total, only, rows, keys, fields } = listed;
  const lines = rows.map(([row], pair) => line(keys[pair], { pair, row }, row === state.row, fields[pair]));
  const title = make("h2", {}, `${count(listed.differing[""])} of ${count(packs[0].samples - only[0])} differ`);
  const note = make("p.note", { hidden: total <= rows.length }, `the first ${count(rows.length)}`);
  return make("aside", {}, title, packs.map((_, p) => onlyIn(p)), causes(), note, make("ol", {}, lines));
}

/** Return a line for each field that differs: in how many samples, and how the packs store it. A click chooses it. */
function causes() {
  const choice = (name, text) => {
    const attributes = { onclick: () => goToPair(0, name), "aria-pressed": String(state.field === name) };
    return make("button.pair.bar", attributes, text, make("span.note.chosen", {}, count(listed.differing[name])));
  };
  const names = new Set(packs.flatMap(({ fields }) => fields.map(({ name }) => name)));
  const causes = [...names].map((name) => {
    const [one, other] = packs.map(({ fields }) => fields.find((field) => field.name === name));
    if (!one || !other) return make("p.note", {}, `${name}: only in ${packs[one ? 0 : 1].name}`);
    const [differing, resized] = [listed.differing[name], listed.resized[name]];
    const sizes = resized ? [`other size in ${count(resized)}`] : [];
    const text = [...changes(one, other), ...sizes].join(", ");
    if (!differing) return text ? make("p.note", {}, `${name}: ${text}`) : null;
    return [choice(name, name), text ? make("p.note", {}, text) : null];
  });
  return [choice("", "in any field"), ...causes];
}

/** Return how the declarations of a field differ. */
function changes(one, other) {
  const written = (value) => (Array.isArray(value) ? value.map((each) => each ?? "?").join(" × ") : String(value));
  const changed = (name) => JSON.stringify(one[name]) !== JSON.stringify(other[name]);
  const names = ["kind", "dtype", "shape", "codec"].filter(changed);
  const texts = names.map((name) => `${name} ${written(one[name])} → ${written(other[name])}`);
  return changed("classes") ? [...texts, "other classes"] : texts;
}

function line(key, changes, isCurrent = false, fields = []) {
  const attributes = { "aria-current": String(isCurrent), "aria-label": key, onclick: () => update(changes) };
  return make("li", {}, make("button.pair", attributes, keyText(key), make("span.note", {}, fields.join(", "))));
}

/** Return the list of the keys that one pack alone contains. It asks for them when it opens. */
function onlyIn(p) {
  const lines = make("ol");
  const alone = (key) => ({ view: "sample", p, where: valuesTerm("key", [key]), sort: "" });
  const load = async () => {
    const { total, rows, keys } = await json("only", { p });
    const cut = total > rows.length ? [make("li.note", {}, `the first ${count(rows.length)}`)] : [];
    lines.replaceChildren(...cut, ...rows.map((row, at) => line(keys[at], { ...alone(keys[at]), row })));
  };
  const title = make("summary.note", {}, `${count(listed.only[p])} only in ${packs[p].name}`);
  return make("details", { ontoggle: load, hidden: !listed.only[p] }, title, lines);
}

async function compared(signal) {
  const first = await sample(0, { row: state.row }, signal);
  const { row } = await json("same", { p: 0, row: state.row }, signal);
  const head = make("h2", {}, keyText(first.key));
  pairs = [];
  if (row === null) return [head, make("p.hint", {}, `Only ${packs[0].name} contains this key.`)];
  const second = await sample(1, { row }, signal);
  const same = ({ name }) => second.fields.find((field) => field.name === name);
  const common = first.fields.map((field) => [field, same(field)]).filter(([, field]) => field);
  const images = common.filter(([one, other]) => PIXELS.includes(one.kind) && other.kind === one.kind);
  pairs = images.map(([field]) => new Pair(field, [first, second]));
  const differing = common.filter(([one, other]) => one.crc32 !== other.crc32);
  const note = make("p.note", { hidden: differing.length > 0 }, "equal in all fields of both packs");
  const cards = differing.map((two) => make("div.columns", {}, two.map((field, p) => fieldCard(p, field, two[1 - p]))));
  return [head, note, pairs.map(({ element }) => element), cards];
}

class Pair {
  constructor(field, samples) {
    this.field = field;
    this.samples = samples;
    this.canvases = packs.map(({ name }) => make("canvas", { role: "img", "aria-label": `${field.name} of ${name}` }));
    this.notes = packs.map(() => make("span.note"));
    const columns = packs.map((_, p) => make("div", {}, this.canvases[p], this.notes[p]));
    this.frame = make("div.columns", {}, columns);
    this.text = make("span.note");
    this.element = make("figure", {}, make("b", {}, field.name), " ", this.text, this.frame);
    new ResizeObserver(later(30, () => this.draw())).observe(this.element);
  }

  async load(signal) {
    const name = this.field.name;
    try {
      this.bitmaps = await Promise.all(
        this.samples.map(({ row }, p) => image("image", p, { row, field: name, width: 0 }, signal)),
      );
      const isDepth = this.field.kind === "depth";
      const values = isDepth ? this.samples.map(({ row }, p) => depth(p, row, name, signal)) : this.bitmaps.map(pixelsOf);
      this.difference = differenceOf(this.bitmaps, await Promise.all(values), isDepth ? 1 : 4);
      this.text.textContent = this.difference.text;
      this.draw();
    } catch (error) {
      if (!isCancelled(error)) this.frame.replaceChildren(make("p.failure", {}, error.message));
    }
  }

  draw() {
    if (!this.difference) return;
    const stored = this.bitmaps.map((bitmap, p) => [bitmap, packs[p].name, this.samples[p]]);
    const shaped = this.field.kind === "mask" ? [] : this.samples; // the shapes are not drawn over masks
    const dashed = shaped[1]?.overlays.length ? `, shapes of ${packs[1].name} dashed` : "";
    const difference = [this.difference.bitmap, `absolute difference${dashed}`, ...this.samples];
    const shown = state.mode === "difference" ? [difference] : stored;
    const most = this.frame.clientWidth / (state.mode === "side" ? 2 : 1) - 8;
    shown.forEach(([bitmap, note, ...samples], at) => {
      this.notes[at].textContent = note;
      const { context, wide, high } = drawImage(this.canvases[at], bitmap, most, 0.7 * root.clientHeight);
      for (const [place, { fields, overlays }] of shaped.length ? samples.entries() : []) {
        const [height, width] = fields.find(({ kind }) => PIXELS.includes(kind)).size;
        const scale = [wide / width, high / height];
        const dash = place ? [6, 5] : [];
        drawShapes(context, overlays, { scale, off: new Set(partsOf("off")), labels: !place, weight: 1.2, dash });
      }
    });
  }
}

function pixelsOf(bitmap) {
  const { width, height } = bitmap;
  const context = new OffscreenCanvas(width, height).getContext("2d");
  context.drawImage(bitmap, 0, 0);
  return context.getImageData(0, 0, width, height).data;
}

/** Return {text, bitmap} of two images and their values. The bitmap is brightest where they differ most. */
function differenceOf([{ width, height }, second], [values, others], channels) {
  const bitmap = new OffscreenCanvas(width, height);
  const sizes = `${width} × ${height} and ${second.width} × ${second.height} px cannot be subtracted`;
  if (width !== second.width || height !== second.height) return { text: sizes, bitmap };
  const isSame = (at) => Object.is(values[at], others[at]); // also where both have no depth
  const differences = values.map((value, at) => (isSame(at) ? 0 : Math.abs(value - others[at])));
  const ofPixel = (at) => differences.subarray(at * channels, (at + 1) * channels);
  const sorted = new Float32Array(width * height).map((_, at) => Math.max(...ofPixel(at))).sort();
  const known = sorted.filter(Number.isFinite); // without pixels that have a depth in one image alone
  const [most, equal] = [known.at(-1), known.lastIndexOf(0) + 1];
  const pixels = new ImageData(width, height);
  for (let at = 0; at < width * height; at++) {
    for (const color of [0, 1, 2]) pixels.data[4 * at + color] = (255 * ofPixel(at)[color % channels]) / most;
    pixels.data[4 * at + 3] = 255;
  }
  bitmap.getContext("2d").putImageData(pixels, 0, 0);
  const differing = sorted.length - equal;
  if (!differing) return { text: "equal pixels", bitmap };
  const share = ((100 * differing) / sorted.length).toFixed(2);
  const [median, largest] = [known[Math.floor((equal + known.length - 1) / 2)], most].map((each = NaN) => short(each));
  return { text: `${count(differing)} px differ (${share} %), median ${median}, largest ${largest}`, bitmap };
}

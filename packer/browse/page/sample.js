// Sample: all fields of one sample, as stored, as the kept file, or as training sees them.

import { depth, image, isCancelled, pack, packs, sample } from "./api.js";
import { byId, bytes, drawImage, keyText, later, make, MOST_SCALE } from "./dom.js";
import { shownFilter } from "./grid.js";
import { drawShapes, layersOf, PIXELS } from "./overlay.js";
import { partsOf, state } from "./state.js";

const root = byId("sample");
let cancel = new AbortController();
let shown = null; // the sample of the page
let panels = [];
let hovered = null;

/** The geometry and the seed of a sample as trained; they also move the shapes. */
const training = () => (state.show === "trained" ? { geometry: state.geometry, seed: state.seed } : {});

/** Show the sample of the state. */
export async function showSample() {
  cancel.abort();
  cancel = new AbortController();
  try {
    shown = await sample(state.p, { row: state.row, where: shownFilter(), ...training() }, cancel.signal);
  } catch (error) {
    if (!isCancelled(error)) root.replaceChildren(make("p.failure", {}, error.message));
    return;
  }
  const pixels = shown.fields.filter(({ kind }) => PIXELS.includes(kind));
  hovered = null;
  panels = pixels.map((field) => new Panel(field));
  const title = make("summary", {}, make("span.name", {}, "fields"));
  const cards = shown.fields.map((field) => fieldCard(state.p, field));
  const warning = shown.incomplete ? make("span.warning", {}, `incomplete: ${shown.incomplete}`) : null;
  root.replaceChildren(
    make("h2", {}, keyText(shown.key), warning),
    make("div.panels", {}, panels.map(({ element }) => element)),
    make("aside", {}, shown.overlays.map(shapeList), make("details", { open: true }, title, cards)),
  );
  panels.forEach((panel) => panel.load());
}

/** Draw the images again, after another choice of layers or opacity. */
export const redrawSample = () => panels.forEach((panel) => panel.draw());

class Panel {
  constructor(field) {
    this.field = field;
    this.masks = new Map(); // name -> bitmap
    this.readout = make("output");
    this.canvas = make("canvas", { role: "img", "aria-label": `${field.name} of ${shown.key}` });
    this.canvas.onpointermove = (event) => this.point(event);
    this.canvas.onpointerleave = () => (this.readout.textContent = "");
    this.frame = make("div", {}, this.canvas);
    this.size = make("span.note");
    const enlarge = make("button.quiet", {}, "enlarge");
    const caption = make("figcaption", {}, make("b", {}, field.name), this.size, this.readout, enlarge);
    this.element = make("figure.panel", {}, this.frame, caption);
    enlarge.onclick = () => (enlarge.textContent = this.element.classList.toggle("wide") ? "reduce" : "enlarge");
    new ResizeObserver(later(30, redrawSample)).observe(this.frame);
  }

  async load() {
    const { signal } = cancel;
    const ask = (field) => {
      const isStored = state.show === "stored" || (state.show === "original" && field !== this.field.name);
      return image(isStored ? "image" : state.show, state.p, { row: shown.row, field, ...training() }, signal);
    };
    try {
      this.bitmap = await ask(this.field.name);
      this.draw();
      const masks = layersOf(pack()).filter(({ kind }) => kind === "mask" && this.field.kind !== "mask");
      for (const { name } of masks) this.masks.set(name, await ask(name));
      this.draw();
    } catch (error) {
      if (!isCancelled(error)) this.frame.replaceChildren(make("p.failure", {}, error.message));
    }
  }

  draw() {
    if (!this.bitmap) return;
    const [share, mostScale] = this.element.classList.contains("wide") ? [0.9, Infinity] : [0.6, MOST_SCALE];
    const most = Math.max(240, root.clientHeight * share);
    const { context, wide, high } = drawImage(this.canvas, this.bitmap, this.frame.clientWidth, most, mostScale);
    const isTrained = state.show === "trained";
    const [height, width] = isTrained ? [this.bitmap.height, this.bitmap.width] : this.field.size;
    this.size.textContent = `${width} × ${height}`;
    this.toSample = [width / wide, height / high];
    const isTurned = shown.fields.some(({ name, value }) => name === "orientation" && value > 1);
    if (this.field.kind === "mask" || (state.show === "original" && isTurned)) return; // browsers turn files by EXIF
    const off = new Set(partsOf("off"));
    context.globalAlpha = state.opacity / 100;
    this.masks.forEach((mask, name) => off.has(name) || context.drawImage(mask, 0, 0, wide, high));
    context.globalAlpha = 1;
    const first = isTrained ? [height, width] : panels[0].field.size; // the shapes are in px of it
    const scale = [wide / first[1], high / first[0]];
    drawShapes(context, shown.overlays, { scale, off, hovered, labels: true, weight: 1.2 });
  }

  /** Write the place under the pointer, and the depth there. */
  async point(event) {
    if (!this.bitmap) return;
    const x = Math.floor(event.offsetX * this.toSample[0]);
    const y = Math.floor(event.offsetY * this.toSample[1]);
    const text = (this.readout.textContent = `x ${x}  y ${y}`);
    if (this.field.kind !== "depth" || state.show === "trained") return;
    this.depth ??= depth(state.p, shown.row, this.field.name, cancel.signal);
    const value = (await this.depth)[y * this.field.size[1] + x];
    const written = Number.isFinite(value) ? value.toPrecision(5) : "no depth";
    if (this.readout.textContent === text) this.readout.textContent = `${text}  ${written}`;
  }
}

function hover(to) {
  hovered = to;
  redrawSample();
}

function shapeList({ form, field, colors, total, shapes, labels, chosen }) {
  const lines = shapes.map((corners, at) => {
    const [enter, leave] = [() => hover({ field, at }), () => hover(null)];
    const events = { onmouseenter: enter, onmouseleave: leave, onfocus: enter, onblur: leave };
    const text = corners ? shapeText(form, corners) : "not finite";
    const attributes = { tabIndex: 0, style: chosen?.[at] === false ? "opacity: 0.4" : "", ...events };
    return make("li", attributes, make("span.note", {}, String(at)), labels?.[at], make("span.mono", {}, text));
  });
  const swatch = make("span.swatch", { style: `background-color: ${colors[0]}` });
  const number = make("span.note.chosen", {}, total > shapes.length ? `${shapes.length} of ${total}` : String(total));
  const title = make("summary", {}, swatch, make("span.name", {}, field), make("span.note", {}, COLUMNS[form] ?? "x, y"), number);
  return make("details", { open: form !== "outlines" }, title, make("ol.shapes", {}, lines));
}

const COLUMNS = { boxes: "left, top, size", grasps: "center, opening × jaw, angle", outlines: "center" };

function shapeText(form, corners) {
  const written = (point) => point.map((value) => value.toFixed(1)).join(", ");
  const side = ([x0, y0], [x1, y1]) => Math.hypot(x1 - x0, y1 - y0).toFixed(1);
  const center = written([0, 1].map((axis) => corners.reduce((sum, point) => sum + point[axis], 0) / corners.length));
  if (["points", "outlines"].includes(form)) return center;
  const [p0, p1, p2] = corners;
  const size = `${side(p0, p1)} × ${side(p1, p2)}`;
  const angle = (Math.atan2(p1[1] - p0[1], p1[0] - p0[0]) * 180) / Math.PI;
  return form === "boxes" ? `${written(p0)}  ${size}` : `${center}  ${size}  ${angle.toFixed(0)}°`;
}

/** Return a field of a sample with its value, size and crc32. other: the field in the other pack, to show what differs. */
export function fieldCard(p, field, other) {
  const declared = (p) => packs[p].fields.find(({ name }) => name === field.name);
  const { dtype, codec, classes } = declared(p);
  const text = valueText(field, classes);
  const shown = other ? differing(text, valueText(other, declared(1 - p).classes)) : text;
  const columns = field.kind === "boxes" ? "left, top, right, bottom" : "";
  const kind = make("span.note", {}, [field.kind, dtype, codec, columns].filter(Boolean).join(" · "));
  const stored = make("span.note", { title: "size and crc32 as stored" }, `${bytes(field.bytes)}  ${field.crc32}`);
  const head = make("div", {}, make("b", {}, field.name), " ", kind);
  return make("div.field", {}, head, make("div.value", {}, shown), stored);
}

/** Return the lines that differ from those of another text, with their numbers; the text if none differs. */
function differing(text, other) {
  const [lines, others] = [text, other].map((each) => each.split("\n"));
  const found = lines.flatMap((line, at) => (line === others[at] ? [] : [`${at}: ${line}`]));
  return lines.length > 1 && found.length ? found.join("\n") : text;
}

const rounded = (_, each) => (typeof each === "number" && each % 1 ? Number(each.toPrecision(7)) : each);

function valueText({ value, kind, size }, classes) {
  if (size) return `${size[1]} × ${size[0]}`;
  if (value === null) return kind === "bytes" ? "bytes" : "null";
  if (typeof value === "number") return classes?.[value] ?? String(value);
  if (!Array.isArray(value)) return String(value);
  return value.map((each) => classes?.[each] ?? JSON.stringify(each, rounded)).join("\n");
}

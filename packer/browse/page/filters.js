// Filters: the panel with histograms, classes and searches. It reads and writes the text of the filter only.

import { isCancelled, json, pack, query } from "./api.js";
import { byId, count, later, make, press, short } from "./dom.js";
import { flip, partsOf, state, update } from "./state.js";
import { find, rangeTerm, replace, searchTerm, valuesTerm } from "./terms.js";

const MOST_OPEN = 6; // sections that are open at first
const ORDER = ["text", "class", "number"];
const DIGITS = 7; // of a limit
let sections = [];
let asking = new AbortController();

/** Return the columns of the pack that vary: texts, classes, values of rows such as boxes, other numbers, counts. */
export function varyingColumns() {
  const rank = ({ name, type, of }) => ORDER.indexOf(type) + (of ? -0.5 : name.includes("("));
  const numbers = pack().fields.filter(({ kind }) => kind === "number").map(({ name }) => `len(${name})`);
  const isVarying = ({ name, low, high }) => low === null || (low !== high && !numbers.includes(name));
  const columns = [...pack().columns, ...pack().row_columns].filter(isVarying);
  return columns.toSorted((one, other) => rank(one) - rank(other));
}

/** Make the panel of the current pack. */
export function showFilters() {
  const forms = { text: Search, class: Classes, number: Numbers };
  sections = varyingColumns().map((column, at) => new forms[column.type](column, at < MOST_OPEN));
  byId("filters").replaceChildren(...sections.map(({ element }) => element), skippedList());
}

/** Ask for the histograms again, and show what the filter contains. */
export function refresh() {
  asking.abort();
  asking = new AbortController();
  sections.forEach((section) => section.refresh());
}

class Section {
  constructor({ name, type, of }, isOpen) {
    this.name = name;
    this.unit = type === "text" ? "" : `counts ${of ?? "samples"}`;
    this.rows = of && pack().row_columns.filter((column) => column.of === of).map((column) => column.name);
    const clear = (event) => event.preventDefault() ?? this.set("");
    this.clear = make("button.quiet", { title: `Remove the condition on ${name}`, onclick: clear }, "clear");
    this.body = make("div.content");
    this.note = make("span.note");
    const title = make("summary", {}, make("span.name", {}, name), this.note, this.clear);
    const isToggled = () => partsOf("toggled").includes(name);
    this.element = make("details", { open: isOpen !== isToggled() }, title, this.body);
    this.element.ontoggle = () => {
      if ((this.element.open !== isOpen) !== isToggled()) flip("toggled", name);
      this.ask();
    };
  }

  get term() {
    return find(state.where, this.name, this.kind, this.rows);
  }

  set(term) {
    update({ where: replace(state.where, this.name, this.kind, term, this.rows) });
  }

  refresh() {
    this.clear.hidden = this.term === undefined;
    this.note.textContent = (this.kind === "values" && this.term?.join(", ")) || this.unit;
    this.isAsked = false;
    this.ask();
  }

  async ask() {
    if (this.isAsked || !this.element.open) return;
    this.isAsked = true;
    const answer = json("histogram", { ...query(), column: this.name }, asking.signal);
    await answer.then((found) => this.draw(found), (error) => (this.isAsked &&= isCancelled(error)));
  }
}

class Search extends Section {
  kind = "search";

  constructor(column, isOpen) {
    super(column, isOpen);
    const attributes = { placeholder: "contains…", spellcheck: false, autocomplete: "off" };
    this.input = make("input", { ...attributes, "aria-label": `${this.name} contains` });
    const write = later(300, (text) => this.set(searchTerm(this.name, text)));
    this.input.addEventListener("input", () => write(this.input.value));
    this.body.append(this.input);
  }

  ask() {
    if (document.activeElement !== this.input) this.input.value = this.term ?? "";
  }
}

class Classes extends Section {
  kind = "values";

  constructor(column, isOpen) {
    super(column, isOpen);
    this.known = column.classes.length;
    this.list = make("div.classes", { role: "group", "aria-label": column.name });
    this.body.append(this.list);
  }

  /** Show the counts, in lines that stay: a click or the focus on one outlasts an answer. */
  draw({ names, all, chosen }) {
    if (!this.list.childElementCount) this.list.append(...this.lines(names));
    names.forEach((name, at) => {
      const line = withShares(this.list.children[at], all, chosen, at);
      press(line, (this.term ?? []).includes(name));
      line.lastChild.textContent = chosen[at] === all[at] ? count(all[at]) : `${count(chosen[at])} / ${count(all[at])}`;
    });
  }

  lines(names) {
    const rest = this.known - names.length;
    const note = make("p.note", {}, `${count(rest)} more, less frequent or without samples`);
    const lines = names.map((name) => {
      const others = () => (this.term ?? []).filter((value) => value !== name);
      const set = () => this.set(valuesTerm(this.name, this.term?.includes(name) ? others() : [...others(), name]));
      return make("button.class-line", { onclick: set }, make("span.name", { title: name }, name), " ");
    });
    return [...lines, ...(rest > 0 ? [note] : [])];
  }
}

class Numbers extends Section {
  kind = "range";

  constructor(column, isOpen) {
    super(column, isOpen);
    const { dtype } = pack().fields.find(({ name }) => name === column.name) ?? {};
    this.isWhole = dtype ? !dtype.startsWith("float") : !column.of; // counts and sizes of images are whole
    this.bars = make("div.bars", { role: "img", "aria-label": `Histogram of ${this.name}` });
    const flipped = (name) => () => this.set(rangeTerm(this.name, { ...this.term, [name]: !this.term[name] }));
    const sign = (name) => make("button", { title: "Include or exclude the limit", onclick: flipped(name) });
    this.signs = ["isAbove", "isBelow"].map(sign);
    const number = ({ value }) => (value.trim() && Number.isFinite(Number(value)) ? Number(value) : null);
    const set = () => this.set(rangeTerm(this.name, { ...this.term, low: number(this.low), high: number(this.high) }));
    const label = (limit) => `${this.name}, ${limit} limit`;
    const input = (limit) => make("input", { size: 6, inputMode: "decimal", onchange: set, "aria-label": label(limit) });
    [this.low, this.high] = ["low", "high"].map(input);
    this.body.append(this.bars, make("div.limits", {}, this.low, this.signs[0], "value", this.signs[1], this.high));
    this.bars.onpointerdown = (event) => this.bars.setPointerCapture(event.pointerId) ?? this.brush(event, true);
    this.bars.onpointermove = (event) => this.brush(event, false);
    this.bars.onpointerup = () => this.release();
    this.bars.onpointerleave = () => (this.note.textContent = this.unit);
  }

  draw(answer) {
    const { low = -Infinity, isAbove, high = Infinity, isBelow } = this.term ?? {};
    this.answer = answer;
    [isAbove, isBelow].forEach((isOut, at) => (this.signs[at].textContent = isOut ? "<" : "≤"));
    [low, high].forEach((limit, at) => (this.signs[at].hidden = !Number.isFinite(limit)));
    for (const limit of ["low", "high"]) {
      this[limit].placeholder = short(answer[limit] ?? 0);
      if (this[limit] !== document.activeElement) this[limit].value = this.term?.[limit] ?? "";
    }
    const bars = answer.all.map((_, at) => withShares(make("span"), answer.all, answer.chosen, at));
    this.bars.replaceChildren(...bars);
    const { edges } = answer;
    const isIn = (at) => edges[at + 1] > low && (edges[at] < high || (!isBelow && edges[at] === high));
    this.mark((at) => this.term !== undefined && isIn(at));
  }

  mark(isMarked) {
    [...this.bars.children].forEach((bar, at) => bar.classList.toggle("marked", isMarked(at)));
  }

  brush(event, isStart) {
    const { left, width } = this.bars.getBoundingClientRect();
    const { all, chosen } = this.answer;
    const at = Math.min(all.length - 1, Math.max(0, Math.floor(((event.clientX - left) / width) * all.length)));
    if (isStart) this.start = at;
    this.note.textContent = `${this.limits(at, at).map(short).join("–")}: ${count(chosen[at])} of ${count(all[at])}`;
    if (this.start === undefined) return;
    this.chosen = [Math.min(this.start, at), Math.max(this.start, at)];
    this.mark((each) => each >= this.chosen[0] && each <= this.chosen[1]);
  }

  release() {
    if (this.start === undefined) return;
    this.start = undefined;
    const [first, last] = this.chosen;
    const isLast = last === this.answer.all.length - 1;
    const [low, high] = this.limits(first, last);
    this.set(first === 0 && isLast ? "" : rangeTerm(this.name, { low, high, isBelow: !this.isWhole && !isLast }));
  }

  /** Return the least and the largest number of some bars. */
  limits(first, last) {
    const { edges } = this.answer;
    const [low, high] = [edges[first], edges[last + 1]];
    if (this.isWhole) return [low, high - 1];
    return [low, last === edges.length - 2 ? high : Number(high.toPrecision(DIGITS))];
  }
}

function withShares(element, all, chosen, at) {
  element.style.setProperty("--all", all[at] / Math.max(1, ...all));
  element.style.setProperty("--chosen", chosen[at] / Math.max(1, ...chosen));
  return element;
}

/** Return the list of the samples of the source that the pack does not contain. */
function skippedList() {
  const { skipped, skipped_count: all } = pack();
  const lines = skipped.map(([key, reason]) => make("li", {}, key, make("span.note", {}, reason)));
  const note = make("p.note", {}, `Not in the pack. ${all > lines.length ? `The first ${count(lines.length)}:` : ""}`);
  const title = make("summary", {}, make("span.name", {}, "skipped"), make("span.note.chosen", {}, count(all)));
  const list = make("div.content", {}, note, make("ul.listed", {}, lines));
  return make("details", { hidden: all === 0 }, title, list);
}

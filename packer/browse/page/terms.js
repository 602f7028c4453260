// Terms: the conditions of a filter that the panel writes and reads. The text of the filter is the only place that
// contains them: a filter typed by hand moves the panel, and the panel changes the text. Other conditions stay as typed.

const NAME = String.raw`(len\s*\(\s*\w+\s*\)|[A-Za-z]\w*(?:\.\w+)?)`;
const NUMBER = String.raw`(-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)`;
const TEXT = String.raw`'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"`;
const TOKEN = new RegExp(`${TEXT}|[A-Za-z_][\\w.]*|\\s+|.`, "gs");
const BETWEEN = new RegExp(`^${NUMBER}\\s*(<=?)\\s*${NAME}\\s*(<=?)\\s*${NUMBER}$`);
const ONE_SIDE = new RegExp(`^${NAME}\\s*(<=?|>=?|==)\\s*${NUMBER}$`);
const EQUAL = new RegExp(`^${NAME}\\s*==\\s*(${TEXT})$`);
const AMONG = new RegExp(`^${NAME}\\s+in\\s*[(\\[]((?:\\s*(?:${TEXT})\\s*,?)+)[)\\]]$`);
const SEARCH = new RegExp(`^(${TEXT})\\s+in\\s+${NAME}$`);

const quoted = (text) => `'${text.replace(/[\\']/g, "\\$&")}'`;
const unquoted = (text) => text.slice(1, -1).replace(/\\(.)/gs, "$1");
const texts = (list) => [...list.matchAll(new RegExp(TEXT, "g"))].map(([text]) => unquoted(text));

/** Return the conditions that are joined by `and`. A filter with `or` is one condition. */
export function split(text) {
  const terms = [""];
  let depth = 0;
  for (const [token] of text.matchAll(TOKEN)) {
    if ("([".includes(token)) depth += 1;
    if (")]".includes(token)) depth -= 1;
    if (depth === 0 && token === "or") return [`(${text.trim()})`];
    if (depth === 0 && token === "and") terms.push("");
    else terms[terms.length - 1] += token;
  }
  return terms.map((term) => term.trim()).filter(Boolean);
}

/** Return {name, range: {low, isAbove, high, isBelow}}, {name, values} or {name, search}; {} for another condition. */
function understood(term) {
  const [between, side, equal] = [BETWEEN, ONE_SIDE, EQUAL].map((form) => form.exec(term));
  const [among, search] = [AMONG, SEARCH].map((form) => form.exec(term));
  if (between) {
    const [, low, above, name, below, high] = between;
    return named(name, { range: { ...lower(above, low), ...upper(below, high) } });
  }
  if (side) {
    const [, name, sign, number] = side;
    const low = sign.startsWith("<") ? {} : lower(sign, number);
    return named(name, { range: { ...low, ...(sign.startsWith(">") ? {} : upper(sign, number)) } });
  }
  if (equal || among) return named((equal ?? among)[1], { values: texts((equal ?? among)[2]) });
  return search ? named(search[2], { search: texts(search[1])[0] }) : {};
}

const named = (name, rest) => ({ name: name.replace(/\s+/g, ""), ...rest });
const lower = (sign, number) => ({ low: Number(number), isAbove: sign === "<" || sign === ">" });
const upper = (sign, number) => ({ high: Number(number), isBelow: sign === "<" });

/** Return what a filter contains about a name; kind: range, values or search. Undefined if it has no such condition. */
export function find(text, name, kind) {
  const found = split(text).map(understood).filter((each) => each.name === name && kind in each);
  return kind === "range" && found.length ? Object.assign({}, ...found.map(({ range }) => range)) : found[0]?.[kind];
}

/** Return the filter with another condition about a name, at the place of the old one; without it if `term` is "". */
export function replace(text, name, kind, term) {
  const old = (each) => understood(each).name === name && kind in understood(each);
  const terms = split(text);
  const first = terms.findIndex(old);
  const kept = terms.flatMap((each, at) => (at === first ? [term] : old(each) ? [] : [each]));
  return (first < 0 ? [...kept, term] : kept).filter(Boolean).join(" and ");
}

export function rangeTerm(name, { low = null, isAbove = false, high = null, isBelow = false }) {
  if (low !== null && low === high) return `${name} == ${low}`;
  if (high === null) return low === null ? "" : `${name} ${isAbove ? ">" : ">="} ${low}`;
  return `${low === null ? "" : `${low} ${isAbove ? "<" : "<="} `}${name} ${isBelow ? "<" : "<="} ${high}`;
}

export function valuesTerm(name, values) {
  if (values.length < 2) return values.map((value) => `${name} == ${quoted(value)}`).join("");
  return `${name} in (${values.map(quoted).join(", ")})`;
}

export const searchTerm = (name, text) => (text ? `${quoted(text)} in ${name}` : "");

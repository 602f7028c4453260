// Terms: the conditions of a filter that the panel writes and reads. The text of the filter is the only place that
// contains them: a filter typed by hand moves the panel, and the panel changes the text. Other conditions stay as typed.

const NAME = String.raw`(?<name>len\s*\(\s*\w+\s*\)|[A-Za-z]\w*(?:\.\w+)?)`;
const NUMBER = String.raw`-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?`;
const TEXT = String.raw`'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"`;
const TOKEN = new RegExp(`${TEXT}|[A-Za-z_][\\w.]*|\\s+|.`, "gs");
const BETWEEN = new RegExp(`^(?<low>${NUMBER})\\s*(?<above><=?)\\s*${NAME}\\s*(?<below><=?)\\s*(?<high>${NUMBER})$`);
const ONE_SIDE = new RegExp(`^${NAME}\\s*(?<sign><=?|>=?|==)\\s*(?<limit>${NUMBER})$`);
const VALUES = new RegExp(`^${NAME}\\s*(?:==|in\\b)\\s*[(\\[]?(?<list>(?:\\s*(?:${TEXT})\\s*,?)+)[)\\]]?$`);
const SEARCH = new RegExp(`^(?<part>${TEXT})\\s+in\\s+${NAME}$`);
const ANY = /^any\s*\((.*)\)$/s;

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

/** Return {name, range: {low, isAbove, high, isBelow}}, {name, values} or {name, search}; {name: ""} for another condition. */
function understood(term) {
  const found = [BETWEEN, ONE_SIDE, VALUES, SEARCH].map((form) => form.exec(term)?.groups).find(Boolean) ?? {};
  const { name = "", low, above, below, high, sign = "", limit, list, part } = found;
  const both = above && { ...lower(above, low), ...upper(below, high) };
  const one = { ...(/^[>=]/.test(sign) && lower(sign, limit)), ...(/^[<=]/.test(sign) && upper(sign, limit)) };
  const range = (above || sign) && { range: both ?? one };
  const rest = { ...(list && { values: texts(list) }), ...(part && { search: texts(part)[0] }) };
  return { name: name.replace(/\s+/g, ""), ...range, ...rest };
}

const lower = (sign, number) => ({ low: Number(number), isAbove: sign === "<" || sign === ">" });
const upper = (sign, number) => ({ high: Number(number), isBelow: sign === "<" });

/** Return the conditions in any(...) about rows, such as boxes; rows: the names of their values, or null. */
function inner(text, rows) {
  const isOfRows = (inside) => [...inside.matchAll(TOKEN)].some(([token]) => rows.includes(token));
  return rows ? (split(text).flatMap((term) => ANY.exec(term)?.[1] ?? []).find(isOfRows) ?? "") : text;
}

/** Return what a filter contains about a name; kind: range, values or search. Undefined if it has no such condition. */
export function find(text, name, kind, rows) {
  const found = split(inner(text, rows)).map(understood).filter((each) => each.name === name && kind in each);
  return kind === "range" && found.length ? Object.assign({}, ...found.map(({ range }) => range)) : found[0]?.[kind];
}

/** Return the filter with another condition about a name, at the place of the old one; without it if `term` is "". */
export function replace(text, name, kind, term, rows) {
  if (rows) {
    const changed = replace(inner(text, rows), name, kind, term);
    const place = split(text).findIndex((each) => ANY.exec(each)?.[1] === inner(text, rows));
    const terms = split(text).toSpliced(place < 0 ? Infinity : place, 1, changed && `any(${changed})`);
    return terms.filter(Boolean).join(" and ");
  }
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

// State: what the page shows. It is the fragment of the URL: a link and the back button restore it.

export const START = {
  view: "grid", // grid, sample, compare
  p: 0, // the pack
  where: "",
  sort: "",
  desc: 0,
  at: 0, // place of the current sample among the rows of the filter
  row: 0, // of the pack: the sample on the pages "sample" and "compare"
  size: 176, // of a tile in px
  off: "", // layers that are switched off, separated by commas
  opacity: 60, // of masks, in percent
  show: "stored", // stored, original, trained
  geometry: "RandomResizedCrop(224), RandomHorizontalFlip()",
  seed: 0,
  mode: "side", // of the comparison: side, flicker, difference
  pair: 0, // place in the list of differing samples
  field: "", // the field in which these differ, "" for any
  toggled: "", // the panel, if it is not as at first, and its sections that are not, separated by commas
};
export const QUERY = ["p", "where", "sort", "desc"]; // these choose the rows of the grid

export const state = { ...START };
let tell = () => {};

/** Call `listener(names)` after each change; names: the Set of what changed. */
export const watch = (listener) => (tell = listener);

/** Return a text as a value of the state: a whole number where the start is one. */
export function typed(name, text) {
  if (typeof START[name] === "string") return text;
  return /^\d{1,15}$/.test(text) ? Number(text) : START[name];
}

/** Change the state, the URL and the page. Another view or other rows are a step of the back button. */
export function update(changes) {
  const isOtherQuery = QUERY.some((name) => name in changes && changes[name] !== state[name]);
  const isStep = isOtherQuery || (changes.view ?? state.view) !== state.view;
  const names = change({ ...(isOtherQuery && { at: 0 }), ...changes });
  if (!names.size) return;
  const url = `#${new URLSearchParams(Object.entries(state).filter(([name, value]) => value !== START[name]))}`;
  history[isStep ? "pushState" : "replaceState"](null, "", url);
  tell(names);
}

/** Return the parts of a list of the state, such as the layers that are switched off. */
export const partsOf = (name) => state[name].split(",").filter(Boolean);

/** Add a part to a list of the state, or remove it. */
export function flip(name, part) {
  const others = partsOf(name).filter((each) => each !== part);
  update({ [name]: (others.length < partsOf(name).length ? others : [...others, part]).join(",") });
}

function change(values) {
  const names = new Set(Object.keys(values).filter((name) => state[name] !== values[name]));
  Object.assign(state, values);
  return names;
}

function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  const value = (name) => typed(name, given.get(name) ?? String(START[name]));
  return change(Object.fromEntries(Object.keys(START).map((name) => [name, value(name)])));
}

read();
window.addEventListener("popstate", () => tell(read()));

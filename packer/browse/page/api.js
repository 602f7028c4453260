// API: requests to the server, and the rows of the current filter. A browser sends at most six requests at a time to
// one server. Images have a low priority, so that a question does not wait for them.

import { QUERY, state } from "./state.js";

const PAGE = 1000; // rows of one request

/** The packs of this page, as /api/packs describes them. */
export const packs = [];
export const pack = () => packs[state.p];

export const isCancelled = (error) => error.name === "AbortError";

async function ask(route, values, { signal, priority = "high" } = {}) {
  const answer = await fetch(`/api/${route}?${new URLSearchParams(values)}`, { signal, priority });
  if (answer.ok) return answer;
  const { error } = await answer.json().catch(() => ({ error: answer.statusText }));
  throw new Error(error);
}

export const json = async (route, values = {}, signal = undefined) => (await ask(route, values, { signal })).json();

/** Return what belongs to a sample. The URL names the pack, so that the browser may keep it. */
const ofSample = (route, p, values, options) => ask(route, { p, ...values, v: packs[p].pack_id.slice(0, 12) }, options);

export const sample = async (p, values, signal) => (await ofSample("sample", p, values, { signal })).json();

/** Return the bitmap of an image, without a change of colors. */
export async function image(route, p, values, signal) {
  const answer = await ofSample(route, p, values, { signal, priority: "low" });
  const blob = await answer.blob();
  return createImageBitmap(blob, { colorSpaceConversion: "none" }).catch(() => {
    throw new Error(`this browser cannot show ${blob.type}`);
  });
}

/** Return the values of a depth image, line by line. */
export async function depth(p, row, field, signal) {
  const answer = await ofSample("depth", p, { row, field }, { signal });
  return new Float32Array(await answer.arrayBuffer());
}

/** The filter and the order of the state, as parameters. */
export const query = () => Object.fromEntries(QUERY.map((name) => [name, state[name]]));

/** The rows of a filter in their order, which arrive in pages. */
export class Rows {
  constructor() {
    this.total = 0;
    this.query = query();
    this.pages = new Map(); // number -> Promise of the rows of a page
  }

  /** Return the row at a place, undefined after the last one. */
  async get(place) {
    const number = Math.floor(place / PAGE);
    if (!this.pages.has(number)) this.pages.set(number, this.ask(number));
    return (await this.pages.get(number))[place % PAGE];
  }

  async ask(number) {
    const { total, rows } = await json("rows", { ...this.query, offset: number * PAGE, count: PAGE });
    this.total = total;
    return rows;
  }
}

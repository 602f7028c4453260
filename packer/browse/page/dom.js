// Elements from code. Strings become text nodes: no text of a pack is ever read as HTML.

export const MOST_SCALE = 8; // of a small image

/** Return a new element: make("button.chip", { title: "text", onclick: act }, "label", child, null). */
export function make(kind, attributes = {}, ...children) {
  const [tag, ...classes] = kind.split(".");
  const element = document.createElement(tag);
  element.className = classes.join(" ");
  for (const [name, value] of Object.entries(attributes)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.flat(2).filter((child) => child != null));
  return element;
}

export const byId = (id) => document.getElementById(id);

/** Return the context of a canvas of this size in CSS px, with the pixels of the screen. */
export function fit(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return context;
}

/** Show whether a button is pressed. */
export const press = (button, isPressed) => button.setAttribute("aria-pressed", String(isPressed));

/** Draw an image that fits into a width and a height; returns the context and the width and height in CSS px. */
export function drawImage(canvas, bitmap, mostWide, mostHigh, mostScale = MOST_SCALE) {
  const scale = Math.min(mostWide / bitmap.width, mostHigh / bitmap.height, mostScale);
  const [wide, high] = [bitmap.width * scale, bitmap.height * scale];
  const context = fit(canvas, wide, high);
  context.imageSmoothingEnabled = scale < 2;
  context.drawImage(bitmap, 0, 0, wide, high);
  return { context, wide, high };
}

/** Return a function that calls `act` once, `milliseconds` after its last call. */
export function later(milliseconds, act) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(act, milliseconds, ...values);
  };
}

export const count = (number) => number.toLocaleString("en-US").replaceAll(",", "\u2009");
export const short = (number) => (Number.isInteger(number) ? String(number) : String(Number(number.toPrecision(4))));

export function bytes(number) {
  const power = Math.min(4, Math.floor(Math.log10(Math.max(1, number)) / 3));
  return `${Number((number / 1000 ** power).toPrecision(3))} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}

/** Return a key whose last characters stay visible when it is cut. */
export function keyText(key) {
  const cut = Math.max(0, key.length - 12);
  return make("span.key", { title: key }, make("span.start", {}, key.slice(0, cut)), make("span", {}, key.slice(cut)));
}

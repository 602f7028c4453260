// Overlays: masks and shapes over an image. The colors are those of the static sheets.

const [ORANGE, SKY, YELLOW, BLUE, VERMILION, PURPLE] = ["#e69f00", "#56b4e9", "#f0e442", "#0072b2", "#d55e00", "#cc79a7"];
const COLORS = {
  grasps: [[ORANGE, BLUE], ["#b0b0b0", "#545454"], [YELLOW, PURPLE]], // opening and jaws
  boxes: [[VERMILION], [PURPLE], [SKY]],
  outlines: [[SKY], [YELLOW], [PURPLE]],
  points: [[PURPLE], [SKY], [YELLOW]],
};
const WIDTHS = { grasps: [1, 2.2], boxes: [1.5], outlines: [1.5], points: [5] }; // px
const MOST_WITH_HALO = 300;

export const PIXELS = ["image", "depth", "mask"]; // kinds of fields

/** Return the fields that are drawn over the first image. The keys 1 to 9 switch them. */
export const layersOf = (pack) => pack.fields.filter(({ kind }) => ["mask", "points", "boxes"].includes(kind));

/** Return the first image of a pack, which the shapes belong to; undefined without one. */
export const firstImage = (pack) => pack.fields.find(({ kind }) => PIXELS.includes(kind));

export const colorsOf = ({ form, rank }) => COLORS[form][rank % COLORS[form].length];

/** Return the shapes of a sample as [{form, field, rank, shapes: [{corners, label}]}], one item per field. */
export function shapesOf(overlays) {
  const fields = new Map();
  for (const form of Object.keys(COLORS)) {
    for (const item of overlays[form]) {
      const { field, rank, label } = item;
      if (!fields.has(field)) fields.set(field, { form, field, rank, shapes: [] });
      const { shapes } = fields.get(field);
      if (form === "points") shapes.push(...item.points.map((point) => ({ corners: point && [point] })));
      else shapes.push({ label, corners: item.box ? cornersOf(item.box) : (item.corners ?? item.points ?? null) });
    }
  }
  return [...fields.values()];
}

const cornersOf = ([left, top, right, bottom]) => [[left, top], [right, top], [right, bottom], [left, bottom]];

/**
 * Draw the shapes of a sample.
 * matrix: (a, b, c, d, e, f), px of the first image to px of the canvas. off: the fields that are not drawn.
 * hovered: {field, at} of a shape that stands out, or null. labels: true to write the classes of boxes.
 */
export function drawShapes(context, overlays, { matrix, off, hovered = null, labels = false, weight = 1 }) {
  const [a, b, c, d, e, f] = matrix;
  for (const list of shapesOf(overlays).filter(({ field }) => !off.has(field))) {
    list.shapes.forEach(({ corners, label }, at) => {
      if (!corners) return;
      const isHovered = hovered?.field === list.field && hovered.at === at;
      const isDimmed = hovered?.field === list.field && !isHovered;
      const points = corners.map(([x, y]) => [a * x + b * y + c, d * x + e * y + f]);
      context.globalAlpha = isDimmed ? 0.25 : 1;
      drawShape(context, points, list, weight * (isHovered ? 2 : 1));
      if (labels && label && !isDimmed) tag(context, points, label, colorsOf(list)[0]);
    });
  }
  context.globalAlpha = 1;
}

function drawShape(context, points, list, weight) {
  const [p0, p1, p2, p3] = points;
  const grasp = [[[p0, p1], [p2, p3]], [[p1, p2], [p3, p0]]];
  const parts = list.form === "grasps" ? grasp : [[[...points, p0]]]; // a point is a round line end
  context.lineCap = context.lineJoin = "round";
  parts.forEach((lines, at) => {
    const path = new Path2D();
    lines.forEach((line) => line.forEach((point, place) => (place ? path.lineTo(...point) : path.moveTo(...point))));
    const width = WIDTHS[list.form][at] * weight;
    const halo = list.shapes.length <= MOST_WITH_HALO ? [["rgb(0 0 0 / 0.5)", width + 1.5]] : [];
    for (const [style, wide] of [...halo, [colorsOf(list)[at], width]]) {
      context.strokeStyle = style;
      context.lineWidth = wide;
      context.stroke(path);
    }
  });
}

function tag(context, points, label, color) {
  const [x, y] = [0, 1].map((axis) => Math.min(...points.map((point) => point[axis])));
  const top = Math.max(0, y - 15);
  context.font = "600 11px system-ui, sans-serif";
  context.fillStyle = color;
  context.fillRect(x - 1, top, context.measureText(label).width + 8, 15);
  context.fillStyle = "#fff";
  context.fillText(label, x + 3, top + 11);
}

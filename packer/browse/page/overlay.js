// Overlays: masks and shapes over an image. The shapes of a field are {field, form, colors, total, shapes, labels,
// chosen}. chosen: whether each shape meets the conditions of the filter about rows; undefined without such conditions.

const WIDTHS = { grasps: [1, 2.2], boxes: [1.5], outlines: [1.5], points: [5] }; // px

export const PIXELS = ["image", "depth", "mask"]; // kinds of fields

/** Return the fields that are drawn over the first image. The keys 1 to 9 switch them. */
export const layersOf = (pack) => pack.fields.filter(({ kind }) => ["mask", "points", "boxes"].includes(kind));

/** Return the first image of a pack, which the shapes belong to; undefined without one. */
export const firstImage = (pack) => pack.fields.find(({ kind }) => PIXELS.includes(kind));

/**
 * Draw the shapes of a sample.
 * scale, origin: (x, y), from px of the first image to px of the canvas. off: the fields that are not drawn.
 * hovered: {field, at} of a shape that stands out, or null. labels: true to write the classes of boxes.
 * dash: lengths of dashes and gaps in px.
 */
export function drawShapes(context, overlays, options) {
  const { scale, origin = [0, 0], off, hovered = null, labels = false, weight = 1, dash = [] } = options;
  context.setLineDash(dash);
  for (const list of overlays.filter(({ field }) => !off.has(field))) {
    list.shapes.forEach((corners, at) => {
      if (!corners) return;
      const isHovered = hovered?.field === list.field && hovered.at === at;
      const isDimmed = hovered ? hovered.field === list.field && !isHovered : list.chosen?.[at] === false;
      const points = corners.map((corner) => corner.map((value, axis) => scale[axis] * value + origin[axis]));
      context.globalAlpha = isDimmed ? 0.25 : 1;
      drawShape(context, points, list, weight * (isHovered || list.chosen?.[at] ? 2 : 1));
      if (labels && list.labels?.[at] && !isDimmed) tag(context, points, list.labels[at], list.colors[0]);
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
    for (const [style, wide] of [["rgb(0 0 0 / 0.5)", width + 1.5], [list.colors[at], width]]) {
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

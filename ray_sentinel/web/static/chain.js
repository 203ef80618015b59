// Who waits for whom, as the coordinator laid it out (a WaitPicture): boxes below each other down to
// the one that holds up all others, or a rail that leads from each class of ranks to it.
import { el, svg } from "./dom.js";

const LINE = 17; // pixels from one line of a box to the next, as in the layout
let pictures = 0; // each has an arrow head of its own

export function chain({ waits: picture }) {
  if (!picture) return null;
  const head = `head-${pictures = (pictures + 1) % 1e6}`;
  const { width, height, box_width: side } = picture;
  return el("figure", { class: "waits" }, svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `who waits for whom: ${picture.said}` },
  svg("defs", {}, svg("marker", { id: head, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7,
    orient: "auto" }, svg("path", { d: "M0 0 8 4 0 8z" }))),
  ...picture.arrows.flatMap((arrow) => drawnArrow(arrow, width, side, `url(#${head})`)),
  ...picture.boxes.map((box) => drawnBox(box, side))));
}

function drawnArrow(arrow, width, side, head) {
  const drawn = [];
  if (arrow.back) {
    drawn.push(svg("path", { class: arrow.dashed ? "arrow dashed" : "arrow", "marker-end": head,
      d: `M${side + 2} ${arrow.start}H${width - 14}V${arrow.end}H${side + 3}` }));
  } else if (arrow.head) {
    drawn.push(svg("path", { class: "arrow", d: `M24 ${arrow.start + 1}V${arrow.end - 1}`, "marker-end": head }));
  }
  if (arrow.label) drawn.push(svg("text", { class: "how", x: 38, y: (arrow.start + arrow.end) / 2 + 4 }, arrow.label));
  return drawn;
}

function drawnBox(box, side) {
  return svg("svg", { x: 1, y: box.y, width: side, height: box.height, class: `who ${box.kind}` },
    svg("title", {}, box.whole),
    svg("rect", { x: 1, y: 1, width: side - 2, height: box.height - 2, rx: 6 }),
    svg("text", { class: "name", x: 14, y: 22 }, box.title),
    ...box.lines.map((line, index) => svg("text", { class: "how", x: 14, y: 22 + LINE * (index + 1) }, line)));
}

// The devices of very many nodes as strips of cells on a canvas, one after another: thousands of
// elements would be made anew at each answer. What is pointed at is read as in the cells of ranks.
import { hatched, inks, sized } from "./canvas.js";
import { cellGrid, settle } from "./cell_grid.js";
import { groupNames, streamLayout } from "./cell_layout.js";
import { el } from "./dom.js";

export const NONE = "none", OLD = "stale"; // shades of what is not known, and of what was long ago

// It stays over answers, with the place that the reader has come to, by its name.
export function heatView(name) {
  const view = { told: null, shape: "", cells: [] };
  const grid = cellGrid({
    draw: () => draw(view),
    arrange: () => view.told && showHeat(view, view.told),
    words: (at) => view.told.words(...view.cells[at]),
    address: (at) => view.told.linkOf(view.cells[at][0].host),
  });
  grid.node.dataset.keep = name;
  return Object.assign(view, { grid });
}

// What stands for it in a new drawing, which gets what is in the page already.
export function heatPlace({ grid: { node } }) {
  return node.isConnected ? el("div", { "data-keep": node.dataset.keep }) : node;
}

// `told`: `rows` (each with its host), `countOf` a row, `shadeOf` a row and a place in it (a class),
// `keys` (elements of these classes, which have their colours), `words` of a row and a place in it,
// `linkOf` a host, null if it leads nowhere, and `label` for those who do not see it. Called once
// the node is in the page: only there it has a width, and the keys their colours.
export function showHeat(view, told) {
  const { grid } = view;
  view.told = told;
  grid.width ||= grid.node.clientWidth;
  if (grid.width === 0) return;
  const groups = told.rows.map((row) => ({ name: row.host, count: told.countOf(row) }));
  const shape = JSON.stringify([grid.width, groups]), isNew = shape !== view.shape;
  if (isNew) grid.layout = streamLayout(groups, grid.width);
  view.shape = shape;
  view.cells = told.rows.flatMap((row) => Array.from({ length: told.countOf(row) }, (_, index) => [row, index]));
  draw(view);
  grid.canvas.setAttribute("aria-label", told.label);
  settle(grid, () => 0, isNew);
}

function draw({ grid, told, cells }) {
  const { canvas, context, layout, width } = grid, { size, x, y } = layout;
  const ink = inks(), begun = performance.now();
  const ratio = sized(canvas, width, layout.height);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  canvas.dataset.cells = layout.count;
  const shades = cells.map(([row, index]) => told.shadeOf(row, index));
  const paint = (colour, shade) => {
    context.fillStyle = colour;
    for (let one = 0; one < shades.length; one++) if (shades[one] === shade) context.fillRect(x[one], y[one], size.width, size.height);
  };
  for (const one of told.keys) paint(getComputedStyle(one).backgroundColor, one.className);
  for (const shade of [NONE, OLD]) paint(ink("soft"), shade);
  paint(hatched(context, ink("quiet")), OLD);
  groupNames(context, layout, ink("quiet"), getComputedStyle(document.body).fontFamily);
  performance.measure("heat", { start: begun, detail: shades.length });
}

// The ranks of a job as cells on a canvas, drawn again only if one of them looks different.
import { inks, sized } from "./canvas.js";
import { cellGrid, settle } from "./cell_grid.js";
import { groupNames, nodesLayout, ranksLayout } from "./cell_layout.js";
import { counted, inWords, isNamed, LOOKS, lookOf, ranges, ranksOf, words } from "./cell_looks.js";

const NAMED = 128; // beside its look: an incident names it
const TOLD = 32; // groups: of more, the words for the picture tell only how many there are
const DARK = "#101418", LIGHT = "#ffffff";

// `told` is what `update` takes: name, ranks, groups (name → ranks), isByNode, isDense (of
// more groups than have a line each, those that begin a row are named), look (a key of LOOKS), scale
// (of `scaleOf`), levels (of the job), accused (numbers of ranks), and links to a rank and to a node.
export function cellsView() {
  const view = { told: null, units: [], looks: new Uint8Array(0), shape: "", numbers: "" };
  const grid = cellGrid({
    draw: () => draw(view),
    arrange: () => view.told && update(view, view.told),
    words: (at) => words(view.units[at], view.told),
    address: (at) => (view.isOfNodes ? view.told.nodeLink(ranksOf(view.units[at])[0].host) : view.told.rankLink(view.units[at])),
  });
  return Object.assign(view, { grid, node: grid.node, end: grid.end });
}

export function update(view, told) {
  const { grid } = view;
  view.told = told;
  grid.width ||= grid.node.clientWidth;
  if (grid.width === 0) return;
  const isNew = arrange(view);
  const looks = looksOf(view), numbers = numbersOf(view);
  const isSame = !isNew && numbers === view.numbers && looks.every((look, index) => look === view.looks[index]);
  Object.assign(view, { looks, numbers });
  if (!isSame) {
    draw(view);
    grid.canvas.setAttribute("aria-label", summary(view));
  }
  settle(grid, () => first(view), isNew);
}

// What lies where; whether that is another arrangement than before.
function arrange(view) {
  const { told, grid } = view, { width } = grid;
  const groups = [...told.groups].map(([name, ranks]) => ({ name: name || "–", count: ranks.length,
    nodes: new Set(ranks.map((rank) => rank.host)).size })); // whose cells they may be
  const shape = JSON.stringify([width, told.isByNode, told.isDense, told.look, groups]);
  const isNew = shape !== view.shape;
  if (isNew) grid.layout = ranksLayout(groups, width, told.isDense);
  const isOfNodes = isNew ? grid.layout === null : view.isOfNodes;
  const units = unitsOf(told, isOfNodes);
  if (isNew && isOfNodes) grid.layout = nodesLayout(units.map(([name, some]) => ({ name: name || "–", count: some.length })), width);
  Object.assign(view, { shape, isOfNodes, units: units.flatMap(([, some]) => some) });
  return isNew;
}

// The cells of each group: ranks, or lists of those that one node has.
function unitsOf({ groups, isByNode }, isOfNodes) {
  if (!isOfNodes) return [...groups];
  return isByNode ? [["", [...groups.values()]]] : [...groups].map(([name, ranks]) => [name, byNode(ranks)]);
}

function byNode(ranks) {
  const found = new Map();
  for (const rank of ranks) {
    if (!found.has(rank.host)) found.set(rank.host, []);
    found.get(rank.host).push(rank);
  }
  return [...found.values()];
}

function looksOf({ units, told }) {
  const look = LOOKS[told.look];
  return Uint8Array.from(units, (unit) => lookOf(look, unit, told.scale) + (isNamed(unit, told.accused) ? NAMED : 0));
}

const numbersOf = ({ units, grid }) => (grid.layout.size.numbered ? units.map((rank) => rank.rank).join() : "");

// For those who do not see it.
function summary({ told, units, isOfNodes, grid }) {
  const { name, ranks, groups, accused } = told;
  const what = isOfNodes ? `${ranks.length} ranks on ${units.length} nodes, a cell for each node` : `${ranks.length} ranks`;
  const parts = groups.size > 1 && groups.size <= TOLD
    ? [...groups].map(([group, some]) => `${group || "–"}: ${inWords(counted(some))}`) : [inWords(counted(ranks))];
  const named = ranks.filter((rank) => accused.has(rank.rank)).map((rank) => rank.rank);
  return [`${name}: ${what}`, ...parts, named.length ? `named by an incident: ${ranges(named)}` : "",
    grid.layout.count > 1 ? "arrow keys move through the cells" : ""].filter((part) => part).join("; ");
}

function draw(view) {
  const { units, looks, told, grid } = view, { canvas, context, layout, width } = grid;
  const { size, x, y } = layout, ink = inks(), begun = performance.now();
  const ratio = sized(canvas, width, layout.height);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  Object.assign(canvas.dataset, { cells: units.length, of: view.isOfNodes ? "nodes" : "ranks" });
  const family = getComputedStyle(document.body).fontFamily;
  const fills = LOOKS[told.look].fills(ink, context);
  fills.forEach((layers, look) => {
    for (const layer of layers) {
      context.fillStyle = layer;
      for (let one = 0; one < looks.length; one++) if (looks[one] % NAMED === look) cell(context, size, x[one], y[one]);
    }
  });
  context.textBaseline = "middle";
  for (let one = 0; one < looks.length; one++) if (looks[one] >= NAMED) mark(context, layout, one, ink, fills[looks[one] % NAMED]);
  if (size.numbered) numbers(view, fills, family);
  groupNames(context, layout, ink("quiet"), family);
  performance.measure("cells", { start: begun, detail: units.length });
}

function cell(context, { width, height, round }, x, y) {
  if (round === 0) return context.fillRect(x, y, width, height);
  context.beginPath();
  context.roundRect(x, y, width, height, round);
  context.fill();
}

// Stands out among thousands: with room of its own, which may be its neighbours'.
function mark(context, { size, x, y }, one, ink, layers) {
  const out = Math.max(2.5, size.gap);
  context.fillStyle = ink("card");
  context.fillRect(x[one] - out, y[one] - out, size.width + 2 * out, size.height + 2 * out);
  for (const layer of layers) {
    context.fillStyle = layer;
    cell(context, size, x[one], y[one]);
  }
  context.strokeStyle = ink("bad");
  context.lineWidth = 1.75;
  context.beginPath();
  context.roundRect(x[one] - out + 0.25, y[one] - out + 0.25, size.width + 2 * out - 0.5, size.height + 2 * out - 0.5, size.round + 2);
  context.stroke();
}

function numbers({ grid: { context, layout }, units, looks }, fills, family) {
  const { size, x, y } = layout, texts = fills.map(([ground]) => readable(ground));
  context.textAlign = "center";
  context.font = `12px ${family}`;
  context.lineWidth = 4;
  for (let one = 0; one < units.length; one++) {
    const look = looks[one] % NAMED, [ground, ...over] = fills[look];
    const written = [String(units[one].rank), x[one] + size.width / 2, y[one] + size.height / 2 + 0.5, size.width - 4];
    context.strokeStyle = ground;
    if (over.length) context.strokeText(...written); // else it would be crossed by lines
    context.fillStyle = texts[look];
    context.fillText(...written);
  }
}

// Dark or light, whichever stands out more.
function readable(colour) {
  const shade = luminance(colour);
  return (shade + 0.05) / (luminance(DARK) + 0.05) > (luminance(LIGHT) + 0.05) / (shade + 0.05) ? DARK : LIGHT;
}

// Of "#rrggbb", as WCAG defines it.
function luminance(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

// Where the keyboard comes in: what an incident names, or what looks worst.
function first({ looks }) {
  let worst = 0;
  for (let one = 1; one < looks.length; one++) if (looks[one] > looks[worst]) worst = one;
  return worst;
}

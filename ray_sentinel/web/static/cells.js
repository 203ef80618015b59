// The ranks of a job as cells on a canvas, drawn anew only where one of them looks different. Over
// the cell that is pointed at, or that the keyboard has come to, lies a real link.
import { cutInside, inks, sized } from "./canvas.js";
import { hit, nearest, nodesLayout, ranksLayout, rowOf } from "./cell_layout.js";
import { counted, inWords, isNamed, LOOKS, lookOf, ranges, ranksOf, words } from "./cell_looks.js";
import { el } from "./dom.js";

const NAMED = 128; // beside its look: an incident names it
const TOLD = 32; // groups: of more, the words for the picture tell only how many there are
const DARK = "#101418", LIGHT = "#ffffff";

// `told` is what `update` takes: name, ranks, groups (name → ranks), isByNode, look (a key of LOOKS),
// front (the job's step), accused (numbers of ranks), and links to a rank and to a node.
export function cellsView() {
  const canvas = el("canvas", { role: "img" }), link = el("a", { class: "at" });
  const tip = el("div", { class: "tip", "aria-hidden": "true" }), said = el("span", { class: "said", "aria-live": "polite" });
  const node = el("div", { class: "cells" }, canvas, link, tip, said);
  const view = { node, canvas, link, tip, said, context: canvas.getContext("2d"), width: 0, told: null, units: [],
    layout: null, looks: new Uint8Array(0), shape: "", numbers: "", at: -1, isMoved: false, drawn: 0 };
  new ResizeObserver(([{ contentRect }]) => resized(view, Math.floor(contentRect.width))).observe(node);
  const shown = new AbortController();
  view.end = () => shown.abort(); // once it is shown no more
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", () => view.layout && draw(view), { signal: shown.signal });
  listen(view);
  return view;
}

function resized(view, width) {
  if (width === 0 || width === view.width) return; // something else is shown instead
  view.width = width;
  if (view.told !== null) update(view, view.told);
}

export function update(view, told) {
  view.told = told;
  view.width ||= view.node.clientWidth;
  if (view.width === 0) return;
  const isNew = arrange(view);
  const looks = looksOf(view), numbers = numbersOf(view);
  const isSame = !isNew && numbers === view.numbers && looks.every((look, index) => look === view.looks[index]);
  Object.assign(view, { looks, numbers });
  if (!isSame) {
    draw(view);
    view.canvas.setAttribute("aria-label", summary(view));
  }
  if (!view.isMoved || view.at >= view.units.length) place(view, first(view));
  else if (isNew) place(view, view.at);
  else tell(view);
}

// What lies where; whether that is another arrangement than before.
function arrange(view) {
  const { told, width } = view;
  const groups = [...told.groups].map(([name, ranks]) => ({ name: name || "–", count: ranks.length,
    nodes: new Set(ranks.map((rank) => rank.host)).size })); // whose cells they may be
  const shape = JSON.stringify([width, told.isByNode, told.look, groups]);
  const isNew = shape !== view.shape;
  if (isNew) view.layout = ranksLayout(groups, width, told.isByNode);
  const isOfNodes = isNew ? view.layout === null : view.isOfNodes;
  const units = unitsOf(told, isOfNodes);
  if (isNew && isOfNodes) view.layout = nodesLayout(units.map(([name, some]) => ({ name: name || "–", count: some.length })), width);
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
  return Uint8Array.from(units, (unit) => lookOf(look, unit, told.front) + (isNamed(unit, told.accused) ? NAMED : 0));
}

const numbersOf = ({ units, layout }) => (layout.size.numbered ? units.map((rank) => rank.rank).join() : "");

// For those who do not see it.
function summary({ told, units, isOfNodes, layout }) {
  const { name, ranks, groups, accused } = told;
  const what = isOfNodes ? `${ranks.length} ranks on ${units.length} nodes, a cell for each node` : `${ranks.length} ranks`;
  const parts = groups.size > 1 && groups.size <= TOLD
    ? [...groups].map(([group, some]) => `${group || "–"}: ${inWords(counted(some))}`) : [inWords(counted(ranks))];
  const named = ranks.filter((rank) => accused.has(rank.rank)).map((rank) => rank.rank);
  return [`${name}: ${what}`, ...parts, named.length ? `named by an incident: ${ranges(named)}` : "",
    layout.count > 1 ? "arrow keys move through the cells" : ""].filter((part) => part).join("; ");
}

function draw(view) {
  const { canvas, context, layout, units, looks, told, width } = view;
  const { size, x, y } = layout, ink = inks(), begun = performance.now();
  const ratio = sized(canvas, width, layout.height);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  Object.assign(canvas.dataset, { cells: units.length, of: view.isOfNodes ? "nodes" : "ranks" });
  const family = getComputedStyle(document.body).fontFamily;
  const colours = LOOKS[told.look].inks.map(ink);
  colours.forEach((colour, look) => {
    context.fillStyle = colour;
    for (let one = 0; one < looks.length; one++) if (looks[one] % NAMED === look) cell(context, size, x[one], y[one]);
  });
  context.textBaseline = "middle";
  for (let one = 0; one < looks.length; one++) if (looks[one] >= NAMED) mark(context, layout, one, ink, colours[looks[one] % NAMED]);
  if (size.numbered) numbers(view, colours, family);
  context.textAlign = "left";
  context.fillStyle = ink("quiet");
  context.font = `${size.height < 10 ? 11 : 12.5}px ${family}`;
  for (const { name, x: left, y: middle, room } of layout.names) context.fillText(cutInside(context, name, room), left, middle + 0.5);
  view.drawn += 1;
  performance.measure("cells", { start: begun, detail: units.length });
}

function cell(context, { width, height, round }, x, y) {
  if (round === 0) return context.fillRect(x, y, width, height);
  context.beginPath();
  context.roundRect(x, y, width, height, round);
  context.fill();
}

// Stands out among thousands: with room of its own, which may be its neighbours'.
function mark(context, { size, x, y }, one, ink, colour) {
  const out = Math.max(2.5, size.gap);
  context.fillStyle = ink("card");
  context.fillRect(x[one] - out, y[one] - out, size.width + 2 * out, size.height + 2 * out);
  context.fillStyle = colour;
  cell(context, size, x[one], y[one]);
  context.strokeStyle = ink("bad");
  context.lineWidth = 1.75;
  context.beginPath();
  context.roundRect(x[one] - out + 0.25, y[one] - out + 0.25, size.width + 2 * out - 0.5, size.height + 2 * out - 0.5, size.round + 2);
  context.stroke();
}

function numbers({ context, layout, units, looks }, colours, family) {
  const { size, x, y } = layout, texts = colours.map(readable);
  context.textAlign = "center";
  context.font = `12px ${family}`;
  for (let one = 0; one < units.length; one++) {
    context.fillStyle = texts[looks[one] % NAMED];
    context.fillText(String(units[one].rank), x[one] + size.width / 2, y[one] + size.height / 2 + 0.5, size.width - 4);
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

function place(view, at) {
  const { link, layout, tip, width } = view, { size } = layout;
  if (layout.count === 0) return;
  view.at = at;
  const x = layout.x[at], y = layout.y[at];
  link.style.cssText = `width:${size.width}px;height:${size.height}px;transform:translate(${x}px,${y}px)`;
  const side = x < width / 2 ? `left:${x}px` : `right:${width - x - size.width}px`;
  tip.style.cssText = `${side};top:${y + size.height + 7}px`;
  tell(view);
}

// Its words are as old as what is shown; its address says which it is.
function tell(view) {
  const { link, tip, told } = view, unit = view.units[view.at];
  if (unit === undefined) return;
  const text = words(unit, told.accused, told.front);
  if (tip.textContent === text) return;
  tip.textContent = text;
  link.setAttribute("aria-label", text.replaceAll("\n", ", "));
  link.setAttribute("href", view.isOfNodes ? told.nodeLink(ranksOf(unit)[0].host) : told.rankLink(unit));
}

function listen(view) {
  const { node, link } = view;
  node.addEventListener("pointermove", (event) => {
    if (view.layout === null) return;
    const { left, top } = node.getBoundingClientRect();
    const at = hit(view.layout, event.clientX - left, event.clientY - top);
    node.classList.toggle("pointed", at >= 0);
    if (at >= 0 && at !== view.at) go(view, at);
  });
  node.addEventListener("pointerleave", () => node.classList.remove("pointed"));
  link.addEventListener("keydown", (event) => {
    const to = event.ctrlKey || event.metaKey || event.altKey ? null : along(view, event.key);
    if (to === null) return;
    event.preventDefault();
    go(view, to);
    view.said.textContent = link.getAttribute("aria-label");
    link.scrollIntoView({ block: "nearest" });
  });
}

function go(view, at) {
  view.isMoved = true;
  place(view, at);
}

// Where a key leads to from the cell that it is pressed at; null where it leads nowhere.
function along({ layout, at }, key) {
  const row = rowOf(layout, at);
  const across = (to) => (layout.tops[to] === undefined ? at : nearest(layout, to, layout.x[at]));
  switch (key) {
    case "ArrowLeft": return Math.max(0, at - 1);
    case "ArrowRight": return Math.min(layout.count - 1, at + 1);
    case "ArrowUp": return across(row - 1);
    case "ArrowDown": return across(row + 1);
    case "Home": return 0;
    case "End": return layout.count - 1;
    default: return null;
  }
}

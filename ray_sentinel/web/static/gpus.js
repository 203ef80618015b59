// A heat map of all GPUs, a row for each node, of one quantity at a time.
import { age, el, fill, scroller } from "./dom.js";
import { heatPlace, heatView, NONE, OLD, showHeat } from "./heat.js";

const STALE = 30; // seconds: agents send every five
const LABELLED = 48; // nodes: of more, cells are drawn, and values told on pointing
const COLLECTORS = ["nvml", "amdgpu"];
const percent = (value) => `${Math.round(100 * value)} %`;

// What a quantity's colours mean: from which value to which, and how it is worded. The upper value
// is null if it is the map's own.
export const QUANTITIES = {
  utilisation: { label: "Utilisation", from: 0, to: 1, short: (v) => Math.round(100 * v), long: percent },
  memory: { label: "Memory", from: 0, to: 1, short: (v) => Math.round(100 * v), long: percent },
  power: { label: "Power", from: 0, to: null, short: Math.round, long: (v) => `${Math.round(v)} W` },
  temperature: { label: "Temperature", from: 30, to: 95, short: Math.round, long: (v) => `${Math.round(v)} °C` },
  clock: { label: "Clock", from: 0, to: null, short: Math.round, long: (v) => `${Math.round(v)} MHz` },
  "memory-clock": { label: "Memory clock", from: 0, to: null, short: Math.round, long: (v) => `${Math.round(v)} MHz` },
};

let heat = null;

// `map` is a GpuMap, `nodes` those of the status: their collectors say why there are no GPUs; `linkOf`
// says where a host's GPUs lead, null if nowhere.
export function showGpus(map, nodes, linkOf, chosen, choose) {
  const look = lookOf(map);
  fill("gpus", [map, chosen, map.rows.length ? null : nodes.map((node) => node.collectors)],
    () => gpuMap(map, look, nodes, chosen, choose));
  if (map.rows.length <= LABELLED) return;
  showHeat(heat, { rows: map.rows, countOf: (row) => row.gpus.length, shadeOf: (row, index) => looks(row.values[index], row.ages[index], look),
    keys: [...document.querySelectorAll("#gpus .ramp i")], words: (row, index) => `${row.host}\n${said(row, index, look)}`,
    linkOf, label: `${summary(map, look)}; arrow keys move through the GPUs` });
}

function lookOf(map) {
  const quantity = QUANTITIES[map.quantity];
  const known = map.rows.flatMap((row) => row.values.filter((value) => value !== null)).sort((a, b) => a - b);
  return { quantity, known, to: quantity.to ?? Math.max(100, known.at(-1) ?? 0) };
}

function gpuMap(map, look, nodes, chosen, choose) {
  if (!map.rows.length) return [el("p", { class: "quiet" }, without(nodes))];
  return [el("div", { class: `card gpus ${map.quantity}` }, choice(chosen, choose),
    look.known.length ? null : el("p", { class: "quiet" }, `No GPU reports its ${look.quantity.label.toLowerCase()}.`),
    map.rows.length <= LABELLED ? labelled(map.rows, look) : heatPlace(heat ??= heatView("heat of GPUs")), key(map, look))];
}

function without(nodes) {
  const reasons = new Map();
  for (const node of nodes) {
    for (const one of node.collectors) {
      if (!COLLECTORS.includes(one.name)) continue;
      const said = `${one.name} ${one.state === "skipped" ? "finds none" : `is ${one.state}`}` +
        (one.message ? ` (${one.message})` : "");
      reasons.set(said, (reasons.get(said) || 0) + 1);
    }
  }
  const told = [...reasons].slice(0, 4).map(([said, count]) => `${said} on ${count} node${count > 1 ? "s" : ""}`);
  return `No GPUs are reported${told.length ? `: ${told.join("; ")}` : ""}.`;
}

function choice(chosen, choose) {
  const options = Object.entries(QUANTITIES).map(([name, { label }]) => {
    const input = el("input", { type: "radio", name: "quantity", value: name, checked: name === chosen ? "" : false });
    input.addEventListener("change", () => choose(name));
    return el("label", {}, input, el("span", {}, label));
  });
  return el("fieldset", { class: "choice" }, el("legend", {}, "by"), ...options);
}

// A class of the style sheet, which knows the colours of ten shades.
function looks(value, old, { quantity, to }) {
  if (value === null) return NONE;
  if (old > STALE) return OLD;
  const share = (value - quantity.from) / (to - quantity.from);
  return `q${Math.max(0, Math.min(9, Math.floor(10 * share)))}`;
}

function said(row, index, { quantity }) {
  const value = row.values[index], old = row.ages[index];
  const told = value === null ? "not known" : quantity.long(value);
  return `GPU ${row.gpus[index]}: ${told}${old > STALE ? `, ${age(old)} old` : ""}`;
}

function oldest(row) {
  const known = row.ages.filter((old) => old !== null);
  return known.length ? Math.max(...known) : null;
}

function labelled(rows, look) {
  // By name: a node that has lost a GPU has the others in their places.
  const names = [...new Set(rows.flatMap((row) => row.gpus))]
    .sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const head = el("tr", {}, el("th", { scope: "col" }, "node"),
    ...names.map((gpu) => el("th", { scope: "col" }, gpu)), el("td"));
  const lines = rows.map((row) => {
    const old = oldest(row);
    return el("tr", {}, el("th", { scope: "row" }, row.host), ...names.map((gpu) => {
      const index = row.gpus.indexOf(gpu);
      if (index < 0) return el("td", {});
      const value = row.values[index];
      return el("td", { class: looks(value, row.ages[index], look), title: `${row.host}\n${said(row, index, look)}` },
        value === null ? "–" : String(look.quantity.short(value)));
    }), el("td", { class: "old" }, old > STALE ? `${age(old)} old` : ""));
  });
  return scroller(el("table", { class: "heat" }, el("thead", {}, head), el("tbody", {}, ...lines)));
}

function summary(map, { quantity, known }) {
  const count = map.rows.reduce((sum, row) => sum + row.gpus.length, 0);
  const middle = known.length ? ` · median ${quantity.long(known[known.length >> 1])}, ` +
    `${quantity.long(known[0])} to ${quantity.long(known.at(-1))}` : "";
  return `${count} GPUs on ${map.rows.length} node${map.rows.length > 1 ? "s" : ""}${middle}`;
}

function key(map, look) {
  const { quantity, to } = look;
  const stale = map.rows.reduce((sum, row) => sum + row.ages.filter((old) => old > STALE).length, 0);
  return el("div", { class: "legend" },
    el("span", { class: "ramp" }, quantity.long(quantity.from),
      ...Array.from({ length: 10 }, (_, index) => el("i", { class: `q${index}` })), quantity.long(to)),
    el("span", {}, summary(map, look)),
    stale ? el("span", {}, el("i", { class: "stale" }), `${stale} not reported for more than ${STALE} s`) : null);
}

// The RDMA ports: a row for each node, a cell for each port, by state, traffic or errors.
import { age, bytes, el, fill } from "./dom.js";
import { heatPlace, heatView, NONE, OLD, showHeat } from "./heat.js";

const STALE = 30; // seconds: agents send every five
const LABELLED = 48; // nodes: of more, cells are drawn, and ports told on pointing
const rate = (value) => `${bytes(value)}/s`;
const WAYS = { state: "state", received: "received", sent: "sent", errors: "errors" };

let way = "state"; // a key of WAYS
let heat = null;

// `map` is a PortMap, `linkOf` says where a host's ports lead, null if nowhere. Nodes with a port
// that is down come first, then those with errors.
export function showPorts(map, linkOf) {
  const rows = [...map.rows].sort((a, b) => down(b).length - down(a).length || failed(b) - failed(a));
  const look = { way, most: most(rows), seconds: map.error_seconds };
  const isNamed = rows.length <= LABELLED;
  fill("ports", [map, way], () => (rows.length ? [el("div", { class: "card wires" }, choice(() => showPorts(map, linkOf)),
    isNamed ? el("div", { class: "hosts" }, ...rows.flatMap((row) => labelled(row, look))) : heatPlace(heat ??= heatView("heat of ports")),
    key(rows, look))] : []));
  if (isNamed) return;
  showHeat(heat, { rows, countOf: (row) => row.ports.length, shadeOf: (row, index) => looks(row, index, look),
    keys: [...document.querySelectorAll("#ports .legend i")], words: (row, index) => `${row.host}\n${row.ports[index]}: ${said(row, index, look)}`,
    linkOf, label: `${rows.length} nodes with ${counted(rows)}; arrow keys move through the ports` });
}

function choice(again) {
  return el("fieldset", { class: "choice" }, el("legend", {}, "by"), ...Object.entries(WAYS).map(([name, label]) => {
    const input = el("input", { type: "radio", name: "ports", value: name, checked: name === way ? "" : false });
    input.addEventListener("change", () => {
      way = name;
      again();
    });
    return el("label", {}, input, el("span", {}, label));
  }));
}

const down = (row) => row.ports.filter((_, index) => !row.active[index]);
const wrong = (row, index) => row.errors?.[index] ?? []; // an older coordinator tells of none
const failed = (row) => row.ports.reduce((sum, _, index) => sum + wrong(row, index).length, 0);
const flow = (row, index, name) => row[name]?.[index] ?? null;
const total = (row, name) => row.ports.reduce((sum, _, index) => (flow(row, index, name) === null ? sum : (sum ?? 0) + flow(row, index, name)), null);

function most(rows) {
  let found = 0;
  for (const row of rows) for (const one of [...(row.received ?? []), ...(row.sent ?? [])]) found = Math.max(found, one ?? 0);
  return found;
}

// A class of the style sheet.
function looks(row, index, look) {
  if (row.ages[index] > STALE) return OLD;
  if (look.way === "state") return row.active[index] ? "good" : "bad";
  if (look.way === "errors") return wrong(row, index).length ? "warn" : "good";
  const value = flow(row, index, look.way);
  return value === null ? NONE : `q${Math.min(9, Math.floor(10 * value / (look.most || 1)))}`;
}

function said(row, index, look) {
  const told = [row.active[index] ? "active" : "down"];
  const [into, out] = [flow(row, index, "received"), flow(row, index, "sent")];
  if (into !== null) told.push(`${rate(into)} in`);
  if (out !== null) told.push(`${rate(out)} out`);
  for (const one of wrong(row, index)) told.push(`${inWords(one)} in the last ${age(look.seconds)}`);
  if (row.ages[index] > STALE) told.push(`${age(row.ages[index])} old`);
  return told.join(", ");
}

const inWords = ([words, count]) => `${count} ${words}`;

function labelled(row, look) {
  const told = down(row).map((port) => `${port} is down`).join(", ") || "all active";
  const strip = el("span", { class: "ports", role: "img", title: `${row.host}: ${told}`, "aria-label": `${row.host}: ${told}` },
    ...row.ports.map((port, index) => el("i", { class: looks(row, index, look), title: `${row.host} ${port}: ${said(row, index, look)}` })));
  const wires = ["received", "sent"].map((name) => [total(row, name), name]).filter(([sum]) => sum !== null)
    .map(([sum, name]) => `${rate(sum)} ${name}`).join(", ");
  const errors = row.ports.flatMap((port, index) => wrong(row, index).map((one) => `${port}: ${inWords(one)}`));
  const more = errors.length > 2 ? `, and ${errors.length - 2} more` : "";
  return [el("span", { class: "quiet" }, row.host), el("span", { class: "told" }, strip, el("span", { class: mood(row) }, ` ${words(row)}`),
    wires ? el("span", { class: "quiet" }, ` · ${wires}`) : null,
    errors.length ? el("span", { class: "t-warn" }, ` · ${errors.slice(0, 2).join(", ")}${more}`) : null)];
}

function words(row) {
  const gone = down(row);
  const more = gone.length > 4 ? ` and ${gone.length - 4} more` : "";
  const old = Math.max(...row.ages), told = old > STALE ? `${age(old)} old` : "";
  if (gone.length) return [`${gone.slice(0, 4).join(", ")}${more} down`, told].filter(Boolean).join(", ");
  return told || `${row.ports.length} active`;
}

function mood(row) {
  if (Math.max(...row.ages) > STALE) return "t-warn";
  return down(row).length ? "t-bad" : "quiet";
}

function counted(rows) {
  const count = rows.reduce((sum, row) => sum + row.ports.length, 0);
  return `${count} port${count > 1 ? "s" : ""}`;
}

function key(rows, look) {
  const counts = new Map();
  for (const row of rows) {
    row.ports.forEach((_, index) => {
      const one = looks(row, index, look);
      counts.set(one, (counts.get(one) || 0) + 1);
    });
  }
  const labels = { good: look.way === "errors" ? `without errors in the last ${age(look.seconds)}` : "active", bad: "down", warn: "with errors",
    [NONE]: "whose traffic is not known", [OLD]: `not reported for more than ${STALE} s` };
  const ramp = ["received", "sent"].includes(look.way)
    ? el("span", { class: "ramp" }, rate(0), ...Array.from({ length: 10 }, (_, index) => el("i", { class: `q${index}` })), rate(look.most)) : null;
  return el("div", { class: "legend" }, ramp, ...Object.keys(labels).filter((name) => counts.has(name))
    .map((name) => el("span", {}, el("i", { class: name }), `${counts.get(name)} port${counts.get(name) > 1 ? "s" : ""} ${labels[name]}`)));
}

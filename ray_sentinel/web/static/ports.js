// The RDMA ports: a row for each node, a cell for each port; what is down is red.
import { age, el } from "./dom.js";

const STALE = 30; // seconds: agents send every five
const LABELLED = 48; // nodes: of more, only the cells are shown, and names on pointing

// `map` is a PortMap. Nodes with a port that is down come first.
export function portMap(map) {
  if (!map.rows.length) return [];
  const named = map.rows.length <= LABELLED;
  const rows = [...map.rows].sort((a, b) => down(b).length - down(a).length);
  const cells = rows.map((row) => {
    const told = down(row).map((port) => `${port} is down`).join(", ") || "all active";
    const strip = el("span", { class: "ports", role: "img", title: `${row.host}: ${told}`, "aria-label": `${row.host}: ${told}` },
      ...row.ports.map((port, index) => el("i", { class: looks(row, index), title: `${row.host} ${port}: ${said(row, index)}` })));
    return named ? [el("span", { class: "quiet" }, row.host),
      el("span", {}, strip, el("span", { class: mood(row) }, ` ${words(row)}`))] : [strip];
  });
  return [el("div", { class: "card" },
    el("div", { class: named ? "hosts" : "strips" }, ...cells.flat()), key(map.rows))];
}

function down(row) {
  return row.ports.filter((_, index) => !row.active[index]);
}

function looks(row, index) {
  return row.ages[index] > STALE ? "stale" : row.active[index] ? "good" : "bad";
}

function said(row, index) {
  const old = row.ages[index] > STALE ? `, ${age(row.ages[index])} old` : "";
  return `${row.active[index] ? "active" : "down"}${old}`;
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

function key(rows) {
  const counts = { good: 0, bad: 0, stale: 0 };
  for (const row of rows) row.ports.forEach((_, index) => { counts[looks(row, index)] += 1; });
  const labels = { good: "active", bad: "down", stale: `not reported for more than ${STALE} s` };
  return el("div", { class: "legend" }, ...Object.entries(counts).filter(([, count]) => count)
    .map(([name, count]) => el("span", {}, el("i", { class: name }), `${count} port${count > 1 ? "s" : ""} ${labels[name]}`)));
}

// The nodes, with their collectors: those in trouble first, and of very many the first only.
import { age, bytes, duration, el, facts, refill, scroller } from "./dom.js";

const ROWS = 50;
const LATE = 10; // seconds without a report: agents send each second
const HEADS = ["node", "address", "metrics", "reported", "collectors"];

// Whether the sentinel itself is well: what it takes and what it does not see. `status.coordinator`
// is null from an older version.
export function health(status) {
  const own = status.coordinator;
  const late = status.nodes.reduce((most, node) => Math.max(most, node.snapshot_age_seconds ?? 0), 0);
  const share = (taken, most) => (taken === null ? "" : most ? `${bytes(taken)} of ${bytes(most)}` : bytes(taken));
  return facts([
    ["nodes watched", `${status.nodes.length} of ${status.nodes.length + status.unwatched.length}`],
    ["oldest report", status.nodes.length ? `${age(late)} ago` : ""],
    ["blind spots", blindSpots(status.nodes)],
    ...(own === null ? [] : [
      ["reports", `${own.reports_per_second.toFixed(1)} of ${own.reports_due_per_second.toFixed(1)} a second`],
      ["relays", own.relays || ""],
      ["one cycle", own.cycle_seconds === null ? "" : duration(own.cycle_seconds)],
      ["memory", share(own.memory_bytes, own.memory_limit_bytes)],
      ["series", share(own.series_bytes, own.series_limit_bytes)],
      ["events waiting for the disk", own.log_waiting_bytes ? share(own.log_waiting_bytes, own.log_waiting_limit_bytes) : ""],
      ["events lost", own.log_missing ? bad(own.log_missing) : ""],
    ]),
  ]);
}

function bad(count) {
  return el("span", { class: "t-warn" }, String(count));
}

// The collectors that tell nothing, the most nodes first, as "nvml is quarantined on 3 nodes".
function blindSpots(nodes) {
  const known = new Map();
  for (const node of nodes) {
    for (const one of node.collectors) {
      if (isSkipped(one) || isWell(one)) continue;
      const said = `${one.name} ${one.state === "running" ? "fails" : `is ${one.state}`}`;
      if (!known.has(said)) known.set(said, { count: 0, host: node.host, message: one.message });
      known.get(said).count += 1;
    }
  }
  if (!known.size) return "none";
  const most = [...known].sort(([, a], [, b]) => b.count - a.count);
  return el("span", {}, ...most.slice(0, 8).flatMap(([said, { count, host, message }], index) => [index ? ", " : "",
    el("span", { class: "t-warn", title: message ? `${host}: ${message}` : host }, `${said} on ${count} of ${nodes.length} nodes`)]),
  most.length > 8 ? `, and ${most.length - 8} more` : "");
}

const isSkipped = (one) => one.state === "skipped";
const isWell = (one) => one.state === "running" && one.success !== false;
const isLate = (node) => (node.snapshot_age_seconds ?? Infinity) > LATE;

const rows = new Map(); // of the nodes that are shown, by host and address
let made = null; // the parts of the table, once there are nodes
let wanted = "", isWhole = false; // what is searched for, and whether all are shown

export function showNodes(place, status) {
  const all = inOrder(status);
  place.parentElement.hidden = !all.length;
  if (!all.length) return;
  if (made === null) place.replaceChildren(make(() => showNodes(place, made.status)));
  made.status = status;
  const found = wanted ? all.filter(({ host }) => host.toLowerCase().includes(wanted)) : all;
  const shown = isWhole ? found : found.slice(0, ROWS);
  const now = shown.map(row), { body } = made;
  const kept = new Set(shown.map(keyOf));
  for (const key of rows.keys()) if (!kept.has(key)) rows.delete(key);
  if (now.length !== body.children.length || now.some((one, index) => one !== body.children[index])) body.replaceChildren(...now);
  made.tools.hidden = all.length <= ROWS;
  refill(made.told, [shown.length, found.length, all.length, wanted], () => [el("span", {}, said(shown, found, all))]);
  made.more.hidden = found.length <= ROWS;
  made.more.textContent = isWhole ? `Show ${ROWS}` : `Show all ${found.length}`;
}

function said(shown, found, all) {
  if (!wanted) return `${shown.length} of ${all.length} nodes, those in trouble first`;
  return `${shown.length} of ${found.length} nodes of that name`;
}

// Unwatched nodes, then those that are late, then those of which something is not seen.
function inOrder({ nodes, unwatched }) {
  const blind = nodes.map((node) => node.collectors.some((one) => !isSkipped(one) && !isWell(one)));
  const of = (wants) => nodes.filter((node, index) => wants(isLate(node), blind[index]));
  return [...unwatched, ...of((late) => late), ...of((late, some) => !late && some), ...of((late, some) => !late && !some)];
}

function make(again) {
  const search = el("input", { type: "search", placeholder: "node", "aria-label": "search for a node" });
  search.addEventListener("input", () => {
    wanted = search.value.trim().toLowerCase();
    again();
  });
  const more = el("button", { type: "button" });
  more.addEventListener("click", () => {
    isWhole = !isWhole;
    again();
  });
  const told = el("span", { class: "quiet", role: "status" }), body = el("tbody");
  const tools = el("div", { class: "search" }, search, told, more);
  made = { told, body, tools, more, status: null };
  return el("div", {}, tools, scroller(el("table", {},
    el("thead", {}, el("tr", {}, ...HEADS.map((head) => el("th", { scope: "col" }, head)))), body)));
}

const keyOf = (node) => JSON.stringify([node.host, node.address, node.id]); // no id where it is watched

// A node's row, which is built anew only where more than its age has changed.
function row(node) {
  const isWatched = "collectors" in node;
  const told = JSON.stringify(isWatched ? [node.host, node.address, node.metrics_url, node.is_head, node.collectors]
    : [node.host, node.reason]);
  let mine = rows.get(keyOf(node));
  if (mine?.told !== told) {
    const reported = el("td", {});
    mine = { told, reported, line: el("tr", {}, ...(isWatched ? watched(node, reported) : unwatched(node))) };
    rows.set(keyOf(node), mine);
  }
  const since = `${age(node.snapshot_age_seconds)} ago`;
  if (isWatched && mine.reported.textContent !== since) {
    mine.reported.textContent = since;
    mine.reported.className = isLate(node) ? "t-warn" : "";
  }
  return mine.line;
}

const cell = (content) => el("td", {}, content);

function watched(node, reported) {
  return [cell(node.host + (node.is_head ? " (head)" : "")), cell(node.address), cell(node.metrics_url || "–"), reported,
    cell(collectors(node))];
}

function unwatched(node) {
  return [cell(node.host), cell("–"), cell(el("span", { class: "t-warn" }, `not watched: ${node.reason}`)), cell("–"), cell("–")];
}

function collectors(node) {
  const list = el("span", {});
  for (const one of node.collectors) {
    if (isSkipped(one)) continue;
    const well = isWell(one);
    list.append(el("span", { class: well ? "quiet" : "t-warn", title: one.message || "" },
      `${one.name}${well ? "" : `: ${one.state}`} `));
  }
  return list;
}

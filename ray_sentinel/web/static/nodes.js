// The nodes, with their collectors.
import { age, bytes, duration, el, facts, table } from "./dom.js";

// Whether the sentinel itself is well: what it takes and what it does not see. `status.coordinator`
// is null of an older version.
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

export function nodeTable(status) {
  const watched = status.nodes.map((node) => [node.host + (node.is_head ? " (head)" : ""),
    node.address, node.metrics_url || "–", `${age(node.snapshot_age_seconds)} ago`, collectors(node)]);
  const others = status.unwatched.map((node) => [node.host, "–",
    el("span", { class: "t-warn" }, `not watched: ${node.reason}`), "–", "–"]);
  return table(["node", "address", "metrics", "reported", "collectors"], [...watched, ...others]);
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

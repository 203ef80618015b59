// The nodes, with their collectors.
import { age, el, table } from "./dom.js";

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
    if (one.state === "skipped") continue;
    const well = one.state === "running" && one.success !== false;
    list.append(el("span", { class: well ? "quiet" : "t-warn", title: one.message || "" },
      `${one.name}${well ? "" : `: ${one.state}`} `));
  }
  return list;
}

// The stacks of an incident as one tree: places that stacks have in common stand once, with how
// many processes pass through them. It unfolds, and is searched.
import { el } from "./dom.js";

// `verdict` has the culprits' stacks and one of each place where others stand.
export function stackTree(verdict) {
  const stacks = verdict.stacks || [];
  if (!stacks.length) return [];
  const framed = stacks.filter((one) => one.signature.length);
  const bare = stacks.filter((one) => !one.signature.length);
  const tree = el("div", { class: "tree" }, ...branches(merged(framed), verdict),
    ...bare.map((one) => end(one, verdict)));
  return [search(tree), tree];
}

function merged(stacks) {
  const root = { place: "", count: 0, children: new Map(), ends: [] };
  for (const stack of stacks) {
    let node = root;
    for (const place of stack.signature) {
      if (!node.children.has(place)) node.children.set(place, { place, count: 0, children: new Map(), ends: [] });
      node = node.children.get(place);
      node.count += stack.alike;
    }
    node.ends.push(stack);
  }
  return root;
}

// The rarest first: a culprit is seldom in the majority.
function branches(node, verdict) {
  return [...node.children.values()].sort((a, b) => a.count - b.count).map((one) => branch(one, verdict));
}

// A run of places without a fork is one branch, named by its innermost place.
function branch(node, verdict) {
  const outer = [];
  while (!node.ends.length && node.children.size === 1) {
    outer.push(node.place);
    [node] = node.children.values();
  }
  const above = outer.length ? el("details", { class: "outer", "data-key": "above" },
    el("summary", {}, `${outer.length} frame${outer.length > 1 ? "s" : ""} above`),
    el("ol", {}, ...outer.map((place) => el("li", {}, el("code", {}, place))))) : null;
  return el("details", { class: "branch", open: "", "data-key": node.place },
    el("summary", {}, el("b", { title: "processes" }, String(node.count)), el("code", {}, node.place)),
    el("div", {}, above, ...node.ends.map((one) => end(one, verdict)), ...branches(node, verdict)));
}

function end(stack, verdict) {
  const named = culprit(stack, verdict);
  const does = stack.error || stack.label || stack.activity;
  return el("p", { class: named ? "end t-bad" : "end" }, el("span", {}, who(stack, named)),
    el("span", { class: "quiet" }, does === "unknown" ? "" : does));
}

// A pid alone tells nobody apart: containers on different nodes give the same ones.
function culprit(stack, verdict) {
  const { host, pid } = stack.process;
  return verdict.culprits.find((one) => one.pid === pid &&
    (stack.rank ? one.rank === stack.rank.rank : one.host === host));
}

function who(stack, named) {
  if (stack.alike > 1) return `ranks ${stack.alike_ranks}`;
  if (stack.rank) return `rank ${stack.rank.rank}`;
  const { host, pid } = stack.process;
  return named?.actor || named?.role || `pid ${pid} on ${host}`;
}

function search(tree) {
  const input = el("input", { type: "search", placeholder: "function or file", "aria-label": "search the stacks" });
  const found = el("span", { class: "quiet", role: "status" });
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    let hits = 0;
    for (const code of tree.querySelectorAll("code")) {
      const hit = wanted !== "" && code.textContent.toLowerCase().includes(wanted);
      code.classList.toggle("hit", hit);
      if (!hit) continue;
      hits += 1;
      for (let at = code.parentElement; at !== tree; at = at.parentElement) if (at.matches("details")) at.open = true;
    }
    found.textContent = wanted === "" ? "" : `${hits} place${hits === 1 ? "" : "s"}`;
  });
  return el("p", { class: "search" }, input, found);
}

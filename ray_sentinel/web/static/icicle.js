// Merged stacks as an icicle: the outermost place on top, and below each place those that it called,
// as wide as the number of processes that stand there.
import { el } from "./dom.js";

// `root` is what `merged` in stacks.js makes. A run of places without a fork is one block.
export function icicle(root, isNamed) {
  return el("div", { class: "icicle", role: "img", "aria-label": "the merged stacks; the tree above says the same" },
    row(root, isNamed));
}

function row(node, isNamed) {
  const blocks = [...node.children.values()].sort((a, b) => b.count - a.count);
  return blocks.length ? el("div", { class: "row" }, ...blocks.map((one) => block(one, isNamed))) : null;
}

function block(first, isNamed) {
  const run = [first];
  let node = first;
  while (!node.ends.length && node.children.size === 1) {
    [node] = node.children.values();
    run.push(node);
  }
  const tone = [run.some((one) => one.moved) ? "moved" : "", node.ends.some(isNamed) ? "named" : ""];
  const title = `${first.count} process${first.count > 1 ? "es" : ""}\n${run.map((one) => one.place).join("\n")}`;
  const more = run.length > 1 ? ` ‹ ${run.length - 1} more` : "";
  const whole = el("div", { class: "block" },
    el("span", { class: ["place", ...tone].filter(Boolean).join(" "), title }, el("b", {}, String(first.count)), ` ${node.place}${more}`),
    row(node, isNamed));
  whole.style.flexGrow = first.count;
  return whole;
}

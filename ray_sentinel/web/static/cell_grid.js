// Cells on a canvas that the pointer and the keyboard can reach: a real link lies over the current
// one, with its words beside it.
import { el } from "./dom.js";
import { hit, nearest, rowOf } from "./cell_layout.js";

// `draw` paints all cells again, `arrange` is called with another width, `words` says what a cell is,
// and `address` where it leads, null if nowhere. The owner sets `layout`: what `cell_layout.js`
// makes.
export function cellGrid({ draw, arrange, words, address }) {
  const canvas = el("canvas", { role: "img" }), link = el("a", { class: "at" });
  const tip = el("div", { class: "tip", "aria-hidden": "true" }), said = el("span", { class: "said", "aria-live": "polite" });
  const node = el("div", { class: "cells" }, canvas, link, tip, said);
  const grid = { node, canvas, link, tip, said, words, address, context: canvas.getContext("2d"), width: 0, layout: null,
    at: -1, isMoved: false };
  new ResizeObserver(([{ contentRect }]) => {
    const width = Math.floor(contentRect.width);
    if (width === 0 || width === grid.width) return; // something else is shown instead
    grid.width = width;
    arrange();
  }).observe(node);
  const shown = new AbortController();
  grid.end = () => shown.abort(); // once it is shown no more
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", () => grid.layout && draw(), { signal: shown.signal });
  listen(grid);
  return grid;
}

// Where the keyboard is after a change: at `first` until the reader moved; `isNew`: cells lie
// elsewhere than before.
export function settle(grid, first, isNew) {
  if (!grid.isMoved || grid.at >= grid.layout.count) place(grid, first());
  else if (isNew) place(grid, grid.at);
  else tell(grid);
}

function place(grid, at) {
  const { link, layout, tip, width } = grid, { size } = layout;
  if (layout.count === 0) return;
  grid.at = at;
  const x = layout.x[at], y = layout.y[at];
  link.style.cssText = `width:${size.width}px;height:${size.height}px;transform:translate(${x}px,${y}px)`;
  const side = x < width / 2 ? `left:${x}px` : `right:${width - x - size.width}px`;
  tip.style.cssText = `${side};top:${y + size.height + 7}px`;
  tell(grid);
}

// Its words are as old as what is shown; its address says which it is.
function tell(grid) {
  const { link, tip, at } = grid;
  if (at < 0 || at >= grid.layout.count) return;
  const text = grid.words(at), href = grid.address(at); // the same words may be of another attempt, or process
  if (tip.textContent === text && link.getAttribute("href") === href) return;
  const isRead = href === null; // what leads nowhere can be read all the same
  tip.textContent = text;
  link.setAttribute("aria-label", text.replaceAll("\n", ", "));
  for (const [name, value] of [["href", href], ["tabindex", isRead ? 0 : null], ["role", isRead ? "img" : null]]) {
    if (value === null) link.removeAttribute(name);
    else link.setAttribute(name, value);
  }
}

function listen(grid) {
  const { node, link } = grid;
  node.addEventListener("pointermove", (event) => {
    if (grid.layout === null) return;
    const { left, top } = node.getBoundingClientRect();
    const at = hit(grid.layout, event.clientX - left, event.clientY - top);
    node.classList.toggle("pointed", at >= 0);
    if (at >= 0 && at !== grid.at) go(grid, at);
  });
  node.addEventListener("pointerleave", () => node.classList.remove("pointed"));
  link.addEventListener("keydown", (event) => {
    const to = event.ctrlKey || event.metaKey || event.altKey ? null : along(grid, event.key);
    if (to === null) return;
    event.preventDefault();
    go(grid, to);
    grid.said.textContent = link.getAttribute("aria-label");
    link.scrollIntoView({ block: "nearest" });
  });
}

function go(grid, at) {
  grid.isMoved = true;
  place(grid, at);
}

// Where a key leads to from the cell that it is pressed at; null if it leads nowhere.
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

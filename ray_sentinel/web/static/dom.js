// Elements, and numbers in words. Everything shown comes from hosts, ranks and logs: it is set as
// text, never as markup.

const SVG = document.getElementById("mark").namespaceURI;

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  for (const child of children) if (child !== null && child !== undefined) node.append(child);
  return node;
}

export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

export function age(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 100) return `${seconds.toFixed(1)} s`;
  if (seconds < 6000) return `${(seconds / 60).toFixed(0)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

// Of steps and calls: three digits whatever the size.
export function duration(seconds) {
  if (seconds < 0.9995) return `${Number((1000 * seconds).toPrecision(3))} ms`;
  return seconds < 100 ? `${Number(seconds.toPrecision(3))} s` : age(seconds);
}

export function clock(at) {
  return new Date(at * 1000).toLocaleTimeString();
}

export function moment(at) {
  return new Date(at * 1000).toLocaleString();
}

export function facts(pairs) {
  const rows = pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return el("dl", { class: "facts" }, ...rows.map(([name, value]) =>
    el("div", {}, el("dt", {}, name), el("dd", {}, value instanceof Node ? value : String(value)))));
}

// What may be wider than a phone; the keyboard moves it too.
export function scroller(content) {
  return el("div", { class: "scroll", tabindex: 0 }, content);
}

export function table(heads, rows) {
  return scroller(el("table", {},
    el("thead", {}, el("tr", {}, ...heads.map((head) => (head ? el("th", { scope: "col" }, head) : el("td"))))),
    el("tbody", {}, ...rows.map((cells) => el("tr", {}, ...cells.map((cell) =>
      cell instanceof Node ? el("td", {}, cell) : el("td", {}, String(cell ?? "–"))))))));
}

const shown = new Map();

// Draws a section anew where `told` differs from what it shows: else what is unfolded and selected
// would be lost every second.
export function fill(id, told, draw) {
  const text = JSON.stringify(told);
  if (shown.get(id) === text) return;
  shown.set(id, text);
  const nodes = draw();
  const section = document.getElementById(id);
  section.hidden = nodes.length === 0;
  replace(section.lastElementChild, nodes);
}

// The keyboard's place stays, and how far a wide table was moved.
function replace(place, nodes) {
  const focusable = () => [...place.querySelectorAll("a, button, input, summary, [tabindex]")];
  const scrolled = () => [...place.querySelectorAll(".scroll")];
  const active = document.activeElement;
  const focus = focusable().indexOf(active);
  const href = focus >= 0 ? active.getAttribute("href") : null; // a new incident moves all links
  const moved = scrolled().map((one) => one.scrollLeft);
  place.replaceChildren(...nodes);
  scrolled().forEach((one, index) => {
    if (moved[index]) one.scrollLeft = moved[index];
  });
  if (focus < 0) return;
  const same = href && focusable().find((one) => one.getAttribute("href") === href);
  (same || focusable()[focus])?.focus({ preventScroll: true });
}

// Another width needs another drawing.
export function forget(id) {
  shown.delete(id);
}

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

export function bytes(count) {
  const [unit, size] = count < 1e6 ? ["kB", 1e3] : count < 1e9 ? ["MB", 1e6] : ["GB", 1e9];
  return `${Number((count / size).toPrecision(3))} ${unit}`;
}

// In 24 hours whatever the reader's language, as in reports and logs.
export const TIME = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
const ofDay = new Intl.DateTimeFormat(undefined, TIME);

export function clock(at) {
  return ofDay.format(1000 * at);
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

const shown = new WeakMap(); // place → what it shows

// Draws a place anew where `told` differs from what it shows: else what is selected would be lost
// every second.
export function refill(place, told, draw) {
  const text = JSON.stringify(told);
  if (shown.get(place) === text) return;
  shown.set(place, text);
  replace(place, draw());
}

// The same for a section, which is hidden where it is empty.
export function fill(id, told, draw) {
  const section = document.getElementById(id);
  refill(section.lastElementChild, told, draw);
  section.hidden = isEmpty(section);
}

// Says over a section why it is not updated; an empty text takes that back.
export function trouble(id, text) {
  const section = document.getElementById(id), said = section.querySelector(".trouble");
  if (said.textContent !== text) said.textContent = text;
  said.hidden = text === "";
  section.hidden = isEmpty(section);
}

export function isEmpty(section) {
  return !section.lastElementChild.hasChildNodes() && section.querySelector(".trouble:not([hidden])") === null;
}

// What the reader did to the old drawing is done to the new one: what is folded, written, chosen,
// where the keyboard is, and how far a part was moved. A node with `data-keep` is kept itself.
function replace(place, nodes) {
  const before = remembered(place), top = scrollY, marked = getSelection();
  const { anchorNode, anchorOffset, focusNode, focusOffset, isCollapsed } = marked;
  const kept = new Map([...place.querySelectorAll("[data-keep]")].map((one) => [one.dataset.keep, one]));
  place.replaceChildren(...nodes);
  for (const one of place.querySelectorAll("[data-keep]")) {
    const old = kept.get(one.dataset.keep);
    if (old) one.replaceWith(old);
  }
  if (!isCollapsed && place.contains(anchorNode) && place.contains(focusNode)) { // within what was kept
    marked.setBaseAndExtent(anchorNode, anchorOffset, focusNode, focusOffset);
  }
  let now = named(place);
  for (const [name, field] of before.fields) if (restore(now.get(name), field)) now = named(place);
  for (const [name, open] of before.folds) if (now.has(name)) now.get(name).open = open;
  for (const [name, [left, down]] of before.moved) if (now.has(name)) now.get(name).scrollTo(left, down);
  const focused = before.focus && (now.get(before.focus) || [...now.values()].filter(isStop)[before.place]);
  if (focused && focused !== document.activeElement) focused.focus({ preventScroll: true });
  if (before.selection) focused?.setSelectionRange?.(...before.selection);
  if (scrollY !== top) scrollTo(scrollX, top);
}

const STOPS = "a, button, input, select, summary, textarea, [tabindex]";
const isStop = (one) => one.matches(STOPS);

function remembered(place) {
  const all = named(place), found = { folds: [], fields: [], moved: [], focus: "", place: 0, selection: null };
  for (const [name, one] of all) {
    if (one.matches("details")) found.folds.push([name, one.open]);
    if (one.matches("input[type=search], input[type=number], select")) found.fields.push([name, one.value]);
    if (one.scrollLeft || one.scrollTop) found.moved.push([name, [one.scrollLeft, one.scrollTop]]);
    if (one !== document.activeElement) continue;
    found.focus = name;
    found.place = [...all.values()].filter(isStop).indexOf(one);
    if (one.matches("input[type=search]")) found.selection = [one.selectionStart, one.selectionEnd];
  }
  return found;
}

// Whether that may have drawn other things anew.
function restore(field, value) {
  if (!field || field.value === value) return false;
  const before = field.value;
  field.value = value;
  const isThere = field.value === value; // else it cannot be chosen any more
  if (isThere) field.dispatchEvent(new Event("input"));
  else field.value = before;
  return isThere;
}

// What a reader may have done something to, each by a name that it has in the next drawing as well.
function named(place) {
  const found = new Map(), times = new Map();
  for (const one of place.querySelectorAll(`details, pre, .scroll, ${STOPS}`)) {
    const fold = one.closest("details");
    const within = one.matches("details") ? one.parentElement.closest("details") : fold;
    const own = one.dataset.key || one.getAttribute("href") || one.getAttribute("aria-label") || one.value ||
      (one.matches("details, button") ? one.querySelector("summary")?.textContent || one.textContent : "");
    const name = `${paths.get(within) || ""}\n${one.tagName} ${one.className.baseVal ?? one.classList[0]} ${own}`;
    const again = times.get(name) || 0;
    times.set(name, again + 1);
    const whole = again ? `${name} ${again}` : name;
    if (one.matches("details")) paths.set(one, whole);
    found.set(whole, one);
  }
  return found;
}

const paths = new WeakMap();

// Where the cells of groups lie: the largest cells, with the most names, that stay within the
// height.
import { bisect, cutInside } from "./canvas.js";

const NUMBERED = { width: 34, height: 26, gap: 3, round: 4, numbered: true };
const PLAIN = { width: 12, height: 12, gap: 3, round: 2, numbered: false };
const TINY = { width: 7, height: 7, gap: 1, round: 0, numbered: false };
const PAD = 4; // around all: room for what marks a cell
const NAME = 132, NAME_NARROW = 80, NARROW = 520, LETTER = 7.2; // pixels for a group's name
const NAME_HEIGHT = 15, COLUMN_GAP = 18, BLOCK_GAP = 4;

// Size, form and the most pixels that it may be high. A list has a line or more for each group,
// columns have several groups side by side, a stream has them one after another, with the names of
// those that begin a row.
const FORMS = [
  [NUMBERED, "list", 240], [NUMBERED, "columns", 480], [PLAIN, "list", 240], [PLAIN, "columns", 480], [TINY, "list", 480],
];
const SEEN = 480; // pixels that are seen beside the first incidents
const STREAM = [TINY, "stream", 1200];
const LAST = [[PLAIN, "list", 960], [TINY, "list", Infinity]];

// `groups` are names with counts. Null where the cells would have no room in which they can be read.
export function ranksLayout(groups, width, mayStream) {
  return best(groups, width, [...FORMS, mayStream ? STREAM : [TINY, "list", 960]]);
}

// Of nodes there is always one.
export function nodesLayout(groups, width) {
  return best(groups, width, LAST);
}

// For things shown by colour alone, such as GPUs: one after another, however many there are.
export function streamLayout(groups, width) {
  return { ...stream(groups, width, TINY), size: TINY };
}

// Whether the ranks could be shown as such within that width, and be seen at once.
export function fitsBeside(groups, width) {
  return best(groups, width, [...FORMS, [TINY, "stream", SEEN]]) !== null;
}

function best(groups, width, forms) {
  for (const [size, form, most] of forms) {
    const made = form === "stream" ? stream(groups, width, size) : lines(groups, width, size, form);
    if (made.height <= most) return { ...made, size };
  }
  return null;
}

function gutter(groups, width) {
  if (groups.length < 2) return 0;
  const longest = groups.reduce((most, { name }) => Math.max(most, name.length), 0);
  return Math.min(width < NARROW ? NAME_NARROW : NAME, Math.ceil(longest * LETTER) + 14);
}

// Cells in their order: x and y of each, and of each row how high it begins and which are in it.
function places(groups) {
  const count = groups.reduce((sum, group) => sum + group.count, 0);
  return { x: new Float32Array(count), y: new Float32Array(count), tops: [], firsts: [], names: [], count, height: 0 };
}

function put(made, at, x, y) {
  if (made.tops.at(-1) !== y) {
    made.tops.push(y);
    made.firsts.push(at);
  }
  made.x[at] = x;
  made.y[at] = y;
}

function lines(groups, width, size, form) {
  const made = places(groups), left = gutter(groups, width);
  const pitch = size.width + size.gap, line = size.height + size.gap;
  const room = Math.max(1, Math.floor((width - 2 * PAD - left + size.gap) / pitch));
  const widest = groups.reduce((most, group) => Math.max(most, group.count), 1);
  const column = left + widest * pitch + COLUMN_GAP;
  const columns = form === "list" || widest > room ? 1 : Math.max(1, Math.floor((width - 2 * PAD + COLUMN_GAP) / column));
  let at = 0, y = PAD;
  groups.forEach(({ name, count }, index) => {
    const start = PAD + (index % columns) * column;
    if (left) made.names.push({ name, x: start - PAD, y: y + size.height / 2, room: left - 10 });
    for (let one = 0; one < count; one++) {
      put(made, at++, start + left + (one % room) * pitch, y + Math.floor(one / room) * line);
    }
    const rows = columns > 1 ? 1 : Math.ceil(count / room);
    if ((index + 1) % columns === 0 || index === groups.length - 1) y += Math.max(rows * line, left ? NAME_HEIGHT : 0);
  });
  return { ...made, height: y - size.gap + PAD };
}

function stream(groups, width, size) {
  const made = places(groups), left = width < NARROW ? 0 : gutter(groups, width);
  const pitch = size.width + size.gap, end = width - PAD + size.gap;
  const widest = groups.reduce((most, group) => Math.max(most, group.count), 1);
  const line = size.height + size.gap + (widest > 1 ? 1 : 0);
  const begin = PAD + left;
  let at = 0, x = begin, y = PAD, named = -Infinity;
  for (const { name, count } of groups) {
    if (x > begin && x + count * pitch > end) [x, y] = [begin, y + line];
    if (left && x === begin && y - named >= NAME_HEIGHT) {
      made.names.push({ name, x: 0, y: y + size.height / 2, room: left - 10 });
      named = y;
    }
    for (let one = 0; one < count; one++) {
      if (x + pitch > end) [x, y] = [begin, y + line];
      put(made, at++, x, y);
      x += pitch;
    }
    if (widest > 1) x += BLOCK_GAP;
  }
  return { ...made, height: y + size.height + PAD };
}

// Which row a cell is in.
export function rowOf({ firsts }, cell) {
  return bisect(firsts, cell + 0.5) - 1;
}

function span({ firsts, count }, row) {
  return [firsts[row], firsts[row + 1] ?? count];
}

// The cell of a row that is nearest to there.
export function nearest(layout, row, x) {
  const [first, end] = span(layout, row);
  let best = first;
  for (let one = first; one < end; one++) if (Math.abs(layout.x[one] - x) < Math.abs(layout.x[best] - x)) best = one;
  return best;
}

// The cell at a place, or -1; the gap after a cell is part of it.
export function hit(layout, x, y) {
  const { size, tops } = layout, row = bisect(tops, y + 0.001) - 1;
  if (row < 0 || y >= tops[row] + size.height + size.gap) return -1;
  const [first, end] = span(layout, row);
  const one = first + bisect(layout.x.subarray(first, end), x + 0.001) - 1;
  return one >= first && x < layout.x[one] + size.width + size.gap ? one : -1;
}

// The names of the groups, on the picture.
export function groupNames(context, { names, size }, colour, family) {
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillStyle = colour;
  context.font = `${size.height < 10 ? 11 : 12.5}px ${family}`;
  for (const { name, x, y, room } of names) context.fillText(cutInside(context, name, room), x, y + 0.5);
}

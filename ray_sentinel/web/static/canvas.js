// What the pictures on a canvas share.

const HATCH = 4; // pixels from one line to the next, as in the style sheet
const MOST = 16000; // pixels: browsers draw nothing on a canvas that is longer than some 16,384

// Gives a canvas this size, in pixels of the page. Returns how many of the screen's pixels make one
// of these.
export function sized(canvas, width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, MOST / Math.max(width, height));
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  canvas.style.width = `${width}px`;
  return ratio;
}

// Asks for the style once: a frame that asks for a style makes the browser work it out.
export function inks() {
  const style = getComputedStyle(document.documentElement);
  return (name) => style.getPropertyValue(`--${name}`).trim();
}

// Lines across what is old.
export function hatched(context, colour) {
  const tile = document.createElement("canvas"), lines = tile.getContext("2d");
  tile.width = tile.height = HATCH;
  lines.strokeStyle = colour;
  lines.globalAlpha = 0.75;
  lines.beginPath();
  for (const from of [-HATCH, 0, HATCH]) {
    lines.moveTo(from, HATCH);
    lines.lineTo(from + HATCH, 0);
  }
  lines.stroke();
  return context.createPattern(tile, "repeat");
}

// Of "#rrggbb" twice: so many per cent of the first.
export function mixed(one, other, share) {
  const parts = [1, 3, 5].map((at) => [one, other].map((colour) => parseInt(colour.slice(at, at + 2), 16)));
  return `#${parts.map(([a, b]) => Math.round(b + (a - b) * share / 100).toString(16).padStart(2, "0")).join("")}`;
}

// The beginning of a text that fits into `room` pixels.
export function cut(context, text, room) {
  return shortened(context, text, room, (kept) => `${text.slice(0, kept)}…`);
}

// The same, but keeping the end too, by which names of nodes differ.
export function cutInside(context, text, room) {
  return shortened(context, text, room, (kept) => `${text.slice(0, kept >> 1)}…${text.slice(text.length - ((kept + 1) >> 1))}`);
}

function shortened(context, text, room, keep) {
  if (context.measureText(text).width <= room) return text;
  let low = 0, high = text.length;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (context.measureText(keep(middle)).width <= room) low = middle;
    else high = middle - 1;
  }
  return keep(low);
}

// The first place in a list in order whose value is at least that.
export function bisect(values, least) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < least) low = middle + 1;
    else high = middle;
  }
  return low;
}

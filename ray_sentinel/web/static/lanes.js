// What ranks, groups of ranks or roles did over the last hour: a lane each, on a canvas, for an hour
// of some eighty lanes is thousands of stretches. What is zoomed to stays over new answers.
import { bisect, cut, sized } from "./canvas.js";
import { clock, duration, el } from "./dom.js";
import { incidentLink } from "./incidents.js";
import { processLink } from "./process.js";
import { isOpen, isWell } from "./states.js";

const ROW = 18, NAME = 132, NAME_NARROW = 96, NAME_GAP = 10, AXIS = 20, LEAST = 10; // pixels; seconds
const FIXED = { step: "--lane-step", wait: "--lane-wait", gap: "--lane-gap", stopped: "--lane-stopped" };
const HUES = 8; // for phases and methods
const LOUD = ["gap", "stopped"];
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800];

const REACH = 5; // pixels from an incident's mark that are it, and that a click may move
const drawn = new WeakMap(); // place → job → what is drawn there of it: it stays, so that a drag and the keyboard's place do

// Draws a LanesReport; a card of a job that was there already gets the new answer where it is.
export function showLanes(place, report, status, incidents, width) {
  if (!drawn.has(place)) drawn.set(place, new Map());
  const pictures = drawn.get(place);
  const running = status.jobs.filter((job) => !job.ended);
  const shown = running.length ? running : status.jobs;
  const cards = report.jobs.flatMap((one) => {
    const job = shown.find((known) => known.job === one.job && known.attempt === one.attempt);
    return job ? [card(pictures, one, job, report, incidents, width)] : [];
  });
  for (const [key, picture] of pictures) if (!cards.includes(picture.card)) pictures.delete(key);
  const there = [...place.children];
  if (cards.length !== there.length || cards.some((one, index) => one !== there[index])) place.replaceChildren(...cards);
}

// The lanes of ranks that slow the job down, as its collectives show.
function stragglers({ straggler }, { of }) {
  const slow = straggler && of === "ranks" ? straggler.ranks : [];
  return new Set(slow.map((rank) => `rank ${rank}`));
}

// Whether a lane is that of somebody whom one of the incidents names: its rank, its node, its role.
function isAmong(name, culprits) {
  const [, first, last] = /^ranks (\d+) to (\d+)$/.exec(name) || [];
  return culprits.some(({ rank = null, host, role = "" }) => (rank === null ? false : name === `rank ${rank}` ||
    (first !== undefined && Number(first) <= rank && rank <= Number(last))) || name === host || (role !== "" && name === role));
}

// What happened to the job in that time: where it is, and whose lanes it is about.
function marksOf(job, report, incidents) {
  return incidents.filter((one) => one.job === job.job && one.attempt === job.attempt && one.suspected_at >= report.begin)
    .map((one) => ({ at: one.suspected_at, id: one.id, summary: one.summary, open: isOpen(one), culprits: one.culprits || [] }));
}

function card(pictures, job, status, report, incidents, width) {
  const key = JSON.stringify([job.job, job.attempt, job.of]);
  if (!pictures.has(key)) pictures.set(key, made(job));
  const picture = pictures.get(key), { view } = picture;
  const marks = marksOf(job, report, incidents), slow = stragglers(status, job);
  const named = marks.filter((one) => one.open).flatMap((one) => one.culprits);
  const lanes = job.lanes.map((lane) => ({ ...lane, ...reaches(lane), named: isAmong(lane.name, named), slow: slow.has(lane.name) }));
  const seconds = report.end - report.begin;
  const first = Math.min(...lanes.flatMap((lane) => lane.stretches.slice(0, 1).map(([, at]) => at / 10)));
  const whole = Math.min(seconds, Math.max(60, 1.05 * (seconds - first)));
  if (view.back > 0) view.back = Math.min(view.back + report.end - picture.report.end, Math.max(0, seconds - view.span));
  if (!view.moved) view.span = whole;
  const chosen = kept(picture, job, lanes, report);
  Object.assign(picture, { job, status, lanes, report, marks, whole, width, left: width < 520 ? NAME_NARROW : NAME, words: new Map(),
    ...chosen, ...inks(job.kinds) });
  sizeTo(picture, width, AXIS + ROW * lanes.length);
  picture.canvas.setAttribute("aria-label", told(job, lanes));
  if (lanes.length > 24) picture.scroller.tabIndex = 0;
  else picture.scroller.removeAttribute("tabindex");
  picture.key.replaceChildren(...legend(picture));
  names(picture);
  draw(picture);
  return picture.card;
}

// What is chosen, in a new answer: its lane by the name, the stretch by its kind and when it began.
function kept({ job: before, lanes: known, report: then, lane, at }, job, lanes, report) {
  const row = known ? lanes.findIndex((one) => one.name === known[lane]?.name) : -1;
  if (row < 0) return { lane: 0, at: null };
  const since = at && 10 * (then.begin - report.begin) + at[1];
  return { lane: row, at: at && (lanes[row].stretches.find(([kind, begin]) =>
    job.kinds[kind] === before.kinds[at[0]] && Math.abs(begin - since) < 5) ?? null) };
}

// The parts of a picture that stay.
function made(job) {
  const readout = el("span", { class: "readout", "aria-live": "polite" });
  const canvas = el("canvas", { tabindex: 0, role: "img" }), key = el("div", { class: "legend" });
  const picture = { canvas, readout, key, view: { back: 0, span: 60, moved: false }, drawing: 0, context: canvas.getContext("2d") };
  const button = (text, label, act) => {
    const one = el("button", { type: "button", "aria-label": label }, text);
    one.addEventListener("click", act);
    return one;
  };
  picture.scroller = el("div", { class: "tall" }, canvas);
  picture.card = el("div", { class: "card lanes" },
    el("h3", {}, job.job, " ", el("span", { class: "quiet" },
      job.of === "roles" ? "what each role runs" : "what ranks do")),
    el("div", { class: "lane" },
      el("span", { class: "zoom" },
        button("−", "see more time", () => zoom(picture, 2)),
        button("+", "see less time", () => zoom(picture, 0.5)),
        button("All", "see all of it", () => reset(picture))),
      el("a", { href: `/api/v1/perfetto?${new URLSearchParams({ job: job.job })}`, download: "ray-sentinel-lanes.json",
        title: "trace events, which ui.perfetto.dev opens" }, "Save for Perfetto"), readout),
    picture.scroller, key);
  listen(picture);
  return picture;
}

// A canvas that gets another size is empty; else only the names have to go.
function sizeTo(picture, width, height) {
  const { canvas, context } = picture, size = [width, height, window.devicePixelRatio].join();
  if (picture.size !== size) {
    Object.assign(picture, { size, ratio: sized(canvas, width, height) });
    return;
  }
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, canvas.width, canvas.height);
}

function shownName({ name, slow }) {
  return slow ? `${name}, slow` : name;
}

// For those who do not see it.
function told(job, lanes) {
  const loud = lanes.filter((lane) => LOUD.includes(job.kinds[lane.stretches.at(-1)[0]]));
  const now = loud.slice(0, 8).map((lane) => `${lane.name}: ${job.kinds[lane.stretches.at(-1)[0]]}`);
  const slow = lanes.filter((lane) => lane.slow).slice(0, 8).map(shownName);
  return [`${job.job}: ${lanes.length} lane${lanes.length === 1 ? "" : "s"} over time`, ...slow, ...now,
    "arrow keys move through lanes and stretches, plus and minus zoom, 0 shows all, Enter leads to the lane's rank"].join("; ");
}

// Stretches of a role may overlap, so neither begins nor ends need be in order: how far those up to
// each reach, and how early those from each on begin, always are.
function reaches({ stretches }) {
  const ends = [], begins = new Array(stretches.length);
  for (const [, begin, length] of stretches) ends.push(Math.max(begin + length, ends.at(-1) ?? 0));
  for (let at = stretches.length - 1; at >= 0; at--) begins[at] = Math.min(stretches[at][1], begins[at + 1] ?? Infinity);
  return { ends, begins };
}

// Colours and fonts, asked for once: a frame that asks for a style makes the browser work it out.
function inks(kinds) {
  const style = getComputedStyle(document.documentElement), ink = (name) => style.getPropertyValue(name).trim();
  let hue = 0;
  return {
    colours: kinds.map((kind) => ink(Object.hasOwn(FIXED, kind) ? FIXED[kind] : `--lane-${hue++ % HUES}`)),
    loud: kinds.map((kind) => LOUD.includes(kind)),
    ink: Object.fromEntries(["text", "bad", "warn", "soft", "quiet", "line"].map((name) => [name, ink(`--${name}`)])),
    family: getComputedStyle(document.body).fontFamily, // the canvas is not in the page yet
  };
}

function legend({ job, colours, marks }) {
  return [...job.kinds.slice(0, 16).map((kind, index) => {
    const mark = el("i", {});
    mark.style.background = colours[index];
    return el("span", {}, mark, kind);
  }), ...(marks.length ? [el("span", {}, el("i", { class: "incident" }), "incident")] : [])];
}

function range({ report, view }) {
  const to = report.end - report.begin - view.back;
  return [to - view.span, to];
}

// Lanes' names stay where they are, whatever is zoomed to.
function names({ context, lanes, left, ink, family, ratio }) {
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.textBaseline = "middle";
  lanes.forEach((lane, row) => {
    context.fillStyle = lane.named ? ink.bad : lane.slow ? ink.warn : ink.text;
    context.font = `${lane.named || lane.slow ? 650 : 400} 11.5px ${family}`;
    context.fillText(cut(context, shownName(lane), left - NAME_GAP), 0, (row + 0.5) * ROW);
  });
}

function draw(picture) {
  picture.drawing = 0;
  const { context, canvas, lanes, job, colours, ink, width, left, ratio } = picture;
  const [from, to] = range(picture), scale = (width - left) / (to - from);
  const x = (at) => left + (at - from) * scale;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(left - NAME_GAP / 2, 0, width, canvas.height);
  axis(context, picture, x);
  context.setTransform(1, 0, 0, 1, 0, 0);
  const tall = Math.round((ROW - 4) * ratio), top = (row) => Math.round((row * ROW + 2) * ratio);
  context.fillStyle = ink.soft;
  lanes.forEach((_, row) => context.fillRect(left * ratio, top(row), canvas.width, tall));
  const runs = colours.map(() => []); // of each kind: row, first pixel, the one after the last
  lanes.forEach((lane, row) => shown(picture, lane, row, from, scale, runs));
  runs.forEach((known, kind) => {
    context.fillStyle = colours[kind];
    for (const [row, first, end] of known) context.fillRect(left * ratio + first, top(row), end - first, tall);
  });
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  if (job.of === "roles") inside(picture, runs);
  incidentMarks(picture, x);
  chosen(picture, x);
}

// What each pixel of a lane shows, as runs: what is in sight only, and never more than there are
// pixels. What is no pixel wide is put last where it is loud: a short stop must be seen.
function shown({ loud, width, left, ratio }, { stretches, ends, begins }, row, from, scale, runs) {
  const most = Math.round((width - left) * ratio), pixels = new Int32Array(most).fill(-1);
  const per = scale * ratio / 10, origin = 10 * from;
  const low = bisect(ends, origin), high = bisect(begins, origin + most / per);
  let shouts = false;
  const put = (kind, begin, length, least) => {
    const first = Math.round((begin - origin) * per);
    pixels.fill(kind, Math.max(0, first), Math.max(0, first + least, Math.round((begin + length - origin) * per)));
  };
  for (let at = low; at < high; at++) {
    const [kind, begin, length] = stretches[at];
    if (loud[kind]) shouts = true;
    else put(kind, begin, length, 1);
  }
  for (let at = low; shouts && at < high; at++) {
    const [kind, begin, length] = stretches[at];
    if (loud[kind]) put(kind, begin, length, Math.ceil(2 * ratio));
  }
  for (let first = 0, end = 1; end <= most; end++) {
    if (end < most && pixels[end] === pixels[first]) continue;
    if (pixels[first] >= 0) runs[pixels[first]].push([row, first, end]);
    first = end;
  }
}

// A line through all lanes, and a dot on those of whom the incident names.
function incidentMarks({ marks, lanes, report, context, ink, width, left }, x) {
  for (const one of marks) {
    const place = x(Math.min(one.at, report.end) - report.begin);
    if (place < left || place > width) continue;
    context.strokeStyle = context.fillStyle = one.open ? ink.bad : ink.quiet;
    context.lineWidth = 1.5;
    context.setLineDash([3, 3]);
    context.beginPath();
    context.moveTo(place, 0);
    context.lineTo(place, lanes.length * ROW + 4);
    context.stroke();
    context.setLineDash([]);
    lanes.forEach((lane, row) => {
      if (!isAmong(lane.name, one.culprits)) return;
      context.beginPath();
      context.arc(place, (row + 0.5) * ROW, 4.5, 0, 2 * Math.PI);
      context.fill();
    });
  }
}

function chosen({ at, lane, context, ink, width, left }, x) {
  if (at === null) return;
  const [, begin, length] = at, top = lane * ROW;
  const start = Math.max(x(begin / 10), left), stop = Math.min(x((begin + length) / 10), width);
  if (stop < left || start > width) return;
  context.strokeStyle = ink.text;
  context.lineWidth = 1.5;
  context.strokeRect(start + 0.75, top + 2.75, Math.max(stop - start - 1.5, 1.5), ROW - 5.5);
}

// A method's own name, where it has room.
function inside({ context, job, family, left, ratio, words }, runs) {
  context.font = `11px ${family}`;
  context.fillStyle = "#fff";
  runs.forEach((known, kind) => {
    if (!words.has(kind)) {
      const method = job.kinds[kind], dot = method.indexOf(".");
      const text = method.slice(dot + 1, dot + 40);
      words.set(kind, [text, Math.max(24, context.measureText(text).width + 8)]);
    }
    const [text, room] = words.get(kind);
    for (const [row, first, end] of known) {
      if ((end - first) / ratio >= room) context.fillText(text, left + first / ratio + 4, (row + 0.5) * ROW + 0.5);
    }
  });
}

function axis(context, { lanes, report, width, left, view, ink, family }, x) {
  const most = Math.max(2, Math.floor((width - left) / 72));
  const step = STEPS.find((one) => view.span / one <= most) || 3600;
  const bottom = lanes.length * ROW, end = report.end - view.back;
  context.fillStyle = ink.quiet;
  context.strokeStyle = ink.line;
  context.lineWidth = 1;
  context.font = `11.5px ${family}`;
  context.textAlign = "center";
  for (let at = Math.ceil((end - view.span) / step) * step; at <= end; at += step) {
    const place = x(at - report.begin);
    context.beginPath();
    context.moveTo(place, 0);
    context.lineTo(place, bottom + 4);
    context.stroke();
    if (place > left + 20 && place < width - 24) context.fillText(clock(at).replace(step < 60 ? "" : /:\d\d(?=\D*$)/, ""), place, bottom + AXIS / 2 + 3);
  }
  context.textAlign = "left";
}

function later(picture) {
  if (!picture.drawing) picture.drawing = requestAnimationFrame(() => draw(picture));
}

function settle(picture) {
  const { view, report } = picture;
  view.span = Math.max(LEAST, Math.min(view.span, report.end - report.begin));
  view.back = Math.max(0, Math.min(view.back, report.end - report.begin - view.span));
  view.moved = true;
  later(picture);
}

// `share`: what part of the view is left of the place that stays where it is.
function zoom(picture, factor, share = 0.5) {
  const { view, report } = picture;
  const span = Math.max(LEAST, Math.min(view.span * factor, report.end - report.begin));
  view.back += (1 - share) * (view.span - span);
  view.span = span;
  settle(picture);
}

function reset(picture) {
  Object.assign(picture.view, { back: 0, span: picture.whole, moved: false });
  later(picture);
}

function choose(picture, row, stretch, mark = null) {
  picture.lane = row;
  picture.at = stretch;
  const lane = picture.lanes[row], { report, marks } = picture;
  const from = stretch && report.begin + stretch[1] / 10, to = stretch && from + stretch[2] / 10;
  const happened = mark ? [mark] : marks.filter((one) => stretch && from <= one.at && one.at <= to && isAmong(lane.name, one.culprits));
  const known = stretch === null ? "nothing is known of this time"
    : `${picture.job.kinds[stretch[0]]}, ${duration(stretch[2] / 10)} from ${clock(from)}`;
  picture.readout.textContent = [`${shownName(lane)}: ${known}`, ...happened.map((one) => `incident: ${one.summary}`)].join(" · ");
  later(picture);
}

// Where a lane leads: to its rank, or to the one of its role that is in trouble or alone.
function addressOf({ job, status, lanes }, row) {
  const { name } = lanes[row];
  if (/^rank \d+$/.test(name)) return processLink(job, name);
  const members = status.members.filter((one) => one.role === name);
  const member = members.find((one) => !isWell(one)) ?? (members.length === 1 ? members[0] : null);
  return member && processLink(job, member.label);
}

function markAt({ marks, report, view, left, width }, place) {
  const from = report.end - report.begin - view.back - view.span;
  const far = ({ at }) => Math.abs(left + (Math.min(at, report.end) - report.begin - from) / view.span * (width - left) - place);
  const near = marks.filter((one) => far(one) <= REACH).sort((a, b) => far(a) - far(b));
  return place < left ? null : near[0] ?? null;
}

function open(picture, row, mark = null) {
  const address = mark ? incidentLink(mark.id) : addressOf(picture, row);
  if (address) location.hash = address;
}

function listen(picture) {
  const { canvas, view } = picture;
  let held = null, begun = null;
  const share = (event) => (event.offsetX - picture.left) / (picture.width - picture.left);
  const second = (event) => range(picture)[0] + share(event) * view.span;
  const rowAt = (event) => Math.floor(event.offsetY / ROW);
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.shiftKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return; // the page scrolls
    event.preventDefault();
    if (event.ctrlKey) zoom(picture, Math.exp(event.deltaY / 200), share(event));
    else {
      view.back -= (event.deltaX || event.deltaY) / (picture.width - picture.left) * view.span;
      settle(picture);
    }
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    held = begun = event.offsetX;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", (event) => {
    const row = rowAt(event), still = begun !== null && Math.abs(event.offsetX - begun) < REACH;
    held = begun = null;
    if (still && row >= 0 && row < picture.lanes.length && event.button === 0) open(picture, row, markAt(picture, event.offsetX));
  });
  canvas.addEventListener("pointercancel", () => { held = begun = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (!event.buttons) held = begun = null; // its end was not told: a drawing that is moved loses the pointer
    if (held !== null && begun === null) { // it is dragged
      view.back += (event.offsetX - held) / (picture.width - picture.left) * view.span;
      held = event.offsetX;
      settle(picture);
      return;
    }
    if (begun !== null && Math.abs(event.offsetX - begun) >= REACH) begun = null;
    const row = rowAt(event);
    if (row < 0 || row >= picture.lanes.length) return;
    const mark = markAt(picture, event.offsetX);
    canvas.style.cursor = mark || addressOf(picture, row) ? "pointer" : "";
    if (event.offsetX < picture.left) return;
    const at = 10 * second(event);
    choose(picture, row, picture.lanes[row].stretches.findLast(([, begin, length]) =>
      begin <= at && at <= begin + length) || null, mark);
  });
  canvas.addEventListener("keydown", (event) => key(picture, event));
}

function key(picture, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const { lanes, lane, view, report } = picture;
  const along = { ArrowLeft: -1, ArrowRight: 1 }[event.key], across = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (event.key === "+" || event.key === "=") zoom(picture, 0.5);
  else if (event.key === "-") zoom(picture, 2);
  else if (event.key === "0") reset(picture);
  else if (event.key === "Enter") open(picture, lane);
  else if (across !== undefined) {
    const row = Math.max(0, Math.min(lanes.length - 1, lane + across));
    choose(picture, row, lanes[row].stretches.at(-1));
  } else if (along !== undefined) {
    const known = lanes[lane].stretches, place = known.indexOf(picture.at);
    const next = known[Math.max(0, Math.min(known.length - 1, (place < 0 ? known.length : place) + along))];
    const [from, to] = range(picture);
    if (next[1] / 10 > to || (next[1] + next[2]) / 10 < from) {
      view.back = report.end - report.begin - next[1] / 10 - view.span / 2;
      settle(picture);
    }
    choose(picture, lane, next);
  } else return;
  event.preventDefault();
}

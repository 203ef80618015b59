// A job's pulse: how long its steps took over the last hour, or the calls of its actors' methods,
// with its phases, its incidents, and how long nothing has ended now. All times are the
// coordinator's, so a browser's clock that is wrong changes nothing.
import { age, clock, duration, el, svg } from "./dom.js";
import { INCIDENT } from "./incidents.js";
import { isOpen } from "./states.js";

// Seconds, and in how many parts the axis has them: the shortest that has all points is shown.
const WINDOWS = [[300, 5], [900, 3], [3600, 4]];
const CLIP = 6; // times the usual: what is longer is cut off, and marked
const TOP = 16, BOTTOM = 20, LEFT = 48, RIGHT = 8;

// `report` is a PulseReport, `status` the status of the same moment, or later.
export function pulses(report, status, incidents, width) {
  const running = status.jobs.filter((job) => !job.ended);
  const shown = running.length ? running : status.jobs;
  return report.jobs.flatMap((pulse) => {
    const job = shown.find((one) => one.job === pulse.job && one.attempt === pulse.attempt);
    if (!job) return [];
    const mine = incidents.filter((one) => one.job === job.job && one.attempt === job.attempt);
    return [panel(pulse, job, mine, scope(pulse, report), width)];
  });
}

// What part of the hour is drawn.
function scope(pulse, report) {
  const end = report.begin + report.places * report.width;
  const starts = pulse.lanes.map((lane) => report.begin + lane.points[0][0] * report.width);
  const needed = end - Math.min(end, ...starts);
  const [seconds, parts] = WINDOWS.find(([one]) => needed <= one) || WINDOWS.at(-1);
  return { start: end - seconds, end, parts, report };
}

function panel(pulse, job, incidents, range, width) {
  const words = pulse.counts === "steps" ? ["step", "steps"] : ["call", "calls"];
  const card = el("div", { class: "card pulse" }, el("h3", {}, job.job, " ",
    el("span", { class: "quiet" }, `time per ${words[0]}, last ${(range.end - range.start) / 60} min`)));
  if (!pulse.lanes.length) {
    card.append(el("p", { class: "quiet" }, "No times yet: it has not reported the end of a step."));
    return card;
  }
  const tall = pulse.lanes.length > 1 ? 64 : 130;
  const stands = standstill(words[0], job);
  pulse.lanes.forEach((lane, index) => {
    const last = index === pulse.lanes.length - 1;
    const readout = el("span", { class: "readout" });
    const usual = middle(lane.points.map((point) => point[2]));
    const slowest = lane.points.reduce((most, point) => (point[3] > most[3] ? point : most));
    const said = `usual ${duration(usual)} · longest ${duration(slowest[3])} at ` +
      clock(timeOf(slowest, range.report));
    card.append(el("p", { class: "lane" }, el("b", {}, lane.name),
      el("span", { class: "quiet" }, said), stands && index === 0 ? el("span", { class: "t-bad" }, stands) : null,
      readout));
    card.append(drawn(lane, pulse, job, incidents, range,
      { width, height: tall + (last ? BOTTOM : 4), usual, words, readout, last, said }));
  });
  card.append(phaseKey(pulse, range));
  return card;
}

function middle(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}

function timeOf(point, report) {
  return report.begin + (point[0] + 0.5) * report.width;
}

function drawn(lane, pulse, job, incidents, range, look) {
  const { width, height, usual, last } = look;
  const floor = height - (last ? BOTTOM : 4);
  const longest = Math.max(...lane.points.map((point) => point[3]));
  const most = Math.max(Math.min(longest, CLIP * usual), 1e-6) * 1.08;
  const x = (at) => LEFT + (Math.max(at, range.start) - range.start) /
    (range.end - range.start) * (width - LEFT - RIGHT);
  const y = (seconds) => floor - Math.min(seconds / most, 1) * (floor - TOP);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, tabindex: 0,
    role: "group", "aria-label": `${[job.job, lane.name].filter(Boolean).join(" ")}: time per ${look.words[0]}, ${look.said}` });
  picture.append(svg("text", { class: "tick", x: 2, y: 10 }, `time per ${look.words[0]}`),
    ...scale(most, y, width, floor), ...bands(pulse, range, x, floor));
  picture.append(...curve(lane, range, x, y, usual * CLIP));
  if (standstill("", job)) picture.append(still(job, range, x, floor));
  picture.append(...events(pulse, range, x, floor), ...marks(incidents, range, x, floor));
  if (last) picture.append(...timeAxis(range, x, width, height));
  follow(picture, lane, happened(pulse, incidents, range), range, x, y, look);
  return picture;
}

function scale(most, y, width, floor) {
  const step = nice(most / (floor > 100 ? 2.2 : 1));
  const lines = [];
  for (let value = 0; value <= most; value += step) {
    lines.push(svg("line", { class: value ? "rule" : "axis", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }));
    lines.push(svg("text", { class: "tick", x: LEFT - 6, y: Math.min(y(value) + 4, floor), "text-anchor": "end" },
      value ? duration(value) : "0"));
  }
  return lines;
}

function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * (value / power >= 5 ? 5 : value / power >= 2 ? 2 : 1);
}

function phasesIn(pulse, range) {
  return pulse.phases.map((one) => ({ ...one, stop: Math.min(one.end ?? range.end, range.end) }))
    .filter((one) => one.stop >= range.start);
}

function bands(pulse, range, x, floor) {
  return phasesIn(pulse, range).map((one) => {
    const from = x(one.start), to = Math.max(x(one.stop), from + 2);
    return svg("rect", { class: "phase", x: from, width: to - from, y: TOP, height: floor - TOP },
      svg("title", {}, `${one.phase}: ${age(one.stop - one.start)} from ${clock(one.start)}`));
  });
}

// Each phase once, in words: most are too short for their name.
function phaseKey(pulse, range) {
  const last = new Map();
  for (const one of phasesIn(pulse, range)) last.set(one.phase, [(last.get(one.phase)?.[0] || 0) + 1, one]);
  return el("div", { class: "legend" }, ...[...last].slice(-8).map(([phase, [times, one]]) =>
    el("span", {}, el("i", { class: "phase" }), `${phase}${times > 1 ? ` ${times} times` : ""}, ` +
      (one.end === null ? `for ${age(one.stop - one.start)} now`
        : `last ${age(one.stop - one.start)} at ${clock(one.start)}`))),
  ...eventKey(pulse, range));
}

// What happened to GPUs, to the network and to hosts, the last of each.
function eventKey(pulse, range) {
  const last = new Map();
  for (const one of eventsIn(pulse, range)) last.set(one.about, [(last.get(one.about)?.[0] || 0) + one.count, one]);
  return [...last].map(([about, [times, one]]) => el("span", { class: "happened" },
    el("i", { class: `event ${about}` }),
    `${ABOUT[about]}${times > 1 ? ` ${times} times, last` : ""} at ${clock(one.at)} on ${one.host}: ${one.text}`));
}

const ABOUT = { gpu: "GPU", network: "network", host: "host" };

function eventsIn(pulse, range) {
  return pulse.marks.filter((one) => one.at >= range.start);
}

// Told apart without colours too: a rhomb, a triangle, a square.
function shape(about, at, high) {
  if (about === "gpu") return `M${at} ${high - 5}L${at + 5} ${high}L${at} ${high + 5}L${at - 5} ${high}Z`;
  if (about === "network") return `M${at} ${high - 4.5}L${at + 5} ${high + 4}L${at - 5} ${high + 4}Z`;
  return `M${at - 4} ${high - 4}h8v8h-8Z`;
}

function events(pulse, range, x, floor) {
  return eventsIn(pulse, range).map((one) => {
    const at = x(Math.min(one.at, range.end));
    return svg("g", { class: `event ${one.about}` }, svg("title", {}, said(one)),
      svg("line", { x1: at, x2: at, y1: TOP, y2: floor }), svg("path", { d: shape(one.about, at, floor - 5) }));
  });
}

function said(one) {
  return `${clock(one.at)} ${one.host}: ${one.text}${one.count > 1 ? ` (${one.count} times)` : ""}`;
}

// All that is marked, by its time: the arrow keys stop there too.
function happened(pulse, incidents, range) {
  return [...eventsIn(pulse, range).map((one) => [one.at, said(one)]),
    ...incidents.map((one) => [one.suspected_at, `incident: ${one.summary}`]),
    ...phasesIn(pulse, range).map((one) => [Math.max(one.start, range.start),
      `${one.phase} for ${age(one.stop - one.start)}`])]
    .filter(([at]) => at >= range.start).map(([at, text]) => [Math.min(at, range.end), text]);
}

// The mean as a line, up to the longest as a shade. A step explains that nothing ended while it
// lasted; where more is missing the line breaks.
function curve(lane, range, x, y, clip) {
  const runs = [];
  let before = null;
  for (const point of lane.points) {
    const at = timeOf(point, range.report);
    if (at < range.start) continue;
    const gap = before === null ? Infinity : at - before;
    if (gap > 1.5 * point[3] + 2 * range.report.width) runs.push([]);
    runs.at(-1).push([x(at), y(point[2]), y(point[3]), point]);
    before = at;
  }
  const path = (points) => points.map(([a, b], index) => `${index ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");
  return runs.flatMap((run) => {
    const upper = run.map(([at, , high]) => [at, high]), lower = run.map(([at, mean]) => [at, mean]);
    const parts = run.length > 1
      ? [svg("path", { class: "spread", d: `${path([...upper, ...lower.reverse()])}Z` }),
        svg("path", { class: "mean", d: path(run) })]
      : [svg("circle", { class: "dot", cx: run[0][0], cy: run[0][1], r: 1.8 })];
    const cut = run.filter(([, , , point]) => point[3] > clip);
    return [...parts, ...cut.map(([at, , , point]) =>
      svg("path", { class: "cut", d: `M${at - 4} ${TOP + 1}L${at + 4} ${TOP + 1}L${at} ${TOP - 6}Z` },
        svg("title", {}, `${duration(point[3])} at ${clock(timeOf(point, range.report))}`)))];
  });
}

// The sentence about a job in which nothing ends any more; "" for one that is well.
function standstill(word, job) {
  const stands = job.state !== "healthy" && !job.ended && job.step_age_seconds !== null;
  return stands ? `no ${word} has ended for ${age(job.step_age_seconds)}` : "";
}

function still(job, range, x, floor) {
  const to = x(range.end), from = Math.min(x(range.end - job.step_age_seconds), to - 3);
  return svg("rect", { class: "still", x: from, width: to - from, y: TOP, height: floor - TOP });
}

function marks(incidents, range, x, floor) {
  return incidents.filter((one) => one.suspected_at >= range.start).map((one) => {
    const at = x(Math.min(one.suspected_at, range.end));
    return svg("a", { class: `mark${isOpen(one) ? " now" : ""}`,
      href: INCIDENT + encodeURIComponent(one.id), "aria-label": `incident: ${one.summary}` },
    svg("title", {}, `${clock(one.suspected_at)} ${one.summary}`),
    svg("line", { x1: at, x2: at, y1: 8, y2: floor }), svg("circle", { cx: at, cy: 7, r: 5 }));
  });
}

function timeAxis(range, x, width, height) {
  const count = width < 480 && range.parts % 2 === 0 ? range.parts / 2 : range.parts;
  return Array.from({ length: count + 1 }, (_, index) => {
    const at = range.start + (range.end - range.start) * index / count;
    const anchor = index === 0 ? "start" : index === count ? "end" : "middle";
    return svg("text", { class: "tick", x: x(at), y: height - 5, "text-anchor": anchor },
      index === count ? "now" : `−${(range.end - at) / 60} min`);
  });
}

// A cursor: by the pointer, or by the arrow keys. It stops at each point, and at all that is marked.
function follow(picture, lane, marked, range, x, y, look) {
  const { width: wide } = range.report;
  const points = lane.points.filter((point) => timeOf(point, range.report) >= range.start);
  const near = (at, point) => Math.abs(timeOf(point, range.report) - at) <= wide / 2;
  const stops = [...points.map((point) => ({ at: timeOf(point, range.report), point })),
    ...marked.filter(([at]) => !points.some((point) => near(at, point))).map(([at]) => ({ at, point: null }))]
    .sort((a, b) => a.at - b.at);
  const dot = svg("circle", { class: "cursor", r: 4, visibility: "hidden" });
  picture.append(dot);
  let place = stops.length - 1;
  const show = (index) => {
    place = Math.max(0, Math.min(stops.length - 1, index));
    const { at, point } = stops[place];
    dot.setAttribute("cx", x(at));
    dot.setAttribute("cy", point ? y(point[2]) : y(0));
    dot.setAttribute("visibility", "visible");
    const here = marked.filter(([when]) => Math.abs(when - at) <= wide / 2).map(([, text]) => text);
    look.readout.textContent = `${clock(at)}: ` +
      [...(point ? [times(point, look.words)] : []), ...here].join(" · ");
  };
  const leave = () => {
    dot.setAttribute("visibility", "hidden");
    look.readout.textContent = "";
  };
  picture.addEventListener("pointermove", (event) => {
    const wanted = event.clientX - picture.getBoundingClientRect().left;
    const far = (index) => Math.abs(x(stops[index].at) - wanted);
    show(stops.reduce((best, _, index) => (far(index) < far(best) ? index : best), 0));
  });
  picture.addEventListener("pointerleave", leave);
  picture.addEventListener("focus", () => show(place));
  picture.addEventListener("blur", leave);
  picture.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -stops.length, End: stops.length }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    show(place + by);
  });
}

function times([, count, mean, most], words) {
  return `${count} ${words[count === 1 ? 0 : 1]}, mean ${duration(mean)}, longest ${duration(most)}`;
}

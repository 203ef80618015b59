// What a rank, its node and its GPU did over the last half hour: a small plot for each quantity, all
// with one axis of time.
import { bytes, clock, duration, el, svg } from "./dom.js";

const HEIGHT = 74, TOP = 6, BOTTOM = 16, LEFT = 8, RIGHT = 8, LEAST = 300; // pixels
const MOST_GAP = 45; // seconds: over a longer time without a value no line is drawn
const percent = (value) => `${Math.round(100 * value)} %`;
const UNITS = { steps: (value) => String(Math.round(value)), seconds: duration, ratio: percent, watts: (value) => `${Math.round(value)} W`, bytes };

// `report` is a RankSeries or null.
export function rankPlots(report, of, width) {
  if (!report?.plots.length) return [];
  const columns = width >= 2 * LEAST + 20 ? 2 : 1, wide = Math.floor((width - 20 * (columns - 1)) / columns);
  const note = report.assumed ? `GPU ${report.gpus.join(", ")} is assumed from the rank's position on its node.` : "";
  const plots = el("div", { class: "plots" }, ...report.plots.map((plot) => drawn(plot, report, of, wide)));
  plots.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
  return [plots, note ? el("p", { class: "quiet" }, note) : null].filter((one) => one);
}

function drawn(plot, report, of, width) {
  const { points, unit } = plot, say = UNITS[unit] ?? String;
  const values = points.map(([, value]) => value), seconds = report.end - report.begin;
  const low = unit === "steps" ? Math.min(...values) : 0;
  const high = unit === "ratio" ? 1 : Math.max(plot.whole ?? 0, ...values), room = Math.max(high - low, 1e-9);
  const floor = HEIGHT - BOTTOM, x = (at) => LEFT + at / seconds * (width - LEFT - RIGHT);
  const y = (value) => floor - (value - low) / room * (floor - TOP);
  const readout = el("span", { class: "readout" }), last = points.at(-1);
  const whole = plot.whole === null ? "" : ` of ${say(plot.whole)}`;
  const told = `${say(last[1])}${whole} · ${say(Math.min(...values))} to ${say(Math.max(...values))}`;
  const dot = svg("circle", { class: "cursor", r: 4, visibility: "hidden" });
  const picture = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, tabindex: 0, role: "group",
    "aria-label": `${plot.name} of ${of}` },
  svg("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: floor, y2: floor }),
  svg("line", { class: "rule", x1: LEFT, x2: width - RIGHT, y1: TOP, y2: TOP }),
  svg("path", { class: "spread", d: area(points, x, y, floor) }), svg("path", { class: "mean", d: line(points, x, y) }),
  ...hours(report, x, width), dot);
  follow(picture, points, (index) => {
    const [at, value] = points[index];
    dot.setAttribute("cx", x(at));
    dot.setAttribute("cy", y(value));
    dot.setAttribute("visibility", "visible");
    readout.textContent = `${clock(report.begin + at)}: ${say(value)}`;
  }, () => {
    dot.setAttribute("visibility", "hidden");
    readout.textContent = "";
  }, x, { of: `${plot.name} of ${of}`, begin: report.begin });
  return el("div", {}, el("p", { class: "lane" }, el("b", {}, plot.name), el("span", { class: "quiet" }, told), readout), picture);
}

// Runs of points without a gap.
function runs(points) {
  const found = [];
  points.forEach((point, index) => {
    if (!index || point[0] - points[index - 1][0] > MOST_GAP) found.push([]);
    found.at(-1).push(point);
  });
  return found;
}

const places = (run, x, y) => run.map(([at, value]) => `${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("L");

function line(points, x, y) {
  // One point alone would not be visible.
  return runs(points).map((run) => `M${places(run.length > 1 ? run : [run[0], [run[0][0] + 5, run[0][1]]], x, y)}`).join("");
}

function area(points, x, y, floor) {
  return runs(points).map((run) => `M${x(run[0][0]).toFixed(1)} ${floor}L${places(run, x, y)}L${x(run.at(-1)[0]).toFixed(1)} ${floor}Z`).join("");
}

function hours(report, x, width) {
  const step = width < 2 * LEAST ? 600 : 300, found = [];
  for (let at = Math.ceil(report.begin / step) * step; at < report.end; at += step) {
    const place = x(at - report.begin);
    if (place > 24 && place < width - 24) {
      found.push(svg("text", { class: "tick", x: place, y: HEIGHT - 3, "text-anchor": "middle" }, clock(at).replace(/:\d\d(?=\D*$)/, "")));
    }
  }
  return found;
}

let read = null; // which plot the keyboard reads, and at what time: both stay over new answers

function follow(picture, points, show, leave, x, { of, begin }) {
  let place = points.length - 1;
  const go = (index) => show(place = Math.max(0, Math.min(points.length - 1, index)));
  const nearest = (far) => points.reduce((best, point, index) => (far(point) < far(points[best]) ? index : best), 0);
  if (read?.of === of) place = nearest(([at]) => Math.abs(begin + at - read.at));
  picture.addEventListener("pointermove", (event) => {
    const wanted = event.clientX - picture.getBoundingClientRect().left;
    go(nearest(([at]) => Math.abs(x(at) - wanted)));
  });
  picture.addEventListener("pointerleave", leave);
  picture.addEventListener("focus", () => go(place));
  picture.addEventListener("blur", leave);
  picture.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -points.length, End: points.length }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    go(place + by);
    read = place === points.length - 1 ? null : { of, at: begin + points[place][0] }; // the last stays the last
  });
}

// The page: what is asked, how often, and which part of the page shows it.
import { alertList } from "./alerts.js";
import { ask, follow, poll } from "./api.js";
import { unpacked } from "./columns.js";
import { clock, el, fill, isEmpty, trouble } from "./dom.js";
import { showGpus as drawGpus } from "./gpus.js";
import { count, headline, unanswered, undrawn } from "./headline.js";
import { INCIDENT, openIncidents } from "./incidents.js";
import { fitBeside, levelQuery, showJobs, takeGpus, takeGroups } from "./jobs.js";
import { showLanes as drawLanes } from "./lanes.js";
import { linkToNodes, nodeAt, nodeDetail, ofNode } from "./node.js";
import { health, showNodes } from "./nodes.js";
import { showPast, showState } from "./past.js";
import { found, incidentsOf, isLaneOf, processAt, processDetail, seriesOf } from "./process.js";
import { showPorts as drawPorts } from "./ports.js";
import { pulses } from "./pulse.js";
import { tick } from "./times.js";

const PULSE_SECONDS = 10; // so long is one of its points
const GPU_SECONDS = 10; // agents send every five
const PORT_SECONDS = 30;
const GROUP_SECONDS = 30;
const DETAIL_SECONDS = 5;

let told = null; // what came last
let page = null; // as it is drawn
let pulse = null;
let gpus = null;
let gpusAt = null;
let lanes = null;
let ports = null;
let quantity = "utilisation"; // of the GPUs
const NOTHING = { address: "", known: "" };
let shown = NOTHING; // what the address opened, and what the page knew of it then

function show({ status, incidents, incident_counts: counts }) {
  tick(status.time);
  const running = status.jobs.filter((job) => !job.ended);
  const jobs = running.length ? running : status.jobs;
  const now = document.getElementById("now");
  if (now.clientWidth) now.classList.toggle("apart", !fitBeside(jobs, now.clientWidth)); // else an incident is shown instead
  now.classList.toggle("well", counts.open === 0);
  showJobs(document.querySelector("#jobs > div"), jobs, incidents);
  fill("incidents", [incidents, counts], () => openIncidents(incidents, counts, () => showState("open")));
  fill("alerts", jobs.map((job) => [job.job, job.attempt, job.alerts]), () => alertList(jobs));
  showPast(incidents, counts);
  showNodes(document.querySelector("#nodes > div"), status);
  const own = health(status);
  fill("health", own.textContent, () => [el("div", { class: "card" }, own)]);
  const notes = [...status.notes];
  if (status.log_dir) notes.push(`files: ${status.log_dir}`);
  if (status.prometheus) notes.push(`Prometheus: ${status.prometheus}`);
  fill("notes", notes, () => notes.map((note) => el("li", {}, note)));
  count("incidents", counts.open);
  count("alerts", jobs.reduce((sum, job) => sum + job.alerts.length, 0));
}

function showPulse() {
  if (page === null || pulse === null) return;
  const section = document.getElementById("pulse");
  section.hidden = false; // else it has no width
  const width = roomOf("pulse");
  if (width < 100) return; // an incident is shown instead
  fill("pulse", [pulse, width], () => pulses(pulse, page.status, page.incidents, width));
}

// Which incident the address names; null if it names none.
function incidentAt(hash) {
  if (!hash.startsWith(INCIDENT)) return null;
  const named = hash.slice(INCIDENT.length);
  try {
    return decodeURIComponent(named);
  } catch {
    return named; // a link that was cut: there is no such incident
  }
}

// The first view does without it.
const detail = () => import("./detail.js");

// What the address may open in place of the whole: how it is asked for, and how it is drawn. What
// `brief` tells is looked at each second; it is asked for again where that has changed.
const VIEWS = [
  {
    at: incidentAt,
    brief: (id) => page?.incidents.find((one) => one.id === id),
    load: (id) => Promise.all([ask(`/api/v1/page/incidents/${encodeURIComponent(id)}`), detail()]),
    draw: (id, [told, { incidentDetail }]) => incidentDetail(told),
    missing: (id, error) => `Incident ${id} cannot be shown: ${error.message}`,
  },
  {
    at: processAt,
    brief: (place) => [page?.incidents, page && found(place, page.status)],
    load: async (place) => (page === null ? null : [page.status,
      ...await Promise.all([incidentsOf(place, page.incidents), Promise.resolve(gpus), seriesOf(place, page.status)])]),
    draw: (place, told) => (told === null ? [] : processDetail(place, ...told, roomOf("detail"))),
    drawn: showItsLane,
    missing: (place, error) => `${place.name} cannot be shown: ${error.message}`,
  },
  {
    at: nodeAt,
    brief: (place) => page && ofNode(place, page.status),
    load: async (place) => (page === null ? null : [page.status, gpus]),
    draw: (place, told) => (told === null ? [] : nodeDetail(place, ...told)),
    missing: (place, error) => `${place.host} cannot be shown: ${error.message}`,
  },
];

// Pixels within a card of a section.
function roomOf(id) {
  return document.getElementById(id).clientWidth - 34;
}

// The lane of one rank, which is that of its node or group where there are many.
function showItsLane(place) {
  const spot = document.querySelector("#detail .its-lane"), rank = page && found(place, page.status)?.rank;
  if (!spot || !rank || lanes === null) return;
  const jobs = lanes.jobs.filter((one) => one.job === place.job && one.attempt === place.attempt && one.of === "ranks")
    .map((one) => ({ ...one, lanes: one.lanes.filter(({ name }) => isLaneOf(name, rank)) })).filter((one) => one.lanes.length);
  drawLanes(spot, { ...lanes, jobs }, page.status, page.incidents, roomOf("detail"));
}

function opened() {
  for (const view of VIEWS) {
    const place = view.at(location.hash);
    if (place !== null) return { view, place };
  }
  return null;
}

async function showDetail() {
  const now = opened();
  document.querySelector("main").classList.toggle("one", now !== null);
  document.getElementById("detail").hidden = now === null;
  if (now === null) return;
  const { view, place } = now;
  const address = location.hash;
  // What is sent in brief says nothing about new steps, and has only the last incidents.
  const known = JSON.stringify([address, view.brief(place), Math.floor(performance.now() / (1000 * DETAIL_SECONDS))]);
  if (known === shown.known) return;
  const arrived = shown.address !== address;
  shown = { address, known };
  let nodes, told = null;
  try {
    told = await view.load(place);
    nodes = () => view.draw(place, told);
  } catch (error) {
    shown.known = ""; // asked again in a second
    if (!arrived) return; // what is shown stays
    nodes = () => [el("p", { class: "quiet" }, view.missing(place, error))];
  }
  if (location.hash !== address) return; // the reader has gone on meanwhile
  fill("detail", [address, told], nodes);
  view.drawn?.(place);
  if (arrived) document.querySelector("#detail .title")?.focus();
}

addEventListener("hashchange", () => {
  const before = opened() === null ? shown.address : "";
  if (opened() === null) shown = NOTHING;
  showDetail();
  showPulse(); // it has no width while it is hidden
  showLanes();
  scrollTo(0, 0);
  const part = opened() === null && document.getElementById(location.hash.slice(1));
  if (part) part.scrollIntoView();
  else if (before) [...document.querySelectorAll("main a")].find((one) => one.checkVisibility() && one.hash === before)?.focus();
});

addEventListener("keydown", (event) => {
  if (event.key === "Escape" && opened() !== null && !event.target.matches("input")) location.hash = "";
});

function draw() {
  if (told === null || document.hidden) return; // it is drawn when somebody looks
  const first = page === null;
  try {
    page = unpacked(told);
    show(page);
    showDetail();
  } catch (error) {
    isBroken = true;
    undrawn(error);
    return;
  }
  if (isBroken) headline(told.status);
  isBroken = false;
  if (!first) return;
  showPulse(); // what is below it would move
  for (const more of [showLanes, showGpus, showPorts, () => detail().catch(() => {})]) afterFrame(more);
}

let isDue = false, isBroken = false; // whether what came last could not be drawn

function drawSoon() {
  if (isDue || document.hidden) return;
  isDue = true;
  afterFrame(() => {
    isDue = false;
    draw();
  });
}

// Once what is drawn already is seen.
function afterFrame(call) {
  requestAnimationFrame(() => setTimeout(call));
}

document.addEventListener("visibilitychange", draw);

follow((now) => {
  told = now;
  if (!isBroken) headline(told.status); // also of a tab in the background
  if (page === null) draw();
  else drawSoon(); // thousands of ranks take longer than that
}, unanswered, levelQuery);

poll(PULSE_SECONDS, async () => {
  pulse = await ask("/api/v1/pulse");
  trouble("pulse", "");
  showPulse();
}, (error) => trouble("pulse", untold("The pulse", error, pulse && pulse.begin + pulse.places * pulse.width)));

// `at` is the time of what is shown, where anything is.
function untold(what, error, at) {
  const then = at ? `; what is below is of ${clock(at)}` : "";
  return `${what} cannot be told (${error.message})${then}. It is asked for again.`;
}

function showGpus() {
  if (page === null || gpus === null) return;
  drawGpus(gpus, page.status.nodes, linkToNodes(page.status), quantity, choose);
}

async function askGpus() {
  gpus = await ask(`/api/v1/gpus?quantity=${quantity}`);
  gpusAt = page?.status.time;
  trouble("gpus", "");
  takeGpus(gpus);
  showGpus();
}

async function choose(name) {
  quantity = name;
  await askGpus().catch(gpusUntold);
}

function gpusUntold(error) {
  trouble("gpus", untold("The GPUs", error, gpusAt));
}

poll(GPU_SECONDS, askGpus, gpusUntold);

function showPorts() {
  if (page !== null && ports !== null) drawPorts(ports, linkToNodes(page.status));
}

poll(PORT_SECONDS, async () => {
  ports = await ask("/api/v1/ports");
  trouble("ports", "");
  showPorts();
}, (error) => trouble("ports", untold("The RDMA ports", error, null)));

poll(GROUP_SECONDS, async () => takeGroups(await ask("/api/v1/page/groups")));

function showLanes() {
  if (page === null || lanes === null) return;
  const section = document.getElementById("lanes");
  section.hidden = false; // else it has no width
  const width = roomOf("lanes");
  if (width < 100) return; // an incident is shown instead
  drawLanes(section.lastElementChild, lanes, page.status, page.incidents, width);
  section.hidden = isEmpty(section);
}

poll(PULSE_SECONDS, async () => {
  lanes = await ask("/api/v1/lanes");
  trouble("lanes", "");
  showLanes();
}, (error) => trouble("lanes", untold("The lanes", error, lanes && lanes.end)));

addEventListener("resize", showLanes);
new ResizeObserver(() => afterFrame(showPulse)).observe(document.getElementById("pulse"));

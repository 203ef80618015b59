// The page: what is asked, how often, and which part of the page shows it.
import { ask, poll } from "./api.js";
import { incidentDetail } from "./detail.js";
import { clock, el, fill, forget } from "./dom.js";
import { gpuMap } from "./gpus.js";
import { INCIDENT, incidentCard } from "./incidents.js";
import { jobCard } from "./jobs.js";
import { laneCards } from "./lanes.js";
import { nodeTable } from "./nodes.js";
import { pulses } from "./pulse.js";

const PULSE_SECONDS = 10; // so long is one of its points
const GPU_SECONDS = 10; // agents send every five
const DETAIL_SECONDS = 5;

let page = null; // the last answers
let pulse = null;
let gpus = null;
let lanes = null;
let quantity = "utilisation"; // of the GPUs
const NONE = '[""]';
let shownIncident = NONE; // its number, and what the page knew of it then

function headline(state, verdict, time) {
  document.getElementById("headline").className = state;
  for (const [id, text] of [["state", state], ["verdict", verdict], ["clock", time]]) {
    const node = document.getElementById(id);
    if (node.textContent !== text) node.textContent = text; // else a reader would read it again
  }
  document.title = `${state} · ray_sentinel`;
}

function show({ status, incidents }) {
  headline(status.state, status.verdict, clock(status.time));
  const running = status.jobs.filter((job) => !job.ended);
  const jobs = running.length ? running : status.jobs;
  fill("jobs", [jobs, incidents], () => (jobs.length ? jobs.map((job) => jobCard(job, incidents))
    : [el("p", { class: "quiet" }, "No training runs yet.")]));
  fill("incidents", incidents, () => [...incidents].reverse().map(incidentCard));
  fill("nodes", [status.nodes, status.unwatched], () => [nodeTable(status)]);
  const notes = [...status.notes];
  if (status.log_dir) notes.push(`files: ${status.log_dir}`);
  if (status.prometheus) notes.push(`Prometheus: ${status.prometheus}`);
  fill("notes", notes, () => notes.map((note) => el("li", {}, note)));
}

function showPulse() {
  if (page === null || pulse === null) return;
  const section = document.getElementById("pulse");
  section.hidden = false; // else it has no width
  const width = section.clientWidth - 34;
  if (width < 100) return; // an incident is shown instead
  fill("pulse", [pulse, width], () => pulses(pulse, page.status, page.incidents, width));
}

// Which incident the address names; "" where it names none.
function chosen() {
  if (!location.hash.startsWith(INCIDENT)) return "";
  const named = location.hash.slice(INCIDENT.length);
  try {
    return decodeURIComponent(named);
  } catch {
    return named; // a link that was cut: there is no such incident
  }
}

async function showIncident() {
  const id = chosen();
  const brief = page?.incidents.find((one) => one.id === id);
  // What is told in brief says nothing of new steps, and only the last incidents are.
  const known = JSON.stringify([id, brief, Math.floor(performance.now() / (1000 * DETAIL_SECONDS))]);
  document.querySelector("main").classList.toggle("one", id !== "");
  document.getElementById("detail").hidden = id === "";
  if (id === "" || known === shownIncident) return;
  const arrived = JSON.parse(shownIncident)[0] !== id;
  shownIncident = known;
  let nodes, told = null;
  try {
    told = await ask(`/api/v1/incidents/${encodeURIComponent(id)}`);
    nodes = () => incidentDetail(told);
  } catch (error) {
    shownIncident = JSON.stringify([id]); // asked again in a second
    if (!arrived) return; // what is shown stays
    nodes = () => [el("p", { class: "quiet" }, `Incident ${id} cannot be shown: ${error.message}`)];
  }
  if (chosen() !== id) return; // the reader has gone on meanwhile
  fill("detail", [id, told], nodes);
  if (arrived) document.querySelector("#detail .title")?.focus();
}

addEventListener("hashchange", () => {
  const before = chosen() === "" ? JSON.parse(shownIncident)[0] : "";
  if (chosen() === "") shownIncident = NONE;
  showIncident();
  showPulse(); // it has no width while it is hidden
  showLanes();
  scrollTo(0, 0);
  const links = [...document.querySelectorAll("#incidents h3 a")];
  if (before) links.find((one) => one.hash === INCIDENT + encodeURIComponent(before))?.focus();
});

addEventListener("keydown", (event) => {
  if (event.key === "Escape" && chosen() !== "" && !event.target.matches("input")) location.hash = "";
});

poll(1, async () => {
  const first = page === null;
  page = await ask("/api/v1/page");
  show(page);
  showIncident();
  if (first) {
    showPulse();
    showLanes();
    showGpus();
  }
}, (error) => {
  const since = page === null ? "" : ` since ${clock(page.status.time)}: what is below is of then`;
  headline("unknown", `the coordinator does not answer (${error.message})${since}; asking again`, "");
});

poll(PULSE_SECONDS, async () => {
  pulse = await ask("/api/v1/pulse");
  showPulse();
});

function showGpus() {
  if (page === null || gpus === null) return;
  fill("gpus", [gpus, quantity, gpus.rows.length ? null : page.status.nodes.map((node) => node.collectors)],
    () => gpuMap(gpus, page.status.nodes, quantity, choose));
}

async function askGpus() {
  gpus = await ask(`/api/v1/gpus?quantity=${quantity}`);
  showGpus();
}

async function choose(name) {
  quantity = name;
  await askGpus().catch(() => {}); // the headline says it in a second
}

poll(GPU_SECONDS, askGpus);

function showLanes() {
  if (page === null || lanes === null) return;
  const section = document.getElementById("lanes");
  section.hidden = false; // else it has no width
  const width = section.clientWidth - 34;
  if (width < 100) return; // an incident is shown instead
  fill("lanes", [lanes, width], () => laneCards(lanes, page.status, page.incidents, width));
}

poll(PULSE_SECONDS, async () => {
  lanes = await ask("/api/v1/lanes");
  showLanes();
});

addEventListener("resize", () => {
  forget("pulse");
  showPulse();
  showLanes();
});

// A job: its state, a cell for each rank, and a line for each process that is none. What shows the
// same as before stays as it is: of thousands of ranks few change in a second.
import { followAnew } from "./api.js";
import { fitsBeside } from "./cell_layout.js";
import { cellsView, update } from "./cells.js";
import { counted, LATE, lookCounts, LOOKS, ranges, scaleOf } from "./cell_looks.js";
import { age, clock, el, facts, refill, table } from "./dom.js";
import { nodeLink } from "./node.js";
import { linker, processLink, rankName } from "./process.js";
import { isOpen, isWell, jobTone, tone } from "./states.js";

const MANY = 256; // ranks: from here on, a number leads to one as well
const ROWS = 32, MEMBERS = 64;
const RANGES = 8; // of ranks in the name of a group: data parallelism has a thousand
const WAYS = { node: (rank) => rank.host, role: (rank) => rank.role, state: (rank) => rank.state };
const GAP = 20, AROUND = 34; // pixels between both halves of the page, and around a card's cells
const PARTS = ["name", "facts", "ways", "cells", "legend", "troubled", "members"];

const cards = new Map(); // of jobs, by name and attempt
const grouped = new Map(); // the process groups of jobs, by name and attempt: when told, and ways
let latest = null; // what is shown
let way = "node", look = "state"; // what ranks are sorted by, and a key of LOOKS: coloured by
let withGpus = new Set(); // hosts

export function showJobs(place, jobs, incidents) {
  latest = [place, jobs, incidents];
  const keys = jobs.map(keyOf);
  for (const [known, { picture }] of cards) {
    if (keys.includes(known)) continue;
    picture?.end();
    cards.delete(known);
  }
  for (const key of keys) if (!cards.has(key)) cards.set(key, card());
  refill(place, keys, () => (jobs.length ? keys.map((key) => cards.get(key).node)
    : [el("p", { class: "quiet" }, NONE)]));
  jobs.forEach((job, index) => fillCard(cards.get(keys[index]), job, incidents));
}

const NONE = "No job has been seen yet. One is seen once its ranks run on these nodes, with a launcher's RANK and "
  + "WORLD_SIZE in their environment, or once attach() is called.";
const keyOf = (job) => JSON.stringify([job.job, job.attempt]);

// Takes a GroupsReport: ranks can be sorted by the process groups that it tells.
export function takeGroups({ jobs }) {
  grouped.clear();
  for (const job of jobs) {
    const ways = Object.fromEntries(job.kinds.map(({ name, groups: all }) => {
      const names = new Map(all.flatMap((some) => {
        const told = `ranks ${shortly(ranges(some), some.length)}`;
        return some.map((rank) => [rank, told]);
      }));
      return [`group ${name}`, (rank) => names.get(rank.rank) ?? "in none"];
    }));
    grouped.set(keyOf(job), { at: job.at, ranks: job.ranks, ways });
  }
  if (latest !== null) showJobs(...latest);
}

// Takes a GpuMap: ranks on these hosts can be coloured by what their GPUs do.
export function takeGpus({ rows }) {
  const hosts = new Set(rows.map(({ host }) => host));
  const isSame = hosts.size === withGpus.size && [...hosts].every((host) => withGpus.has(host));
  withGpus = hosts;
  if (!isSame && latest !== null) showJobs(...latest);
}

// Which quantity of their GPUs ranks are coloured by, as a query: it is told only while it is shown.
export function levelQuery() {
  const { quantity } = LOOKS[look];
  return quantity ? `?gpus=${quantity}` : "";
}

// Groups of one kind share no rank, so the first ones tell them apart.
function shortly(text, count) {
  const all = text.split(", ");
  return all.length <= RANGES ? text : `${all.slice(0, RANGES).join(", ")}, … ${count} in all`;
}

// Whether the cells of all jobs would fit beside the incidents, in half of so many pixels.
export function fitBeside(jobs, width) {
  const half = (width - GAP) / 2 - AROUND;
  return jobs.every((job) => {
    if (!job.ranks.length) return true;
    const { by, ways: known } = waysOf(job), counts = new Map();
    for (const rank of job.ranks) counts.set(known[by](rank), (counts.get(known[by](rank)) || 0) + 1);
    return fitsBeside([...counts].map(([name, count]) => ({ name, count })), half);
  });
}

// By what the ranks of a job can be sorted, and are: what would not tell them apart is left out.
function waysOf(job) {
  const all = { ...WAYS, ...grouped.get(keyOf(job))?.ways };
  const useful = Object.keys(all).filter((one) => differ(job.ranks, all[one]));
  return { useful, by: useful.includes(way) ? way : useful[0] ?? "node", ways: all };
}

function card() {
  const parts = Object.fromEntries(PARTS.map((name) => [name, el(name === "name" ? "h3" : "div", { class: name === "legend" ? name : null })]));
  return { ...parts, node: el("div", {}, ...Object.values(parts)), picture: null };
}

function fillCard(mine, job, incidents) {
  const { ranks } = job, told = stated(job);
  mine.node.className = `card${job.state === "hung" ? " open" : ""}`;
  refill(mine.name, [job.job, job.state, job.ended], () => [document.createTextNode(`${job.job} `),
    el("span", { class: jobTone(job.state) }, job.ended ? "ended" : job.state)]);
  refill(mine.facts, told, () => [facts(told)]);
  refill(mine.members, job.members, () => (job.members.length ? [memberTable(job)] : []));
  if (!ranks.length) {
    for (const name of ["ways", "cells", "legend", "troubled"]) refill(mine[name], [], () => []);
    mine.picture?.end();
    mine.picture = null;
    return;
  }
  const linkTo = linker(job, ranks, (rank) => rankName(rank.rank));
  const { useful, by, ways: known } = waysOf(job), isOfGroups = !(by in WAYS);
  const colours = coloursOf(job), colour = colours.includes(look) ? look : "state";
  refill(mine.ways, [useful, by, colours, colour, ranks.length > MANY], () => [ways(job, useful, by, colours, colour)]);
  const { quantity } = LOOKS[colour], scale = scaleOf(job);
  const drawn = quantity && job.levels?.quantity !== quantity ? "state" : colour; // until it has come
  mine.picture ||= cellsView();
  refill(mine.cells, "", () => [mine.picture.node]);
  update(mine.picture, { name: job.job, ranks, groups: groups(ranks, known[by]), isByNode: by === "node",
    isDense: by === "node" || isOfGroups, look: drawn, scale, levels: job.levels,
    accused: accusedOf(job, incidents), rankLink: linkTo, nodeLink: (host) => nodeLink(job, host) });
  const { ends, entries } = legendOf(job, drawn, scale);
  const notes = [...(mine.picture.isOfNodes ? [`A cell is a node, as ${LOOKS[drawn].quantity ? "the least of its GPUs" : "its worst rank"} is.`] : []),
    ...(isOfGroups ? [asTold(grouped.get(keyOf(job)), job)] : [])];
  refill(mine.legend, [drawn, ends, entries, notes], () => [...ends.map((pair) => ramp(pair, LOOKS[drawn])),
    ...entries.map(([mark, text, ink]) => legendEntry(mark, text, ink)), ...notes.map((note) => el("span", {}, note))]);
  const troubled = ranks.filter((rank) => !isWell(rank));
  const rows = troubled.slice(0, ROWS);
  refill(mine.troubled, [rows, troubled.length], () => troubledTable(rows, troubled.length, linkTo));
}

function stated(job) {
  const isOfRanks = job.ranks.length > 0 || job.world_size;
  const size = !isOfRanks ? "" : job.world_size ? `${job.ranks.length} of ${job.world_size}` : job.ranks.length;
  return [["step", isOfRanks ? job.step ?? "–" : ""],
    [isOfRanks ? "last step" : "last change", `${age(job.step_age_seconds)} ago`],
    ["usual step", job.step_seconds === null ? "" : age(job.step_seconds)], ["phase", job.phase],
    ["ranks", size], ["attempt", job.attempt], ["expected", job.expected],
    ["requests", job.requests], ["Ray job", job.ray_job], ["who waits for whom", job.waits]];
}

// Only a rank's own recorder knows its groups.
function asTold({ at, ranks }, job) {
  const of = ranks < job.ranks.length ? ` of ${ranks} of ${job.ranks.length} ranks` : "";
  return `Groups as the flight recorders${of} told at ${clock(at)}.`;
}

function accusedOf(job, incidents) {
  const mine = incidents.filter((one) => isOpen(one) && one.job === job.job && one.attempt === job.attempt);
  return new Set(mine.flatMap((one) => (one.culprits || []).map((culprit) => culprit.rank)));
}

// By what the ranks of a job can be coloured.
function coloursOf({ step, ranks }) {
  const isWithGpus = withGpus.size > 0 && ranks.some(({ host }) => withGpus.has(host));
  return Object.keys(LOOKS).filter((one) => (LOOKS[one].quantity ? isWithGpus : one === "state" || step !== null));
}

// What the cells can be sorted and coloured by, and a way to one of very many.
function ways(job, useful, by, colours, colour) {
  const sorted = useful.length < 2 ? null : choice(`way of ${job.job} ${job.attempt}`, "by",
    useful.map((one) => [one, one]), by, (name) => {
      way = name;
      showJobs(...latest);
    });
  const coloured = colours.length < 2 ? null : choice(`colour of ${job.job} ${job.attempt}`, "colour",
    colours.map((name) => [name, LOOKS[name].label]), colour, (name) => {
      const before = levelQuery();
      look = name;
      if (levelQuery() !== before) followAnew();
      showJobs(...latest);
    });
  return el("div", { class: "ways" }, sorted, coloured, job.ranks.length > MANY ? search(job) : null);
}

function choice(name, label, options, chosen, choose) {
  return el("fieldset", { class: "choice" }, el("legend", {}, label), ...options.map(([value, text]) => {
    const input = el("input", { type: "radio", name, value, checked: value === chosen ? "" : false });
    input.addEventListener("change", () => choose(value));
    return el("label", {}, input, el("span", {}, text));
  }));
}

function search(job) {
  const input = el("input", { type: "number", min: 0, name: "rank", placeholder: "rank", "aria-label": `a rank of ${job.job}` });
  const form = el("form", { class: "search" }, input, el("button", { type: "submit" }, "Show"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (input.value !== "") location.hash = processLink(job, rankName(Number(input.value)));
  });
  return form;
}

function differ(ranks, of) {
  const one = of(ranks[0]);
  return ranks.some((rank) => of(rank) !== one);
}

function groups(ranks, of) {
  const found = new Map();
  for (const rank of ranks) {
    const name = of(rank), some = found.get(name);
    if (some === undefined) found.set(name, [rank]);
    else some.push(rank);
  }
  return found;
}

// Each entry is a class, a text and an ink; `ends` are what the colours of GPUs go from and to.
function legendOf({ ranks, levels }, drawn, scale) {
  const { quantity, inks, names, long } = LOOKS[drawn];
  if (drawn === "state") return { ends: [], entries: [...counted(ranks)].map(([state, count]) => [tone(state), `${count} ${state}`]) };
  const counts = lookCounts(LOOKS[drawn], ranks, scale);
  const all = quantity ? [["stale", counts.at(-1), LATE], ["none", counts[0], "not known"]]
    : names.map((name, index) => ["", counts[index], name, inks[index]]);
  return { ends: quantity ? [[long(0), long(scale.levels * levels.width)]] : [],
    entries: all.filter(([, count]) => count).map(([mark, count, text, ink]) => [mark, `${count} ${text}`, ink]) };
}

function ramp([from, to], { shades }) {
  return el("span", { class: "ramp" }, from, ...shades.map((shade) => swatched("", shade)), to);
}

function legendEntry(mark, text, ink) {
  return el("span", {}, swatched(mark, ink ? `var(--${ink})` : ""), text);
}

function swatched(mark, colour) {
  const swatch = el("i", { class: mark || null });
  if (colour) swatch.style.background = colour;
  return swatch;
}

function troubledTable(rows, count, linkTo) {
  if (!rows.length) return [];
  return [table(["rank", "host", "pid", "step", "state", "last step"], rows.map((rank) =>
    [el("a", { href: linkTo(rank) }, String(rank.rank)), rank.host, rank.pid, rank.step,
      el("span", { class: `t-${tone(rank.state)}` }, rank.state), `${age(rank.step_age_seconds)} ago`])),
  count > rows.length ? el("p", { class: "quiet" }, `and ${count - rows.length} more ranks`) : null].filter((part) => part);
}

// The driver and the actors that are no ranks; those in trouble come first where there are many.
function memberTable(job) {
  const { members } = job;
  const linkTo = linker(job, members, (one) => one.label);
  const shown = members.length <= MEMBERS ? members
    : [...members.filter((one) => !isWell(one)), ...members.filter(isWell)].slice(0, MEMBERS);
  const all = table(["process", "host", "pid", "runs", "for", "usually", "state"],
    shown.map((one) => [el("a", { href: linkTo(one) }, one.label), one.host, one.pid, one.method || "–", age(one.seconds),
      age(one.usual_seconds), el("span", { class: `t-${tone(one.state)}` }, one.state)]));
  const more = members.length - shown.length;
  if (more > 0) all.append(el("p", { class: "quiet" }, `and ${more} more processes`));
  return all;
}

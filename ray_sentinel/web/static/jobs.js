// A job: its state, a cell for each rank, and a line for each process that is none.
import { age, el, facts, table } from "./dom.js";
import { linker, processLink, rankName } from "./process.js";
import { isOpen, isWell, jobTone, tone } from "./states.js";

const MANY = 256; // ranks: from here on, cells without numbers
const VAST = 2048; // and from here on, tiny ones
const WAYS = { node: (rank) => rank.host, role: (rank) => rank.role, state: (rank) => rank.state };

// `way` is a key of WAYS, `choose` takes another one.
export function jobCard(job, incidents, way, choose) {
  const isOfRanks = job.ranks.length > 0 || job.world_size;
  const size = !isOfRanks ? "" : job.world_size ? `${job.ranks.length} of ${job.world_size}` : job.ranks.length;
  const linkTo = linker(job, job.ranks, (rank) => rankName(rank.rank));
  const troubled = job.ranks.filter((rank) => !isWell(rank));
  const card = el("div", { class: `card${job.state === "hung" ? " open" : ""}` },
    el("h3", {}, job.job, " ",
      el("span", { class: jobTone(job.state) }, job.ended ? "ended" : job.state)),
    facts([["step", isOfRanks ? job.step ?? "–" : ""],
      [isOfRanks ? "last step" : "last change", `${age(job.step_age_seconds)} ago`],
      ["usual step", job.step_seconds === null ? "" : age(job.step_seconds)], ["phase", job.phase],
      ["ranks", size], ["attempt", job.attempt], ["expected", job.expected],
      ["requests", job.requests], ["Ray job", job.ray_job], ["who waits for whom", job.waits]]),
    ...(job.ranks.length ? [ways(job, way, choose), rankGrid(job, accusedOf(job, incidents), way, linkTo),
      legend(job.ranks)] : []));
  if (troubled.length) {
    card.append(table(["rank", "host", "pid", "step", "state", "last step"],
      troubled.slice(0, 32).map((rank) => [el("a", { href: linkTo(rank) }, String(rank.rank)), rank.host, rank.pid, rank.step,
        el("span", { class: `t-${tone(rank.state)}` }, rank.state),
        `${age(rank.step_age_seconds)} ago`])));
  }
  if (job.members.length) card.append(memberTable(job));
  return card;
}

function accusedOf(job, incidents) {
  const mine = incidents.filter((one) => isOpen(one) && one.job === job.job && one.attempt === job.attempt);
  return new Set(mine.flatMap((one) => (one.culprits || []).map((culprit) => culprit.rank)));
}

// What the cells can be sorted by, and a way to one of very many.
function ways(job, way, choose) {
  const useful = Object.keys(WAYS).filter((one) => groups(job.ranks, one).size > 1);
  const options = useful.length < 2 ? [] : useful.map((one) => {
    const input = el("input", { type: "radio", name: `way of ${job.job} ${job.attempt}`, value: one,
      checked: one === way ? "" : false });
    input.addEventListener("change", () => choose(one));
    return el("label", {}, input, el("span", {}, one));
  });
  const choice = options.length ? el("fieldset", { class: "choice" }, el("legend", {}, "by"), ...options) : null;
  return el("div", { class: "ways" }, choice, job.ranks.length > MANY ? search(job) : null);
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

function groups(ranks, way) {
  const found = new Map();
  for (const rank of ranks) {
    const name = WAYS[way](rank);
    if (!found.has(name)) found.set(name, []);
    found.get(name).push(rank);
  }
  return found;
}

// One line of cells for each node, role or state; where there are very many, nodes have no lines.
function rankGrid(job, accused, way, linkTo) {
  const many = job.ranks.length > MANY;
  const grid = (some) => el("div", { class: `grid${many ? " many" : ""}${job.ranks.length > VAST ? " vast" : ""}` },
    ...some.map((rank) => rankCell(rank, accused, many ? null : linkTo(rank))));
  const lines = groups(job.ranks, way);
  const whole = lines.size < 2 || (many && way === "node") ? grid(job.ranks)
    : el("div", { class: "hosts" }, ...[...lines].flatMap(([name, some]) => [el("span", { class: "quiet" }, name || "–"), grid(some)]));
  // Thousands of links would be in the keyboard's way: there it is the number that leads to one.
  if (many) whole.addEventListener("click", (event) => {
    const cell = event.target.closest(".cell");
    if (cell) location.hash = processLink(job, rankName(Number(cell.textContent)));
  });
  return whole;
}

function rankCell(rank, accused, href) {
  const title = `rank ${rank.rank} on ${rank.host}, pid ${rank.pid}\nstep ${rank.step ?? "–"}, ` +
    `${rank.phase || "no phase"}, ${rank.state}\nlast step ${age(rank.step_age_seconds)} ago`;
  const named = accused.has(rank.rank) ? " accused" : "";
  return el(href === null ? "span" : "a", { class: `cell ${tone(rank.state)}${named}`, href,
    title: named ? `${title}\nnamed by an incident` : title }, String(rank.rank));
}

function legend(ranks) {
  const counts = new Map();
  for (const rank of ranks) counts.set(rank.state, (counts.get(rank.state) || 0) + 1);
  return el("div", { class: "legend" }, ...[...counts].map(([state, count]) =>
    el("span", {}, el("i", { class: tone(state) }), `${count} ${state}`)));
}

// The driver and the actors that are no ranks; those in trouble come first where there are many.
function memberTable(job) {
  const { members } = job;
  const linkTo = linker(job, members, (one) => one.label);
  const shown = members.length <= 64 ? members
    : [...members.filter((one) => !isWell(one)), ...members.filter(isWell)].slice(0, 64);
  const all = table(["process", "host", "pid", "runs", "for", "usually", "state"],
    shown.map((one) => [el("a", { href: linkTo(one) }, one.label), one.host, one.pid, one.method || "–", age(one.seconds),
      age(one.usual_seconds), el("span", { class: `t-${tone(one.state)}` }, one.state)]));
  const more = members.length - shown.length;
  if (more > 0) all.append(el("p", { class: "quiet" }, `and ${more} more processes`));
  return all;
}

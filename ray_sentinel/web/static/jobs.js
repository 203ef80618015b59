// A job: its state, a cell for each rank, and a line for each process that is none.
import { age, el, facts, table } from "./dom.js";
import { isOpen, isWell, jobTone, tone } from "./states.js";

const MANY = 256; // ranks: from here on, cells without numbers
const VAST = 2048; // and from here on, tiny ones

export function jobCard(job, incidents) {
  const isOfRanks = job.ranks.length > 0 || job.world_size;
  const size = !isOfRanks ? "" : job.world_size ? `${job.ranks.length} of ${job.world_size}` : job.ranks.length;
  const troubled = job.ranks.filter((rank) => !isWell(rank));
  const card = el("div", { class: `card${job.state === "hung" ? " open" : ""}` },
    el("h3", {}, job.job, " ",
      el("span", { class: jobTone(job.state) }, job.ended ? "ended" : job.state)),
    facts([["step", isOfRanks ? job.step ?? "–" : ""],
      [isOfRanks ? "last step" : "last change", `${age(job.step_age_seconds)} ago`],
      ["usual step", job.step_seconds === null ? "" : age(job.step_seconds)], ["phase", job.phase],
      ["ranks", size], ["attempt", job.attempt], ["expected", job.expected],
      ["requests", job.requests], ["Ray job", job.ray_job], ["who waits for whom", job.waits]]),
    ...(job.ranks.length ? [rankGrid(job.ranks, accusedOf(job, incidents)), legend(job.ranks)] : []));
  if (troubled.length) {
    card.append(table(["rank", "host", "pid", "step", "state", "last step"],
      troubled.slice(0, 32).map((rank) => [rank.rank, rank.host, rank.pid, rank.step,
        el("span", { class: `t-${tone(rank.state)}` }, rank.state),
        `${age(rank.step_age_seconds)} ago`])));
  }
  if (job.members.length) card.append(memberTable(job.members));
  return card;
}

function accusedOf(job, incidents) {
  const mine = incidents.filter((one) => isOpen(one) && one.job === job.job && one.attempt === job.attempt);
  return new Set(mine.flatMap((one) => (one.culprits || []).map((culprit) => culprit.rank)));
}

// One line of cells for each host; where there are very many, all in one.
function rankGrid(ranks, accused) {
  const cells = (some) => some.map((rank) => rankCell(rank, accused));
  if (ranks.length > MANY) {
    return el("div", { class: `grid many${ranks.length > VAST ? " vast" : ""}` }, ...cells(ranks));
  }
  const hosts = new Map();
  for (const rank of ranks) hosts.set(rank.host, [...(hosts.get(rank.host) || []), rank]);
  if (hosts.size < 2) return el("div", { class: "grid" }, ...cells(ranks));
  return el("div", { class: "hosts" }, ...[...hosts].flatMap(([host, some]) =>
    [el("span", { class: "quiet" }, host), el("div", { class: "grid" }, ...cells(some))]));
}

function rankCell(rank, accused) {
  const title = `rank ${rank.rank} on ${rank.host}, pid ${rank.pid}\nstep ${rank.step ?? "–"}, ` +
    `${rank.phase || "no phase"}, ${rank.state}\nlast step ${age(rank.step_age_seconds)} ago`;
  const named = accused.has(rank.rank) ? " accused" : "";
  return el("span", { class: `cell ${tone(rank.state)}${named}`,
    title: named ? `${title}\nnamed by an incident` : title }, String(rank.rank));
}

function legend(ranks) {
  const counts = new Map();
  for (const rank of ranks) counts.set(rank.state, (counts.get(rank.state) || 0) + 1);
  return el("div", { class: "legend" }, ...[...counts].map(([state, count]) =>
    el("span", {}, el("i", { class: tone(state) }), `${count} ${state}`)));
}

// The driver and the actors that are no ranks; those in trouble come first where there are many.
function memberTable(members) {
  const shown = members.length <= 64 ? members
    : [...members.filter((one) => !isWell(one)), ...members.filter(isWell)].slice(0, 64);
  const all = table(["process", "host", "pid", "runs", "for", "usually", "state"],
    shown.map((one) => [one.label, one.host, one.pid, one.method || "–", age(one.seconds),
      age(one.usual_seconds), el("span", { class: `t-${tone(one.state)}` }, one.state)]));
  const more = members.length - shown.length;
  if (more > 0) all.append(el("p", { class: "quiet" }, `and ${more} more processes`));
  return all;
}

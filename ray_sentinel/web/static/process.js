// One rank, driver or actor: its state now, what it did lately, and what incidents know of it.
import { ask } from "./api.js";
import { age, el, facts, table } from "./dom.js";
import { QUANTITIES } from "./gpus.js";
import { INCIDENT } from "./incidents.js";
import { isWell, tone } from "./states.js";
import { lastOutput } from "./rank_output.js";
import { rankPlots } from "./rank_plots.js";
import { ago } from "./times.js";

export const PROCESS = "#process/"; // and job, attempt, name and perhaps place: the address of one
const INCIDENTS = 3; // so many of the last ones that know something of it are asked for
const SERIES_SECONDS = 5; // agents send as often

// `one` is given if its name may be another's too.
export function processLink(job, name, one = null) {
  return PROCESS + [job.job, job.attempt, name, ...(one ? [placeOf(one)] : [])].map(encodeURIComponent).join("/");
}

const placeOf = (one) => `${one.host} ${one.pid}`;

// Links to those of a list, each by what `nameOf` says: of several of one name by their places too.
export function linker(job, all, nameOf) {
  const times = new Map(); // counted when somebody asks: there may be very many
  return (one) => {
    if (!times.size) for (const each of all) times.set(nameOf(each), (times.get(nameOf(each)) || 0) + 1);
    return processLink(job, nameOf(one), times.get(nameOf(one)) > 1 ? one : null);
  };
}

// What an address names; null if it is none, or was cut.
export function processAt(hash) {
  if (!hash.startsWith(PROCESS)) return null;
  try {
    const [job, attempt, name, at = ""] = hash.slice(PROCESS.length).split("/").map(decodeURIComponent);
    return name ? { job, attempt: Number(attempt), name, at } : null;
  } catch {
    return null;
  }
}

export const rankName = (number) => `rank ${number}`;

// What `status` says of it, with its job; null if it is gone.
export function found({ job, attempt, name, at }, status) {
  const mine = status.jobs.find((one) => one.job === job && one.attempt === attempt);
  const pick = (alike) => alike?.find((one) => placeOf(one) === at) ?? alike?.[0];
  const rank = pick(mine?.ranks.filter((one) => rankName(one.rank) === name));
  const member = pick(mine?.members.filter((one) => one.label === name));
  return rank || member ? { job: mine, rank, member } : null;
}

const whole = new Map(); // id → what was told in brief, and the answer that came then

// The whole incidents of its job, the newest first, as far as the coordinator still tells them.
export async function incidentsOf({ job, attempt }, incidents) {
  const mine = incidents.filter((one) => one.job === job && one.attempt === attempt).slice(-INCIDENTS).reverse();
  return (await Promise.all(mine.map(wholeOf))).filter((one) => one !== null);
}

async function wholeOf(incident) {
  const brief = JSON.stringify(incident);
  if (whole.get(incident.id)?.brief !== brief) {
    const told = await ask(`/api/v1/page/incidents/${encodeURIComponent(incident.id)}`).catch(() => null);
    if (told === null) return null; // asked for again
    whole.set(incident.id, { brief, told });
  }
  return whole.get(incident.id).told;
}

// Which rank is meant, as the API is asked for it: the process that is shown, which need not be the
// one of the address any more. "" of what is none.
function questionOf({ job, attempt }, { rank }) {
  return rank ? new URLSearchParams({ job, attempt, rank: rank.rank, place: placeOf(rank) }).toString() : "";
}

let lately = { question: "", at: 0, told: null }; // the series that were asked for last

// Its RankSeries; null of what has none, and of a coordinator that has gone or is older.
export async function seriesOf(place, status) {
  const now = found(place, status), question = now && questionOf(place, now);
  if (!question) return null;
  const at = performance.now(); // what is known of it changes each second, its series do not
  if (lately.question !== question || at - lately.at > 1000 * SERIES_SECONDS) {
    lately = { question, at, told: ask(`/api/v1/page/rank?${question}`).catch(() => null) };
  }
  return lately.told;
}

// Whether a lane is that of a rank, of its node, or of ranks among which it is.
export function isLaneOf(name, { rank, host }) {
  const [, first, last] = /^ranks (\d+) to (\d+)$/.exec(name) || [];
  return name === rankName(rank) || name === host || (first !== undefined && Number(first) <= rank && rank <= Number(last));
}

// `known` are whole incidents, `gpus` a GpuMap or null, `series` a RankSeries or null; so many pixels
// are there for it. Its lane is drawn into `.its-lane` once that is in the page.
export function processDetail(place, status, known, gpus, series, width) {
  const now = found(place, status);
  const title = el("h2", { class: "title", tabindex: -1 }, `${place.name} of ${place.job}`);
  if (now === null) {
    return [el("div", { class: "card" }, title, el("p", { class: "quiet" }, "It is no longer in this job.")),
      ...knownOf(place, null, known)];
  }
  const one = now.rank || now.member;
  return [
    el("div", { class: `card${isWell(one) ? "" : " open"}` }, title, now.rank ? ofRank(now) : ofMember(now.member),
      ...commands(now)),
    ...(now.rank ? ofLately(place, now, series, width) : []),
    ...knownOf(place, one, known),
    ...part(`GPUs of ${one.host}`, cards(one.host, gpus)),
  ];
}

function ofLately(place, now, series, width) {
  const question = questionOf(place, now), plots = rankPlots(series, place.name, width);
  const kept = el("div", { "data-keep": `plots ${question} ${series?.end} ${width}` }, ...plots);
  return [...part("The last half hour", plots.length ? [kept] : []),
    el("div", { class: "its-lane", "data-keep": `lane ${question}` }),
    ...part("Its last output now", [lastOutput(question)])];
}

// The commands for a shell that show more than the page has.
function commands({ job, rank }) {
  const lines = [];
  if (rank) lines.push(["Save its stack as it is now, with those of its job", `ray-sentinel dump --job ${quoted(job.job)}`]);
  if (job.ray_job) lines.push(["Print the stacks of its Ray job", `ray-sentinel stacks --job ${quoted(job.ray_job)}`]);
  return lines.map(([what, line]) => el("p", { class: "quiet" }, `${what}: `, el("code", {}, line)));
}

function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

function ofRank({ job, rank }) {
  const behind = rank.step === null || job.step === null ? "" : job.step - rank.step;
  return facts([["state", state(rank)], ["host", rank.host], ["pid", rank.pid], ["role", rank.role],
    ["step", rank.step ?? "–"], ["steps behind", behind || ""], ["last step", `${age(rank.step_age_seconds)} ago`],
    ["usual step", job.step_seconds === null ? "" : age(job.step_seconds)], ["phase", rank.phase],
    ["attached", rank.attached ? "yes" : "no"]]);
}

function ofMember(member) {
  return facts([["state", state(member)], ["host", member.host], ["pid", member.pid], ["role", member.role],
    ["runs", member.method || "no call"], ["for", member.seconds === null ? "" : age(member.seconds)],
    ["usually", member.usual_seconds === null ? "" : age(member.usual_seconds)]]);
}

function state(one) {
  return el("span", { class: `t-${tone(one.state)}` }, one.state);
}

function knownOf(place, one, known) {
  const waits = known.flatMap((incident) => edges(place, incident).map((step) => [step, link(incident)]));
  const stack = first(known, (incident) => stackOf(place, one, incident));
  const output = first(known, (incident) => outputOf(place, incident));
  return [
    ...part("Incidents that name it", named(place, one, known)),
    ...part("Whom it waits for, and who waits for it", waits.length ? [table(["", "incident"], waits)] : []),
    ...(stack ? part(el("span", {}, "Where it stood ", ago(stack.at)), stack.nodes) : []),
    ...(output ? part(el("span", {}, "Its last output, of ", ago(output.at)), output.nodes) : []),
  ];
}

function first(known, look) {
  for (const incident of known) {
    const nodes = look(incident);
    if (nodes !== null) return { at: incident.confirmed_at ?? incident.suspected_at, nodes };
  }
  return null;
}

function link(incident) {
  return el("a", { href: INCIDENT + encodeURIComponent(incident.id) }, incident.summary);
}

function named(place, one, known) {
  const mine = known.filter((incident) => (incident.verdict?.culprits || []).some((culprit) => isIt(place, one, culprit)));
  return mine.length ? [el("ul", {}, ...mine.map((incident) => el("li", {}, link(incident), " ", el("span", { class: "quiet" }, ago(incident.suspected_at)))))] : [];
}

function isIt(place, one, { rank, actor, host, pid }) {
  if (rank !== null) return rankName(rank) === place.name;
  return actor === place.name || (one !== null && one.pid === pid && one.host === host);
}

function edges(place, incident) {
  return incident.steps.filter((said, index) => [incident.chain[index].from, incident.chain[index].to].includes(place.name));
}

function stackOf(place, one, incident) {
  const stack = (incident.verdict?.stacks || []).find((fact) => stands(place, one, fact));
  if (!stack) return null;
  const alike = stack.alike > 1 ? `, as ${stack.alike - 1} other processes did` : "";
  const does = [stack.label || stack.activity, alike].join("");
  const places = [...stack.signature].reverse().map((frame) => el("li", {}, el("code", {}, frame)));
  return [el("p", {}, stack.error || does), el("ol", { class: "stack" }, ...places)];
}

function stands(place, one, fact) {
  if (fact.alike_ranks && one !== null && "rank" in one) return isAmong(one.rank, fact.alike_ranks);
  if (fact.rank) return rankName(fact.rank.rank) === place.name;
  return one !== null && fact.process.pid === one.pid && fact.process.host === one.host;
}

// `ranges` as in "0-2, 5".
function isAmong(number, ranges) {
  return ranges.split(", ").some((range) => {
    const [from, to] = range.split("-").map(Number);
    return from <= number && number <= (to ?? from);
  });
}

function outputOf(place, incident) {
  const log = (incident.logs || []).find((each) => (each.rank === null ? each.label : rankName(each.rank)) === place.name);
  if (!log || !(log.lines.length || log.telling)) return null;
  return [el("pre", { tabindex: 0 }, (log.lines.length ? log.lines : [log.telling]).join("\n"))];
}

export function cards(host, gpus) {
  const row = gpus?.rows.find((each) => each.host === host);
  if (!row) return [];
  const { label, long } = QUANTITIES[gpus.quantity];
  return [table(row.gpus.map((gpu) => `GPU ${gpu}`), [row.values.map((value) => (value === null ? "–" : long(value)))]),
    el("p", { class: "quiet" }, `${label}, as chosen in the map of all GPUs`)];
}

export function part(title, nodes) {
  return nodes.length ? [el("h2", {}, title), el("div", { class: "card" }, ...nodes)] : [];
}

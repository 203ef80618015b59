// One node of a job: its ranks, and its GPUs.
import { counted, inWords } from "./cell_looks.js";
import { age, el, facts, table } from "./dom.js";
import { cards, linker, part, rankName } from "./process.js";
import { isWell, tone } from "./states.js";

const NODE = "#node/"; // and job, attempt and host: the address of one
const ROWS = 256;

export function nodeLink(job, host) {
  return NODE + [job.job, job.attempt, host].map(encodeURIComponent).join("/");
}

// Where the nodes that have ranks lead, by the first of their jobs; null of others.
export function linkToNodes({ jobs }) {
  const found = new Map(); // looked for when somebody asks: there may be very many
  return (host) => {
    if (!found.has(host)) {
      const running = jobs.filter((job) => !job.ended);
      const mine = (running.length ? running : jobs).find(({ ranks }) => ranks.some((rank) => rank.host === host));
      found.set(host, mine ? nodeLink(mine, host) : null);
    }
    return found.get(host);
  };
}

// What an address names; null if it is none, or was cut.
export function nodeAt(hash) {
  if (!hash.startsWith(NODE)) return null;
  try {
    const [job, attempt, host] = hash.slice(NODE.length).split("/").map(decodeURIComponent);
    return host ? { job, attempt: Number(attempt), host } : null;
  } catch {
    return null;
  }
}

// Its ranks, as `status` says.
export function ofNode({ job, attempt, host }, status) {
  const mine = status.jobs.find((one) => one.job === job && one.attempt === attempt);
  return mine ? mine.ranks.filter((rank) => rank.host === host) : [];
}

// `gpus` is a GpuMap or null.
export function nodeDetail(place, status, gpus) {
  const ranks = ofNode(place, status);
  const title = el("h2", { class: "title", tabindex: -1 }, `${place.host} of ${place.job}`);
  if (!ranks.length) return [el("div", { class: "card" }, title, el("p", { class: "quiet" }, "It has no rank of this job."))];
  const node = status.nodes.find((one) => one.host === place.host);
  return [
    el("div", { class: `card${ranks.every(isWell) ? "" : " open"}` }, title,
      facts([["ranks", inWords(counted(ranks))], ["address", node?.address], ["reported", node ? `${age(node.snapshot_age_seconds)} ago` : ""]])),
    ...part("Its ranks", [rankTable(place, ranks, status)]),
    ...part(`GPUs of ${place.host}`, cards(place.host, gpus)),
  ];
}

function rankTable(place, ranks, status) {
  const job = status.jobs.find((one) => one.job === place.job && one.attempt === place.attempt);
  const linkTo = linker(job, job.ranks, (rank) => rankName(rank.rank));
  const behind = (rank) => (rank.step === null || job.step === null ? "–" : job.step - rank.step);
  const rows = table(["rank", "pid", "role", "step", "behind", "phase", "state", "last step"], ranks.slice(0, ROWS).map((rank) =>
    [el("a", { href: linkTo(rank) }, rankName(rank.rank)), rank.pid, rank.role || "–", rank.step, behind(rank), rank.phase || "–",
      el("span", { class: `t-${tone(rank.state)}` }, rank.state), `${age(rank.step_age_seconds)} ago`]));
  return ranks.length <= ROWS ? rows : el("div", {}, rows, el("p", { class: "quiet" }, `and ${ranks.length - ROWS} more`));
}

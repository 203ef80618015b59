// What telemetry shows to be wrong with jobs, hosts and devices now, the worst first; a line for
// each job and each rule, because one fault of a switch may be reported for a thousand ports.
import { el } from "./dom.js";
import { ago } from "./times.js";

const WORST = ["critical", "warning", "info"];
const MOST = 12; // lines, and places of a line

export function alertList(jobs) {
  const groups = new Map();
  for (const job of jobs) {
    for (const one of job.alerts || []) {
      const key = JSON.stringify([job.job, job.attempt, one.rule]);
      if (!groups.has(key)) groups.set(key, { job, alerts: [] });
      groups.get(key).alerts.push(one);
    }
  }
  const lines = [...groups.values()].sort((a, b) => rank(a) - rank(b) || began(b) - began(a));
  if (!lines.length) return [];
  const left = lines.length - MOST;
  return [el("div", { class: "card" }, el("ul", { class: "rows" }, ...lines.slice(0, MOST).map(line)),
    left > 0 ? el("p", { class: "quiet" }, `and ${left} more; \`ray-sentinel status\` lists all`) : null)];
}

const rank = ({ alerts }) => Math.min(...alerts.map((one) => WORST.indexOf(one.severity)));
const began = ({ alerts }) => Math.min(...alerts.map((one) => one.since || Infinity));

function line({ job, alerts }) {
  const worst = WORST[rank({ alerts })], first = alerts.find((one) => one.severity === worst);
  const since = began({ alerts });
  const all = alerts.length === 1 ? null : el("details", { "data-key": `${job.job} ${job.attempt} ${first.rule}` },
    el("summary", {}, `${alerts.length} places`),
    el("ul", {}, ...alerts.slice(0, MOST).map((one) => el("li", {}, one.text)),
      alerts.length > MOST ? el("li", { class: "quiet" }, `and ${alerts.length - MOST} more`) : null));
  return el("li", {}, el("span", { class: `severity t-${worst === "critical" ? "bad" : worst === "warning" ? "warn" : "idle"}` }, worst),
    el("span", {}, first.text), all,
    el("span", { class: "quiet" }, [job.job, first.rule].join(" · ")), since < Infinity ? ago(since) : null);
}

"use strict";
// Everything shown comes from hosts, ranks and logs: it is set as text, never as markup.

const TONES = {
  running: "good", waiting: "idle", exited: "bad", stopped: "bad", "gil-held": "bad",
  blocked: "bad", silent: "warn", starved: "warn", paused: "warn",
};
const MANY = 256; // ranks: from here on, cells without numbers

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  for (const child of children) if (child !== null && child !== undefined) node.append(child);
  return node;
}

function age(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 100) return `${seconds.toFixed(1)} s`;
  if (seconds < 6000) return `${(seconds / 60).toFixed(0)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

function facts(pairs) {
  const rows = pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return el("dl", { class: "facts" },
    ...rows.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, String(value)))));
}

function table(heads, rows) {
  return el("div", { class: "scroll" }, el("table", {},
    el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", {}, head)))),
    el("tbody", {}, ...rows.map((cells) => el("tr", {}, ...cells.map((cell) =>
      cell instanceof Node ? el("td", {}, cell) : el("td", {}, String(cell ?? "–"))))))));
}

function rankCell(rank, accused) {
  const title = `rank ${rank.rank} on ${rank.host}, pid ${rank.pid}\nstep ${rank.step ?? "–"}, ` +
    `${rank.phase || "no phase"}, ${rank.state}\nlast step ${age(rank.step_age_seconds)} ago`;
  const named = accused.has(rank.rank) ? " accused" : "";
  const tone = `cell ${TONES[rank.state] || "idle"}${named}`;
  return el("span", { class: tone, title: named ? `${title}\nnamed by an incident` : title },
    String(rank.rank));
}

// One line of cells for each host; where there are very many, all in one.
function rankGrid(ranks, accused) {
  const cells = (some) => some.map((rank) => rankCell(rank, accused));
  const hosts = new Map();
  for (const rank of ranks) hosts.set(rank.host, [...(hosts.get(rank.host) || []), rank]);
  if (ranks.length > MANY) return el("div", { class: "grid many" }, ...cells(ranks));
  if (hosts.size < 2) return el("div", { class: "grid" }, ...cells(ranks));
  return el("div", { class: "hosts" }, ...[...hosts].flatMap(([host, some]) =>
    [el("span", { class: "quiet" }, host), el("div", { class: "grid" }, ...cells(some))]));
}

// Who waits for whom, from the one that nobody waits for to the one that holds up all others.
function chain(incident) {
  const steps = incident.chain || [];
  if (!steps.length) return null;
  const at = incident.confirmed_at ?? incident.suspected_at;
  const list = el("ol", { class: "chain", "aria-label": "who waits for whom" });
  let before = null;
  for (const step of steps) {
    if (step.from !== before) list.append(el("li", { class: "who" }, step.from));
    const since = step.since === null ? "" : ` · ${age(at - step.since)}`;
    list.append(el("li", { class: "how" }, `${step.how}${since}`));
    list.append(el("li", { class: "who" }, step.to));
    before = step.to;
  }
  list.lastElementChild.classList.add("root");
  return list;
}

function legend(ranks) {
  const counts = new Map();
  for (const rank of ranks) counts.set(rank.state, (counts.get(rank.state) || 0) + 1);
  return el("div", { class: "legend" }, ...[...counts].map(([state, count]) =>
    el("span", {}, el("i", { class: TONES[state] || "idle" }), `${count} ${state}`)));
}

function jobCard(job, incidents) {
  const isOfRanks = job.ranks.length > 0 || job.world_size;
  const size = !isOfRanks ? "" : job.world_size ? `${job.ranks.length} of ${job.world_size}` : job.ranks.length;
  const troubled = job.ranks.filter((rank) => !["good", "idle"].includes(TONES[rank.state] || "idle"));
  const tone = { hung: "t-bad", stalled: "t-warn", slow: "t-warn", healthy: "t-good" }[job.state];
  const card = el("div", { class: `card${job.state === "hung" ? " open" : ""}` },
    el("h3", {}, job.job, " ", el("span", { class: tone || "quiet" }, job.ended ? "ended" : job.state)),
    facts([["step", isOfRanks ? job.step ?? "–" : ""],
      [isOfRanks ? "last step" : "last change", `${age(job.step_age_seconds)} ago`],
      ["usual step", job.step_seconds === null ? "" : age(job.step_seconds)], ["phase", job.phase],
      ["ranks", size], ["attempt", job.attempt], ["expected", job.expected],
      ["requests", job.requests], ["Ray job", job.ray_job], ["who waits for whom", job.waits]]),
    rankGrid(job.ranks, accusedOf(job, incidents)), legend(job.ranks));
  if (troubled.length) {
    card.append(table(["rank", "host", "pid", "step", "state", "last step"],
      troubled.slice(0, 32).map((rank) => [rank.rank, rank.host, rank.pid, rank.step,
        el("span", { class: `t-${TONES[rank.state]}` }, rank.state),
        `${age(rank.step_age_seconds)} ago`])));
  }
  if (job.members.length) card.append(memberTable(job.members));
  return card;
}

function isOpen(incident) {
  return !["resolved", "dismissed"].includes(incident.state);
}

function accusedOf(job, incidents) {
  const mine = incidents.filter((one) => isOpen(one) && one.job === job.job && one.attempt === job.attempt);
  return new Set(mine.flatMap((one) => (one.culprits || []).map((culprit) => culprit.rank)));
}

// The driver and the actors that are no ranks; those in trouble come first where there are many.
function memberTable(members) {
  const well = (one) => ["good", "idle"].includes(TONES[one.state] || "idle");
  const shown = members.length <= 64 ? members
    : [...members.filter((one) => !well(one)), ...members.filter(well)].slice(0, 64);
  const all = table(["process", "host", "pid", "runs", "for", "usually", "state"],
    shown.map((one) => [one.label, one.host, one.pid, one.method || "–", age(one.seconds),
      age(one.usual_seconds), el("span", { class: `t-${TONES[one.state] || "idle"}` }, one.state)]));
  const more = members.length - shown.length;
  if (more > 0) all.append(el("p", { class: "quiet" }, `and ${more} processes more`));
  return all;
}

function incidentCard(incident) {
  const when = new Date(incident.suspected_at * 1000).toLocaleString();
  const certainty = incident.confidence === null ? "" : `${Math.round(incident.confidence * 100)} %`;
  return el("div", { class: `card${isOpen(incident) ? " open" : ""}` },
    el("h3", {}, el("a", { href: `/incidents/${encodeURIComponent(incident.id)}` }, incident.summary)),
    facts([["job", incident.job], ["kind", incident.kind], ["state", incident.state],
      ["confidence", certainty], ["since", when], ["files", incident.bundle]]), chain(incident));
}

function collectors(node) {
  const list = el("span", {});
  for (const one of node.collectors) {
    if (one.state === "skipped") continue;
    const well = one.state === "running" && one.success !== false;
    list.append(el("span", { class: well ? "quiet" : "t-warn", title: one.message || "" },
      `${one.name}${well ? "" : `: ${one.state}`} `));
  }
  return list;
}

function nodeTable(status) {
  const watched = status.nodes.map((node) => [node.host + (node.is_head ? " (head)" : ""),
    node.address, node.metrics_url || "–", `${age(node.snapshot_age_seconds)} ago`, collectors(node)]);
  const others = status.unwatched.map((node) => [node.host, "–",
    el("span", { class: "t-warn" }, `not watched: ${node.reason}`), "–", "–"]);
  return table(["node", "address", "metrics", "reported", "collectors"], [...watched, ...others]);
}

function fill(id, nodes) {
  const section = document.getElementById(id);
  section.hidden = nodes.length === 0;
  section.lastElementChild.replaceChildren(...nodes);
}

function headline(state, verdict, clock) {
  document.getElementById("headline").className = state;
  for (const [id, text] of [["state", state], ["verdict", verdict], ["clock", clock]]) {
    const node = document.getElementById(id);
    if (node.textContent !== text) node.textContent = text; // else a reader would read it again
  }
  document.title = `${state} · ray_sentinel`;
}

function show(status, incidents) {
  headline(status.state, status.verdict, new Date(status.time * 1000).toLocaleTimeString());
  const running = status.jobs.filter((job) => !job.ended);
  const jobs = (running.length ? running : status.jobs).map((job) => jobCard(job, incidents));
  fill("jobs", jobs.length ? jobs : [el("p", { class: "quiet" }, "No training runs yet.")]);
  fill("incidents", [...incidents].reverse().map(incidentCard));
  fill("nodes", [nodeTable(status)]);
  const notes = [...status.notes];
  if (status.log_dir) notes.push(`files: ${status.log_dir}`);
  if (status.prometheus) notes.push(`Prometheus: ${status.prometheus}`);
  fill("notes", notes.map((note) => el("li", {}, note)));
}

async function ask(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(5000) });
  if (answer.status === 401) throw new Error("open the link that `ray-sentinel status` prints");
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

async function look() {
  try {
    const { status, incidents } = await ask("/api/v1/page");
    show(status, incidents);
  } catch (error) {
    headline("unknown", `the coordinator does not answer (${error.message}); asking again`, "");
  }
  setTimeout(look, 1000);
}

look();

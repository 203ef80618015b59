// One incident: who, why, how sure, what to do, and all that shows it.
import { ask } from "./api.js";
import { chain } from "./chain.js";
import { age, clock, el, facts, table } from "./dom.js";
import { kindOf } from "./incidents.js";
import { stackTree } from "./stacks.js";
import { isOpen, progressOf } from "./states.js";
import { ago, fullTime, zoned } from "./times.js";

const SURE = [[0.95, "as good as certain"], [0.8, "very likely"], [0.5, "likely"], [0, "a guess"]];
const SIDES = [["against", (weight) => weight > 0], ["for", (weight) => weight < 0], ["context", () => true]];
const NOBODY = { culprits: [], evidence: [], waiting: [], next_steps: [], stacks: [] };

export function incidentDetail(incident) {
  const verdict = incident.verdict || NOBODY;
  const picture = chain(incident);
  const decided = [
    ...part("Suspects", verdict.culprits.length ? [suspects(verdict.culprits)]
      : [el("p", { class: "quiet" }, "Nobody is named: the evidence accuses nobody.")]),
    ...part("What to do", list(verdict.next_steps)),
  ];
  return [
    el("div", { class: `card${isOpen(incident) ? " open" : ""}` },
      el("h2", { class: "title", tabindex: -1 }, incident.summary),
      facts([["job", `${incident.job}, attempt ${incident.attempt}`], ["kind", kindOf(incident)],
        ["", progressOf(incident)], ["how sure", sureness(incident.confidence)],
        ["last progress", incident.last_progress === null ? "" : agoAt(incident.last_progress)],
        ["named", named(incident)], ["over", incident.resolved_at === null ? "" : agoAt(incident.resolved_at)]]),
      actions(incident)),
    ...(picture === null ? decided : [el("div", { class: "halves" },
      el("div", {}, ...part("Who waits for whom", [picture])), el("div", {}, ...decided))]),
    ...part("Where they stand", stackTree(verdict)),
    ...part("Why", evidence(verdict.evidence)),
    ...(picture === null ? part("What the others wait for", list(verdict.waiting)) : []),
    ...part("Last output", outputs(incident.logs || [])),
    ...part("Timeline", timeline(incident)),
    ...part("Files", files(incident)),
  ];
}

function part(title, nodes) {
  return nodes.length ? [el("h2", {}, title), el("div", { class: "card" }, ...nodes)] : [];
}

function list(lines) {
  return lines.length ? [el("ul", {}, ...lines.map((line) => el("li", {}, line)))] : [];
}

function sureness(confidence) {
  if (confidence === null) return "";
  const [, words] = SURE.find(([least]) => confidence >= least);
  return el("span", {}, el("meter", { min: 0, max: 1, value: confidence, "aria-hidden": "true" }),
    ` ${Math.round(100 * confidence)} %, ${words}`);
}

// The age and the time itself, which a phone or paper cannot point at.
function agoAt(at) {
  return el("span", {}, ago(at), `, ${fullTime(at)}`);
}

function named(incident) {
  if (incident.confirmed_at === null) return "";
  const after = incident.last_progress === null ? ""
    : `, ${age(incident.confirmed_at - incident.last_progress)} after the last progress`;
  return el("span", {}, ago(incident.confirmed_at), after);
}

function suspects(culprits) {
  return table(["who", "host", "pid", "why"], culprits.map((one) => [
    [one.rank === null ? one.actor || one.role || "–" : `rank ${one.rank}`, one.method].filter(Boolean).join(", "),
    one.host, one.pid, el("span", { class: "wide" }, one.reason)]));
}

// What counts against somebody first, then what speaks for somebody, then the rest.
function evidence(items) {
  const left = [...items];
  return SIDES.flatMap(([side, fits]) => {
    const mine = left.filter((item) => fits(item.weight));
    for (const item of mine) left.splice(left.indexOf(item), 1);
    return mine.map((item) => el("p", { class: "evidence" }, el("span", { class: `side ${side}` }, side), item.text,
      el("span", { class: "quiet" }, ` ${item.source}${item.weight ? ` ${item.weight > 0 ? "+" : ""}${item.weight.toFixed(1)}` : ""}`)));
  });
}

function outputs(logs) {
  return logs.filter((log) => log.lines.length || log.telling).map((log) => el("details", { open: "" },
    el("summary", {}, `${log.rank === null ? log.label : `rank ${log.rank}`} on ${log.host}`,
      el("span", { class: "quiet" }, log.file ? ` ${log.file}` : "")),
    el("pre", { tabindex: 0 }, (log.lines.length ? log.lines : [log.telling]).join("\n"))));
}

function timeline(incident) {
  const steps = [...incident.milestones.map((one) => [one.at, one.what, one.text]),
    ...incident.history.map((one) => [one.at, progressOf(one), one.why])];
  if (incident.last_progress !== null) steps.push([incident.last_progress, "last progress", ""]);
  steps.sort((a, b) => a[0] - b[0]);
  const zone = zoned(incident.suspected_at).replace(clock(incident.suspected_at), "").trim();
  return [table([`time (${zone})`, "", "what", ""], steps.map(([at, what, text]) => {
    const after = at - incident.suspected_at;
    return [clock(at), `${after < 0 ? "−" : "+"}${age(Math.abs(after))}`, what, el("span", { class: "wide" }, text)];
  }))];
}

function files(incident) {
  const names = (incident.logs || []).filter((log) => log.file).map((log) => log.file);
  const folder = incident.bundle ? [el("p", {}, el("code", {}, incident.bundle))] : [];
  return names.length ? [...folder, el("ul", {}, ...names.map((name) => el("li", {}, el("code", {}, name))))] : folder;
}

function actions(incident) {
  const path = `/incidents/${encodeURIComponent(incident.id)}`;
  const button = el("button", { type: "button" }, "Copy as Markdown");
  const said = el("span", { class: "quiet", role: "status" });
  const row = el("p", { class: "actions" }, button, el("a", { href: path }, "Report"), said);
  button.addEventListener("click", () => copy(path, row, said));
  return el("div", { "data-keep": `actions ${incident.id}` }, row);
}

async function copy(path, row, said) {
  let text;
  try {
    text = await ask(`${path}.md`, "text");
  } catch (error) {
    said.textContent = `not copied: ${error.message}`;
    return;
  }
  try {
    await navigator.clipboard.writeText(text);
    said.textContent = "Copied.";
  } catch {
    // A browser that refuses the clipboard: the reader copies it.
    row.parentElement.querySelector("textarea")?.remove();
    const area = el("textarea", { readonly: "", rows: 12, "aria-label": "the incident as Markdown" });
    area.value = text;
    row.after(area);
    area.select();
    said.textContent = "The browser does not let this page copy: copy the text below.";
  }
}

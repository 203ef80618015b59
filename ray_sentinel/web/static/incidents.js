// The incidents that are open, a card each, the newest first.
import { chain } from "./chain.js";
import { el, facts } from "./dom.js";
import { isOpen, progressOf } from "./states.js";
import { ago } from "./times.js";

export const INCIDENT = "#incident/"; // and the number: the address of one

export const incidentLink = (id) => INCIDENT + encodeURIComponent(id);

// `counts` say how many there are at all; `more` is called where the reader wants all that are open.
export function openIncidents(incidents, counts, more) {
  const open = incidents.filter(isOpen).reverse();
  const rest = counts.open - open.length;
  if (rest <= 0) return open.map(incidentCard);
  const button = el("button", { type: "button" }, "Show them in the list");
  button.addEventListener("click", more);
  return [...open.map(incidentCard), el("p", { class: "actions" }, `${rest} more are open.`, button)];
}

function incidentCard(incident) {
  const certainty = incident.confidence === null ? "" : `${Math.round(incident.confidence * 100)} % sure`;
  const stood = incident.last_progress === null ? "" : el("span", {}, "last progress ", ago(incident.last_progress));
  return el("div", { class: "card open" },
    el("h3", {}, el("a", { href: incidentLink(incident.id) }, incident.summary)),
    el("p", { class: "quiet told" }, ...separated([incident.job, kindOf(incident), certainty, stood])),
    incident.to_do ? el("p", { class: "todo" }, el("b", {}, "To do:"), incident.to_do) : null,
    chain(incident),
    facts([["", progressOf(incident)], ["suspected", ago(incident.suspected_at)],
      ["", el("a", { href: `/incidents/${encodeURIComponent(incident.id)}` }, "Report")]]));
}

export function kindOf({ kind }) {
  return kind === "unknown" ? "kind not known" : kind.replaceAll("-", " ");
}

function separated(parts) {
  const said = parts.filter((part) => part !== "" && part !== null && part !== undefined);
  return said.flatMap((part, index) => (index ? [" · ", part] : [part]));
}

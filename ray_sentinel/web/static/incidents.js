// The list of incidents, the newest first.
import { chain } from "./chain.js";
import { el, facts, moment } from "./dom.js";
import { isOpen } from "./states.js";

export const INCIDENT = "#incident/"; // and the number: the address of one

export function incidentCard(incident) {
  const id = encodeURIComponent(incident.id);
  const certainty = incident.confidence === null ? "" : `${Math.round(incident.confidence * 100)} %`;
  return el("div", { class: `card${isOpen(incident) ? " open" : ""}` },
    el("h3", {}, el("a", { href: INCIDENT + id }, incident.summary)),
    facts([["job", incident.job], ["kind", incident.kind], ["state", incident.state],
      ["confidence", certainty], ["since", moment(incident.suspected_at)],
      ["files", incident.bundle], ["", el("a", { href: `/incidents/${id}` }, "report")]]), chain(incident));
}

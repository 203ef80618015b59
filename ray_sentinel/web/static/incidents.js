// The list of incidents, the newest first.
import { chain } from "./chain.js";
import { el, facts, moment } from "./dom.js";
import { isOpen } from "./states.js";

export function incidentCard(incident) {
  const certainty = incident.confidence === null ? "" : `${Math.round(incident.confidence * 100)} %`;
  return el("div", { class: `card${isOpen(incident) ? " open" : ""}` },
    el("h3", {}, el("a", { href: `/incidents/${encodeURIComponent(incident.id)}` }, incident.summary)),
    facts([["job", incident.job], ["kind", incident.kind], ["state", incident.state],
      ["confidence", certainty], ["since", moment(incident.suspected_at)],
      ["files", incident.bundle]]), chain(incident));
}

// Who waits for whom, from the one that nobody waits for to the one that holds up all others.
import { age, el } from "./dom.js";

export function chain(incident) {
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
  // Where nobody is to blame, the last is only where knowledge ends.
  if (incident.culprits.length || incident.kind !== "unknown") list.lastElementChild.classList.add("root");
  return list;
}

// The incidents that are over, a row each, the newest first, as far back as the reader goes; and of
// all incidents those of one job, kind or state.
import { ask } from "./api.js";
import { el } from "./dom.js";
import { incidentLink, kindOf } from "./incidents.js";
import { progressOf } from "./states.js";
import { about, ago } from "./times.js";

const PART = 20;
const STATES = { over: "over", open: "open", "": "all", resolved: "resolved", dismissed: "dismissed" };

const filters = { job: "", kind: "", state: "over" };
let rows = [], more = false, known = "", latest = 0, parts = null;

// Looks again where what the page is told each second (`incidents`, `counts`) differs.
export function showPast(incidents, counts) {
  const section = document.getElementById("past");
  section.hidden = counts.all === 0;
  if (section.hidden) return;
  const told = JSON.stringify([counts, incidents.map((one) => [one.id, one.state])]);
  if (told === known) return;
  known = told;
  parts ??= made(section.lastElementChild);
  look();
}

// All that are open, say.
export function showState(state) {
  filters.state = state;
  parts.fields.state.value = state;
  parts.list.scrollIntoView({ block: "center" });
  look();
}

function made(place) {
  const fields = {
    state: select("state", Object.entries(STATES)),
    job: select("job", [["", "all"]]),
    kind: select("kind", [["", "all"]]),
  };
  const list = el("ul", { class: "rows" }), said = el("p", { class: "quiet", role: "status" });
  const older = el("button", { type: "button" }, "Older");
  older.addEventListener("click", () => look(rows.at(-1)?.id));
  place.replaceChildren(el("div", { class: "card" },
    el("div", { class: "filters" }, ...Object.entries(fields).map(([name, field]) => el("label", {}, name, field))),
    list, said, older));
  return { fields, list, said, older };
}

function select(name, options) {
  const field = el("select", {}, ...options.map(([value, text]) => el("option", { value }, text)));
  field.value = filters[name];
  field.addEventListener("change", () => {
    filters[name] = field.value;
    rows = [];
    look();
  });
  return field;
}

// The newest part, or the one before an incident. What an earlier question is answered is not shown.
async function look(before = "") {
  const mine = ++latest;
  const limit = before ? PART : Math.max(PART, Math.min(100, rows.length));
  const asked = { ...filters, before, limit };
  let told;
  try {
    told = await ask(`/api/v1/page/incidents?${new URLSearchParams(asked)}`);
  } catch (error) {
    if (mine === latest) parts.said.textContent = `They cannot be told: ${error.message}`;
    known = ""; // asked again in a second
    return;
  }
  if (mine !== latest) return;
  rows = before ? [...rows, ...told.incidents] : told.incidents;
  more = told.more;
  const all = { job: told.jobs, kind: told.kinds };
  for (const [name, names] of Object.entries(all)) choices(parts.fields[name], names);
  draw();
  const gone = Object.keys(all).filter((name) => filters[name] !== parts.fields[name].value);
  for (const name of gone) filters[name] = "";
  if (gone.length) look(); // of what there is no more, nothing would be found
}

function choices(field, names) {
  const before = field.value;
  if (JSON.stringify([...field.options].slice(1).map((one) => one.value)) !== JSON.stringify(names)) {
    field.replaceChildren(...["", ...names].map((name) => el("option", { value: name }, name || "all")));
  }
  field.value = before;
  if (field.value !== before) field.value = "";
}

function draw() {
  const at = [...parts.list.querySelectorAll("a")].find((one) => one === document.activeElement)?.hash;
  parts.list.replaceChildren(...rows.map(row));
  if (at) [...parts.list.querySelectorAll("a")].find((one) => one.hash === at)?.focus({ preventScroll: true });
  const none = filters.state === "over" && !filters.job && !filters.kind ? "None is over yet." : "None is like that.";
  parts.said.textContent = rows.length ? "" : none;
  parts.older.hidden = !more;
}

function row(one) {
  const lasted = one.resolved_at === null ? progressOf(one) : `${progressOf(one)} after ${about(one.resolved_at - one.suspected_at)}`;
  return el("li", {}, ago(one.suspected_at), el("a", { href: incidentLink(one.id) }, one.summary),
    el("span", { class: "quiet" }, `${one.job} · ${kindOf(one)} · ${lasted}`));
}

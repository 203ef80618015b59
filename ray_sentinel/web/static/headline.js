// The line above all: how it stands, and how old that is.
import { clock, el } from "./dom.js";
import { about, fullTime, zoned } from "./times.js";

const ICONS = { healthy: "good", hung: "bad", slow: "warn", stalled: "warn" };
let answered = null; // the coordinator's time of the last answer, and this browser's

function say(state, text, verdict, time, title = "") {
  document.getElementById("headline").className = state;
  for (const [id, said] of [["state", text], ["verdict", verdict], ["clock", time]]) {
    const node = document.getElementById(id);
    if (node.textContent !== said) node.textContent = said; // else a reader would read it again
  }
  document.getElementById("clock").title = title;
  document.title = `${text} · ray_sentinel`;
  const icon = document.querySelector("link[rel=icon]"), href = ICONS[state] ? `/mark-${ICONS[state]}.svg` : "/mark.svg";
  if (icon.getAttribute("href") !== href) icon.setAttribute("href", href);
}

// `status` has just come.
export function headline(status) {
  answered = { at: status.time, here: performance.now() };
  document.querySelector("main").classList.remove("gone");
  const alike = status.jobs.filter((job) => !job.ended && job.state === status.state).length;
  const text = alike > 1 && status.state !== "healthy" ? `${alike} jobs ${status.state}` : status.state;
  say(status.state, text, status.verdict, zoned(status.time), fullTime(status.time));
}

// It did not come: what is below stays, dimmed, with the time that it is from.
export function unanswered(error) {
  const said = `the coordinator does not answer (${error.message})`;
  if (answered === null) {
    say("unknown", "unknown", `${said}; asking again`, "");
    return;
  }
  document.querySelector("main").classList.add("gone");
  const old = (performance.now() - answered.here) / 1000;
  say("unknown", "unknown", `${said}: what is below is of ${clock(answered.at)}; asking again`,
    `${about(old)} old`, fullTime(answered.at));
}

// It came, but not as this page knows it: from a coordinator of another version, say.
export function undrawn(error) {
  console.error(error);
  document.querySelector("main").classList.add("gone");
  say("unknown", "unknown", `what the coordinator tells cannot be shown (${error.message}): reload the page`, "");
}

// How many things stand in a part of the page.
export function count(id, number) {
  document.getElementById(id).dataset.count = number || "";
}

// Links to the parts of the page that are there now, with how many things stand in them.
function contents() {
  const place = document.getElementById("contents");
  const parts = [...document.querySelectorAll("main section:not(#detail)")].filter((one) => !one.hidden);
  const told = JSON.stringify(parts.map((one) => [one.id, one.dataset.count]));
  if (place.dataset.told === told) return;
  place.dataset.told = told;
  const focused = place.contains(document.activeElement) ? document.activeElement.hash : "";
  place.replaceChildren(...parts.map((one) => el("a", { href: `#${one.id}` }, one.querySelector("h2").textContent,
    one.dataset.count ? el("b", {}, one.dataset.count) : null)));
  if (focused) [...place.children].find((one) => one.hash === focused)?.focus();
}

new MutationObserver(contents).observe(document.querySelector("main"),
  { attributes: true, attributeFilter: ["hidden", "data-count"], subtree: true });

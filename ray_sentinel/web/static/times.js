// Times as people say them: "12 s ago", and on pointing the full time. They are the coordinator's,
// and so is the time that it is now: a browser's clock that is wrong changes nothing.
import { el, TIME } from "./dom.js";

const DAY = { day: "numeric", month: "short", year: "numeric" };
const ZONED = { ...TIME, timeZoneName: "short" };
const HALF_A_DAY = 43_200; // seconds
const whole = new Intl.DateTimeFormat(undefined, { ...DAY, ...ZONED });
const ofDay = new Intl.DateTimeFormat(undefined, ZONED);
const ofDayInUtc = new Intl.DateTimeFormat(undefined, { ...ZONED, timeZone: "UTC" });
const UNITS = [[86400 * 2, 86400, "d"], [3600 * 2, 3600, "h"], [120, 60, "min"], [0, 1, "s"]];

let now = 0;

// With its time zone.
export function zoned(at) {
  return ofDay.format(1000 * at);
}

// In the reader's zone, and in UTC, in which reports and most logs are.
export function fullTime(at) {
  const isUtc = new Date(1000 * at).getTimezoneOffset() === 0;
  return whole.format(1000 * at) + (isUtc ? "" : ` (${ofDayInUtc.format(1000 * at)})`);
}

// The zone of all times of the page.
export function zone() {
  return ofDay.formatToParts(1000 * now).find(({ type }) => type === "timeZoneName").value;
}

// How long that is, in one number.
export function about(seconds) {
  const [, unit, name] = UNITS.find(([least]) => Math.max(0, seconds) >= least);
  return `${Math.round(Math.max(0, seconds) / unit)} ${name}`;
}

// It grows older by itself.
export function ago(at) {
  return el("time", { datetime: new Date(1000 * at).toISOString(), title: fullTime(at), "data-at": at },
    `${about(now - at)} ago`);
}

// The age and the time itself, which a phone or paper cannot point at.
export function agoAt(at) {
  return el("span", {}, ago(at), `, ${Math.abs(now - at) < HALF_A_DAY ? zoned(at) : fullTime(at)}`);
}

// `at` is the coordinator's time now.
export function tick(at) {
  now = at;
  for (const one of document.querySelectorAll("time[data-at]")) {
    const text = `${about(at - Number(one.dataset.at))} ago`;
    if (one.textContent !== text) one.textContent = text;
  }
}

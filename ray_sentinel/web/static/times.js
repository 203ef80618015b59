// Times as people say them: "12 s ago", and on pointing the full time. They are the coordinator's,
// and so is the time that it is now: a browser's clock that is wrong changes nothing.
import { el, TIME } from "./dom.js";

const DAY = { day: "numeric", month: "short", year: "numeric" };
const ZONED = { ...TIME, timeZoneName: "short" };
const whole = new Intl.DateTimeFormat(undefined, { ...DAY, ...ZONED });
const ofDay = new Intl.DateTimeFormat(undefined, ZONED);
const UNITS = [[86400 * 2, 86400, "d"], [3600 * 2, 3600, "h"], [120, 60, "min"], [0, 1, "s"]];

let now = 0;

// With its time zone.
export function zoned(at) {
  return ofDay.format(1000 * at);
}

// In the reader's zone, and in UTC, in which reports and most logs are.
export function fullTime(at) {
  const date = new Date(1000 * at);
  return whole.format(date) + (date.getTimezoneOffset() ? ` (${date.toISOString().slice(11, 19)} UTC)` : "");
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

// `at` is the coordinator's time now.
export function tick(at) {
  now = at;
  for (const one of document.querySelectorAll("time[data-at]")) {
    const text = `${about(at - Number(one.dataset.at))} ago`;
    if (one.textContent !== text) one.textContent = text;
  }
}

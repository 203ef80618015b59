// What a cell says, by its colour and in words: of one rank, or of all that one node has.
import { age } from "./dom.js";
import { tone } from "./states.js";

const TONES = ["good", "idle", "warn", "bad"]; // the worst last
const BEHIND = [[0, "at the front"], [1, "1 step behind"], [3, "2 or 3 behind"], [15, "4 to 15 behind"],
  [Infinity, "16 or more behind"]];

// By what cells are coloured: each look has a number for a rank, the larger the worse, with an ink
// and a name for each number.
export const LOOKS = {
  state: { label: "state", of: (rank) => TONES.indexOf(tone(rank.state)), inks: TONES.map((name) => `${name}-cell`) },
  behind: {
    label: "steps behind",
    of: (rank, front) => (rank.step === null || front === null ? 0
      : 1 + BEHIND.findIndex(([most]) => front - rank.step <= most)),
    inks: ["behind-none", ...BEHIND.map((_, index) => `behind-${index}`)],
    names: ["no step known", ...BEHIND.map(([, name]) => name)],
  },
};

// A unit is a rank, or a list of those of a node.
export const ranksOf = (unit) => (Array.isArray(unit) ? unit : [unit]);

export function lookOf(look, unit, front) {
  if (!Array.isArray(unit)) return look.of(unit, front);
  return unit.reduce((worst, rank) => Math.max(worst, look.of(rank, front)), 0);
}

export function isNamed(unit, accused) {
  return accused.size > 0 && ranksOf(unit).some((rank) => accused.has(rank.rank));
}

export function counted(ranks) {
  const counts = new Map();
  for (const rank of ranks) counts.set(rank.state, (counts.get(rank.state) || 0) + 1);
  return counts;
}

export const inWords = (counts) => [...counts].map(([state, count]) => `${count} ${state}`).join(", ");

export function words(unit, accused, front) {
  return Array.isArray(unit) ? ofNode(unit, accused, front) : ofRank(unit, accused);
}

function ofRank(rank, accused) {
  const told = `rank ${rank.rank} on ${rank.host}, pid ${rank.pid}\nstep ${rank.step ?? "–"}, ` +
    `${rank.phase || "no phase"}, ${rank.state}\nlast step ${age(rank.step_age_seconds)} ago`;
  return accused.has(rank.rank) ? `${told}\nnamed by an incident` : told;
}

function ofNode(ranks, accused, front) {
  const named = ranks.filter((rank) => accused.has(rank.rank)).map((rank) => rank.rank);
  const steps = ranks.map((rank) => rank.step).filter((step) => step !== null);
  const behind = front === null || !steps.length ? 0 : front - steps.reduce((least, step) => Math.min(least, step), Infinity);
  return [`${ranks[0].host}: ${ranks.length === 1 ? "rank" : "ranks"} ${ranges(ranks.map((rank) => rank.rank))}`,
    inWords(counted(ranks)), behind > 0 ? `up to ${behind} ${behind === 1 ? "step" : "steps"} behind` : "",
    named.length ? `named by an incident: ${ranges(named)}` : ""].filter((line) => line).join("\n");
}

// As in "0-2, 5".
export function ranges(numbers) {
  const found = [];
  for (const number of [...numbers].sort((a, b) => a - b)) {
    if (found.length && number - found.at(-1)[1] <= 1) found.at(-1)[1] = number;
    else found.push([number, number]);
  }
  return found.map(([from, to]) => (from === to ? from : `${from}-${to}`)).join(", ");
}

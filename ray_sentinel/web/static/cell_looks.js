// What a cell says, by its colour and in words: of one rank, or of all that one node has.
import { hatched, mixed } from "./canvas.js";
import { age } from "./dom.js";
import { tone } from "./states.js";

const TONES = ["good", "idle", "warn", "bad"]; // the worst last
const BEHIND = [[0, "at the front"], [1, "1 step behind"], [3, "2 or 3 behind"], [15, "4 to 15 behind"],
  [Infinity, "16 or more behind"]];

const BEHIND_INKS = ["behind-none", ...BEHIND.map((_, index) => `behind-${index}`)];
const SHADES = [6, 13, 21, 30, 40, 51, 63, 75, 88, 100]; // per cent of the full colour, as in the style sheet
export const LATE = "not reported for more than 30 s";
const STALE = -1, OLD = SHADES.length + 1; // as the coordinator tells it, and its number here

// By what cells are coloured: each look has a number for a rank, the larger the worse, and for each
// number what a cell is filled with, one over the other, and a name. `front` is the job's step,
// `levels` how many levels there are of what its GPUs do.
export const LOOKS = {
  state: { label: "state", of: (rank) => TONES.indexOf(tone(rank.state)), fills: (ink) => TONES.map((name) => [ink(`${name}-cell`)]) },
  behind: {
    label: "steps behind",
    of: (rank, { front }) => (rank.step === null || front === null ? 0
      : 1 + BEHIND.findIndex(([most]) => front - rank.step <= most)),
    inks: BEHIND_INKS,
    fills: (ink) => BEHIND_INKS.map((name) => [ink(name)]),
    names: ["no step known", ...BEHIND.map(([, name]) => name)],
  },
  utilisation: ofGpu("utilisation", "GPU utilisation", (value) => `${Math.round(100 * value)} %`),
  power: ofGpu("power", "GPU power", (value) => `${Math.round(value)} W`),
};

// The least is the worst: a GPU that does nothing while others work. What is not known is no worse
// than anything, and what has not been reported lately is the worst of all.
function ofGpu(quantity, label, long) {
  return {
    label, quantity, long,
    of: ({ level }, { levels }) => (level === null ? 0 : level === STALE ? OLD
      : SHADES.length - Math.min(SHADES.length - 1, Math.floor(SHADES.length * (level + 0.5) / levels))),
    fills: (ink, context) => [[ink("soft")], ...SHADES.map((share) => [mixed(ink(`hot-${quantity}`), ink("soft"), share)]).reverse(),
      [ink("soft"), hatched(context, ink("quiet"))]],
    shades: SHADES.map((share) => `color-mix(in srgb, var(--hot-${quantity}) ${share}%, var(--soft))`),
  };
}

// What the numbers of a job's ranks depend on. Of a ratio there are as many levels as it has; of
// watts as many as the ranks need, up to 100 W at least.
export function scaleOf({ step, ranks, levels }) {
  const most = ranks.reduce((all, { level }) => Math.max(all, level ?? 0), 0);
  return { front: step, levels: levels?.quantity === "utilisation" ? Math.round(1 / levels.width) : Math.max(2, most + 1) };
}

// How many ranks have each number of a look; of a GPU's, the first are not known, and the last old.
export function lookCounts(look, ranks, scale) {
  const counts = Array(OLD + 1).fill(0);
  for (const rank of ranks) counts[look.of(rank, scale)] += 1;
  return counts;
}

// A unit is a rank, or a list of those of a node.
export const ranksOf = (unit) => (Array.isArray(unit) ? unit : [unit]);

export function lookOf(look, unit, scale) {
  if (!Array.isArray(unit)) return look.of(unit, scale);
  return unit.reduce((worst, rank) => Math.max(worst, look.of(rank, scale)), 0);
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

// `levels` say what the levels of ranks mean, where they are known.
export function words(unit, { accused, levels, scale: { front } }) {
  const told = Array.isArray(unit) ? ofNode(unit, accused, front) : ofRank(unit, accused);
  return levels ? `${told}\n${ofGpus(ranksOf(unit), levels)}` : told;
}

function ofGpus(ranks, { quantity, width }) {
  const { label, long } = LOOKS[quantity], known = ranks.map(({ level }) => level).filter((level) => level !== null && level !== STALE);
  const old = ranks.filter(({ level }) => level === STALE).length;
  const range = known.length ? `${long(width * Math.min(...known))} to ${long(width * (1 + Math.max(...known)))}` : "";
  return `${label}: ${[range, old ? LATE : ""].filter((part) => part).join(", ") || "not known"}`;
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

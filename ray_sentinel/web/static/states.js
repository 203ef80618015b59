// The states of ranks, processes, jobs and incidents as colours.

const TONES = {
  running: "good", waiting: "idle", exited: "bad", stopped: "bad", "gil-held": "bad",
  blocked: "bad", silent: "warn", starved: "warn", paused: "warn",
};

export function tone(state) {
  return TONES[state] || "idle";
}

export function isWell(one) {
  return ["good", "idle"].includes(tone(one.state));
}

export function isOpen(incident) {
  return !["resolved", "dismissed"].includes(incident.state);
}

export function jobTone(state) {
  return { hung: "t-bad", stalled: "t-warn", slow: "t-warn", healthy: "t-good" }[state] || "quiet";
}

const PROGRESS = {
  suspected: "suspected", confirmed: "going on", captured: "going on, evidence saved",
  explained: "going on, evidence saved", resolved: "over", dismissed: "dismissed",
};

// How far an incident is, in words.
export function progressOf({ state }) {
  return PROGRESS[state] || state;
}

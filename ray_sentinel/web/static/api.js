// Questions to the coordinator.
import { change } from "./changes.js";

const TIMEOUT = 5; // seconds
const HIDDEN_SECONDS = 5; // between two questions while nobody sees the page
// Streams of all tabs of this browser: it opens six connections to one server at most, and a stream
// keeps one of them.
const STREAMS = 3;
const SHORT_SECONDS = 2; // until a stream is tried again, and twice as long each time, up to
const LONG_SECONDS = 60;

export async function ask(path, kind = "json", seconds = TIMEOUT) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(1000 * seconds) });
  if (answer.status === 401) throw new Error("open the link that `ray-sentinel status` prints");
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer[kind]();
}

// Asks again and again, each time `seconds` after the last answer, less often while nobody sees the
// page, and at once when somebody does again. A failure is passed to `failed`.
export async function poll(seconds, look, failed = () => {}) {
  for (;;) {
    await attempt(look, failed);
    await rest(seconds);
  }
}

// Calls `take` with all that the page shows, each time that it may have changed: by a stream of
// changes, or without one by asking once a second. `take` must leave it as it is. `query` says what is
// asked for besides; `followAnew` is called when that is something else.
export async function follow(take, failed, query) {
  let pause = SHORT_SECONDS;
  for (;;) {
    const ended = await inTurn(() => stream(take, query())).catch(() => null); // where locks are refused, too
    if (ended?.told) pause = SHORT_SECONDS;
    if (ended?.isAnew) continue;
    const again = performance.now() + 1000 * pause;
    pause = Math.min(2 * pause, LONG_SECONDS);
    // A coordinator that is back is followed at once.
    let well, wasWell = true;
    do {
      well = await attempt(async () => take(await ask(`/api/v1/page${query()}`)), failed);
      if (well && !wasWell) break;
      wasWell = well;
      await rest(1);
    } while (!well || performance.now() < again);
  }
}

async function attempt(look, failed) {
  try {
    await look();
    return true;
  } catch (error) {
    failed(error);
    return false;
  }
}

function rest(seconds) {
  return new Promise((done) => {
    const isHidden = document.hidden, waking = new AbortController();
    const end = () => { clearTimeout(timer); waking.abort(); done(); };
    const timer = setTimeout(end, 1000 * (isHidden ? Math.max(seconds, HIDDEN_SECONDS) : seconds));
    if (isHidden) document.addEventListener("visibilitychange", end, { signal: waking.signal });
  });
}

// Runs one of the streams that this browser may have; null if others have them, or if it
// cannot be known.
async function inTurn(run) {
  for (let number = 0; navigator.locks && number < STREAMS; number++) {
    const ended = await navigator.locks.request(`stream ${number}`, { ifAvailable: true }, (mine) => mine && run());
    if (ended !== null) return ended;
  }
  return null;
}

let anew = () => {}; // ends the stream

export const followAnew = () => anew();

// Runs until the stream ends or falls silent, or is to be another one: `told` says whether anything
// came. The levels of ranks come just before the page to which they belong.
function stream(take, query) {
  return new Promise((done) => {
    const source = new EventSource(`/api/v1/live${query}`);
    let page = null, levels, watch = 0;
    const end = (isAnew) => { clearTimeout(watch); source.close(); done({ told: page !== null, isAnew }); };
    const listen = () => { clearTimeout(watch); watch = setTimeout(end, 1000 * TIMEOUT, false); };
    const hear = (name, take) => source.addEventListener(name, (event) => {
      listen();
      take(JSON.parse(event.data));
    });
    const show = (told) => take({ ...(page = told), levels });
    hear("levels", (told) => { levels = told; });
    hear("level-change", (told) => change(levels, told));
    hear("whole", show);
    hear("change", (told) => show(change(page, told)));
    source.addEventListener("error", () => end(false));
    anew = () => end(true);
    listen();
  });
}

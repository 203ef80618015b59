// Questions to the coordinator.

export async function ask(path, kind = "json") {
  const answer = await fetch(path, { signal: AbortSignal.timeout(5000) });
  if (answer.status === 401) throw new Error("open the link that `ray-sentinel status` prints");
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer[kind]();
}

// Asks again and again, each time `seconds` after the last answer, and less often while nobody sees
// the page. A failure is told to `failed`.
export function poll(seconds, look, failed = () => {}) {
  async function turn() {
    try {
      await look();
    } catch (error) {
      failed(error);
    }
    setTimeout(turn, 1000 * (document.hidden ? Math.max(seconds, 5) : seconds));
  }
  turn();
}

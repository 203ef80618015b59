// What a rank wrote last, read on its node when the reader asks for it.
import { ask } from "./api.js";
import { el } from "./dom.js";

const SECONDS = 20; // its node may be slow to answer

// `question` says which rank, as the path's query: what was read of it stays over new drawings.
export function lastOutput(question) {
  const button = el("button", { type: "button" }, "Read its last output");
  const said = el("span", { class: "quiet", role: "status" }), place = el("div");
  button.addEventListener("click", async () => {
    button.disabled = true;
    said.textContent = "Its node is asked…";
    const told = await ask(`/api/v1/page/output?${question}`, "json", SECONDS).catch((error) => ({ error: error.message }));
    button.disabled = false;
    button.textContent = "Read it again";
    said.textContent = told.error ? `It cannot be read: ${told.error}.` : `As of ${new Date().toLocaleTimeString()}${told.ended ? ", of a process that has ended" : ""}.`;
    if (told.error) return;
    place.replaceChildren(...shown(told));
    const text = place.querySelector("pre");
    if (text) text.scrollTop = text.scrollHeight; // what came last
  });
  return el("div", { "data-keep": `output ${question}` }, el("p", { class: "actions" }, button, said), place);
}

function shown({ text, missing, sources, shared }) {
  const notes = [...(shared ? ["Other ranks write to the same file."] : []), ...(missing ? [`Missing: ${missing}.`] : [])];
  return [...(text ? [el("pre", { tabindex: 0, "aria-label": "its last output" }, text)] : []),
    ...(text ? [] : sources.map((source) => el("p", { class: "quiet" }, source))), ...notes.map((note) => el("p", { class: "quiet" }, note))];
}
